use super::*;

/// The example of wg-quick(8), with keys of RFC 7748 §6.1, and a second peer.
const WHOLE: &str = "
# a comment
[Interface]
Address = 10.200.100.8/24, fd00::8
Address = 10.9.9.9
DNS = 10.200.100.1, example.org
PrivateKey = dwdtCnMYpX08FsFyUbJmRd9ML4frwJkqsXf7pR25LCo= # alice
MTU=1380
ListenPort = 51820
PostUp = iptables -A OUTPUT ! -o %i -j REJECT
Table = off

[peer]
publickey = 3p7bfXt9wbTTW2HC7OQ1Nz+DQ8hbeGdNrfx+FG+IK08=
PresharedKey = dwdtCnMYpX08FsFyUbJmRd9ML4frwJkqsXf7pR25LCo=
AllowedIPs = 0.0.0.0/0, ::/0
AllowedIPs = 10.1.2.3/8
Endpoint = demo.wireguard.com:51820
PersistentKeepalive = 25

[Peer]
PublicKey = hSDwCYkwp1R0i33ctD73Wg2/Og0mOBr066SpjqqbTmo=
AllowedIPs =
Endpoint = [2001:db8::1]:9
PersistentKeepalive = off
";

#[test]
fn wg_3_every_key_of_wg_quick_is_read() {
    let config: Config = WHOLE.parse().unwrap();
    let text = |list: &[Cidr]| list.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ");
    assert_eq!(text(&config.addresses), "10.200.100.8/24 fd00::8/128 10.9.9.9/32");
    assert_eq!((config.dns.len(), config.search.as_slice()), (1, &["example.org".to_owned()][..]));
    assert_eq!((config.mtu, config.listen_port), (Some(1380), Some(51820)));
    assert_eq!(config.private_key.public().to_string(), "hSDwCYkwp1R0i33ctD73Wg2/Og0mOBr066SpjqqbTmo=");
    assert_eq!(config.unused, [(10, "PostUp".to_owned()), (11, "Table".to_owned())]);
    let [one, two] = &config.peers[..] else { panic!("two peers") };
    assert_eq!(text(&one.allowed_ips), "0.0.0.0/0 ::/0 10.1.2.3/8");
    assert_eq!(one.endpoint.as_ref().unwrap().to_string(), "demo.wireguard.com:51820");
    assert!(one.preshared_key.is_some() && one.endpoint.as_ref().unwrap().is_name());
    assert_eq!((one.persistent_keepalive, two.persistent_keepalive), (Some(25), None));
    assert_eq!(two.endpoint.as_ref().unwrap().resolve().unwrap(), "[2001:db8::1]:9".parse().unwrap());
    assert!(two.allowed_ips.is_empty());
}

/// A file with `line` in place of line 3, which is in the section.
fn wrong(section: &str, line: &str) -> String {
    format!("{section}\nPrivateKey = dwdtCnMYpX08FsFyUbJmRd9ML4frwJkqsXf7pR25LCo=\n{line}\n")
        .parse::<Config>()
        .unwrap_err()
        .to_string()
}

#[test]
fn wg_4_what_is_wrong_is_named_with_its_line() {
    for (line, said) in [
        ("Adress = 10.0.0.1", "line 3: unknown key Adress in [Interface]"),
        ("AllowedIPs = 10.0.0.0/8", "line 3: unknown key AllowedIPs in [Interface]"),
        ("Address = 10.0.0.1/33", "line 3: \"10.0.0.1/33\" is not an address"),
        ("MTU = 67", "line 3: MTU 67 is too small"),
        ("ListenPort = 65536", "line 3: \"65536\" is not a number"),
        ("[Pier]", "line 3: unknown section [Pier]"),
        ("[Peer]\nMTU = 1400", "line 4: unknown key MTU in [Peer]"),
        ("[Peer]\nEndpoint = 2001:db8::1:9", "line 4: \"2001:db8::1:9\" is not HOST:PORT"),
        ("[Peer]\nEndpoint = x:0", "line 4: \"x:0\" is not HOST:PORT"),
        ("[Peer]\nAllowedIPs = 10.0.0.0/8", "the [Peer] of line 3 has no PublicKey"),
    ] {
        let error = wrong("[Interface]", line);
        assert!(error.starts_with(said), "{line}: {error}");
    }
    assert!("[Interface]\nMTU = 1420".parse::<Config>().unwrap_err().to_string().contains("no PrivateKey"));
    assert!("MTU = 1420".parse::<Config>().unwrap_err().to_string().starts_with("line 1: MTU stands before"));
    let peer = "[Peer]\nPublicKey = hSDwCYkwp1R0i33ctD73Wg2/Og0mOBr066SpjqqbTmo=\n";
    assert!(wrong("[Interface]", &format!("{peer}{peer}")).contains("of another one"));
}

#[test]
fn wg_5_no_error_and_no_debug_text_has_a_secret() {
    let half = "dwdtCnMYpX08FsFyUbJmRd9ML4frwJkqsXf7pR25LC";
    for text in [
        format!("[Interface]\nPrivateKey = {half}"),
        format!("[Interface]\n{half}"),
        format!("[Interface]\n[Peer]\nPresharedKey = {half}"),
    ] {
        let error = text.parse::<Config>().unwrap_err();
        assert!(!format!("{error} {error:?}").contains(half), "{error}");
    }
    assert!(!format!("{:?}", WHOLE.parse::<Config>().unwrap()).contains(half));
}

#[cfg(unix)]
#[test]
fn wg_6_a_file_that_every_user_can_read_is_refused() {
    use std::os::unix::fs::PermissionsExt as _;
    let path = std::env::temp_dir().join(format!("taut-wg-6-{}", std::process::id()));
    std::fs::write(&path, WHOLE).unwrap();
    let read = |mode| {
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        Config::read(&path).map(|_| ()).map_err(|error| error.kind())
    };
    let results = [0o600, 0o640, 0o604, 0o602].map(read);
    std::fs::remove_file(&path).unwrap();
    let denied = Err(io::ErrorKind::PermissionDenied);
    assert_eq!(results, [Ok(()), Ok(()), denied, denied]);
}

#[cfg(unix)]
#[test]
fn wg_39_files_of_other_editors_and_of_other_programs() {
    use std::os::unix::fs::PermissionsExt as _;
    let path = std::env::temp_dir().join(format!("taut-wg-39-{}", std::process::id()));
    let read = |bytes: &[u8]| {
        std::fs::write(&path, bytes).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        Config::read(&path).map(|config| config.peers.len()).map_err(|error| error.to_string())
    };
    let utf_16: Vec<u8> = WHOLE.encode_utf16().flat_map(u16::to_be_bytes).collect();
    let windows = format!("\u{feff}{}", WHOLE.replace('\n', "\r\n"));
    let results =
        [windows.as_bytes(), &[&[0xfe, 0xff], &utf_16[..]].concat(), &[b'#'; (16 << 20) + 1]].map(read);
    std::fs::remove_file(&path).unwrap();
    assert_eq!(results[0], Ok(2));
    let said = |at: usize, text: &str| results[at].as_ref().is_err_and(|error| error.contains(text));
    assert!(said(1, "is not text in UTF-8: save it as that") && said(2, "more than 16 MiB"), "{results:?}");
}
