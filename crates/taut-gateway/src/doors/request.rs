//! What a client of a proxy asks for, and what it hears: SOCKS5 (RFC 1928, 1929) and HTTP CONNECT (RFC 9110
//! §9.3.6), told apart by the first byte.
//!
//! | what became of the connection | SOCKS5 reply | HTTP status |
//! |---|---|---|
//! | it is there | 0 | 200 |
//! | refused | 5 | 502 |
//! | host unreachable, no such name | 4 | 502 |
//! | network unreachable | 3 | 502 |
//! | prohibited by a rule | 2 | 403 |
//! | no answer | 6 | 504 |
//! | this host has no descriptor or memory left | 1 | 503 |
//!
//! No byte behind the request is read here: it is the destination's. So the head of an HTTP request is read
//! byte by byte, and is 8 KiB long at most. Other commands and methods are answered and not served.

use std::io::{self, ErrorKind};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};

use crate::logic::flow::Failure;

/// The longest request, up to its empty line.
const LONGEST_HEAD: usize = 8_192;
const SOCKS5: u8 = 5;
const NO_LOGIN: u8 = 0;
const LOGIN: u8 = 2;
const NO_METHOD: u8 = 0xff;

/// Name and password that clients must have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Login {
    /// The name.
    pub name: String,
    /// The password.
    pub password: String,
}

/// Where a client wants to go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Destination {
    Address(SocketAddr),
    Name(String, u16),
}

/// How it asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asked {
    Socks5,
    Http,
    /// It did not ask: its connection was made for the destination itself.
    Transparent,
}

/// Reads a request. What is none, or is not served, has its answer when this returns an error.
pub(crate) async fn read(
    stream: &mut (impl AsyncRead + AsyncWrite + Unpin + Send),
    login: Option<&Login>,
) -> io::Result<(Asked, Destination)> {
    let first = stream.read_u8().await?;
    if first == SOCKS5 {
        Ok((Asked::Socks5, socks5(stream, login).await?))
    } else {
        Ok((Asked::Http, http(stream, first, login).await?))
    }
}

async fn socks5(
    stream: &mut (impl AsyncRead + AsyncWrite + Unpin + Send),
    login: Option<&Login>,
) -> io::Result<Destination> {
    let mut methods = vec![0; stream.read_u8().await?.into()];
    stream.read_exact(&mut methods).await?;
    let wanted = if login.is_some() { LOGIN } else { NO_LOGIN };
    if !methods.contains(&wanted) {
        stream.write_all(&[SOCKS5, NO_METHOD]).await?;
        return Err(ErrorKind::PermissionDenied.into());
    }
    stream.write_all(&[SOCKS5, wanted]).await?;
    if let Some(login) = login {
        _ = stream.read_u8().await?;
        let (name, password) = (text(stream).await?, text(stream).await?);
        let is_right = same(&name, login.name.as_bytes()) & same(&password, login.password.as_bytes());
        stream.write_all(&[1, u8::from(!is_right)]).await?;
        if !is_right {
            return Err(ErrorKind::PermissionDenied.into());
        }
    }
    let mut head = [0; 4];
    stream.read_exact(&mut head).await?;
    let [version, command, _, kind] = head;
    if version != SOCKS5 {
        return Err(ErrorKind::InvalidData.into());
    }
    let mut host = None;
    let ip = match kind {
        1 => {
            let mut octets = [0; 4];
            stream.read_exact(&mut octets).await?;
            IpAddr::from(Ipv4Addr::from(octets))
        }
        4 => {
            let mut octets = [0; 16];
            stream.read_exact(&mut octets).await?;
            IpAddr::from(Ipv6Addr::from(octets))
        }
        3 => {
            host = Some(String::from_utf8_lossy(&text(stream).await?).into_owned());
            IpAddr::from(Ipv4Addr::UNSPECIFIED)
        }
        _ => return refuse(stream, &reply(8), ErrorKind::InvalidData).await,
    };
    let port = stream.read_u16().await?;
    // CONNECT; neither BIND nor UDP.
    if command != 1 {
        return refuse(stream, &reply(7), ErrorKind::Unsupported).await;
    }
    Ok(match host {
        Some(host) => named(host, port),
        None => Destination::Address(SocketAddr::new(ip, port)),
    })
}

/// A byte with a length, and so many bytes.
async fn text(stream: &mut (impl AsyncRead + Unpin + Send)) -> io::Result<Vec<u8>> {
    let mut text = vec![0; stream.read_u8().await?.into()];
    stream.read_exact(&mut text).await?;
    Ok(text)
}

