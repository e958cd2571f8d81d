//! Two senders at one end of a path: the one that is measured, and the kernel beside it, for the flows that
//! the scenario gives to it. Called by `live.rs`.

use std::collections::BTreeMap;
use std::io;

use super::apps::{Conn, FlowPlan, Sender, Snapshot};
use super::kernel_end::KernelSender;

/// The measured sender, and the kernel beside it if there are flows for it.
pub(super) struct Senders<S> {
    pub(super) own: S,
    pub(super) beside: Option<KernelSender>,
}

/// A connection of either.
pub(super) enum Either<C> {
    Own(C),
    Beside(tokio::net::TcpStream),
}

impl<S: Sender> Sender for Senders<S> {
    type Conn = Either<S::Conn>;

    async fn connect(&self, plan: &FlowPlan) -> io::Result<Self::Conn> {
        match &self.beside {
            Some(beside) if plan.spec.beside => beside.connect(plan).await.map(Either::Beside),
            _ => self.own.connect(plan).await.map(Either::Own),
        }
    }

    fn counters(&self) -> io::Result<BTreeMap<String, u64>> {
        self.own.counters()
    }

    fn device_bytes(&self) -> Option<u64> {
        self.own.device_bytes()
    }
}

/// Makes the same call on either connection.
macro_rules! each {
    ($either:expr, $conn:ident => $call:expr) => {
        match $either {
            Either::Own($conn) => $call,
            Either::Beside($conn) => $call,
        }
    };
}

impl<C: Conn> Conn for Either<C> {
    async fn writable(&self) -> io::Result<()> {
        each!(self, conn => Conn::writable(conn).await)
    }

    async fn readable(&self) -> io::Result<()> {
        each!(self, conn => Conn::readable(conn).await)
    }

    fn try_write(&self, data: &[u8]) -> io::Result<usize> {
        each!(self, conn => Conn::try_write(conn, data))
    }

    fn try_read(&self, into: &mut [u8]) -> io::Result<usize> {
        each!(self, conn => Conn::try_read(conn, into))
    }

    fn finish(&self) -> io::Result<()> {
        each!(self, conn => conn.finish())
    }

    fn snapshot(&self) -> io::Result<Snapshot> {
        each!(self, conn => conn.snapshot())
    }
}
