//! Requests of a proxy's clients, and their answers: SOCKS5 (RFC 1928, 1929), SOCKS4 with names (SOCKS4a),
//! HTTP CONNECT (RFC 9110 §9.3.6) and requests of HTTP whose target is a whole URL (RFC 9112 §3.2.2), told
//! apart by the first byte.
//!
//! | what became of the connection | SOCKS5 reply | SOCKS4 | HTTP status |
//! |---|---|---|---|
//! | it is there | 0 | 90 | 200; of a request for a URL the server's own |
//! | refused | 5 | 91 | 502 |
//! | host unreachable, no such name | 4 | 91 | 502 |
//! | network unreachable | 3 | 91 | 502 |
//! | prohibited by a rule | 2 | 91 | 403 |
//! | no answer | 6 | 91 | 504 |
//! | this host has no descriptor or memory left | 1 | 91 | 503 |
//!
//! No byte behind the request is read here: it is the destination's. So the head of an HTTP request is read
//! byte by byte, and is 8 KiB long at most. Other commands are answered and not served.
//!
//! **A request for a URL** is passed on with its path as the target and without the fields that are for the
//! proxy (RFC 9110 §7.6.1). `Connection: close` is added: the next request may be for another server.

use std::io::{self, ErrorKind};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};

use crate::logic::flow::Failure;

/// The longest request, up to its empty line.
const LONGEST_HEAD: usize = 8_192;
const SOCKS4: u8 = 4;
const SOCKS5: u8 = 5;
/// The longest name, and the longest user, of a SOCKS4 request.
const LONGEST_WORD: usize = 255;
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
    Socks4,
    Socks5,
    Http,
    /// For a URL: the server answers.
    Url,
    /// It did not ask: its connection was made for the destination itself.
    Transparent,
}

/// A client's request: how it was made, and its destination.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Request {
    pub(crate) asked: Asked,
    pub(crate) to: Destination,
    /// Bytes for the destination, before those that follow the request.
    pub(crate) head: Vec<u8>,
}

impl Request {
    pub(crate) const fn new(asked: Asked, to: Destination) -> Self {
        Self { asked, to, head: Vec::new() }
    }
}

/// Reads a request. What is none, or is not served, has its answer when this returns an error.
pub(crate) async fn read(
    stream: &mut (impl AsyncRead + AsyncWrite + Unpin + Send),
    login: Option<&Login>,
) -> io::Result<Request> {
    match stream.read_u8().await? {
        SOCKS4 => Ok(Request::new(Asked::Socks4, socks4(stream, login).await?)),
        SOCKS5 => Ok(Request::new(Asked::Socks5, socks5(stream, login).await?)),
        first => http(stream, first, login).await,
    }
}

/// SOCKS4 has no passwords, so it is refused where there is a login.
async fn socks4(
    stream: &mut (impl AsyncRead + AsyncWrite + Unpin + Send),
    login: Option<&Login>,
) -> io::Result<Destination> {
    let (command, port) = (stream.read_u8().await?, stream.read_u16().await?);
    let mut octets = [0; 4];
    stream.read_exact(&mut octets).await?;
    _ = word(stream).await?;
    // 0.0.0.x stands for the name that follows.
    let host = match octets {
        [0, 0, 0, last] if last > 0 => Some(String::from_utf8_lossy(&word(stream).await?).into_owned()),
        _ => None,
    };
    if login.is_some() {
        return refuse(stream, &reply4(false), ErrorKind::PermissionDenied).await;
    }
    if command != 1 {
        return refuse(stream, &reply4(false), ErrorKind::Unsupported).await;
    }
    Ok(match host {
        Some(host) => named(host, port),
        None => Destination::Address(SocketAddr::new(octets.into(), port)),
    })
}

