//! The name by which the loader finds the shared library. Its number changes with the ABI.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libtaut.so.0");
}
