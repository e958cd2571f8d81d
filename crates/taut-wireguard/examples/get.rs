//! An HTTP GET through a WireGuard tunnel, without root: outside there is only UDP of an ordinary socket.
//!
//! ```console
//! $ cargo run -p taut-wireguard --example get -- wg0.conf 10.66.0.1:80 /
//! ```
//!
//! The host is an address: names would be looked up outside the tunnel by this machine's resolver.

use std::io::{self, Read as _, Write as _};
use std::net::SocketAddr;

use taut::Stack;
use taut::blocking::TcpStream;
use taut_wireguard::{Config, WireGuard};

fn main() -> io::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [file, host, path] = &arguments[..] else {
        println!("usage: get FILE ADDRESS:PORT PATH");
        return Ok(());
    };
    // The file of wg-quick; one that every user can read is refused.
    let device = WireGuard::open(&Config::read(file)?)?;
    let monitor = device.monitor();
    let addresses = device.addresses().to_vec();
    let mut builder = Stack::builder().device(device);
    for own in addresses {
        builder = builder.address(&own.to_string());
    }
    let stack = builder.build()?;

    let host: SocketAddr = host.parse().map_err(io::Error::other)?;
    // The first packet begins the handshake, and waits for it.
    let mut stream = TcpStream::connect(&stack, host)?;
    write!(stream, "GET {path} HTTP/1.0\r\nHost: {host}\r\n\r\n")?;
    let mut reply = Vec::new();
    stream.read_to_end(&mut reply)?;
    io::stdout().write_all(&reply)?;
    eprint!("{}", monitor.status());
    Ok(())
}
