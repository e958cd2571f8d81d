//! Asks the stacks, and no more often than costs them a hundredth of the time.
//!
//! Whatever `look()` takes, asking and making the sample, the next one begins a hundred times as long after
//! it ([`pause`]): 1,000 connections take some milliseconds, and are looked at twice a second; 100,000
//! every few dozen seconds. So neither the number of connections nor the number of watchers can make
//! watching cost more than 1 % of a processor. The stack's lock is held for 64 connections at a time, about
//! 10 µs.
//!
//! Called by `feed.rs` and `top.rs`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use taut_control::{Client, ClientError, Fault, place};
use taut_gateway::sandbox::Caller;

use crate::args::control::SocketArgs;
use crate::dash::sampler::{Look, Sample, Sampler, StackLook};
use crate::shared::clock::Stopwatch;

/// The most stacks that are looked at.
pub const STACKS_MAX: usize = 16;
/// Of the time, the part that asking may take is one in this many.
const PAUSE_PER_LOOK: u32 = 100;
/// When nobody has looked for this much longer than the interval, what happened meanwhile is not a rate of
/// now.
const STALE: Duration = Duration::from_secs(5);

/// How long to wait after a look that took `took`, at least `interval`.
#[must_use]
pub fn pause(took: Duration, interval: Duration) -> Duration {
    took.saturating_mul(PAUSE_PER_LOOK).max(interval)
}

/// The stacks to look at.
#[derive(Clone, Debug)]
pub enum Which {
    /// All of this user.
    All,
    /// Those of one process.
    Process(u32),
    /// The one with this control socket.
    Socket(PathBuf),
    /// This process's own, to which a process outside of its sandbox connects.
    Outside(Arc<Caller>),
}

impl Which {
    /// Those that `--socket` chooses; without it, all.
    #[must_use]
    pub fn of(args: &SocketArgs) -> Self {
        match args.socket.as_deref() {
            None => Self::All,
            Some(text) => text.parse().map_or_else(|_| Self::Socket(PathBuf::from(text)), Self::Process),
        }
    }

    /// Their control sockets.
    ///
    /// # Errors
    /// When the directory of the sockets cannot be read.
    pub fn paths(&self) -> std::io::Result<Vec<PathBuf>> {
        let running = |is_wanted: &dyn Fn(u32) -> bool| -> std::io::Result<Vec<PathBuf>> {
            let all = place::running()?.into_iter().filter(|running| is_wanted(running.pid));
            Ok(all.map(|running| running.path).collect())
        };
        match self {
            Self::All => running(&|_| true),
            Self::Process(pid) => running(&|other| other == *pid),
            Self::Socket(path) => Ok(vec![path.clone()]),
            Self::Outside(_) => Ok(vec!["the control socket".into()]),
        }
    }

    /// A client of one of them.
    ///
    /// # Errors
    /// Those of [`Client::connect`].
    pub fn connect(&self, path: &Path) -> Result<Client, ClientError> {
        match self {
            Self::Outside(caller) => Client::on(caller.connect_control()?),
            _ => Client::connect(path),
        }
    }
}

/// Connections to the stacks, and the look before.
#[derive(Debug)]
pub struct Watch {
    which: Which,
    interval: Duration,
    clients: BTreeMap<PathBuf, Client>,
    sampler: Sampler,
    clock: Stopwatch,
    /// When the last look was over, and how long it took.
    last: Option<(Duration, Duration)>,
}

impl Watch {
    /// Will look at these stacks, once an `interval` at most.
    #[must_use]
    pub fn new(which: Which, interval: Duration) -> Self {
        let clock = Stopwatch::start();
        Self { which, interval, clients: BTreeMap::new(), sampler: Sampler::default(), clock, last: None }
    }

    /// Which stacks these are.
    #[must_use]
    pub fn which(&self) -> &Which {
        &self.which
    }

