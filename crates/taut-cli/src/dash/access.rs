//! Who may see the dashboard.
//!
//! | bound to | a request needs |
//! |---|---|
//! | loopback | a `Host` that is loopback, too |
//! | loopback, with `--token-file` | the token |
//! | any other address | the token: one that was given, or a random one |
//!
//! A page on the web can have its own name point to 127.0.0.1 (DNS rebinding): the browser then takes our
//! answers for its own and lets the page read them. It still sends that name as `Host`. A token that such a
//! page does not have protects as well, and also from other users of the machine.
//!
//! The page itself holds nothing secret, and needs no token: it has its own from the part of its address
//! after `#`, which browsers do not send. Called by `server.rs`.

use std::fmt;
use std::io::Read as _;
use std::net::{IpAddr, SocketAddr};

use anyhow::Context as _;
use http::{HeaderMap, HeaderValue, StatusCode, Uri, header};

/// The fewest characters of a token that is given.
const TOKEN_MIN_CHARS: usize = 16;
const TOKEN_MAX_CHARS: usize = 256;

/// A secret that goes into an address. Not printed by `{:?}`.
#[derive(Clone, PartialEq, Eq)]
pub struct Token(String);

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(…)")
    }
}

impl std::str::FromStr for Token {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "-._~".contains(c);
        if !(TOKEN_MIN_CHARS..=TOKEN_MAX_CHARS).contains(&text.len()) || !text.chars().all(is_plain) {
            return Err(format!(
                "a token has {TOKEN_MIN_CHARS} to {TOKEN_MAX_CHARS} letters, digits, -, ., _ and ~"
            ));
        }
        Ok(Self(text.to_owned()))
    }
}

impl Token {
    /// 128 random bits.
    ///
    /// # Errors
    /// When the system has no randomness.
    pub fn random() -> anyhow::Result<Self> {
        let mut bytes = [0; 16];
        // So short a one is never given in parts.
        rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty()).context("randomness")?;
        Ok(Self(crate::shared::text::hex(&bytes)))
    }

    /// The text.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.0
    }

    /// Takes as long wherever they differ.
    fn is(&self, other: &str) -> bool {
        let differ = self.0.bytes().zip(other.bytes()).fold(0, |differ, (a, b)| differ | (a ^ b));
        self.0.len() == other.len() && differ == 0
    }
}

/// The rule by which requests are answered or refused.
#[derive(Clone, Debug)]
pub struct Access {
    token: Option<Token>,
}

