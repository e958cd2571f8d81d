//! Queries a running stack. Used by `taut ss` and similar commands, and by programs that watch their own
//! stack.

use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use rustix::io::Errno;
use thiserror::Error;

use crate::gateway::{GatewayItem, GatewayVerb};
use crate::network::{Change, NetworkSnapshot};
use crate::place;
use crate::protocol::{
    Counter, DeviceReport, Fault, Identity, Reply, ReplyLine, Request, Setting, Summary, VERSION,
};
use crate::qdisc::QdiscSnapshot;
use crate::rooms::FlowRooms;
use crate::sample::ConnSample;
use crate::snapshot::{
    ConnReportSnapshot, ConnSnapshot, DatagramSnapshot, FlowSnapshot, ListenerSnapshot, ReportSnapshot,
};

/// How long a stack may take for a line. It answers within microseconds unless its process is stopped.
const PATIENCE: Duration = Duration::from_secs(5);
/// How often, and how long each time, to wait for a place in the socket's queue of connecting clients.
const QUEUE_WAITS: u32 = 100;
const QUEUE_WAIT: Duration = Duration::from_millis(10);
/// Every line from a stack is shorter than this.
const LINE_MAX_BYTES: u64 = 16 << 20;

/// Why there is no answer.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ClientError {
    /// The socket cannot be used.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The socket's process belongs neither to this user nor to root.
    #[error("the socket belongs to another user's process; try as that user, or as root")]
    NotTrusted,
    /// The stack refused.
    #[error("{message}")]
    Refused {
        /// Whose fault it is.
        fault: Fault,
        /// The reason in words.
        message: String,
    },
    /// The reply is not one to this request.
    #[error("the stack's answer is not understood: {0}")]
    Garbled(String),
}

/// A connection to a stack's control socket.
#[derive(Debug)]
pub struct Client {
    stream: BufReader<UnixStream>,
}

/// Connects, waiting for other clients that connect at the same moment, but not for a stopped process.
fn connect(path: &Path) -> io::Result<OwnedFd> {
    let mut waits = 0;
    loop {
        match place::connect(path) {
            Err(Errno::AGAIN) if waits < QUEUE_WAITS => waits += 1,
            Err(Errno::AGAIN) => return Err(no_answer()),
            connected => return connected.map_err(io::Error::from),
        }
        std::thread::sleep(QUEUE_WAIT);
    }
}

fn no_answer() -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, "the stack does not answer; check whether its process is stopped")
}

impl Client {
    /// Connects to a socket of [`place::running`], or to one at another place.
    ///
    /// # Errors
    /// [`ClientError::NotTrusted`], or an I/O error if nothing listens there.
    pub fn connect(path: &Path) -> Result<Self, ClientError> {
        let socket = connect(path)?;
        // Root may query every stack; any other user only its own and root's, so that no user has to trust
        // text from another one.
        if !place::is_trusted(place::peer_uid(&socket)?) && !place::is_root() {
            return Err(ClientError::NotTrusted);
        }
        Self::on(socket)
    }

    /// On a socket that is connected.
    ///
    /// # Errors
    /// It takes no options.
    pub fn on(socket: OwnedFd) -> Result<Self, ClientError> {
        let stream = UnixStream::from(socket);
        stream.set_nonblocking(false)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        Ok(Self { stream: BufReader::new(stream) })
    }

    /// Sends a request and passes each part of the reply to `take`.
    ///
    /// # Errors
    /// As [`ClientError`] says.
    pub fn request(
        &mut self,
        request: &Request,
        mut take: impl FnMut(Reply) -> Result<(), ClientError>,
    ) -> Result<(), ClientError> {
        let mut line = request.to_line();
        line.push('\n');
        // A server that refuses this client has replied and closed already: its reply says more than this
        // error would.
        _ = self.stream.get_mut().write_all(line.as_bytes());
        loop {
            let line = self.read_line()?;
            match line.reply {
                Reply::Error { fault, message } => return Err(ClientError::Refused { fault, message }),
                reply => take(reply)?,
            }
            if !line.more {
                return Ok(());
            }
        }
    }

    fn read_line(&mut self) -> Result<ReplyLine, ClientError> {
        let mut line = Vec::new();
        let read = self.stream.by_ref().take(LINE_MAX_BYTES).read_until(b'\n', &mut line);
        match read {
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {
                return Err(no_answer().into());
            }
            read => read?,
        };
        if line.last() != Some(&b'\n') {
            let message = "the stack's process closed the connection";
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, message).into());
        }
        let line: ReplyLine =
            serde_json::from_slice(&line).map_err(|error| ClientError::Garbled(error.to_string()))?;
        if line.v != VERSION {
            return Err(ClientError::Garbled(format!(
                "it has version {}; this program supports version {VERSION}",
                line.v
            )));
        }
        Ok(line)
    }
}

