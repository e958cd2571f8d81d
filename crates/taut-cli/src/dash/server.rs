//! The dashboard's web server: the page, its samples, and OpenMetrics.
//!
//! | path | is |
//! |---|---|
//! | `/`, `/style.css`, `/dash.js` | the page, from the binary |
//! | `/samples` | samples as server-sent events, for as long as the client reads |
//! | `/sample` | one |
//! | `/metrics` | OpenMetrics of the same stacks |
//!
//! Called by `dash.rs`.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use bytes::Bytes;
use futures_util::stream;
use http::{HeaderValue, StatusCode, header};
use tokio::sync::Mutex;

use crate::dash::access::Access;
use crate::dash::feed::{Feed, Make, WATCHERS_MAX};
use crate::dash::watch::{Watch, Which, pause};
use crate::observe::metrics;
use crate::shared::clock::Stopwatch;

/// Around a sample in a stream of events (WHATWG HTML, server-sent events). JSON has no line ends outside
/// of strings, and none in them.
const BEFORE: &[u8] = b"data: ";
const AFTER: &[u8] = b"\n\n";

/// Nothing but what this server gives; no frame around it; styles and scripts from files alone.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; \
                      base-uri 'none'; form-action 'none'; frame-ancestors 'none'";
const HEADERS: [(header::HeaderName, &str); 5] = [
    (header::CONTENT_SECURITY_POLICY, POLICY),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::REFERRER_POLICY, "no-referrer"),
    (header::CACHE_CONTROL, "no-store"),
    (header::HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
];

/// The sheet of the playground and the dashboard, then the dashboard's own.
const STYLE: &str = concat!(include_str!("page/common.css"), "\n", include_str!("page/style.css"));
/// The least time between two texts of OpenMetrics.
const METRICS_INTERVAL: Duration = Duration::from_secs(1);

impl Make for Watch {
    fn wait(&self) -> Duration {
        Watch::wait(self)
    }

    fn make(&mut self) -> Bytes {
        self.look(|sample| {
            let mut event = BEFORE.to_vec();
            // Names are strings and numbers are finite: always representable.
            _ = serde_json::to_writer(&mut event, sample);
            event.extend_from_slice(AFTER);
            event.into()
        })
    }
}

/// The last text of OpenMetrics, and what it cost.
#[derive(Debug)]
struct Text {
    bytes: Bytes,
    made: Stopwatch,
    took: Duration,
}

#[derive(Clone, Debug)]
struct Server {
    access: Access,
    feed: Feed,
    which: Which,
    metrics: Arc<Mutex<Option<Text>>>,
}

/// Everything at that address: samples from `feed`, OpenMetrics of the stacks `which`.
pub fn router(access: Access, feed: Feed, which: Which) -> Router {
    let server = Server { access, feed, which, metrics: Arc::default() };
    let numbers = Router::new()
        .route("/samples", get(samples))
        .route("/sample", get(sample))
        .route("/metrics", get(openmetrics))
        .route_layer(middleware::from_fn_with_state(server.clone(), with_token));
    Router::new()
        .route("/", get(|| file("text/html; charset=utf-8", include_str!("page/index.html"))))
        .route("/style.css", get(|| file("text/css; charset=utf-8", STYLE)))
        .route("/dash.js", get(|| file("text/javascript; charset=utf-8", include_str!("page/dash.js"))))
        .merge(numbers)
        .fallback(|| async { (StatusCode::NOT_FOUND, "look at /, /sample or /metrics\n") })
        .layer(middleware::from_fn_with_state(server.clone(), guarded))
        .with_state(server)
}

/// Refuses who may not see anything, and adds the headers of every answer.
async fn guarded(State(server): State<Server>, request: Request, next: Next) -> Response {
    let mut response = match server.access.check_host(request.headers()) {
        Ok(()) => next.run(request).await,
        Err(refusal) => refusal.into_response(),
    };
    for (name, value) in HEADERS {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    response
}

async fn with_token(State(server): State<Server>, request: Request, next: Next) -> Response {
    let (access, headers) = (&server.access, request.headers());
    match access.check_site(headers).and_then(|()| access.check_token(request.uri(), headers)) {
        Ok(()) => next.run(request).await,
        Err(refusal) => refusal.into_response(),
    }
}

async fn file(kind: &'static str, text: &'static str) -> Response {
    ([(header::CONTENT_TYPE, kind)], text).into_response()
}

fn full() -> Response {
    let words = format!("{WATCHERS_MAX} pages watch already; close one\n");
    (StatusCode::SERVICE_UNAVAILABLE, words).into_response()
}

async fn samples(State(server): State<Server>) -> Response {
    let Some(watcher) = server.feed.watch() else { return full() };
    // Asked for the next one only when the client has room for it.
    let events = stream::unfold(watcher, |mut watcher| async move {
        let event = watcher.next().await?;
        Some((Ok::<_, std::convert::Infallible>(event), watcher))
    });
    ([(header::CONTENT_TYPE, "text/event-stream")], Body::from_stream(events)).into_response()
}

async fn sample(State(server): State<Server>) -> Response {
    let Some(mut watcher) = server.feed.watch() else { return full() };
    let Some(event) = watcher.next().await else { return StatusCode::SERVICE_UNAVAILABLE.into_response() };
    let json = event.slice(BEFORE.len()..event.len() - AFTER.len());
    ([(header::CONTENT_TYPE, "application/json")], json).into_response()
}

/// Costs the stacks no more than samples do: who asks sooner gets the text again.
async fn openmetrics(State(server): State<Server>) -> Response {
    let mut last = server.metrics.lock().await;
    let is_new = |text: &&Text| text.made.elapsed() < pause(text.took, METRICS_INTERVAL);
    let bytes = match last.as_ref().filter(is_new) {
        Some(text) => text.bytes.clone(),
        None => {
            let began = Stopwatch::start();
            let which = server.which.clone();
            let made = tokio::task::spawn_blocking(move || metrics::text(&which)).await;
            match made.unwrap_or_else(|error| Err(error.into())) {
                Ok(text) => {
                    let text = Text { bytes: text.into(), made: Stopwatch::start(), took: began.elapsed() };
                    last.insert(text).bytes.clone()
                }
                Err(error) => {
                    return (StatusCode::INTERNAL_SERVER_ERROR, format!("{error:#}\n")).into_response();
                }
            }
        }
    };
    ([(header::CONTENT_TYPE, taut_control::openmetrics::CONTENT_TYPE)], bytes).into_response()
}
