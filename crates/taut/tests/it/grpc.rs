//! gRPC by tonic over taut's sockets: a channel over the connector, and a service behind axum's listener. The
//! messages are plain bytes, by a codec of this file, so that no compiler of protocols is needed.
#![cfg(all(feature = "axum", feature = "hyper"))]

use crate::net;
use crate::pair;

use std::convert::Infallible;
use std::future::{self, Future, Ready};
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};

use http::uri::PathAndQuery;
use net::Net;
use taut::{Bytes, Connector, Stack, TcpListener};
use taut_testbed::Noise;
use tonic::body::Body;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::server::{NamedService, UnaryService};
use tonic::service::Routes;
use tonic::transport::server::TcpIncoming;
use tonic::transport::{Channel, Endpoint, Server};
use tonic::{Code, Request, Response, Status};
use tower_service::Service;

/// A message is its bytes.
#[derive(Clone, Copy)]
struct Plain;

impl Codec for Plain {
    type Encode = Bytes;
    type Decode = Bytes;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        *self
    }

    fn decoder(&mut self) -> Self {
        *self
    }
}

impl Encoder for Plain {
    type Item = Bytes;
    type Error = Status;

    fn encode(&mut self, message: Bytes, into: &mut EncodeBuf<'_>) -> Result<(), Status> {
        bytes::BufMut::put(into, message);
        Ok(())
    }
}

impl Decoder for Plain {
    type Item = Bytes;
    type Error = Status;

    fn decode(&mut self, from: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, Status> {
        let len = bytes::Buf::remaining(from);
        Ok(Some(bytes::Buf::copy_to_bytes(from, len)))
    }
}

/// Returns each message, and refuses an empty one.
#[derive(Clone)]
struct Echo;

impl NamedService for Echo {
    const NAME: &'static str = "taut.Echo";
}

impl UnaryService<Bytes> for Echo {
    type Response = Bytes;
    type Future = Ready<Result<Response<Bytes>, Status>>;

    fn call(&mut self, request: Request<Bytes>) -> Self::Future {
        let message = request.into_inner();
        future::ready(if message.is_empty() {
            Err(Status::invalid_argument("an empty message"))
        } else {
            Ok(Response::new(message))
        })
    }
}

impl Service<http::Request<Body>> for Echo {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        Box::pin(async { Ok(tonic::server::Grpc::new(Plain).unary(Self, request).await) })
    }
}

async fn channel(stack: &Stack, to: SocketAddr) -> Channel {
    let endpoint = Endpoint::from_shared(format!("http://{to}")).unwrap();
    endpoint.connect_with_connector(Connector::new(stack)).await.unwrap()
}

async fn call(channel: Channel, message: Bytes) -> Result<Bytes, Status> {
    let mut client = tonic::client::Grpc::new(channel);
    client.ready().await.unwrap();
    let path = PathAndQuery::from_static("/taut.Echo/Echo");
    client.unary(Request::new(message), path, Plain).await.map(Response::into_inner)
}

/// Calls one after the other, calls at the same time, and one that the server refuses.
async fn assert_answers(channel: Channel) {
    let message = |seed| Bytes::from(Noise::new(seed).bytes(1 << 20).to_vec());
    assert_eq!(call(channel.clone(), Bytes::from_static(b"hello")).await.unwrap(), "hello");
    assert!(call(channel.clone(), message(1)).await.unwrap() == message(1), "a message arrives whole");
    let calls: Vec<_> = (0..8).map(|seed| tokio::spawn(call(channel.clone(), message(seed)))).collect();
    for (seed, call) in (0..).zip(calls) {
        assert!(call.await.unwrap().unwrap() == message(seed), "call {seed}");
    }
    let refused = call(channel, Bytes::new()).await.unwrap_err();
    assert_eq!((refused.code(), refused.message()), (Code::InvalidArgument, "an empty message"));
}

/// A channel over taut, to tonic's server over the kernel's sockets.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tonic_channel_calls_the_kernel() {
    let net = Net::new();
    for family in [0, 1] {
        let (listener, address) = net.listener(family);
        listener.set_nonblocking(true).unwrap();
        let incoming = TcpIncoming::from(tokio::net::TcpListener::from_std(listener).unwrap());
        let server = tokio::spawn(Server::builder().add_service(Echo).serve_with_incoming(incoming));
        assert_answers(channel(&net.stack, address).await).await;
        server.abort();
    }
}

/// taut at both ends: tonic's service is a router of axum.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn axum_serves_a_tonic_service() {
    let (near, far) = pair::pair(|builder| builder);
    let listener = TcpListener::bind(&far, "10.0.0.2:80").await.unwrap();
    let server = tokio::spawn(axum::serve(listener, Routes::new(Echo).into_axum_router()).into_future());
    assert_answers(channel(&near, "10.0.0.2:80".parse().unwrap()).await).await;
    server.abort();
}

/// A connection that is refused is an error of the channel.
#[tokio::test]
async fn nobody_listens() {
    let net = Net::new();
    let endpoint = Endpoint::from_static("http://10.7.0.1:9");
    let error = endpoint.connect_with_connector(Connector::new(&net.stack)).await.unwrap_err();
    assert!(format!("{error:?}").contains("ConnectionRefused"), "{error:?}");
}