/// A refusal, in words.
pub type Refusal = (StatusCode, &'static str);

impl Access {
    /// For a server at `listen`.
    ///
    /// # Errors
    /// When a token is needed and cannot be made.
    pub fn new(listen: SocketAddr, token: Option<Token>) -> anyhow::Result<Self> {
        let token = match token {
            None if !listen.ip().to_canonical().is_loopback() => Some(Token::random()?),
            token => token,
        };
        Ok(Self { token })
    }

    /// The address to open, token included.
    #[must_use]
    pub fn url(&self, bound: SocketAddr) -> String {
        let token = self.token.as_ref().map_or_else(String::new, |token| format!("#token={}", token.text()));
        format!("http://{bound}/{token}")
    }

    /// Whether anything is given to this client.
    ///
    /// # Errors
    /// The refusal.
    pub fn check_host(&self, headers: &HeaderMap) -> Result<(), Refusal> {
        if self.token.is_some() || host(headers).is_some_and(is_loopback) {
            return Ok(());
        }
        Err((
            StatusCode::FORBIDDEN,
            "this address is for this machine only: open it as http://127.0.0.1 or http://localhost, or have `taut dash` \
             demand a --token\n",
        ))
    }

    /// Whether a request is the page's own, or no page's: a browser names the site of the page whose script
    /// sends it (Fetch Metadata Request Headers §2.3; RFC 6454 §7).
    ///
    /// # Errors
    /// The refusal.
    pub fn check_site(&self, headers: &HeaderMap) -> Result<(), Refusal> {
        let text = |name| headers.get(name).map(HeaderValue::to_str);
        let is_own_site = match text("sec-fetch-site") {
            None => true,
            Some(site) => matches!(site, Ok("same-origin" | "none")),
        };
        let is_own_origin = match text("origin") {
            None => true,
            Some(Ok(origin)) => {
                let place = origin.split_once("://").map(|(_, place)| place);
                place.is_some() && place == text("host").and_then(Result::ok)
            }
            Some(Err(_)) => false,
        };
        if is_own_site && is_own_origin {
            return Ok(());
        }
        Err((StatusCode::FORBIDDEN, "another site's page may not read this one\n"))
    }

    /// Whether numbers are given to this client.
    ///
    /// # Errors
    /// The refusal.
    pub fn check_token(&self, uri: &Uri, headers: &HeaderMap) -> Result<(), Refusal> {
        let Some(token) = &self.token else { return Ok(()) };
        let bearer = || headers.get(header::AUTHORIZATION)?.to_str().ok()?.strip_prefix("Bearer ");
        let in_query = || uri.query()?.split('&').find_map(|part| part.strip_prefix("token="));
        if bearer().or_else(in_query).is_some_and(|given| token.is(given)) {
            return Ok(());
        }
        Err((
            StatusCode::UNAUTHORIZED,
            "the token is missing or wrong: open the whole address that taut printed; a collector sends Authorization: Bearer \
             TOKEN\n",
        ))
    }
}

/// The host that a client believes to speak to, without the port.
fn host(headers: &HeaderMap) -> Option<&str> {
    let mut all = headers.get_all(header::HOST).iter();
    let (host, None) = (all.next()?.to_str().ok()?, all.next()) else { return None };
    if host.starts_with('[') {
        let (name, port) = host.split_once(']')?;
        return (port.is_empty() || port.starts_with(':')).then_some(&name[1..]);
    }
    Some(host.split_once(':').map_or(host, |(name, _)| name))
}

fn is_loopback(host: &str) -> bool {
    let ip = host.parse::<IpAddr>().map(|ip| ip.to_canonical().is_loopback());
    ip.unwrap_or_else(|_| host.eq_ignore_ascii_case("localhost"))
}

/// The token in a file, or from standard input for `-`: on the command line, every user of the machine could
/// read it.
///
/// # Errors
/// Why it cannot be read, or is no token.
pub fn token_file(path: &str) -> Result<Token, String> {
    // A file that is no token, such as a device, does not fill the memory.
    const MOST_BYTES: u64 = 4096;
    let mut text = String::new();
    let read = match path {
        "-" => std::io::stdin().take(MOST_BYTES).read_to_string(&mut text),
        _ => std::fs::File::open(path).and_then(|file| file.take(MOST_BYTES).read_to_string(&mut text)),
    };
    read.map_err(|error| error.to_string())?;
    text.trim_end().parse()
}

/// `9118`, for this machine only, or `ADDRESS:PORT`.
///
/// # Errors
/// Why the text is no address.
pub fn listen(text: &str) -> Result<SocketAddr, String> {
    if let Ok(port) = text.parse::<u16>() {
        return Ok(SocketAddr::from(([127, 0, 0, 1], port)));
    }
    text.parse().map_err(|_| "not PORT, ADDRESS:PORT or [ADDRESS]:PORT".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(of: &[(&'static str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for &(name, value) in of {
            headers.append(name, value.parse().unwrap());
        }
        headers
    }

    #[test]
    fn a_token_is_read_from_a_file_without_its_last_line_break() {
        let dir = taut_testbed::Scratch::new("token");
        let path = dir.0.join("token");
        let read = |text: &str| {
            std::fs::write(&path, text).unwrap();
            token_file(path.to_str().unwrap()).map(|token| token.text().to_owned())
        };
        assert_eq!(read("correct-horse-battery\n"), Ok("correct-horse-battery".to_owned()));
        assert!(read("too-short\n").unwrap_err().contains("16 to 256"));
        assert!(read(&"a".repeat(10_000)).is_err());
        assert!(token_file("/nowhere/token").unwrap_err().contains("No such file"));
        // No end, and no text.
        assert!(token_file("/dev/zero").is_err());
    }

    fn access(listen: &str, token: Option<&str>) -> Access {
        Access::new(listen.parse().unwrap(), token.map(|token| token.parse().unwrap())).unwrap()
    }

    #[test]
    fn dash_08_on_loopback_only_a_host_that_is_loopback_is_answered() {
        for listen in ["127.0.0.1:9118", "[::1]:9118", "127.3.2.1:1", "[::ffff:127.0.0.1]:9"] {
            let access = access(listen, None);
            let allowed = |of: &[(&'static str, &str)]| access.check_host(&headers(of)).is_ok();
            for host in [
                "127.0.0.1:9118",
                "localhost:9118",
                "LocalHost",
                "127.9.9.9",
                "[::1]:9118",
                "[::1]",
                "localhost:80",
            ] {
                assert!(allowed(&[("host", host)]), "{host}");
            }
            for host in [
                "evil.example",
                "evil.example:9118",
                "localhost.evil.example",
                "127.0.0.1.evil.example",
                "10.0.0.1:9118",
                "[fd00::1]:9118",
                "[::1].evil.example",
                "[::1",
                "",
                ":9118",
            ] {
                assert!(!allowed(&[("host", host)]), "{host}");
            }
            assert!(!allowed(&[]));
            assert!(!allowed(&[("host", "localhost"), ("host", "evil.example")]));
            assert!(access.check_token(&Uri::from_static("/samples"), &headers(&[])).is_ok());
        }
    }

    #[test]
    fn conf_30_another_sites_page_gets_no_numbers() {
        let access = access("127.0.0.1:9118", None);
        let may = |of: &[(&'static str, &str)]| {
            access.check_site(&headers(&[&[("host", "127.0.0.1:9118")], of].concat())).is_ok()
        };
        // The page, an address that was typed, a collector.
        assert!(may(&[("sec-fetch-site", "same-origin"), ("origin", "http://127.0.0.1:9118")]));
        assert!(may(&[("sec-fetch-site", "none")]) && may(&[]));
        for site in ["cross-site", "same-site", "", "x"] {
            assert!(!may(&[("sec-fetch-site", site)]), "{site}");
        }
        for origin in
            ["http://evil.example", "http://127.0.0.1:80", "null", "", "http://127.0.0.1:9118.evil.example"]
        {
            assert!(!may(&[("origin", origin)]), "{origin}");
        }
    }

    #[test]
    fn dash_09_elsewhere_numbers_need_the_token() {
        let query = |text: &str| text.parse::<Uri>().unwrap();
        for access in [
            access("0.0.0.0:9118", Some("correct-horse-battery")),
            access("127.0.0.1:9118", Some("correct-horse-battery")),
        ] {
            let may = |uri: &str, of: &[(&'static str, &str)]| {
                access.check_token(&query(uri), &headers(of)).is_ok()
            };
            assert!(may("/samples?token=correct-horse-battery", &[]));
            assert!(may("/samples?x=1&token=correct-horse-battery", &[]));
            assert!(may("/metrics", &[("authorization", "Bearer correct-horse-battery")]));
            for wrong in ["", "correct-horse-batterx", "correct-horse-batter", "correct-horse-battery1"] {
                assert!(!may(&format!("/samples?token={wrong}"), &[]), "{wrong}");
                assert!(!may("/metrics", &[("authorization", &*format!("Bearer {wrong}"))]), "{wrong}");
            }
            assert!(!may("/samples", &[]) && !may("/samples?Token=correct-horse-battery", &[]));
            assert!(!may("/metrics", &[("authorization", "Basic correct-horse-battery")]));
            // The name by which it is reached is not the machine's own.
            assert!(access.check_host(&headers(&[("host", "lab.example:9118")])).is_ok());
        }

        // Without one, a random one is made.
        let [one, two] = [access("10.0.0.1:80", None), access("[::]:80", None)];
        let token = |access: &Access| access.token.clone().unwrap();
        assert_eq!(token(&one).text().len(), 32);
        assert_ne!(token(&one), token(&two));
        let bound = "10.0.0.1:80".parse().unwrap();
        assert_eq!(one.url(bound), format!("http://10.0.0.1:80/#token={}", token(&one).text()));
        assert!(one.check_token(&query("/sample"), &HeaderMap::new()).is_err());
        assert_eq!(access("127.0.0.1:80", None).url("127.0.0.1:80".parse().unwrap()), "http://127.0.0.1:80/");
        assert!(!format!("{one:?}").contains(token(&one).text()));

        for bad in ["", "short", "correct horse battery", "correct-horse-battery#", &"x".repeat(257)] {
            assert!(bad.parse::<Token>().is_err(), "{bad}");
        }
    }

    #[test]
    fn an_address_is_a_port_of_this_machine_or_whole() {
        assert_eq!(listen("9118"), Ok("127.0.0.1:9118".parse().unwrap()));
        assert_eq!(listen("10.0.0.1:80"), Ok("10.0.0.1:80".parse().unwrap()));
        assert_eq!(listen("[::1]:0"), Ok("[::1]:0".parse().unwrap()));
        for bad in ["", "localhost", "localhost:1", "10.0.0.1", "70000", ":80"] {
            assert!(listen(bad).is_err(), "{bad}");
        }
    }
}
