//! axum and hyper over taut's sockets, with the kernel's TCP, curl and hyper as peers.
#![cfg(all(feature = "axum", feature = "hyper"))]

use crate::net;
use crate::pair;

use std::convert::Infallible;
use std::net::SocketAddr;
use std::process::Command;
use std::thread;

use axum::Router;
use axum::routing::{get, post};
use http_body_util::{BodyExt, Full};
use hyper::{Request, Response, service::service_fn};
use hyper_util::client::legacy::Client;
use hyper_util::rt::{TokioExecutor, TokioIo};
use net::Net;
use taut::{Bytes, Connector, TcpListener, TcpStream};
use taut_testbed::Noise;

const BODY: usize = 8 << 20;

fn noise(seed: u64) -> Bytes {
    Noise::new(seed).bytes(BODY).to_vec().into()
}

/// Serves a large body, and echoes one.
fn app() -> Router {
    let body = noise(1);
    let limit = axum::extract::DefaultBodyLimit::max(2 * BODY);
    Router::new()
        .route("/noise", get(move || async move { body }))
        .route("/echo", post(|body: Bytes| async move { body }))
        .layer(limit)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn axum_serves_curl() {
    let net = Net::new();
    let listener = TcpListener::bind(&net.stack, "10.7.0.2:80").await.unwrap();
    let server = tokio::spawn(axum::serve(listener, app()).into_future());
    let curl = |args: &[&str]| {
        let output = thread::scope(|scope| {
            let run =
                || net.kernel.enter(|| Command::new("curl").args(["-sS", "-m", "30"]).args(args).output());
            scope.spawn(run).join().unwrap().unwrap().expect("curl is installed: make setup")
        });
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        output.stdout
    };
    assert!(curl(&["http://10.7.0.2/noise"]) == noise(1), "the body arrives whole");
    // Two requests on one connection.
    let both = curl(&["-d", "hello", "http://10.7.0.2/echo", "-d", "hello", "http://10.7.0.2/echo"]);
    assert_eq!(both, b"hello&hellohello&hello");
    server.abort();
}

/// The legacy client of hyper-util, over taut, to a server over the kernel's sockets.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hyper_client_fetches_from_the_kernel() {
    let net = Net::new();
    for family in [0, 1] {
        let (listener, address) = net.listener(family);
        listener.set_nonblocking(true).unwrap();
        let listener = tokio::net::TcpListener::from_std(listener).unwrap();
        let server = tokio::spawn(axum::serve(listener, app()).into_future());
        let client = Client::builder(TokioExecutor::new()).build(Connector::new(&net.stack));
        let get = Request::get(format!("http://{address}/noise")).body(Full::default()).unwrap();
        let response = client.request(get).await.unwrap();
        assert!(response.into_body().collect().await.unwrap().to_bytes() == noise(1));
        let sent = noise(2);
        for _ in 0..3 {
            let body = Full::new(sent.clone());
            let post = Request::post(format!("http://{address}/echo")).body(body).unwrap();
            let response = client.request(post).await.unwrap();
            assert!(response.into_body().collect().await.unwrap().to_bytes() == sent);
        }
        server.abort();
    }
}

/// The stream itself has hyper's traits, on both sides.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hyper_reads_and_writes_streams() {
    let (near, far) = pair::pair(|builder| builder);
    let listener = TcpListener::bind(&far, "10.0.0.2:80").await.unwrap();
    let server = tokio::spawn(async move {
        let (stream, _) = listener.accept().await.unwrap();
        let echo = service_fn(|request: Request<hyper::body::Incoming>| async move {
            let body = request.into_body().collect().await.unwrap().to_bytes();
            Ok::<_, Infallible>(Response::new(Full::new(body)))
        });
        hyper::server::conn::http1::Builder::new().serve_connection(stream, echo).await.unwrap();
    });
    let stream = TcpStream::connect(&near, "10.0.0.2:80").await.unwrap();
    let (mut sender, connection) = hyper::client::conn::http1::handshake(stream).await.unwrap();
    let connection = tokio::spawn(connection);
    let sent = noise(3);
    let request = Request::post("/").header("host", "far").body(Full::new(sent.clone())).unwrap();
    let response = sender.send_request(request).await.unwrap();
    assert!(response.into_body().collect().await.unwrap().to_bytes() == sent);
    drop(sender);
    connection.await.unwrap().unwrap();
    server.await.unwrap();
    // As with any stream of tokio, hyper-util's wrapper does the same.
    let _: fn(TcpStream) -> TokioIo<TcpStream> = TokioIo::new;
}

/// An error of the connection reaches the client.
#[tokio::test]
async fn a_refused_connection_is_an_error() {
    let net = Net::new();
    let client: Client<_, Full<Bytes>> =
        Client::builder(TokioExecutor::new()).build(Connector::new(&net.stack));
    let error = client.get("http://10.7.0.1:9/".parse().unwrap()).await.unwrap_err();
    assert!(error.is_connect(), "{error:?}");
    let nowhere: SocketAddr = "10.7.0.1:9".parse().unwrap();
    assert!(TcpStream::connect(&net.stack, nowhere).await.is_err());
}

/// What `tonic::transport::Endpoint::connect_with_connector` demands of a connector.
#[test]
fn the_connector_has_the_shape_that_tonic_demands() {
    fn demands<C>(_: &C)
    where
        C: tower_service::Service<http::Uri> + Send + 'static,
        C::Response: hyper::rt::Read + hyper::rt::Write + Send + Unpin + 'static,
        C::Future: Send,
        Box<dyn std::error::Error + Send + Sync>: From<C::Error> + Send + 'static,
    {
    }
    let (near, _far) = pair::pair(|builder| builder);
    demands(&Connector::new(&near));
}
