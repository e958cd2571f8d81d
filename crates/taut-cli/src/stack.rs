//! taut's stack and sockets for the commands.
//!
//! The only file that builds a stack. Called by every command.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use taut_core::StackConfig;
use taut_core::congestion::Registry;
use taut_device::{Cidr, Pipe, Tun};
use taut_wireguard::{Monitor, WireGuard};

use crate::args::control::ControlArgs;
use crate::args::link::{LinkArgs, Opened};
use crate::args::priority::PriorityArgs;
use crate::args::record::{self, RecordArgs};
use crate::args::tunnel::Tunnel;

/// A stack on the device given by the arguments, with these congestion controls by name.
///
/// # Errors
/// The reason, with advice.
pub(crate) fn stack(args: &LinkArgs, controllers: &Registry) -> anyhow::Result<taut::Stack> {
    // Mistakes in it are reported before anything is opened.
    args.control.show_page()?;
    Ok(args.control.apply(opened(args, controllers)?.0)?.build()?)
}

/// The same before it is built, without its control socket, and its tunnel if it is one: the device is open,
/// and nothing runs.
///
/// # Errors
/// The reason, with advice.
pub(crate) fn opened(
    args: &LinkArgs,
    controllers: &Registry,
) -> anyhow::Result<(taut::StackBuilder, Option<Monitor>)> {
    let config = args.congestion.config(controllers)?;
    let mut tunnel = None;
    let builder = match args.open()? {
        Opened::Tun(queues) => over(queues, config, &args.addresses),
        Opened::Packet(queues) => {
            let name = queues.first().map(|queue| queue.name().to_owned()).unwrap_or_default();
            with(taut::Stack::builder().config(config).device_name(&name).queues(queues), &args.addresses)
        }
        Opened::Other(device, name) => {
            let builder = taut::Stack::builder().config(config).device_name(&name);
            with(builder.device(device), &args.addresses)
        }
        Opened::WireGuard(device, file) => {
            tunnel = Some(device.monitor());
            let builder = taut::Stack::builder().config(config).resolver(file.resolver());
            over_tunnel(builder, &file, device)
        }
    };
    Ok((args.record.apply(args.priority.apply(builder)), tunnel))
}

/// A description of a stack in a tunnel, which has the addresses of the tunnel's file.
pub(crate) fn over_tunnel(
    builder: taut::StackBuilder,
    file: &Tunnel,
    device: WireGuard,
) -> taut::StackBuilder {
    let (builder, addresses) = (file.shown(&device).on(builder), device.addresses().to_vec());
    with(builder.device_name(&file.name()).device(device), &addresses)
}

/// A stack on an open TUN, with a shard for each queue.
///
/// # Errors
/// Those of the stack.
pub(crate) fn on_tun(
    queues: Vec<Tun>,
    config: StackConfig,
    addresses: &[Cidr],
    priority: PriorityArgs,
    record: &RecordArgs,
    control: &ControlArgs,
) -> io::Result<taut::Stack> {
    control.apply(record.apply(priority.apply(over(queues, config, addresses))))?.build()
}

/// A description of that stack.
fn over(queues: Vec<Tun>, config: StackConfig, addresses: &[Cidr]) -> taut::StackBuilder {
    let name = queues.first().map(|tun| tun.name().to_owned()).unwrap_or_default();
    with(taut::Stack::builder().config(config).device_name(&name).queues(queues), addresses)
}

/// A stack at one end of an in-process link.
///
/// # Errors
/// Those of the stack.
pub(crate) fn on_pipe(
    pipe: Pipe,
    config: StackConfig,
    addresses: &[Cidr],
    priority: PriorityArgs,
    record: &RecordArgs,
    control: &ControlArgs,
) -> io::Result<taut::Stack> {
    let builder = taut::Stack::builder().config(config).device_name("in-process").device(pipe);
    control.apply(record.apply(priority.apply(with(builder, addresses))))?.build()
}

fn with(builder: taut::StackBuilder, addresses: &[Cidr]) -> taut::StackBuilder {
    addresses.iter().fold(builder, |builder, address| builder.address(&address.to_string()))
}

/// Connects, for asynchronous use.
///
/// # Errors
/// Those of `std::net::TcpStream::connect`.
pub(crate) async fn connect(stack: &taut::Stack, to: SocketAddr) -> io::Result<taut::TcpStream> {
    stack.connect(to).await
}

/// Listens, for asynchronous use.
///
/// # Errors
/// Those of `std::net::TcpListener::bind`.
pub(crate) fn listen(stack: &taut::Stack, at: SocketAddr) -> io::Result<taut::TcpListener> {
    stack.listen(at)
}

/// Does `work` while the stack runs.
///
/// # Errors
/// Those of the work, or the reason why the stack has ended.
pub(crate) async fn while_up<R>(
    stack: &taut::Stack,
    work: impl Future<Output = anyhow::Result<R>>,
) -> anyhow::Result<R> {
    tokio::select! {
        // The end of the stack is polled first: the work would report the failure of its connection,
        // which is not the cause.
        biased;
        why = stack.until_closed() => Err(why.into()),
        never = record::watch(stack) => match never {},
        done = work => done,
    }
}

/// Waits until closed connections have delivered their data, and ends the stack.
///
/// # Errors
/// Its recording ended before it did.
pub(crate) fn finish(stack: taut::Stack) -> anyhow::Result<()> {
    const PATIENCE: Duration = Duration::from_millis(500);
    // Gives up on a peer that no longer answers.
    _ = stack.drain(PATIENCE);
    let records = stack.recording_handles();
    drop(stack);
    record::check(&records)
}
