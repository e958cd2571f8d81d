//! Files by TFTP, and DHCP for IPv6.

use std::fs;
use std::os::unix::fs::symlink;

use slirp::ffi::SlirpConfig;
use taut_testbed::{Noise, Scratch};

use crate::datagrams::run;
use crate::frames::{checksum, guest_mac};
use crate::world::{Bare, GUEST, HOST, World, at, config, text, v6};

/// A client of TFTP: a file, or the error's number and text.
async fn fetch(world: &World, request: &[u8]) -> Result<(Vec<u8>, Vec<Vec<u8>>), (u8, String)> {
    let socket = taut::UdpSocket::bind(&world.guest, (GUEST, 0)).await.unwrap();
    socket.send_to(request, at(HOST, 69)).await.unwrap();
    let (mut file, mut options, mut next, mut got) = (Vec::new(), Vec::new(), 1_u16, vec![0; 2_000]);
    let mut block_len = 512;
    loop {
        let len = socket.recv(&mut got).await.unwrap();
        match got[..4] {
            [0, 6, ..] => {
                options = got[2..len].split(|byte| *byte == 0).map(<[u8]>::to_vec).collect();
                let at = options.iter().position(|text| text == b"blksize");
                block_len =
                    at.map_or(512, |at| std::str::from_utf8(&options[at + 1]).unwrap().parse().unwrap());
                socket.send_to(&[0, 4, 0, 0], at_69()).await.unwrap();
            }
            [0, 3, high, low] => {
                assert_eq!(u16::from_be_bytes([high, low]), next);
                file.extend_from_slice(&got[4..len]);
                socket.send_to(&[0, 4, high, low], at_69()).await.unwrap();
                next = next.wrapping_add(1);
                if len - 4 < block_len {
                    return Ok((file, options));
                }
            }
            [0, 5, 0, code] => {
                return Err((code, String::from_utf8_lossy(&got[4..len - 1]).into_owned()));
            }
            _ => panic!("{:?}", &got[..len]),
        }
    }
}

fn at_69() -> std::net::SocketAddr {
    at(HOST, 69)
}

fn request(name: &str, options: &str) -> Vec<u8> {
    format!("\0\u{1}{name}\0octet\0{options}").into_bytes()
}

#[test]
fn slirp_17_files_are_read_and_nothing_beyond_their_folder() {
    let scratch = Scratch::new("slirp-tftp");
    let folder = scratch.join("files");
    fs::create_dir_all(folder.join("inner")).unwrap();
    let bytes = Noise::new(5).bytes(100_000).to_vec();
    fs::write(folder.join("file"), &bytes).unwrap();
    fs::write(folder.join("inner/whole"), &bytes[..1_024]).unwrap();
    fs::write(scratch.join("secret"), "secret").unwrap();
    symlink("inner/whole", folder.join("within")).unwrap();
    symlink("../secret", folder.join("out")).unwrap();
    symlink(scratch.join("secret"), folder.join("away")).unwrap();
    let status = std::process::Command::new("mkfifo").arg(folder.join("fifo")).status().unwrap();
    assert!(status.success());
    let world = World::new(SlirpConfig { tftp_path: text(folder.to_str().unwrap()), ..config() });
    run(async {
        for name in ["file", "/file", "inner/../file"] {
            assert!(fetch(&world, &request(name, "")).await.unwrap().0 == bytes, "{name}");
        }
        // Whole blocks: one without bytes ends the file.
        for name in ["inner/whole", "within"] {
            assert!(fetch(&world, &request(name, "")).await.unwrap().0 == bytes[..1_024]);
        }
        let (file, options) = fetch(&world, &request("file", "blksize\x001428\0tsize\x000\0")).await.unwrap();
        assert!(file == bytes);
        assert_eq!(options[..4], [&b"blksize"[..], b"1428", b"tsize", b"100000"]);
        // More than fits a packet is not agreed to.
        let (_, options) = fetch(&world, &request("file", "blksize\x0065464\0")).await.unwrap();
        assert_eq!(options[1], b"1428");
        for name in
            ["../secret", "out", "away", "inner/../../secret", "/etc/passwd", "none", "inner", "fifo", ""]
        {
            let (code, text) = fetch(&world, &request(name, "")).await.unwrap_err();
            assert!([1, 2, 4].contains(&code), "{name}: {code} {text}");
        }
        let (code, _) = fetch(&world, b"\0\x01file\0netascii\0").await.unwrap_err();
        assert_eq!(code, 4);
        let (code, _) = fetch(&world, b"\0\x02file\0octet\0").await.unwrap_err();
        assert_eq!(code, 2);
    });
}

