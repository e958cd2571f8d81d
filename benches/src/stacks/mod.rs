//! The stacks that are measured. Each does the same work, [`Task`], at its own side of a link whose other
//! side is a kernel peer with plain blocking sockets.

pub mod kernel;
pub mod smoltcp;
pub mod taut_loop;
pub mod taut_sockets;

use std::sync::Arc;

use anyhow::Result;

use crate::net::{Link, Near};
use crate::probe::Probe;

/// What the stack's side does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Task {
    /// Connects and writes as fast as possible.
    Send,
    /// Connects and reads as fast as possible.
    Receive,
    /// Connects and plays ping-pong with single bytes.
    Ping,
    /// Connects, sends one request, reads one answer, resets; repeatedly, [`BATCH`](crate::peer::BATCH) at a
    /// time.
    Dial,
    /// Accepts, answers one request, closes; repeatedly.
    Serve,
    /// Accepts connections and leaves them idle.
    Hold,
}

/// A stack in one of its forms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stack {
    /// The kernel's own TCP over a veth pair.
    Kernel,
    /// smoltcp over a TUN with segmentation and checksum offload, one thread.
    Smoltcp,
    /// taut over its TUN, one thread: smoltcp's form.
    TautLoop,
    /// taut's blocking sockets, the stack on a thread of its own.
    TautBlocking,
    /// taut's sockets for tokio, all in a runtime of one thread.
    TautTokio,
}

impl Stack {
    pub const ALL: [Self; 5] =
        [Self::Kernel, Self::Smoltcp, Self::TautLoop, Self::TautBlocking, Self::TautTokio];

    pub fn name(self) -> &'static str {
        match self {
            Self::Kernel => "kernel (veth)",
            Self::Smoltcp => "smoltcp loop",
            Self::TautLoop => "taut loop",
            Self::TautBlocking => "taut blocking",
            Self::TautTokio => "taut tokio",
        }
    }

    /// Whether stack and application share one thread, which is then pinned.
    pub fn is_one_thread(self) -> bool {
        match self {
            Self::Kernel | Self::Smoltcp | Self::TautLoop | Self::TautTokio => true,
            Self::TautBlocking => false,
        }
    }

    /// Whether it can do a task; blocking sockets cannot have several connections in progress at a time.
    pub fn does(self, task: Task) -> bool {
        (self, task) != (Self::TautBlocking, Task::Dial)
    }

    /// Builds the link, before any thread of the measurement runs.
    pub fn link(self) -> Result<Link> {
        if self == Self::Kernel { Link::veth() } else { Link::tun() }
    }

    /// Does `task` until the probe says stop. Called on a thread of its own, already pinned.
    pub fn run(self, task: Task, near: Near, tuning: &Tuning, probe: &Arc<Probe>) -> Result<()> {
        match (self, near) {
            (Self::Kernel, Near::Kernel(kernel)) => kernel::run(task, &kernel, probe),
            (Self::Smoltcp, Near::Tun(tun)) => smoltcp::run(task, tun, tuning, probe),
            (Self::TautLoop, Near::Tun(tun)) => taut_loop::run(task, tun, tuning, probe),
            (Self::TautBlocking, Near::Tun(tun)) => taut_sockets::run_blocking(task, tun, probe),
            (Self::TautTokio, Near::Tun(tun)) => taut_sockets::run_tokio(task, tun, probe),
            (stack, _) => anyhow::bail!("{} got the wrong kind of link", stack.name()),
        }
    }
}

/// Settings with which a stack is at its best.
#[derive(Clone, Copy, Debug)]
pub struct Tuning {
    /// smoltcp's socket buffers, in each direction.
    pub smoltcp_buffer_bytes: usize,
    /// Packets that smoltcp takes from the device before the application and the egress have their turn.
    pub smoltcp_ingress_batch: usize,
    /// The same for taut's loop.
    pub taut_ingress_batch: usize,
}
