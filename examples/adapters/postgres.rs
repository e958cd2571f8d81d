//! PostgreSQL: tokio-postgres over a stream of taut, by `Config::connect_raw`. The server is a few messages
//! written by hand, because PostgreSQL itself is too heavy to install for an example.
//!
//! ```console
//! $ cargo run --manifest-path examples/adapters/Cargo.toml --bin postgres        # both ends in this program
//! ```

use taut::device::{LinkCaps, pipe};
use taut::{Stack, TcpListener, TcpStream};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_postgres::{Config, NoTls, SimpleQueryMessage::Row};

/// Lets any user in, and answers a query with one row of one text.
async fn serve(listener: TcpListener) -> std::io::Result<()> {
    let (mut stream, _) = listener.accept().await?;
    stream.read(&mut [0; 1024]).await?;
    stream.write_all(b"R\0\0\0\x08\0\0\0\0Z\0\0\0\x05I").await?; // AuthenticationOk, ReadyForQuery
    stream.read(&mut [0; 1024]).await?;
    stream.write_all(b"T\0\0\0\x1d\0\x01word\0\0\0\0\0\0\0\0\0\0\x19\xff\xff\xff\xff\xff\xff\0\0").await?;
    stream.write_all(b"D\0\0\0\x0f\0\x01\0\0\0\x05helloC\0\0\0\x0dSELECT 1\0Z\0\0\0\x05I").await
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    // Two stacks joined in memory; yours has `.tun("taut0")` or a device of its own.
    let (near, far) = pipe(LinkCaps::offloading(1500), 1 << 20)?;
    let stack = Stack::builder().device(near).address("10.0.0.1/24").build()?;
    let server = Stack::builder().device(far).address("10.0.0.2/24").build()?;
    tokio::spawn(serve(TcpListener::bind(&server, "10.0.0.2:5432").await?));

    let stream = TcpStream::connect(&stack, "10.0.0.2:5432").await?;
    let (client, connection) = Config::new().user("me").connect_raw(stream, NoTls).await?;
    tokio::spawn(connection);
    let rows = client.simple_query("SELECT 'hello' AS word").await?;
    let words: Vec<_> =
        rows.iter().filter_map(|row| if let Row(row) = row { row.get("word") } else { None }).collect();
    println!("{words:?}");
    Ok(())
}
