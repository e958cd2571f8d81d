//! gRPC: a tonic channel over a taut stack, by `taut::Connector`. Feature `hyper` of taut; the server needs
//! `axum`. The service is gRPC's own health check: tonic-health has its messages compiled.
//!
//! ```console
//! $ cargo run --manifest-path examples/adapters/Cargo.toml --bin grpc        # both ends in this program
//! ```

use taut::device::{LinkCaps, pipe};
use taut::{Connector, Stack, TcpListener};
use tonic::service::Routes;
use tonic::transport::Endpoint;
use tonic_health::pb::{HealthCheckRequest, health_client::HealthClient};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    // Two stacks joined in memory; yours has `.tun("taut0")` or a device of its own.
    let (near, far) = pipe(LinkCaps::offloading(1500), 1 << 20)?;
    let stack = Stack::builder().device(near).address("10.0.0.1/24").build()?;
    let server = Stack::builder().device(far).address("10.0.0.2/24").build()?;
    let listener = TcpListener::bind(&server, "10.0.0.2:50051").await?;
    let (_reporter, health) = tonic_health::server::health_reporter();
    tokio::spawn(axum::serve(listener, Routes::new(health).into_axum_router()).into_future());

    let endpoint = Endpoint::from_static("http://10.0.0.2:50051");
    let channel = endpoint.connect_with_connector(Connector::new(&stack)).await?;
    let answer = HealthClient::new(channel).check(HealthCheckRequest::default()).await?;
    println!("{:?}", answer.into_inner().status());
    Ok(())
}
