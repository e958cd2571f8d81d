//! An echo server with blocking sockets, a thread for each connection.
//!
//! ```console
//! $ cargo run -p taut --example echo_server                # with a client in this program: no root, no TUN
//! $ cargo build -p taut --example echo_server
//! $ sudo target/debug/examples/echo_server taut0 &         # on the TUN taut0, until it is killed
//! $ nc 10.9.0.2 7
//! ```

use std::io::{self, BufRead, BufReader, Write};
use std::thread;

use taut::Stack;
use taut::blocking::{TcpListener, TcpStream};
use taut::device::{LinkCaps, pipe};

/// Sends every client back what it sends, until the stack ends.
fn serve(listener: &TcpListener) -> io::Result<()> {
    loop {
        let (stream, from) = listener.accept()?;
        thread::spawn(move || match echo(stream) {
            Ok(bytes) => println!("{from}: {bytes} bytes"),
            Err(error) => println!("{from}: {error}"),
        });
    }
}

fn echo(mut stream: TcpStream) -> io::Result<u64> {
    io::copy(&mut stream.try_clone()?, &mut stream)
}

/// Asks the server for two lines.
fn talk(stack: &Stack) -> io::Result<()> {
    let mut stream = TcpStream::connect(stack, "10.9.0.2:7")?;
    let mut lines = BufReader::new(stream.try_clone()?).lines();
    for line in ["hello", "goodbye"] {
        writeln!(stream, "{line}")?;
        let back = lines.next().ok_or(io::ErrorKind::UnexpectedEof)??;
        println!("sent {line:?}, got {back:?} back");
    }
    Ok(())
}

fn main() -> io::Result<()> {
    let server = Stack::builder().address("10.9.0.2/24");
    if let Some(tun) = std::env::args().nth(1) {
        let stack = server.tun(&tun).host_address("10.9.0.1/24").build()?;
        let listener = TcpListener::bind(&stack, "10.9.0.2:7")?;
        println!("listening at 10.9.0.2:7 on {tun}");
        return serve(&listener);
    }
    // Two stacks joined by a pipe.
    let (near, far) = pipe(LinkCaps::offloading(1_500), 1 << 20)?;
    let stack = server.device(near).build()?;
    let listener = TcpListener::bind(&stack, "10.9.0.2:7")?;
    thread::spawn(move || serve(&listener));
    talk(&Stack::builder().device(far).address("10.9.0.1/24").build()?)
}
