//! An HTTP GET through a WireGuard tunnel, without root: outside there is only UDP of an ordinary socket.
//!
//! ```console
//! $ cargo run -p taut-wireguard --example get -- wg0.conf www.example.com:80 /
//! ```
//!
//! The name is looked up inside the tunnel, by the servers of the file's `DNS`.

use std::io::{self, Read as _, Write as _};
use std::net::SocketAddr;

use taut::Stack;
use taut::blocking::TcpStream;
use taut::dns::Resolver;
use taut_wireguard::{Config, WireGuard};

fn main() -> io::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [file, host, path] = &arguments[..] else {
        println!("usage: get FILE HOST:PORT PATH");
        return Ok(());
    };
    // The file of wg-quick; one that every user can read is refused.
    let config = Config::read(file)?;
    let device = WireGuard::open(&config)?;
    let monitor = device.monitor();
    let addresses = device.addresses().to_vec();
    let servers = config.dns.iter().map(|server| SocketAddr::new(*server, 53)).collect();
    let mut builder = Stack::builder().device(device).resolver(Resolver::Servers(servers));
    for own in addresses {
        builder = builder.address(&own.to_string());
    }
    let stack = builder.build()?;

    // The first packet begins the handshake, and waits for it.
    let mut stream = TcpStream::connect(&stack, host.as_str())?;
    write!(stream, "GET {path} HTTP/1.0\r\nHost: {host}\r\n\r\n")?;
    let mut reply = Vec::new();
    stream.read_to_end(&mut reply)?;
    io::stdout().write_all(&reply)?;
    eprint!("{}", monitor.status());
    Ok(())
}