/// Compares all bytes, wherever they differ: the time must not tell how many were right.
fn same(given: &[u8], right: &[u8]) -> bool {
    let differ = given.iter().zip(right).fold(0, |differ, (a, b)| differ | (a ^ b));
    differ == 0 && given.len() == right.len()
}

async fn refuse<T>(
    stream: &mut (impl AsyncWrite + Unpin + Send),
    answer: &[u8],
    why: ErrorKind,
) -> io::Result<T> {
    stream.write_all(answer).await?;
    Err(why.into())
}

/// An address in the place of a name is an address.
fn named(host: String, port: u16) -> Destination {
    match host.parse() {
        Ok(ip) => Destination::Address(SocketAddr::new(ip, port)),
        Err(_) => Destination::Name(host, port),
    }
}

async fn http(
    stream: &mut (impl AsyncRead + AsyncWrite + Unpin + Send),
    first: u8,
    login: Option<&Login>,
) -> io::Result<Destination> {
    let mut head = vec![first];
    while !head.ends_with(b"\r\n\r\n") {
        if head.len() >= LONGEST_HEAD {
            return refuse(
                stream,
                &answer_http("431 Request Header Fields Too Large", ""),
                ErrorKind::InvalidData,
            )
            .await;
        }
        head.push(stream.read_u8().await?);
        // What does not begin like a method is no HTTP, and may never have an empty line.
        if head.len() <= 3 && !head.last().is_some_and(u8::is_ascii_uppercase) {
            return refuse(stream, &answer_http("400 Bad Request", ""), ErrorKind::InvalidData).await;
        }
    }
    let head = String::from_utf8_lossy(&head).into_owned();
    let mut lines = head.split("\r\n");
    let mut words = lines.next().unwrap_or_default().split(' ');
    let (method, target, version) = (words.next(), words.next().unwrap_or_default(), words.next());
    if !version.is_some_and(|version| version.starts_with("HTTP/1.")) {
        return refuse(stream, &answer_http("400 Bad Request", ""), ErrorKind::InvalidData).await;
    }
    if method != Some("CONNECT") {
        let answer = answer_http("405 Method Not Allowed", "Allow: CONNECT\r\n");
        return refuse(stream, &answer, ErrorKind::Unsupported).await;
    }
    if let Some(login) = login {
        let right = format!("Basic {}", base64(format!("{}:{}", login.name, login.password).as_bytes()));
        let given = lines
            .filter_map(|line| line.split_once(':'))
            .find(|(name, _)| name.eq_ignore_ascii_case("proxy-authorization"))
            .map(|(_, value)| value.trim());
        if !given.is_some_and(|given| same(given.as_bytes(), right.as_bytes())) {
            let field = "Proxy-Authenticate: Basic realm=\"taut\"\r\n";
            let answer = answer_http("407 Proxy Authentication Required", field);
            return refuse(stream, &answer, ErrorKind::PermissionDenied).await;
        }
    }
    let place = target.rsplit_once(':').and_then(|(host, port)| Some((host, port.parse::<u16>().ok()?)));
    match place {
        Some((host, port)) if !host.is_empty() && port > 0 => {
            let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
            Ok(named(host.to_owned(), port))
        }
        _ => refuse(stream, &answer_http("400 Bad Request", ""), ErrorKind::InvalidData).await,
    }
}

fn answer_http(status: &str, fields: &str) -> Vec<u8> {
    format!("HTTP/1.1 {status}\r\n{fields}Content-Length: 0\r\nConnection: close\r\n\r\n").into_bytes()
}

/// The address from which the proxy connects is nobody's affair.
const fn reply(code: u8) -> [u8; 10] {
    [SOCKS5, code, 0, 1, 0, 0, 0, 0, 0, 0]
}

