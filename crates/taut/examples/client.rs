//! A client: fetches a page over HTTP, on a connection of a stack of its own.
//!
//! ```console
//! $ cargo run -p taut --example client                          # from a server in this program: no root, no TUN
//! $ cargo build -p taut --example client
//! $ python3 -m http.server 8000 &
//! $ sudo target/debug/examples/client taut0 10.9.0.1:8000 /     # from a server of the kernel's, over the TUN taut0
//! ```

use std::io;
use std::sync::Arc;
use std::thread;

use taut::device::{Device, FarEnd, LinkCaps, channel};
use taut::{Stack, TcpListener, TcpStream};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// Fetches a page. The server closes the connection at its end.
async fn get(stack: &Stack, server: &str, path: &str) -> io::Result<String> {
    let mut stream = TcpStream::connect(stack, server).await?;
    stream.write_all(format!("GET {path} HTTP/1.0\r\nHost: {server}\r\n\r\n").as_bytes()).await?;
    let mut reply = Vec::new();
    stream.read_to_end(&mut reply).await?;
    Ok(String::from_utf8_lossy(&reply).into_owned())
}

/// Answers one request with the address that it came from.
async fn serve_one(listener: TcpListener) -> io::Result<()> {
    let (mut stream, from) = listener.accept().await?;
    let mut request = Vec::new();
    while !request.ends_with(b"\r\n\r\n") {
        request.push(stream.read_u8().await?);
    }
    stream.write_all(format!("HTTP/1.0 200 OK\r\n\r\nHello, {from}.\n").as_bytes()).await
}

/// Carries packets from one end to the other, until that one's stack ends. A packet that finds no room is lost.
fn carry(from: Arc<FarEnd>, to: Arc<FarEnd>) {
    thread::spawn(move || {
        while let Some(parcel) = from.recv() {
            to.put(&parcel.packet());
        }
    });
}

/// Two devices, each on the other's end of the cable. A program that takes packets elsewhere has one of them, and
/// does with its far end what it likes.
fn cable() -> (Device, Device) {
    let ((near, near_end), (far, far_end)) =
        (channel(LinkCaps::offloading(1_500), 1 << 20), channel(LinkCaps::offloading(1_500), 1 << 20));
    let (near_end, far_end) = (Arc::new(near_end), Arc::new(far_end));
    carry(Arc::clone(&near_end), Arc::clone(&far_end));
    carry(far_end, near_end);
    (near, far)
}

#[tokio::main]
async fn main() -> io::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let page = match &arguments[..] {
        [] => {
            let (near, far) = cable();
            let client = Stack::builder().device(near).address("10.9.0.2/24").build()?;
            let server = Stack::builder().device(far).address("10.9.0.1/24").build()?;
            let listener = TcpListener::bind(&server, "10.9.0.1:80").await?;
            let (page, served) = tokio::join!(get(&client, "10.9.0.1:80", "/"), serve_one(listener));
            served?;
            page?
        }
        [tun, server, path] => {
            let stack =
                Stack::builder().tun(tun).address("10.9.0.2/24").host_address("10.9.0.1/24").build()?;
            get(&stack, server, path).await?
        }
        _ => return Err(io::Error::other("give a TUN, ADDRESS:PORT and a path, or nothing")),
    };
    print!("{page}");
    Ok(())
}
