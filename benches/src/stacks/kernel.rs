//! The kernel's own TCP: the same plain blocking sockets as the peer's, in the other namespace of a veth
//! pair.

use std::net::TcpStream;

use anyhow::Result;
use taut_testbed::Kernel;

use super::Task;
use crate::net::PEER;
use crate::peer;
use crate::probe::Probe;

pub fn run(task: Task, kernel: &Kernel, probe: &Probe) -> Result<()> {
    let connect = || -> Result<TcpStream> { peer::connect(PEER) };
    kernel.enter(|| match task {
        Task::Send => peer::pour(&connect()?, probe),
        Task::Receive => peer::drain(&connect()?, probe),
        Task::Ping => {
            let stream = connect()?;
            stream.set_nodelay(true)?;
            peer::ping(&stream, probe)
        }
        Task::Dial => peer::dial(PEER, probe),
        Task::Serve => peer::serve(&peer::listen()?, probe),
        Task::Hold => peer::accept_and_hold(&peer::listen()?, probe),
    })?
}
