//! `taut dash`: a live page of what each connection of the running stacks does; `--dash` of the commands
//! that run one.
//!
//! | file | has |
//! |---|---|
//! | `sampler.rs` | two looks in, rows out |
//! | `watch.rs` | asks the stacks, and how often |
//! | `feed.rs` | one sample for all who watch |
//! | `access.rs` | who may see it |
//! | `server.rs` | what the address answers |
//! | `page/` | the page: files as they are in the binary |
//!
//! `top.rs` shows the same samples in a terminal. For users there is docs/guide/dashboard.md.

pub mod access;
pub mod feed;
pub mod sampler;
pub mod server;
pub mod watch;

use std::convert::Infallible;
use std::net::{SocketAddr, TcpListener};
use std::sync::Mutex;
use std::time::Duration;

use clap::Args;
use hyper_util::service::TowerToHyperService;

use crate::args::control::SocketArgs;
use crate::dash::access::{Access, Token};
use crate::dash::feed::Feed;
use crate::dash::watch::{Watch, Which};
use crate::shared::advice::cannot_listen;
use crate::shared::log::{self, Level, LogArgs};
use crate::shared::{http_loop, interrupt, output};

/// Shows every connection of the running stacks live, on a web page
#[derive(Args, Debug)]
#[command(after_help = "Example, with a running stack such as `taut serve .`:\n  \
    taut dash\n  openssl rand -hex 16 > token\n  taut dash 0.0.0.0:9118 --token-file token\n  curl http://127.0.0.1:9118/metrics\n\n\
    At an address that is not loopback, a token is needed; without --token-file a random one is made, and printed with the \
    address. /sample has one sample as JSON, /metrics has OpenMetrics.")]
pub struct DashArgs {
    /// Where to show the page: ADDRESS:PORT, or PORT on loopback
    #[arg(value_name = "[ADDRESS:]PORT", default_value = "127.0.0.1:9118", value_parser = access::listen)]
    listen: SocketAddr,
    /// File with the token of at least 16 characters; - for standard input
    #[arg(long = "token-file", value_name = "FILE", value_parser = access::token_file)]
    token: Option<Token>,
    #[command(flatten)]
    interval: IntervalArgs,
    /// Print the page's address as JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    log: LogArgs,
    #[command(flatten)]
    socket: SocketArgs,
}

/// How often a sample is taken.
#[derive(Args, Clone, Copy, Debug)]
pub struct IntervalArgs {
    /// Seconds between two samples
    #[arg(long, value_name = "SECONDS", default_value = "0.5", value_parser = seconds)]
    pub interval: Duration,
}

fn seconds(text: &str) -> Result<Duration, String> {
    match text.parse() {
        Ok(seconds) if (0.1..=3_600.0).contains(&seconds) => Ok(Duration::from_secs_f64(seconds)),
        _ => Err("not a number of seconds from 0.1 to 3600".to_owned()),
    }
}

/// A page of a command's own stacks.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Control")]
pub struct PageArgs {
    /// Show the dashboard at ADDRESS:PORT, or at PORT on loopback
    #[arg(long, value_name = "[ADDRESS:]PORT", value_parser = access::listen)]
    pub dash: Option<SocketAddr>,
    /// File with the dashboard's token; - for standard input
    #[arg(long = "dash-token-file", value_name = "FILE", requires = "dash", value_parser = access::token_file)]
    pub dash_token: Option<Token>,
}

/// An address that is bound.
#[derive(Debug)]
struct Bound {
    listener: TcpListener,
    access: Access,
    url: String,
}

impl Bound {
    /// `place` is how its address is given.
    fn new(listen: SocketAddr, token: Option<Token>, place: &str) -> anyhow::Result<Self> {
        let access = Access::new(listen, token)?;
        let listener = TcpListener::bind(listen).map_err(|error| cannot_listen(listen, place, error))?;
        listener.set_nonblocking(true)?;
        let url = access.url(listener.local_addr()?);
        Ok(Self { listener, access, url })
    }

    /// Within a runtime.
    async fn serve(self, which: Which, interval: Duration) -> anyhow::Result<Infallible> {
        let listener = tokio::net::TcpListener::from_std(self.listener)?;
        let feed = Feed::new(Watch::new(which.clone(), interval));
        let router = server::router(self.access, feed, which);
        Ok(http_loop::serve(&listener, TowerToHyperService::new(router)).await)
    }
}

/// Runs `taut dash` until Ctrl-C.
///
/// # Errors
/// When the address cannot be used.
pub fn run(args: &DashArgs) -> anyhow::Result<()> {
    let bound = Bound::new(args.listen, args.token.clone(), "taut dash [ADDRESS:]PORT")?;
    if args.json {
        output::print_json(&serde_json::json!({ "url": bound.url }))?;
    }
    args.log.start();
    let which = Which::of(&args.socket);
    interrupt::or_interrupted(async {
        log::notice(Level::Info, "serving", &format!("the dashboard is at {} (Ctrl-C stops)", bound.url));
        bound.serve(which, args.interval.interval).await.map(|never| match never {})
    })
}

/// The address of this process's page: a process has one, however many stacks it runs one after the other.
static PAGE: Mutex<Option<SocketAddr>> = Mutex::new(None);

impl PageArgs {
    /// Shows the page until the process ends, if it is wanted and not there yet. `which` are the stacks.
    ///
    /// # Errors
    /// When the address cannot be used.
    pub fn show(&self, which: Which) -> anyhow::Result<()> {
        let Some(listen) = self.dash else { return Ok(()) };
        let mut page = PAGE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if *page == Some(listen) {
            return Ok(());
        }
        let bound = Bound::new(listen, self.dash_token.clone(), "--dash [ADDRESS:]PORT")?;
        let url = bound.url.clone();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let interval = Duration::from_millis(500);
        let serve = move || match runtime.block_on(bound.serve(which, interval)) {
            Ok(never) => match never {},
            Err(error) => {
                log::notice(Level::Error, "dash-ended", &format!("the dashboard has ended: {error:#}"));
            }
        };
        std::thread::Builder::new().name("taut-dash".to_owned()).spawn(serve)?;
        *page = Some(listen);
        log::notice(Level::Info, "dash", &format!("the dashboard is at {url}"));
        Ok(())
    }
}
