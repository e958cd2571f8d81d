//! The library as a loader sees it: its name, and the versions of its symbols.

use std::path::PathBuf;
use std::process::Command;

use taut_testbed::{Scratch, live};

/// The library that this build has made, in a folder of its own under the name that programs look for.
pub(crate) fn library(scratch: &Scratch) -> PathBuf {
    let beside = std::env::current_exe().unwrap().with_file_name("libslirp.so");
    let folder = scratch.join("lib");
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::copy(&beside, folder.join("libslirp.so.0"))
        .unwrap_or_else(|error| panic!("{}: {error}", beside.display()));
    folder
}

fn run(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// libslirp 4.7's, as `nm -D --with-symbol-versions` prints those of Debian's libslirp0.
const SYMBOLS: [&str; 23] = [
    "slirp_add_exec@@SLIRP_4.0",
    "slirp_add_guestfwd@@SLIRP_4.0",
    "slirp_add_hostfwd@@SLIRP_4.0",
    "slirp_add_hostxfwd@@SLIRP_4.5",
    "slirp_add_unix@@SLIRP_4.2",
    "slirp_cleanup@@SLIRP_4.0",
    "slirp_connection_info@@SLIRP_4.0",
    "slirp_handle_timer@@SLIRP_4.7",
    "slirp_init@@SLIRP_4.0",
    "slirp_input@@SLIRP_4.0",
    "slirp_neighbor_info@@SLIRP_4.5",
    "slirp_new@@SLIRP_4.1",
    "slirp_pollfds_fill@@SLIRP_4.0",
    "slirp_pollfds_poll@@SLIRP_4.0",
    "slirp_remove_guestfwd@@SLIRP_4.2",
    "slirp_remove_hostfwd@@SLIRP_4.0",
    "slirp_remove_hostxfwd@@SLIRP_4.5",
    "slirp_socket_can_recv@@SLIRP_4.0",
    "slirp_socket_recv@@SLIRP_4.0",
    "slirp_state_load@@SLIRP_4.0",
    "slirp_state_save@@SLIRP_4.0",
    "slirp_state_version@@SLIRP_4.0",
    "slirp_version_string@@SLIRP_4.0",
];

#[test]
fn slirp_01_names_and_versions_are_libslirps() {
    if !live::ready(&["nm", "readelf"]) {
        return;
    }
    let scratch = Scratch::new("slirp-symbols");
    let library = library(&scratch).join("libslirp.so.0");
    let library = library.to_str().unwrap();
    let symbols = run("nm", &["-D", "--defined-only", "--with-symbol-versions", library]);
    let found: Vec<&str> =
        symbols.lines().filter_map(|line| line.split_once(" T ").map(|(_, name)| name)).collect();
    let mut expected = SYMBOLS.to_vec();
    // Version 4.9's, whose types are those of `slirp_pollfds_fill` on Unix.
    expected.insert(13, "slirp_pollfds_fill_socket@@SLIRP_4.9");
    assert_eq!(found, expected);
    assert!(run("readelf", &["-d", library]).contains("Library soname: [libslirp.so.0]"));
}

/// Debian's library has no debugging information: symbols are compared, and how those of the same name are
/// called is the header's (`tests/c/program.c`).
#[test]
fn slirp_41_no_symbol_of_debians_library_is_missing() {
    const DEBIANS: &str = "/usr/lib/x86_64-linux-gnu/libslirp.so.0";
    if !live::ready(&["nm", "abidiff", "slirp4netns"]) {
        return;
    }
    let scratch = Scratch::new("slirp-abidiff");
    let own = library(&scratch).join("libslirp.so.0");
    let symbols = |path: &str| {
        let text = run("nm", &["-D", "--defined-only", "--with-symbol-versions", path]);
        text.lines().filter_map(|line| line.split_once(" T ").map(|(_, name)| name.to_owned())).collect()
    };
    let [own_symbols, debians]: [Vec<String>; 2] = [own.to_str().unwrap(), DEBIANS].map(symbols);
    let missing: Vec<_> = debians.iter().filter(|name| !own_symbols.contains(name)).collect();
    assert!(missing.is_empty() && debians.len() >= SYMBOLS.len(), "{missing:?} of {debians:?}");
    // It succeeds if nothing but new symbols differs.
    run("abidiff", &["--no-added-syms", DEBIANS, own.to_str().unwrap()]);
}
