//! The traits of futures-io, which smol uses, by `tokio_util::compat`; no runtime of tokio is running.
//!
//! ```console
//! $ cargo run -p taut --example futures_io        # both ends in this program: no root, no TUN
//! ```

use futures_lite::future::{block_on, try_zip};
use futures_lite::io::{self, AsyncReadExt, AsyncWriteExt};
use taut::device::{LinkCaps, pipe};
use taut::{Stack, TcpListener, TcpStream};
use tokio_util::compat::TokioAsyncReadCompatExt;

fn main() -> io::Result<()> {
    // Two stacks joined in memory; yours has `.tun("taut0")` or a device of its own.
    // `build` gives each a thread, so any executor may poll their sockets.
    let (near, far) = pipe(LinkCaps::offloading(1500), 1 << 20)?;
    let stack = Stack::builder().device(near).address("10.0.0.1/24").build()?;
    let server = Stack::builder().device(far).address("10.0.0.2/24").build()?;

    let listener = block_on(TcpListener::bind(&server, "10.0.0.2:7"))?;
    let echo = async {
        let (reader, writer) = io::split(listener.accept().await?.0.compat());
        io::copy(reader, writer).await
    };
    let talk = async {
        let mut stream = TcpStream::connect(&stack, "10.0.0.2:7").await?.compat();
        stream.write_all(b"hello").await?;
        stream.close().await?;
        let mut text = String::new();
        stream.read_to_string(&mut text).await?;
        Ok(text)
    };
    let (bytes, text) = block_on(try_zip(echo, talk))?;
    println!("{bytes} bytes echoed: {text}");
    Ok(())
}