/// An option of a message of DHCP for IPv6.
fn option(mut rest: &[u8], wanted: u16) -> Option<&[u8]> {
    while let Some((head, behind)) = rest.split_first_chunk::<4>() {
        let (data, behind) = behind.split_at(u16::from_be_bytes([head[2], head[3]]).into());
        if u16::from_be_bytes([head[0], head[1]]) == wanted {
            return Some(data);
        }
        rest = behind;
    }
    None
}

/// A client's frame to ff02::1:2, from fe80::9.
fn to_servers(message: &[u8]) -> Vec<u8> {
    let (src, dst) = (v6("fe80::9").s6_addr, v6("ff02::1:2").s6_addr);
    let len = (8 + message.len()) as u16;
    let mut datagram =
        [&546_u16.to_be_bytes()[..], &547_u16.to_be_bytes(), &len.to_be_bytes(), &[0, 0], message].concat();
    let parts = [&src[..], &dst, &u32::from(len).to_be_bytes(), &[0, 0, 0, 17], &datagram];
    let checksum = checksum(&parts.concat());
    datagram[6..8].copy_from_slice(&checksum.to_be_bytes());
    let [high, low] = len.to_be_bytes();
    let header = [&[0x60, 0, 0, 0, high, low, 17, 1][..], &src, &dst].concat();
    [&[0x33, 0x33, 0, 1, 0, 2][..], &guest_mac(), &[0x86, 0xdd], &header, &datagram].concat()
}

/// RFC 8415 §18.3.6, RFC 3646, RFC 5970.
#[test]
fn slirp_18_information_about_ipv6_is_told_and_addresses_are_not() {
    let domains = Box::leak(Box::new([text("example"), std::ptr::null()]));
    let bare = Bare::new(&SlirpConfig { bootfile: text("pxe.0"), vdnssearch: domains.as_ptr(), ..config() });
    bare.turn(std::time::Duration::ZERO);
    bare.state.frames.take();
    let client = [0, 1, 0, 4, 0, 3, 0, 1];
    let asked = [&[0, 6, 0, 6][..], &[0, 23, 0, 24, 0, 59]].concat();
    let message = [&[11, 1, 2, 3][..], &client, &asked].concat();
    let answers = bare.input(&to_servers(&message));
    assert_eq!(answers.len(), 1);
    let answer = &answers[0];
    assert_eq!((&answer[..6], &answer[38..54]), (&guest_mac()[..], &v6("fe80::9").s6_addr[..]));
    let reply = &answer[62..];
    assert_eq!(reply[..4], [7, 1, 2, 3]);
    assert_eq!(option(&reply[4..], 1), Some(&[0, 3, 0, 1][..]));
    assert_eq!(option(&reply[4..], 23), Some(&v6("fec0::3").s6_addr[..]));
    assert_eq!(option(&reply[4..], 24), Some(&b"\x07example\0"[..]));
    assert_eq!(option(&reply[4..], 59), Some(&b"tftp://[fec0::2]/pxe.0"[..]));
    // A solicitation for an address, a request to another server, one that was damaged.
    let other = [&message[..], &[0, 2, 0, 1, 9]].concat();
    let mut damaged = to_servers(&message);
    damaged[70] ^= 1;
    for silent in [to_servers(&[&[1][..], &message[1..]].concat()), to_servers(&other), damaged] {
        assert!(bare.input(&silent).is_empty());
    }
}
