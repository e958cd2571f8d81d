//! A client and a server in one process, over a link in memory: the example of README.md.

use std::io::{Read, Write};
use taut::blocking::{TcpListener, TcpStream};
use taut::{Stack, device};

fn main() -> std::io::Result<()> {
    let (here, there) = device::pipe(device::LinkCaps::offloading(1500), 1 << 20)?;
    let client = Stack::builder().device(here).address("10.0.0.1/24").build()?;
    let server = Stack::builder().device(there).address("10.0.0.2/24").build()?;
    let listener = TcpListener::bind(&server, "10.0.0.2:80")?;
    std::thread::spawn(move || listener.accept()?.0.write_all(b"hello"));
    let mut text = String::new();
    TcpStream::connect(&client, "10.0.0.2:80")?.read_to_string(&mut text)?;
    println!("{text}");
    Ok(())
}
