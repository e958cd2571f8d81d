//! GW-176 to 179: what the first bytes of a connection say.

use super::*;

fn vector(of: usize, data: &[u8]) -> Vec<u8> {
    [&(data.len() as u32).to_be_bytes()[4 - of..], data].concat()
}

pub(crate) fn extension(kind: u16, data: &[u8]) -> Vec<u8> {
    [&kind.to_be_bytes()[..], &vector(2, data)].concat()
}

pub(crate) fn server_name(name: &str) -> Vec<u8> {
    extension(0, &vector(2, &[&[0][..], &vector(2, name.as_bytes())].concat()))
}

fn versions() -> Vec<u8> {
    extension(43, &vector(1, &[3, 4, 3, 3]))
}

/// RFC 8446 §4.1.2, without records.
pub(crate) fn message(extensions: &[u8]) -> Vec<u8> {
    let body = [&[3, 3][..], &[7; 32], &vector(1, &[9; 32]), &vector(2, &[0x13, 1]), &vector(1, &[0])];
    let body = [body.concat(), vector(2, extensions)].concat();
    [&[1][..], &vector(3, &body)].concat()
}

/// RFC 8446 §5.1, in records of this length.
pub(crate) fn records(message: &[u8], len: usize) -> Vec<u8> {
    message.chunks(len).flat_map(|part| [&[22, 3, 1][..], &vector(2, part)].concat()).collect()
}

pub(crate) fn hello(name: &str) -> Vec<u8> {
    records(&message(&[extension(10, &[0, 2, 0, 29]), server_name(name)].concat()), 1 << 14)
}

fn found(port: u16, bytes: &[u8]) -> Found {
    let mut first = FirstBytes::new(port);
    first.push(bytes);
    first.next()
}

fn named(name: &str) -> Found {
    Found::Name { name: name.to_owned(), is_hidden: false }
}

#[test]
fn gw_176_a_client_hello_names_its_server_wherever_it_is_cut() {
    for port in [443, 8_443] {
        assert_eq!(found(port, &hello("WWW.Example.com")), named("www.example.com"));
    }
    let whole = message(&[server_name("a.example.com"), extension(0x2a2a, &[5; 3_000])].concat());
    for len in [1, 2, 3, 4, 5, 100, 1_000, 16_384] {
        let bytes = records(&whole, len);
        if bytes.len() > LONGEST {
            continue;
        }
        for end in 0..bytes.len() {
            assert_eq!(found(443, &bytes[..end]), Found::More, "{len} {end}");
        }
        let mut first = FirstBytes::new(443);
        first.push(&[&bytes[..], b"rest"].concat());
        assert_eq!(first.next(), named("a.example.com"), "{len}");
        // The bytes of the name pass, and the rest is held.
        assert_eq!(first.take(), bytes);
        assert_eq!((first.next(), first.take_all()), (Found::Free, b"rest".to_vec()));
    }
}

#[test]
fn gw_176_what_two_servers_might_read_differently_is_wrong() {
    let of = |extensions: &[u8]| records(&message(extensions), 1 << 14);
    let one = server_name("a.test");
    let two_in_list = [&vector(2, b"a.test")[..], &[0], &vector(2, b"b.test")].concat();
    let mut other_message = hello("a.test");
    other_message[5] = 2;
    let mut shorter = hello("a.test");
    shorter[8] -= 1;
    for wrong in [
        of(&[]),
        of(&extension(10, &[0])),
        of(&[one.clone(), one.clone()].concat()),
        of(&extension(0, &vector(2, &[&[0][..], &two_in_list].concat()))),
        of(&extension(0, &vector(2, &[&[1][..], &vector(2, b"a.test")].concat()))),
        of(&server_name("")),
        of(&server_name("a test")),
        of(&server_name("a.test\0.b")),
        of(&[&one[..], &[0, 1, 0]].concat()),
        records(&[message(&one), vec![0]].concat(), 1 << 14),
        [&[22, 3, 1, 0, 0][..], &hello("a.test")].concat(),
        [&[22, 3, 1, 0x40, 1][..], &[0; 5]].concat(),
        [&records(&message(&one)[..20], 20)[..], &[23, 3, 3, 0, 1, 0]].concat(),
        other_message,
        shorter,
    ] {
        assert!(matches!(found(443, &wrong), Found::Wrong(_)), "{wrong:?}");
    }
    // A hello beyond what is held, and noise without an end.
    let long = records(&message(&[extension(21, &[0; 17_000]), one].concat()), 1 << 14);
    assert!(matches!(found(443, &long), Found::Wrong(_)));
    let parts = records(&message(&extension(21, &[0; 9_000])), 2);
    assert!(matches!(found(443, &parts), Found::Wrong(_)));
    let endless = [&b"GET / HTTP/1.1\r\nX: "[..], &[b'x'; LONGEST]].concat();
    assert!(matches!(found(8_080, &endless), Found::Wrong(_)));
}

