//! Cases of tests/c and the examples that need no network, each as it is, under valgrind, and with the
//! address sanitizer.

use std::path::Path;
use std::process::Command;

use crate::toolkit::{ALL, flags, prefix, program, succeeds};

/// A case of a program in tests/c.
fn case(source: &str, name: &str) {
    let Some(prefix) = prefix() else { return };
    for how in ALL {
        let said = succeeds(program(prefix, &format!("tests/c/{source}"), how).arg(name));
        assert_eq!(said, format!("{name}: as promised\n"), "{how:?}");
    }
}

/// The output of an example, which is the same each time.
fn example(source: &str) -> Option<String> {
    let prefix = prefix()?;
    let outputs = ALL.map(|how| succeeds(&mut program(prefix, &format!("examples/{source}"), how)));
    assert!(outputs.iter().all(|output| *output == outputs[0]), "{outputs:?}");
    Some(outputs[0].clone())
}

#[test]
fn ffi_06_what_is_installed() {
    let Some(prefix) = prefix() else { return };
    let library = prefix.join("lib/libtaut.so.0");
    let symbols = succeeds(Command::new("nm").args(["-D", "--defined-only"]).arg(&library));
    let mut names: Vec<_> = symbols.lines().filter_map(|line| line.rsplit(' ').next()).collect();
    names.sort_unstable();
    assert!(names.iter().all(|name| name.starts_with("taut_")), "{names:?}");
    let header = include_str!("../../include/taut.h");
    // Each function with its comment.
    let declares = |block: &&str, name: &str| {
        block.lines().any(|line| {
            !line.starts_with("//") && line.contains(&format!(" {name}("))
                || line.contains(&format!("*{name}("))
        })
    };
    for name in &names {
        let found: Vec<_> = header.split("\n\n").filter(|block| declares(block, name)).collect();
        assert_eq!(found.len(), 1, "{name} in the header");
        let is_void = found[0].contains(&format!("\nvoid {name}("));
        assert_eq!(found[0].contains("\n// Returns "), !is_void, "{}", found[0]);
    }
    let dynamic = succeeds(Command::new("readelf").arg("-d").arg(&library));
    assert!(dynamic.contains("Library soname: [libtaut.so.0]"), "{dynamic}");
    // libtaut.a alone, and the header in C++.
    let http_get = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/http_get.c");
    let (alone, static_flags) = (prefix.join("bin/http_get-static"), flags(prefix, &["--static", "--libs"]));
    std::fs::create_dir_all(prefix.join("bin")).unwrap();
    let archive = prefix.join("lib/libtaut.a").to_str().unwrap().to_owned();
    let static_flags =
        static_flags.into_iter().map(|flag| if flag == "-ltaut" { archive.clone() } else { flag });
    let mut compile = Command::new("cc");
    compile.args(flags(prefix, &["--cflags"])).arg(http_get).args(static_flags).arg("-o").arg(&alone);
    succeeds(&mut compile);
    assert!(succeeds(&mut Command::new(&alone)).ends_with("\r\n\r\nHello\n"));
    let mut header = Command::new("cc");
    header.args(["-fsyntax-only", "-Wall", "-Werror", "-x", "c++"]).arg(prefix.join("include/taut.h"));
    if Command::new("c++").arg("--version").output().is_ok() {
        succeeds(&mut header);
    }
}

#[test]
fn ffi_07_a_connection_between_two_machines() {
    case("machine.c", "tcp");
}

#[test]
fn ffi_08_what_a_machine_refuses() {
    case("machine.c", "refusal");
}

#[test]
fn ffi_09_datagrams_between_two_machines() {
    case("machine.c", "udp");
}

#[test]
fn ffi_10_fates_of_packets_and_their_tickets() {
    case("machine.c", "device");
}

#[test]
fn ffi_11_calls_from_the_callback() {
    case("machine.c", "reentry");
}

#[test]
fn ffi_12_misuse_of_a_machine_is_an_error() {
    case("machine.c", "misuse");
}

#[test]
fn ffi_13_sockets_that_wait() {
    case("sockets.c", "blocking");
}

#[test]
fn ffi_14_descriptors_of_sockets() {
    case("sockets.c", "polling");
}

#[test]
fn ffi_15_connections_that_are_refused() {
    case("sockets.c", "refusal");
}

#[test]
fn ffi_16_datagrams_between_sockets() {
    case("sockets.c", "udp");
}

#[test]
fn ffi_17_ends_of_streams_and_stacks() {
    case("sockets.c", "ends");
}

#[test]
fn ffi_18_misuse_of_sockets_is_an_error() {
    case("sockets.c", "misuse");
}

#[test]
fn ffi_19_an_http_get_in_memory() {
    let Some(said) = example("http_get.c") else { return };
    assert_eq!(said, "HTTP/1.0 200 OK\r\nContent-Length: 6\r\n\r\nHello\n");
}

/// 10 Mbit/s is 1.2 kB a millisecond, so that the small queue is two packets of 1,500 bytes; and 1,000,000
/// bytes are 700 segments of 1,428 bytes, whose packets take 0.84 s, and the way there and back 0.02 s.
#[test]
fn ffi_20_completions_that_come_late() {
    let Some(said) = example("late.c") else { return };
    let words: Vec<_> = said.split_whitespace().collect();
    assert_eq!((words[0], words[words.len() - 2]), ("1000000", "3000"), "{said}");
    let seconds: f64 = words[3].parse().unwrap();
    assert!((0.84..1.0).contains(&seconds), "{said}");
}

#[test]
fn ffi_25_what_was_written_is_delivered() {
    case("sockets.c", "drain");
}

#[test]
fn ffi_29_handlers_run_on_the_programs_threads() {
    case("sockets.c", "signals");
}

#[test]
fn ffi_26_congestion_controls_by_name() {
    case("info.c", "congestion");
}

#[test]
fn ffi_27_tcp_info_of_a_machine_has_linuxs_fields() {
    case("info.c", "machine");
}

#[test]
fn ffi_28_tcp_info_of_a_socket_and_of_the_kernels() {
    case("info.c", "sockets");
}