/// Bytes that end with a zero.
async fn word(stream: &mut (impl AsyncRead + Unpin + Send)) -> io::Result<Vec<u8>> {
    let mut word = Vec::new();
    loop {
        match stream.read_u8().await? {
            0 => return Ok(word),
            _ if word.len() == LONGEST_WORD => return Err(ErrorKind::InvalidData.into()),
            byte => word.push(byte),
        }
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
) -> io::Result<Request> {
    let mut head = vec![first];
    while !head.ends_with(b"\r\n\r\n") {
        if head.len() >= LONGEST_HEAD {
            let answer = answer_http("431 Request Header Fields Too Large", "");
            return refuse(stream, &answer, ErrorKind::InvalidData).await;
        }
        head.push(stream.read_u8().await?);
        // What does not begin like a method is no HTTP, and may never have an empty line.
        if head.len() <= 3 && !head.last().is_some_and(u8::is_ascii_uppercase) {
            return refuse(stream, &answer_http("400 Bad Request", ""), ErrorKind::InvalidData).await;
        }
    }
    match understood(&String::from_utf8_lossy(&head), login) {
        Ok(request) => Ok(request),
        Err((status, field, why)) => refuse(stream, &answer_http(status, field), why).await,
    }
}

/// The request, or the status and the field that say why it is none.
fn understood(head: &str, login: Option<&Login>) -> Result<Request, (&'static str, &'static str, ErrorKind)> {
    const BAD: (&str, &str, ErrorKind) = ("400 Bad Request", "", ErrorKind::InvalidData);
    let (line, fields) = head.split_once("\r\n").ok_or(BAD)?;
    let mut words = line.split(' ');
    let (method, target) = (words.next().ok_or(BAD)?, words.next().ok_or(BAD)?);
    if !words.next().is_some_and(|version| version.starts_with("HTTP/1.")) {
        return Err(BAD);
    }
    if let Some(login) = login {
        let right = format!("Basic {}", base64(format!("{}:{}", login.name, login.password).as_bytes()));
        let given = fields
            .split("\r\n")
            .filter_map(|line| line.split_once(':'))
            .find(|(name, _)| name.eq_ignore_ascii_case("proxy-authorization"))
            .map(|(_, value)| value.trim());
        if !given.is_some_and(|given| same(given.as_bytes(), right.as_bytes())) {
            let field = "Proxy-Authenticate: Basic realm=\"taut\"\r\n";
            return Err(("407 Proxy Authentication Required", field, ErrorKind::PermissionDenied));
        }
    }
    if method == "CONNECT" {
        return Ok(Request::new(Asked::Http, place(target, None).ok_or(BAD)?));
    }
    let Some(rest) = target.strip_prefix("http://") else {
        let is_path = target.starts_with('/') || target == "*";
        let only = ("405 Method Not Allowed", "Allow: CONNECT\r\n", ErrorKind::Unsupported);
        return Err(if is_path { only } else { BAD });
    };
    let (authority, path) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
    let slash = if path.starts_with('/') { "" } else { "/" };
    // A login of the URL is the client's matter (RFC 9110 §4.2.4).
    let authority = authority.rsplit_once('@').map_or(authority, |(_, authority)| authority);
    let to = place(authority, Some(80)).ok_or(BAD)?;
    let path = path.split('#').next().unwrap_or_default();
    let mut head = format!("{method} {slash}{path} HTTP/1.1\r\nHost: {authority}\r\n");
    let name = |field: &str| field.split(':').next().unwrap_or_default().to_ascii_lowercase();
    let is_upgrade = fields.split("\r\n").any(|field| name(field) == "upgrade");
    for field in fields.split("\r\n").filter(|field| !field.is_empty()) {
        let name = name(field);
        let is_for_proxy =
            matches!(&*name, "proxy-authorization" | "proxy-connection" | "host" | "keep-alive");
        if !is_for_proxy && (is_upgrade || name != "connection") {
            head.push_str(field);
            head.push_str("\r\n");
        }
    }
    if !is_upgrade {
        head.push_str("Connection: close\r\n");
    }
    head.push_str("\r\n");
    Ok(Request { asked: Asked::Url, to, head: head.into_bytes() })
}

/// Host and port.
fn place(authority: &str, port: Option<u16>) -> Option<Destination> {
    let split = authority.rsplit_once(':').filter(|(_, port)| !port.ends_with(']'));
    let (host, port) = match split {
        Some((host, text)) => (host, text.parse().ok()?),
        None => (authority, port?),
    };
    let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    (!host.is_empty() && port > 0).then(|| named(host.to_owned(), port))
}

fn answer_http(status: &str, fields: &str) -> Vec<u8> {
    format!("HTTP/1.1 {status}\r\n{fields}Content-Length: 0\r\nConnection: close\r\n\r\n").into_bytes()
}

/// The address from which the proxy connects is nobody's affair.
const fn reply(code: u8) -> [u8; 10] {
    [SOCKS5, code, 0, 1, 0, 0, 0, 0, 0, 0]
}

/// 90 is granted, 91 is not.
const fn reply4(is_granted: bool) -> [u8; 8] {
    [0, if is_granted { 90 } else { 91 }, 0, 0, 0, 0, 0, 0]
}

/// The answer for a client.
pub(crate) fn answer(asked: Asked, became: Result<(), Failure>) -> Vec<u8> {
    match asked {
        Asked::Transparent => Vec::new(),
        Asked::Socks4 => reply4(became.is_ok()).to_vec(),
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
        Asked::Http | Asked::Url => match became {
            Ok(()) if asked == Asked::Url => Vec::new(),
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
    fn of(bytes: &[u8], login: Option<&Login>) -> (io::Result<Request>, Vec<u8>, Vec<u8>) {
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
            assert_eq!(asked.unwrap(), Request::new(Asked::Socks5, expected));
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
        assert_eq!((asked.unwrap().to, answered), (address("192.0.2.1:80"), vec![5, 2, 1, 0]));
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
            assert_eq!(asked.unwrap(), Request::new(Asked::Http, expected));
            assert_eq!((answered.len(), left.as_slice()), (0, &b"early"[..]));
        }
        let long = format!("CONNECT a:1 HTTP/1.1\r\nX: {}\r\n\r\n", "x".repeat(LONGEST_HEAD));
        for (request, status) in [
            ("GET / HTTP/1.1\r\nHost: example.com\r\n\r\n", "405"),
            ("GET https://example.com/ HTTP/1.1\r\n\r\n", "400"),
            ("GET http:///path HTTP/1.1\r\n\r\n", "400"),
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
    fn px_28_requests_for_a_url_and_what_the_server_gets() {
        let name = |host: &str, port| Destination::Name(host.into(), port);
        let fields = "Accept: a\r\nProxy-Connection: keep-alive\r\nConnection: keep-alive\r\nhost: other\r\n";
        for (line, to, first, host) in [
            ("GET http://example.com/a?b#c HTTP/1.1", name("example.com", 80), "GET /a?b", "example.com"),
            (
                "POST http://example.com:8080 HTTP/1.0",
                name("example.com", 8080),
                "POST /",
                "example.com:8080",
            ),
            ("GET http://u:p@example.com?q HTTP/1.1", name("example.com", 80), "GET /?q", "example.com"),
            ("PUT http://[2001:db8::1]/ HTTP/1.1", address("[2001:db8::1]:80"), "PUT /", "[2001:db8::1]"),
        ] {
            let (asked, answered, left) = of(format!("{line}\r\n{fields}\r\nbody").as_bytes(), None);
            let request = asked.unwrap();
            assert_eq!((request.asked, request.to), (Asked::Url, to));
            let head = String::from_utf8(request.head).unwrap();
            let expected =
                format!("{first} HTTP/1.1\r\nHost: {host}\r\nAccept: a\r\nConnection: close\r\n\r\n");
            assert_eq!((head, answered.len(), &*left), (expected, 0, &b"body"[..]));
        }
        // The connection changes its protocol.
        let request = b"GET http://a/ HTTP/1.1\r\nUpgrade: websocket\r\nConnection: upgrade\r\n\r\n";
        let head = String::from_utf8(of(request, None).0.unwrap().head).unwrap();
        assert!(head.ends_with("Upgrade: websocket\r\nConnection: upgrade\r\n\r\n"), "{head}");
        // The login stays here.
        let login = Login { name: "Aladdin".into(), password: "open sesame".into() };
        let given = "Proxy-Authorization: Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==\r\n";
        let request = format!("GET http://a/ HTTP/1.1\r\n{given}\r\n");
        let head = String::from_utf8(of(request.as_bytes(), Some(&login)).0.unwrap().head).unwrap();
        assert!(!head.contains("Proxy-Auth"), "{head}");
    }

    #[test]
    fn px_29_requests_of_socks4_with_addresses_and_names() {
        let request = |command, octets: [u8; 4], rest: &[u8]| {
            [&[4, command, 0x1f, 0x90], &octets[..], b"user\0", rest, b"early"].concat()
        };
        for (bytes, expected) in [
            (request(1, [192, 0, 2, 1], b""), address("192.0.2.1:8080")),
            (request(1, [0, 0, 0, 9], b"example.com\0"), Destination::Name("example.com".into(), 8080)),
            (request(1, [0, 0, 0, 9], b"2001:db8::1\0"), address("[2001:db8::1]:8080")),
            // Not a name: its first three octets are not zero.
            (request(1, [0, 0, 1, 9], b""), address("0.0.1.9:8080")),
        ] {
            let (asked, answered, left) = of(&bytes, None);
            assert_eq!(asked.unwrap(), Request::new(Asked::Socks4, expected));
            assert_eq!((answered.len(), &*left), (0, &b"early"[..]));
        }
        let refused = [0, 91, 0, 0, 0, 0, 0, 0];
        let login = Login { name: "n".into(), password: "p".into() };
        for (command, login) in [(2, None), (1, Some(&login))] {
            let (asked, answered, _) = of(&request(command, [192, 0, 2, 1], b""), login);
            assert!(asked.is_err() && answered == refused, "{command}: {answered:?}");
        }
        let endless = [&[4, 1, 0, 80, 192, 0, 2, 1][..], &[b'x'; 1_000]].concat();
        assert_eq!(of(&endless, None).0.unwrap_err().kind(), ErrorKind::InvalidData);
        assert_eq!(answer(Asked::Socks4, Ok(())), [0, 90, 0, 0, 0, 0, 0, 0]);
        assert_eq!(answer(Asked::Socks4, Err(Failure::Refused)), refused);
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
        let whole: [&[u8]; 5] = [
            &[5, 1, 0, 5, 1, 0, 1, 192, 0, 2, 1, 0, 80],
            b"CONNECT example.com:80 HTTP/1.1\r\nHost: a\r\n\r\n",
            &[5, 2, 0, 2, 1, 1, b'n', 1, b'p', 5, 1, 0, 3, 1, b'a', 0, 80],
            &[4, 1, 0, 80, 0, 0, 0, 1, b'u', 0, b'a', 0],
            b"GET http://example.com/ HTTP/1.1\r\nHost: a\r\n\r\n",
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