/// The requested part of a reply, or the reply that came instead.
type Picked<T> = Result<T, Reply>;

impl Client {
    /// Sends a request whose reply is one line.
    fn one<T>(&mut self, request: &Request, pick: impl Fn(Reply) -> Picked<T>) -> Result<T, ClientError> {
        let mut all = None;
        self.request(request, |reply| {
            all = Some(pick(reply).map_err(|reply| unasked(&reply))?);
            Ok(())
        })?;
        all.ok_or_else(|| ClientError::Garbled("it is empty".to_owned()))
    }

    /// Sends a request whose reply is a list, in any number of lines.
    fn list<T>(
        &mut self,
        request: &Request,
        pick: impl Fn(Reply) -> Picked<Vec<T>>,
    ) -> Result<Vec<T>, ClientError> {
        let mut all = Vec::new();
        self.request(request, |reply| {
            all.extend(pick(reply).map_err(|reply| unasked(&reply))?);
            Ok(())
        })?;
        Ok(all)
    }

    /// The identity of the stack: its process, program, device and addresses.
    ///
    /// # Errors
    /// As [`ClientError`] says.
    pub fn identity(&mut self) -> Result<Identity, ClientError> {
        self.one(&Request::Identity, |reply| match reply {
            Reply::Identity(found) => Ok(*found),
            other => Err(other),
        })
    }

    /// The number of connections.
    ///
    /// # Errors
    /// As [`ClientError`] says.
    pub fn summary(&mut self) -> Result<Summary, ClientError> {
        self.one(&Request::Summary, |reply| match reply {
            Reply::Summary(found) => Ok(found),
            other => Err(other),
        })
    }

    /// Every connection.
    ///
    /// # Errors
    /// As [`ClientError`] says.
    pub fn connections(&mut self) -> Result<Vec<ConnSnapshot>, ClientError> {
        self.list(&Request::Connections, |reply| match reply {
            Reply::Connections(found) => Ok(found),
            other => Err(other),
        })
    }

    /// Every listener.
    ///
    /// # Errors
    /// As [`ClientError`] says.
    pub fn listeners(&mut self) -> Result<Vec<ListenerSnapshot>, ClientError> {
        self.list(&Request::Listeners, |reply| match reply {
            Reply::Listeners(found) => Ok(found),
            other => Err(other),
        })
    }

    /// The flows that wait for a decision.
    ///
    /// # Errors
    /// As [`ClientError`] says.
    pub fn flows(&mut self) -> Result<Vec<FlowSnapshot>, ClientError> {
        self.list(&Request::Flows, |reply| match reply {
            Reply::Flows(found) => Ok(found),
            other => Err(other),
        })
    }

    /// Every datagram socket.
    ///
    /// # Errors
    /// As [`ClientError`] says.
    pub fn datagrams(&mut self) -> Result<Vec<DatagramSnapshot>, ClientError> {
        self.list(&Request::Datagrams, |reply| match reply {
            Reply::Datagrams(found) => Ok(found),
            other => Err(other),
        })
    }

    /// Every counter, in the stack's order.
    ///
    /// # Errors
    /// As [`ClientError`] says.
    pub fn counters(&mut self) -> Result<Vec<Counter>, ClientError> {
        self.list(&Request::Counters, |reply| match reply {
            Reply::Counters(found) => Ok(found),
            other => Err(other),
        })
    }

    /// Every setting, in the stack's order.
    ///
    /// # Errors
    /// As [`ClientError`] says.
    pub fn sysctls(&mut self) -> Result<Vec<Setting>, ClientError> {
        self.list(&Request::Sysctls, |reply| match reply {
            Reply::Sysctls(found) => Ok(found),
            other => Err(other),
        })
    }

    /// One setting.
    ///
    /// # Errors
    /// As [`ClientError`] says.
    pub fn sysctl(&mut self, name: &str) -> Result<Setting, ClientError> {
        self.one(&Request::Sysctl { name: name.to_owned() }, |reply| match reply {
            Reply::Sysctl(found) => Ok(found),
            other => Err(other),
        })
    }