#[test]
fn gw_176_a_damaged_hello_is_no_panic() {
    let (whole, mut random) = (hello("www.example.com"), 7_u64);
    for _ in 0..50_000 {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let mut bytes = whole.clone();
        let at = (random >> 40) as usize % bytes.len();
        bytes[at] = (random >> 32) as u8;
        let mut first = FirstBytes::new(443);
        first.push(&bytes);
        if matches!(first.next(), Found::Name { .. }) {
            assert!(first.take().len() <= bytes.len());
        }
    }
}

/// RFC 8446 §4.1.4: after a HelloRetryRequest the client says its hello again.
#[test]
fn gw_177_a_second_client_hello_is_read_like_the_first() {
    let of = |name: &str| records(&message(&[server_name(name), versions()].concat()), 1 << 14);
    let after = |rest: &[u8]| {
        let mut first = FirstBytes::new(443);
        first.push(&of("a.test"));
        assert_eq!(first.next(), named("a.test"));
        first.take();
        for byte in &rest[..rest.len() - 1] {
            first.push(&[*byte]);
            assert!(matches!(first.next(), Found::More | Found::Free), "{rest:?}");
        }
        first.push(&rest[rest.len() - 1..]);
        first.next()
    };
    let ccs = [20, 3, 3, 0, 1, 1];
    assert_eq!(after(&of("b.test")), named("b.test"));
    assert_eq!(after(&[&ccs[..], &of("b.test")].concat()), named("b.test"));
    assert_eq!(after(&[&ccs[..], &ccs, &of("b.test")].concat()), named("b.test"));
    let short = records(&message(&[server_name("b.test"), versions()].concat()), 3);
    assert_eq!(after(&short), named("b.test"));
    // Anything else is the end of what is read: application data, ClientKeyExchange, an encrypted message.
    for rest in [&[23, 3, 3, 0, 5, 0][..], &[22, 3, 3, 0, 70, 16], &[22, 3, 3, 0, 40, 1, 9, 9, 9]] {
        assert_eq!(after(rest), Found::Free);
        assert_eq!(after(&[&ccs[..], rest].concat()), Found::Free);
    }
    // Without an offer of TLS 1.3 there is no second one.
    let mut first = FirstBytes::new(443);
    first.push(&hello("a.test"));
    assert_eq!(first.next(), named("a.test"));
    first.take();
    assert_eq!(first.next(), Found::Free);
}

#[test]
fn gw_178_an_encrypted_client_hello_is_seen() {
    let bytes = records(&message(&[server_name("a.test"), extension(0xfe0d, &[0; 40])].concat()), 1 << 14);
    assert_eq!(found(443, &bytes), Found::Name { name: "a.test".to_owned(), is_hidden: true });
}

#[test]
fn gw_179_a_request_names_its_host() {
    for (port, request, name) in [
        (80, "GET / HTTP/1.1\r\nHost: Www.Example.com:80\r\nX: y\r\n\r\n", "www.example.com"),
        (8_080, "\r\n\r\nPOST /a HTTP/1.0\r\nx: y\r\nhost:a.test.\r\n\r\nbody", "a.test"),
        (443, "OPTIONS * HTTP/1.1\nHost: a.test\n\n", "a.test"),
    ] {
        assert_eq!(found(port, request.as_bytes()), named(name), "{request}");
        let end = request.trim_end_matches("body").len();
        for end in 0..end {
            assert_eq!(found(port, &request.as_bytes()[..end]), Found::More, "{request} {end}");
        }
    }
    for request in [
        "GET / HTTP/1.1\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a.test\r\nHost: b.test\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a.test, b.test\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a.test@b.test\r\n\r\n",
        "GET http://b.test/ HTTP/1.1\r\nHost: a.test\r\n\r\n",
        "CONNECT b.test:443 HTTP/1.1\r\nHost: a.test\r\n\r\n",
        "GET / HTTP/1.1\r\nHost : a.test\r\n\r\n",
        "GET /\r\n",
        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    ] {
        for port in [80, 8_080] {
            assert!(matches!(found(port, request.as_bytes()), Found::Wrong(_)), "{request}");
        }
    }
    // Other protocols say no name, and pass where TLS and HTTP need not be.
    for bytes in [&b"SSH-2.0-OpenSSH_9.2\r\n"[..], b"EHLO me\r\n", b"\0\0\0\x08\x04\xd2\x16\x2f", b"hello"] {
        assert_eq!(found(22, bytes), Found::Free, "{bytes:?}");
    }
    for bytes in [&b"SSH-2.0-OpenSSH_9.2\r\n"[..], b"\x80\x2e\x01\x03\x01"] {
        assert!(matches!(found(443, bytes), Found::Wrong(_)), "{bytes:?}");
    }
}
