//! SSH: russh over a stream of taut, by `client::connect_stream`. The server is russh's, too.
//!
//! ```console
//! $ cargo run --manifest-path examples/adapters/Cargo.toml --bin ssh             # both ends in this program
//! ```

mod server;

use russh::{ChannelMsg, Error, client, keys::PublicKeyOrCertificate};
use taut::device::{LinkCaps, pipe};
use taut::{Stack, TcpListener, TcpStream};

struct Client;

impl client::Handler for Client {
    type Error = Error;
    async fn check_server_key(&mut self, _: &PublicKeyOrCertificate) -> Result<bool, Error> {
        Ok(true) // Yours compares it with the one that it knows.
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    // Two stacks joined in memory; yours has `.tun("taut0")` or a device of its own.
    let (near, far) = pipe(LinkCaps::offloading(1500), 1 << 20)?;
    let stack = Stack::builder().device(near).address("10.0.0.1/24").build()?;
    let host = Stack::builder().device(far).address("10.0.0.2/24").build()?;
    tokio::spawn(server::serve(TcpListener::bind(&host, "10.0.0.2:22").await?));

    let stream = TcpStream::connect(&stack, "10.0.0.2:22").await?;
    let mut session = client::connect_stream(Default::default(), stream, Client).await?;
    session.authenticate_none("me").await?;
    let mut channel = session.channel_open_session().await?;
    channel.exec(true, "hello").await?;
    while let Some(message) = channel.wait().await {
        let ChannelMsg::Data { data } = message else { continue };
        println!("{}", String::from_utf8_lossy(&data));
    }
    Ok(())
}