    /// How long to wait before the next look.
    #[must_use]
    pub fn wait(&self) -> Duration {
        self.last.map_or(Duration::ZERO, |(over, took)| {
            pause(took, self.interval).saturating_sub(self.clock.elapsed().saturating_sub(over))
        })
    }

    /// Looks, and lets `pack` make of the sample what watchers get: its time counts, too.
    pub fn look<R>(&mut self, pack: impl FnOnce(&Sample) -> R) -> R {
        let began = self.clock.elapsed();
        if let Some((over, took)) = self.last
            && began.saturating_sub(over) > pause(took, self.interval) + STALE
        {
            self.sampler.forget();
        }
        let look = self.ask();
        let sample = self.sampler.sample(look);
        let packed = pack(&sample);
        let over = self.clock.elapsed();
        self.last = Some((over, over.saturating_sub(began)));
        packed
    }

    fn ask(&mut self) -> Look {
        let mut look = Look::default();
        let mut paths = match self.which.paths() {
            Ok(paths) => paths,
            Err(error) => {
                look.left_out.push(error.to_string());
                Vec::new()
            }
        };
        if paths.len() > STACKS_MAX {
            look.left_out.push(format!(
                "{} of {} stacks; choose one with --socket PID",
                paths.len() - STACKS_MAX,
                paths.len()
            ));
            paths.truncate(STACKS_MAX);
        }
        self.clients.retain(|path, _| paths.contains(path));
        for path in paths {
            // A session that was idle for long has ended, and a stack at this path may be another one by now.
            let kept = self.clients.remove(&path);
            let kept = kept.and_then(|mut client| ask(&mut client).ok().map(|stack| (client, stack)));
            match kept.map_or_else(|| begin(&self.which, &path), Ok) {
                Ok((client, stack)) => {
                    look.stacks.push(stack);
                    self.clients.insert(path, client);
                }
                Err(ClientError::Refused { fault: Fault::Request, .. }) => look.left_out.push(format!(
                    "{}: this stack is of an earlier version of taut, which has no samples",
                    path.display()
                )),
                Err(error) => look.left_out.push(format!("{}: {error}", path.display())),
            }
        }
        look.at = self.clock.elapsed();
        look
    }
}

fn begin(which: &Which, path: &Path) -> Result<(Client, StackLook), ClientError> {
    let mut client = which.connect(path)?;
    let stack = ask(&mut client)?;
    Ok((client, stack))
}

fn ask(client: &mut Client) -> Result<StackLook, ClientError> {
    let (who, connections) = (client.identity()?, client.samples()?);
    Ok(StackLook { who, connections, qdiscs: client.qdiscs()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dash_05_the_next_look_begins_a_hundred_times_as_long_after_one_as_it_took() {
        let interval = Duration::from_millis(500);
        for (took_us, pause_ms) in [(0, 500), (4_000, 500), (5_000, 500), (5_010, 501), (400_000, 40_000)] {
            assert_eq!(pause(Duration::from_micros(took_us), interval), Duration::from_millis(pause_ms));
        }
        // Making what watchers get counts, too.
        let nowhere = Which::Socket(PathBuf::from("/nonexistent/taut.sock"));
        let mut watch = Watch::new(nowhere, Duration::from_millis(1));
        assert_eq!(watch.wait(), Duration::ZERO);
        let left_out = watch.look(|sample| {
            std::thread::sleep(Duration::from_millis(30));
            sample.left_out.clone()
        });
        assert!(left_out[0].starts_with("/nonexistent/taut.sock: "), "{left_out:?}");
        let wait = watch.wait();
        assert!(wait > Duration::from_millis(2_500), "{wait:?}");
    }

    #[test]
    fn socket_chooses_a_process_or_a_path() {
        let of = |text: &str| Which::of(&SocketArgs { socket: Some(text.to_owned()) });
        assert!(matches!(of("77"), Which::Process(77)));
        assert!(
            matches!(of("/run/x.sock"), Which::Socket(path) if path.as_path() == Path::new("/run/x.sock"))
        );
        assert!(matches!(Which::of(&SocketArgs::default()), Which::All));
    }
}
