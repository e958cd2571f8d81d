//! `taut::Connector` is a tower service from a URI to a stream, so tower's layers fit around it: here, a
//! timeout. Feature `hyper` of taut.
//!
//! ```console
//! $ cargo run -p taut --example tower_timeout        # both ends in this program: no root, no TUN
//! ```

use std::time::Duration;
use taut::device::{LinkCaps, pipe};
use taut::{Connector, Stack, TcpListener};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tower::{BoxError, ServiceBuilder, ServiceExt};

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    // Two stacks joined in memory; yours has `.tun("taut0")` or a device of its own.
    let (near, far) = pipe(LinkCaps::offloading(1500), 1 << 20)?;
    let stack = Stack::builder().device(near).address("10.0.0.1/24").build()?;
    let server = Stack::builder().device(far).address("10.0.0.2/24").build()?;
    let listener = TcpListener::bind(&server, "10.0.0.2:7").await?;
    tokio::spawn(async move { listener.accept().await?.0.write_all(b"hello").await });

    let limit = Duration::from_secs(10);
    let connect = ServiceBuilder::new().timeout(limit).service(Connector::new(&stack));
    let mut text = String::new();
    connect.oneshot("tcp://10.0.0.2:7".parse()?).await?.read_to_string(&mut text).await?;
    println!("{text}");

    // No host has this address: the SYN stays unanswered.
    let limit = Duration::from_millis(100);
    let connect = ServiceBuilder::new().timeout(limit).service(Connector::new(&stack));
    println!("{}", connect.oneshot("tcp://10.0.0.3:7".parse()?).await.unwrap_err());
    Ok(())
}
