//! WebSocket by tokio-tungstenite, which takes any stream: `client_async` and `accept_async`.
//!
//! ```console
//! $ cargo run -p taut --example websocket        # both ends in this program: no root, no TUN
//! ```

use futures_util::{SinkExt, StreamExt};
use taut::device::{LinkCaps, pipe};
use taut::{Stack, TcpListener, TcpStream};
use tokio_tungstenite::{accept_async, client_async};

type Outcome<T> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

async fn echo(listener: TcpListener) -> Outcome<()> {
    let mut socket = accept_async(listener.accept().await?.0).await?;
    while let Some(message) = socket.next().await {
        socket.send(message?).await?;
    }
    Ok(())
}

#[tokio::main]
async fn main() -> Outcome<()> {
    // Two stacks joined in memory; yours has `.tun("taut0")` or a device of its own.
    let (near, far) = pipe(LinkCaps::offloading(1500), 1 << 20)?;
    let stack = Stack::builder().device(near).address("10.0.0.1/24").build()?;
    let server = Stack::builder().device(far).address("10.0.0.2/24").build()?;
    tokio::spawn(echo(TcpListener::bind(&server, "10.0.0.2:80").await?));

    let stream = TcpStream::connect(&stack, "10.0.0.2:80").await?;
    let (mut socket, response) = client_async("ws://10.0.0.2/", stream).await?;
    socket.send("hello".into()).await?;
    let message = socket.next().await.ok_or("the server closed the connection")??;
    println!("{}: {message}", response.status());
    Ok(())
}
