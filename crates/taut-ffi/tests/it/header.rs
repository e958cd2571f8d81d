//! include/taut.h is what cbindgen makes of the sources, and has every function once.
//!
//! `TAUT_WRITE_HEADER=1 cargo test -p taut-ffi --test it header` writes it.

use std::fs;
use std::path::Path;

const CRATE: &str = env!("CARGO_MANIFEST_DIR");

fn made() -> String {
    let config = cbindgen::Config::from_file(Path::new(CRATE).join("cbindgen.toml")).unwrap();
    let mut made = Vec::new();
    cbindgen::generate_with_config(CRATE, config).unwrap().write(&mut made);
    String::from_utf8(made).unwrap()
}

#[test]
fn ffi_05_the_header_is_that_of_the_sources() {
    let path = Path::new(CRATE).join("include/taut.h");
    let made = made();
    if std::env::var_os("TAUT_WRITE_HEADER").is_some() {
        fs::write(&path, &made).unwrap();
    }
    let is_same = fs::read_to_string(&path).is_ok_and(|header| header == made);
    assert!(is_same, "TAUT_WRITE_HEADER=1 cargo test -p taut-ffi --test it header writes {}", path.display());
}
