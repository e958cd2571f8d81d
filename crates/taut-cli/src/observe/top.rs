//! `taut top`: what every connection of the running stacks does, live, in a terminal; or one sample of it,
//! as text or JSON.
//!
//! The samples are those of `taut dash` (`dash/`); `top_view.rs` draws them. Three threads: one takes
//! samples, one reads keys, and the main one draws when either has something.

use std::io::IsTerminal as _;
use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context as _, bail};
use clap::Args;
use ratatui::crossterm::event::{self, Event};
use tokio::sync::mpsc;

use crate::args::control::SocketArgs;
use crate::dash::IntervalArgs;
use crate::dash::sampler::{Row, Sample};
use crate::dash::watch::{Watch, Which};
use crate::observe::top_view::{self, Order, View};
use crate::shared::{interrupt, output, text};

/// Shows every connection of the running stacks live, in the terminal
#[derive(Args, Debug)]
#[command(after_help = "Example, with a running stack such as `taut serve .`:\n  \
    taut top\n  taut top --by retrans\n  taut top --once\n  taut top --json\n\n\
    Keys: q quits, s changes the order, / filters, space stops and continues, arrows and pages scroll.")]
pub(crate) struct TopArgs {
    /// Print one sample, over one interval, and end
    #[arg(long)]
    once: bool,
    /// Print samples as JSON, a line for each: docs/reference/control.md names the fields
    #[arg(long)]
    json: bool,
    /// Which connections come first
    #[arg(long, value_enum, default_value_t = Order::Wait)]
    by: Order,
    /// Only connections whose ends, state, reason or congestion control contain this text
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    filter: String,
    /// With --once, how many connections to print
    #[arg(long, value_name = "NUMBER", default_value_t = 10)]
    count: usize,
    #[command(flatten)]
    interval: IntervalArgs,
    #[command(flatten)]
    socket: SocketArgs,
}

/// How long to wait for a key before looking whether the program ends.
const KEY_PATIENCE: Duration = Duration::from_millis(200);

/// Runs `taut top`.
///
/// # Errors
/// When no stack is running, or there is no terminal.
pub(crate) fn run(args: &TopArgs) -> anyhow::Result<()> {
    // The error for no stack at all, or for one that does not answer.
    if let Which::All = Which::of(&args.socket) {
        if taut_control::place::running()?.is_empty() {
            args.socket.open()?;
        }
    } else {
        args.socket.open()?;
    }
    let mut watch = Watch::new(Which::of(&args.socket), args.interval.interval);
    if args.once || args.json {
        watch.look(|_| ());
        loop {
            std::thread::sleep(watch.wait());
            let sample = watch.look(Sample::clone);
            if args.json {
                output::print_json(&sample)?;
            } else {
                output::print(&table(&sample, args))?;
            }
            if args.once {
                return Ok(());
            }
        }
    }
    if !std::io::stdout().is_terminal() || !std::io::stdin().is_terminal() {
        bail!("taut top needs a terminal; `taut top --once` prints one sample");
    }
    show(watch, View::new(args.by, &args.filter))
}

/// One sample as text.
fn table(sample: &Sample, args: &TopArgs) -> String {
    let head = [
        "Local",
        "Peer",
        "unsent",
        "below",
        "in flight",
        "unread",
        "wait",
        "held by",
        "cwnd",
        "rtt",
        "goodput",
        "retrans",
    ];
    let rows = top_view::shown(&sample.rows, args.by, &args.filter);
    let lines = rows.iter().take(args.count).map(|row| cells(row).to_vec());
    let all: Vec<_> = std::iter::once(head.map(str::to_owned).to_vec()).chain(lines).collect();
    let table = match &*args.filter {
        _ if !rows.is_empty() => text::table(2, &all),
        "" => "no connections\n".to_owned(),
        filter => format!("no connection contains {filter:?} (--filter)\n"),
    };
    let mut said = top_view::title(sample) + "\n" + &table;
    if rows.len() > args.count {
        said += &format!("{} more; --count shows more\n", rows.len() - args.count);
    }
    for why in &sample.left_out {
        said += &format!("left out: {why}\n");
    }
    said
}

fn cells(row: &Row) -> [String; 12] {
    let end = |end: SocketAddr| end.to_string();
    [
        end(row.local),
        end(row.peer),
        top_view::size(row.queues.unsent),
        top_view::size(row.queues.device),
        top_view::size(row.queues.in_flight),
        top_view::size(row.queues.unread),
        top_view::time(Some(row.wait_ns).filter(|&wait| wait > 0)),
        top_view::held(row),
        row.cwnd.to_string(),
        top_view::time(row.rtt_ns),
        top_view::rate(row.goodput),
        row.retrans.map_or_else(|| "-".to_owned(), |retrans| retrans.to_string()),
    ]
}

enum News {
    Sample(Box<Sample>),
    Terminal(Event),
}

/// Gives the terminal back, also when the work fails.
struct Terminal(ratatui::DefaultTerminal);

impl Drop for Terminal {
    fn drop(&mut self) {
        ratatui::restore();
    }
}

fn show(mut watch: Watch, mut view: View) -> anyhow::Result<()> {
    let (news, mut heard) = mpsc::channel(4);
    let keys = news.clone();
    std::thread::spawn(move || {
        while !keys.is_closed() {
            if !event::poll(KEY_PATIENCE).unwrap_or(false) {
                continue;
            }
            let Ok(event) = event::read() else { return };
            if keys.blocking_send(News::Terminal(event)).is_err() {
                return;
            }
        }
    });
    std::thread::spawn(move || {
        loop {
            let sample = Box::new(watch.look(Sample::clone));
            if news.blocking_send(News::Sample(sample)).is_err() {
                return;
            }
            std::thread::sleep(watch.wait());
        }
    });
    let mut terminal = Terminal(ratatui::try_init().context("the terminal cannot be used")?);
    interrupt::or_interrupted(async move {
        loop {
            terminal.0.draw(|frame| view.draw(frame))?;
            match heard.recv().await {
                Some(News::Sample(sample)) => view.take(*sample),
                Some(News::Terminal(Event::Key(key))) if view.press(key) => return Ok(()),
                Some(News::Terminal(_)) => {}
                None => bail!("no more samples"),
            }
        }
    })
}