    /// Changes a setting; returns its new value.
    ///
    /// # Errors
    /// As [`ClientError`] says.
    pub fn set_sysctl(&mut self, name: &str, value: &str) -> Result<Setting, ClientError> {
        self.one(
            &Request::SetSysctl { name: name.to_owned(), value: value.to_owned() },
            |reply| match reply {
                Reply::Sysctl(found) => Ok(found),
                other => Err(other),
            },
        )
    }

    /// Where time and bytes went, over all connections since the stack began.
    ///
    /// # Errors
    /// As [`ClientError`] says.
    pub fn report(&mut self) -> Result<ReportSnapshot, ClientError> {
        self.one(&Request::Report, |reply| match reply {
            Reply::Report(found) => Ok(*found),
            other => Err(other),
        })
    }

    /// The same for each present connection.
    ///
    /// # Errors
    /// As [`ClientError`] says.
    pub fn reports(&mut self) -> Result<Vec<ConnReportSnapshot>, ClientError> {
        self.list(&Request::Reports, |reply| match reply {
            Reply::Reports(found) => Ok(found),
            other => Err(other),
        })
    }

    /// Of each present connection, the numbers that move.
    ///
    /// # Errors
    /// As [`ClientError`] says.
    pub fn samples(&mut self) -> Result<Vec<ConnSample>, ClientError> {
        self.list(&Request::Samples, |reply| match reply {
            Reply::Samples(found) => Ok(found),
            other => Err(other),
        })
    }

    /// Of each connection that a gateway or a proxy relays, where its bytes wait.
    ///
    /// # Errors
    /// As [`ClientError`] says.
    pub fn rooms(&mut self) -> Result<Vec<FlowRooms>, ClientError> {
        self.list(&Request::Rooms, |reply| match reply {
            Reply::Rooms(found) => Ok(found),
            other => Err(other),
        })
    }

    /// Lists what a gateway has, or changes it; returns the new list.
    ///
    /// # Errors
    /// As [`ClientError`] says.
    pub fn gateway(&mut self, verb: &GatewayVerb) -> Result<Vec<GatewayItem>, ClientError> {
        self.list(&Request::Gateway { verb: verb.clone() }, |reply| match reply {
            Reply::Gateway(found) => Ok(found),
            other => Err(other),
        })
    }

    /// The state of the device; empty unless it has one of its own.
    ///
    /// # Errors
    /// As [`ClientError`] says.
    pub fn device(&mut self) -> Result<DeviceReport, ClientError> {
        self.one(&Request::Device, |reply| match reply {
            Reply::Device(found) => Ok(found),
            other => Err(other),
        })
    }

    /// The queue disciplines in front of the stack's device, the root first.
    ///
    /// # Errors
    /// As [`ClientError`] says.
    pub fn qdiscs(&mut self) -> Result<Vec<QdiscSnapshot>, ClientError> {
        self.queue(&Request::QdiscShow)
    }

    /// Replaces them by others, described in `tc`'s words; with `None`, by the original ones. Returns the
    /// disciplines in force then.
    ///
    /// # Errors
    /// As [`ClientError`] says.
    pub fn set_qdisc(&mut self, spec: Option<&str>) -> Result<Vec<QdiscSnapshot>, ClientError> {
        let replace = |spec: &str| Request::QdiscReplace { spec: spec.to_owned() };
        self.queue(&spec.map_or(Request::QdiscDelete, replace))
    }

    /// Addresses, routes, the MTU, and what the link told.
    ///
    /// # Errors
    /// As [`ClientError`] says.
    pub fn network(&mut self) -> Result<NetworkSnapshot, ClientError> {
        self.network_of(&Request::Network)
    }

    /// Changes one of them. Returns the new state.
    ///
    /// # Errors
    /// As [`ClientError`] says.
    pub fn change_network(&mut self, change: Change) -> Result<NetworkSnapshot, ClientError> {
        self.network_of(&Request::ChangeNetwork { change })
    }

    fn network_of(&mut self, request: &Request) -> Result<NetworkSnapshot, ClientError> {
        self.one(request, |reply| match reply {
            Reply::Network(found) => Ok(*found),
            other => Err(other),
        })
    }

    fn queue(&mut self, request: &Request) -> Result<Vec<QdiscSnapshot>, ClientError> {
        self.list(request, |reply| match reply {
            Reply::Qdiscs(found) => Ok(found),
            other => Err(other),
        })
    }
}

fn unasked(reply: &Reply) -> ClientError {
    ClientError::Garbled(format!("{reply:?}"))
}
