//! `--shards`: how many shards a command's stack has, and a TUN's queue for each. Called by `link.rs` and
//! `taut compare`.

use std::io;

use taut_device::Tun;

/// The number of shards: for 0, the number of processors.
pub(crate) fn shard_count(asked: u16) -> u16 {
    match asked {
        0 => std::thread::available_parallelism()
            .map_or(1, |cores| u16::try_from(cores.get()).unwrap_or(1).min(256)),
        count => count,
    }
}

/// All queues of an interface that was opened for `shards` of them.
///
/// # Errors
/// Those of [`Tun::open_queue`].
pub(crate) fn queues(tun: Tun, shards: u16) -> io::Result<Vec<Tun>> {
    let more: Vec<Tun> = (1..shards).map(|_| tun.open_queue()).collect::<Result<_, _>>()?;
    Ok(std::iter::once(tun).chain(more).collect())
}
