//! The head of an HTTP/1 request: which host it is for. RFC 9112 §3.2. The crate httparse reads it. Called by
//! `mod.rs`.

use httparse::{EMPTY_HEADER, Request, Status};

use super::host_name;

/// Headers of a request: what nginx and Apache take.
const HEADERS: usize = 100;

/// Whether bytes are a request: a method, and HTTP's name at the end of the line, or HTTP/0.9's form. `None`
/// if they may become one.
pub(super) fn is_one(bytes: &[u8]) -> Option<bool> {
    // RFC 9112 §2.2: servers skip empty lines.
    let start = bytes.iter().position(|byte| !matches!(byte, b'\r' | b'\n'))?;
    let line = &bytes[start..];
    let is_method = |byte: &u8| matches!(byte, b'A'..=b'Z' | b'-' | b'_');
    let method = line.iter().position(|byte| !is_method(byte))?;
    if method == 0 || line[method] != b' ' {
        return Some(false);
    }
    let end = line.iter().position(|byte| *byte == b'\n')?;
    let has_version = line[..end].to_ascii_uppercase().windows(5).any(|word| word == b"HTTP/");
    Some(has_version || &line[..method] == b"GET")
}

/// The host of the request, and how long its head is; nothing if more must come.
pub(super) fn host(bytes: &[u8]) -> Result<Option<(String, usize)>, &'static str> {
    let mut headers = [EMPTY_HEADER; HEADERS];
    let mut request = Request::new(&mut headers);
    let len = match request.parse(bytes) {
        Ok(Status::Complete(len)) => len,
        Ok(Status::Partial) => return Ok(None),
        Err(_) => return Err("it is neither TLS nor HTTP/1"),
    };
    // §3.2.2: another form would have its own host, which counts before the header's.
    if !request.path.is_some_and(|path| path.starts_with('/') || path == "*") {
        return Err("its request is one for a proxy");
    }
    let mut hosts = request.headers.iter().filter(|header| header.name.eq_ignore_ascii_case("host"));
    let (Some(host), None) = (hosts.next(), hosts.next()) else {
        return Err("its request does not have one Host");
    };
    let name = host.value.split(|byte| *byte == b':').next().unwrap_or_default();
    host_name(name).map(|name| Some((name, len))).ok_or("the Host of its request is no name")
}
