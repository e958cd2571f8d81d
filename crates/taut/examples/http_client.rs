//! HTTP by hyper-util's client over a taut stack. Feature `hyper` of taut; the server needs `axum`.
//!
//! reqwest takes no connector of one's own (seanmonstar/reqwest#2633); this client is the one inside it.
//!
//! ```console
//! $ cargo run -p taut --example http_client        # both ends in this program: no root, no TUN
//! ```

use axum::{Router, routing::get};
use http_body_util::{BodyExt, Empty};
use hyper_util::{client::legacy::Client, rt::TokioExecutor};
use taut::device::{LinkCaps, pipe};
use taut::{Bytes, Connector, Stack, TcpListener};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    // Two stacks joined in memory; yours has `.tun("taut0")` or a device of its own.
    let (near, far) = pipe(LinkCaps::offloading(1500), 1 << 20)?;
    let stack = Stack::builder().device(near).address("10.0.0.1/24").build()?;
    let server = Stack::builder().device(far).address("10.0.0.2/24").build()?;
    let listener = TcpListener::bind(&server, "10.0.0.2:80").await?;
    let app = Router::new().route("/", get(|| async { "hello" }));
    tokio::spawn(axum::serve(listener, app).into_future());

    let client: Client<_, Empty<Bytes>> = Client::builder(TokioExecutor::new()).build(Connector::new(&stack));
    let response = client.get("http://10.0.0.2/".parse()?).await?;
    let status = response.status();
    println!("{status}: {:?}", response.into_body().collect().await?.to_bytes());
    Ok(())
}
