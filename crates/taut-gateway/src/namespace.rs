//! A guest in a namespace, from outside: starts the child that opens the TUN inside (`inside.rs`), and makes
//! the TUN a device.

use std::io;
use std::os::fd::AsFd as _;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};

use taut::device::{FramesOptions, from_descriptor};
use taut::{FlowKind, Stack, StackBuilder};

use crate::inside::{Plan, brings_tun, go, receive, send};
use crate::listening::Listening;

/// A guest whose TUN is open. Its command waits.
#[derive(Debug)]
pub struct Namespace {
    tun: OwnedFd,
    /// Where the kernel is asked for the guest's UDP sockets.
    sockets: Option<OwnedFd>,
    child: Child,
    control: UnixStream,
    mtu: u16,
}

impl Namespace {
    /// Starts `program`, which must call [`inside`](crate::inside::inside) with the same plan and command.
    ///
    /// # Errors
    /// What goes wrong in the child: no user namespaces, no `/dev/net/tun`, no such process.
    pub fn open(mut program: Command, plan: &Plan) -> io::Result<Self> {
        let (control, theirs) = UnixStream::pair()?;
        let mut child = program.stdin(Stdio::from(OwnedFd::from(theirs))).spawn()?;
        // The child's end must not stay open here, or its death would not be seen.
        drop(program);
        match Self::tun(&control) {
            Ok((tun, sockets)) => Ok(Self { tun, sockets, child, control, mtu: plan.mtu }),
            Err(error) => {
                _ = child.kill();
                child.wait()?;
                Err(error)
            }
        }
    }

    fn tun(control: &UnixStream) -> io::Result<(OwnedFd, Option<OwnedFd>)> {
        send(control, &[0], &[io::stdin().as_fd()])?;
        let mut message = [0; 1_024];
        let (len, [tun, sockets]) = receive(control, &mut message)?;
        let message = &message[..len];
        match tun {
            Some(tun) if brings_tun(message) => Ok((tun, sockets)),
            _ if len == 0 => Err(io::Error::other("the child ended before it opened the interface")),
            _ => Err(io::Error::other(String::from_utf8_lossy(message).trim().to_owned())),
        }
    }

    /// Builds a stack on the TUN. Must be called in a tokio runtime, whose task the stack is.
    ///
    /// # Errors
    /// Those of [`StackBuilder::build_tokio`].
    pub fn stack(&self, builder: StackBuilder) -> io::Result<Stack> {
        let options = FramesOptions { mtu: self.mtu, ..FramesOptions::default() };
        builder.device(from_descriptor(self.tun.try_clone()?, &[], &options)?).build_tokio()
    }

    /// The TCP or UDP ports at which the guest will listen, to be read while it runs. UDP's are had once.
    ///
    /// # Errors
    /// The child is gone, or its kernel does not list sockets.
    pub fn listening(&mut self, kind: FlowKind) -> io::Result<Listening> {
        if kind == FlowKind::Tcp {
            return Listening::tcp(self.child.id());
        }
        let missing =
            || io::Error::new(io::ErrorKind::Unsupported, "the kernel does not list sockets (sock_diag)");
        Ok(Listening::udp(self.sockets.take().ok_or_else(missing)?))
    }

    /// Lets the command begin, when the gateway serves its stack. The child is the command from now on.
    ///
    /// # Errors
    /// The child is gone.
    pub fn start(self) -> io::Result<Child> {
        go(&self.control)?;
        Ok(self.child)
    }
}