/// What a client hears.
pub(crate) fn answer(asked: Asked, became: Result<(), Failure>) -> Vec<u8> {
    match asked {
        Asked::Transparent => Vec::new(),
        Asked::Socks5 => reply(match became {
            Ok(()) => 0,
            Err(Failure::NoResources) => 1,
            Err(Failure::Prohibited) => 2,
            Err(Failure::NetworkUnreachable) => 3,
            Err(Failure::HostUnreachable) => 4,
            Err(Failure::Refused) => 5,
            Err(Failure::TimedOut) => 6,
        })
        .to_vec(),
        Asked::Http => match became {
            Ok(()) => b"HTTP/1.1 200 Connection established\r\n\r\n".to_vec(),
            Err(Failure::Prohibited) => answer_http("403 Forbidden", ""),
            Err(Failure::NoResources) => answer_http("503 Service Unavailable", ""),
            Err(Failure::TimedOut) => answer_http("504 Gateway Timeout", ""),
            Err(Failure::Refused | Failure::HostUnreachable | Failure::NetworkUnreachable) => {
                answer_http("502 Bad Gateway", "")
            }
        },
    }
}

/// RFC 4648 §4.
fn base64(bytes: &[u8]) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for part in bytes.chunks(3) {
        let bits =
            part.iter().fold(0_u32, |bits, byte| bits << 8 | u32::from(*byte)) << (8 * (3 - part.len()));
        for at in 0..4 {
            let letter = LETTERS[(bits >> (18 - 6 * at) & 63) as usize];
            text.push(if at <= part.len() { letter as char } else { '=' });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use tokio::io::duplex;

    use super::*;

    /// What is read of these bytes, what is answered, and what is left for the destination.
    fn of(bytes: &[u8], login: Option<&Login>) -> (io::Result<(Asked, Destination)>, Vec<u8>, Vec<u8>) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let (mut client, mut proxy) = duplex(100_000);
            client.write_all(bytes).await.unwrap();
            client.shutdown().await.unwrap();
            let asked = read(&mut proxy, login).await;
            let mut left = Vec::new();
            proxy.read_to_end(&mut left).await.unwrap();
            drop(proxy);
            let mut answered = Vec::new();
            client.read_to_end(&mut answered).await.unwrap();
            (asked, answered, left)
        })
    }

    fn address(text: &str) -> Destination {
        Destination::Address(text.parse().unwrap())
    }

    #[test]
    fn px_1_requests_of_socks5_and_what_follows_them() {
        // RFC 1928 §3, 4: one method, none; CONNECT to an IPv4 address, a name, an IPv6 address.
        let connect = |rest: &[u8]| [&[5, 1, 0, 5, 1, 0], rest].concat();
        let v6: Vec<u8> = "2001:db8::1".parse::<Ipv6Addr>().unwrap().octets().to_vec();
        for (rest, expected) in [
            (vec![1, 192, 0, 2, 1, 0x1f, 0x90], address("192.0.2.1:8080")),
            ([&[4][..], &v6, &[0, 80]].concat(), address("[2001:db8::1]:80")),
            ([&[3, 11][..], b"example.com", &[0, 80]].concat(), Destination::Name("example.com".into(), 80)),
            ([&[3, 9][..], b"192.0.2.1", &[0, 80]].concat(), address("192.0.2.1:80")),
        ] {
            let (asked, answered, left) = of(&[connect(&rest), b"early".to_vec()].concat(), None);
            assert_eq!(asked.unwrap(), (Asked::Socks5, expected));
            assert_eq!((answered.as_slice(), left.as_slice()), (&[5, 0][..], &b"early"[..]));
        }
        // No method that is served; another command; another kind of address.
        let (asked, answered, _) = of(&[5, 1, 2], None);
        assert_eq!((asked.unwrap_err().kind(), answered), (ErrorKind::PermissionDenied, vec![5, 0xff]));
        for (command, kind, code) in [(2, 1, 7), (3, 1, 7), (1, 2, 8)] {
            let (asked, answered, _) = of(&[5, 1, 0, 5, command, 0, kind, 1, 2, 3, 4, 0, 80], None);
            asked.unwrap_err();
            assert_eq!(answered[2..], [5, code, 0, 1, 0, 0, 0, 0, 0, 0]);
        }
        // RFC 1929: name and password.
        let login = Login { name: "n".into(), password: "pw".into() };
        let with = |password: &[u8]| {
            let greeting = [&[5, 2, 0, 2, 1, 1, b'n', password.len() as u8], password].concat();
            of(&[greeting, vec![5, 1, 0, 1, 192, 0, 2, 1, 0, 80]].concat(), Some(&login))
        };
        let (asked, answered, _) = with(b"pw");
        assert_eq!((asked.unwrap().1, answered), (address("192.0.2.1:80"), vec![5, 2, 1, 0]));
        for wrong in [&b"pW"[..], b"p", b"pw2", b""] {
            let (asked, answered, _) = with(wrong);
            assert_eq!(
                (asked.unwrap_err().kind(), answered),
                (ErrorKind::PermissionDenied, vec![5, 2, 1, 1])
            );
        }
    }

    #[test]
    fn px_2_requests_of_http_and_what_follows_them() {
        let login = Login { name: "Aladdin".into(), password: "open sesame".into() };
        for (target, expected) in [
            ("192.0.2.1:443", address("192.0.2.1:443")),
            ("[2001:db8::1]:443", address("[2001:db8::1]:443")),
            ("example.com:443", Destination::Name("example.com".into(), 443)),
        ] {
            let request = format!("CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\nearly");
            let (asked, answered, left) = of(request.as_bytes(), None);
            assert_eq!(asked.unwrap(), (Asked::Http, expected));
            assert_eq!((answered.len(), left.as_slice()), (0, &b"early"[..]));
        }
        let long = format!("CONNECT a:1 HTTP/1.1\r\nX: {}\r\n\r\n", "x".repeat(LONGEST_HEAD));
        for (request, status) in [
            ("GET http://example.com/ HTTP/1.1\r\n\r\n", "405"),
            ("CONNECT example.com HTTP/1.1\r\n\r\n", "400"),
            ("CONNECT example.com:0 HTTP/1.1\r\n\r\n", "400"),
            ("CONNECT :80 HTTP/1.1\r\n\r\n", "400"),
            ("CONNECT a:80\r\n\r\n", "400"),
            ("\u{16}\u{3}\u{1}\u{2}", "400"),
            (&long, "431"),
        ] {
            let (asked, answered, _) = of(request.as_bytes(), None);
            asked.unwrap_err();
            assert!(answered.starts_with(format!("HTTP/1.1 {status} ").as_bytes()), "{request}");
        }
        // The example of RFC 7617 §2.
        for (given, is_right) in [
            ("Proxy-Authorization: Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==\r\n", true),
            ("proxy-authorization:Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==\r\n", true),
            ("Proxy-Authorization: Basic QWxhZGRpbjpvcGVuIHNlc2FtZg==\r\n", false),
            ("", false),
        ] {
            let request = format!("CONNECT a:80 HTTP/1.1\r\n{given}\r\n");
            let (asked, answered, _) = of(request.as_bytes(), Some(&login));
            assert_eq!(asked.is_ok(), is_right, "{given}");
            assert_eq!(answered.starts_with(b"HTTP/1.1 407 "), !is_right);
        }
    }

    #[test]
    fn px_3_what_a_client_hears() {
        let code = |why| answer(Asked::Socks5, Err(why))[1];
        assert_eq!(answer(Asked::Socks5, Ok(())), [5, 0, 0, 1, 0, 0, 0, 0, 0, 0]);
        let all = [
            (Failure::NoResources, 1, "503"),
            (Failure::Prohibited, 2, "403"),
            (Failure::NetworkUnreachable, 3, "502"),
            (Failure::HostUnreachable, 4, "502"),
            (Failure::Refused, 5, "502"),
            (Failure::TimedOut, 6, "504"),
        ];
        for (why, reply, status) in all {
            assert_eq!(code(why), reply, "{why:?}");
            let text = String::from_utf8(answer(Asked::Http, Err(why))).unwrap();
            assert!(text.starts_with(&format!("HTTP/1.1 {status} ")), "{text}");
        }
        assert!(answer(Asked::Transparent, Err(Failure::Refused)).is_empty());
    }

    /// No bytes make it wait for more than they may be, or end in a panic.
    #[test]
    fn px_4_damaged_requests_end() {
        let whole: [&[u8]; 3] = [
            &[5, 1, 0, 5, 1, 0, 1, 192, 0, 2, 1, 0, 80],
            b"CONNECT example.com:80 HTTP/1.1\r\nHost: a\r\n\r\n",
            &[5, 2, 0, 2, 1, 1, b'n', 1, b'p', 5, 1, 0, 3, 1, b'a', 0, 80],
        ];
        let login = Login { name: "n".into(), password: "p".into() };
        let mut noise = taut_testbed::Noise::new(7);
        for bytes in whole {
            for len in 0..bytes.len() {
                of(&bytes[..len], Some(&login)).0.unwrap_err();
            }
            for _ in 0..300 {
                let (mut damaged, random) = (bytes.to_vec(), noise.bytes(2));
                let at = usize::from(random[0]) % damaged.len();
                damaged[at] = random[1];
                _ = of(&damaged, None);
            }
        }
    }
}
