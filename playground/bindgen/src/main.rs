//! Writes the JavaScript between the playground and its WebAssembly module: what the command `wasm-bindgen`
//! does, as a program whose version the lock file of this directory chooses. The version must be that of the
//! library in the engine.

use std::env;
use std::process::ExitCode;

use wasm_bindgen_cli_support::Bindgen;

fn main() -> ExitCode {
    let mut arguments = env::args().skip(1);
    let (Some(module), Some(out), None) = (arguments.next(), arguments.next(), arguments.next()) else {
        eprintln!("usage: taut-playground-bindgen MODULE.wasm DIRECTORY");
        return ExitCode::from(2);
    };
    let mut bindgen = Bindgen::new();
    let made = bindgen
        .input_path(&module)
        .out_name("engine")
        .typescript(true)
        .omit_default_module_path(true)
        .web(true);
    // A browser knows the names of no function of the simulator, and needs none.
    let made = made.map(|bindgen| bindgen.remove_name_section(true).remove_producers_section(true));
    match made.and_then(|bindgen| bindgen.generate(&out)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{module}: {error:#}");
            ExitCode::FAILURE
        }
    }
}
