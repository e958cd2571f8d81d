//! Work that shows where bytes wait when a gateway makes two connections of one, and what datagrams cost.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use crate::gateways::{FORWARDED, Guest, Kind};
use crate::servers::{Arrived, BLOCK, DATAGRAMS, REQUEST, STAMPED, at, dial, now};
use crate::table::Table;
use crate::work::{LIMIT, quantile, sender, trips};
use crate::world::World;

/// The head of a request, which is a write of its own.
const HEAD: usize = 200;
const BODIES: [usize; 6] = [1, 1_000, 4_000, 20_000, 50_000, 65_536];
/// How long blocks are written, and from when on they count: buffers are full then.
const WRITTEN_FOR: Duration = Duration::from_secs(14);
pub const COUNTED_AFTER: Duration = Duration::from_secs(4);

/// The median time of each, in microseconds, until the answer is there.
fn requests(body: usize, nodelay: bool) -> Result<f64> {
    let mut stream = dial(REQUEST, LIMIT)?;
    stream.set_nodelay(nodelay)?;
    stream.set_read_timeout(Some(LIMIT))?;
    let mut head = [0; HEAD];
    head[..4].copy_from_slice(&u32::try_from(HEAD + body)?.to_ne_bytes());
    let body = vec![0; body];
    let mut all = Vec::new();
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_millis(500) || all.len() < 5 {
        let asked = Instant::now();
        stream.write_all(&head)?;
        stream.write_all(&body)?;
        stream.read_exact(&mut [0])?;
        all.push(asked.elapsed().as_secs_f64() * 1e6);
    }
    all.sort_by(f64::total_cmp);
    Ok(quantile(&all, 0.5))
}

pub fn bodies(guest: &Guest, table: &mut Table) -> Result<()> {
    for nodelay in [false, true] {
        for body in BODIES {
            let found = guest.enter(|| requests(body, nodelay))??;
            let how = if nodelay { ", NODELAY" } else { "" };
            table.add(guest.kind, &format!("head of 200 B, body of {body}{how}, p50 [µs]"), found);
        }
    }
    Ok(())
}

pub fn after_bulk(guest: &Guest, table: &mut Table) -> Result<()> {
    let all = guest.enter(|| trips(Duration::from_secs(2)))??;
    for (name, share) in [("p50", 0.5), ("p99", 0.99), ("p99.9", 0.999)] {
        let row = format!("request/response after bulk, {name} [µs]");
        table.add(guest.kind, &row, quantile(&all, share));
    }
    Ok(())
}

/// Sends a datagram; whether its answer came in time.
fn ask(socket: &UdpSocket) -> Result<bool> {
    socket.send(b"question")?;
    Ok(socket.recv(&mut [0; 64]).is_ok())
}

fn socket() -> Result<UdpSocket> {
    let socket = UdpSocket::bind("0.0.0.0:0")?;
    socket.set_read_timeout(Some(Duration::from_millis(500)))?;
    socket.connect(at(DATAGRAMS))?;
    Ok(socket)
}

pub fn udp_trips(guest: &Guest, table: &mut Table) -> Result<()> {
    let (span, mut count) = (Duration::from_secs(1), 0);
    guest.enter(|| -> Result<()> {
        let (socket, begun) = (socket()?, Instant::now());
        while begun.elapsed() < span {
            ensure!(ask(&socket)?, "a datagram is not answered");
            count += 1;
        }
        Ok(())
    })??;
    table.add(guest.kind, "UDP round trips a second", f64::from(count) / span.as_secs_f64());
    Ok(())
}

pub fn udp_new(guest: &Guest, table: &mut Table) -> Result<()> {
    let (span, mut count, mut failed) = (Duration::from_secs(1), 0, 0);
    guest.enter(|| -> Result<()> {
        let begun = Instant::now();
        while begun.elapsed() < span {
            let is_answered = ask(&socket()?).unwrap_or(false);
            if is_answered { count += 1 } else { failed += 1 }
        }
        Ok(())
    })??;
    table.add(
        guest.kind,
        "UDP round trips a second, each from a new port",
        f64::from(count) / span.as_secs_f64(),
    );
    table.add(guest.kind, "  of these, not answered", f64::from(failed));
    Ok(())
}

/// Writes as much as the connection takes.
pub fn write_blocks(mut stream: TcpStream) -> Result<()> {
    stream.set_write_timeout(Some(Duration::from_millis(500)))?;
    let (mut block, begun) = ([0; BLOCK], Instant::now());
    let mut written = BLOCK;
    while begun.elapsed() < WRITTEN_FOR {
        if written == BLOCK {
            block[..8].copy_from_slice(&now().to_ne_bytes());
            written = 0;
        }
        match stream.write(&block[written..]) {
            Ok(count) => written += count,
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

pub fn blocks(world: &World, guest: &Guest, table: &mut Table) -> Result<()> {
    world.servers.arrived();
    let (begun, before) = (now(), guest.memory());
    let (done, held) = std::thread::scope(|scope| {
        let held = scope.spawn(|| held(world, guest, before));
        (world.watched(|| guest.enter(|| write_blocks(dial(STAMPED, LIMIT)?))), held.join())
    });
    done??;
    let name = format!("{}, {}", world.line.name(), sender(world, guest));
    report(&world.servers.arrived(), begun, 0.0, &name, guest.kind, table)?;
    if let Ok((sockets, gateway)) = held {
        table.add(guest.kind, &format!("{name}: the host's sockets hold [kB]"), sockets / 1e3);
        table.add(guest.kind, &format!("{name}: the gateway has grown by [kB]"), gateway / 1e3);
    }
    Ok(())
}

/// A service of the guest's, by a port of the host that leads to it.
pub fn forwarded(world: &World, guest: &Guest, table: &mut Table) -> Result<()> {
    // With a link of its own, the host's kernel would be the sender all the same.
    let Some(address) = guest.forwarded else { return Ok(()) };
    world.servers.arrived();
    let begun = now();
    let service = guest.enter(|| TcpListener::bind(("0.0.0.0", FORWARDED)))??;
    let client = world.far.enter(|| TcpStream::connect_timeout(&address, LIMIT))??;
    world.servers.read_blocks(client);
    let accepted = service.accept()?.0;
    world.watched(|| write_blocks(accepted))?;
    let name = format!("{}, {}, a service by a port of the host", world.line.name(), sender(world, guest));
    report(&world.servers.arrived(), begun, 0.0, &name, guest.kind, table)
}

/// Blocks that were written since `begun`, by a clock that is late by `late` milliseconds.
pub fn report(
    arrived: &[Arrived],
    begun: u64,
    late: f64,
    name: &str,
    kind: Kind,
    table: &mut Table,
) -> Result<()> {
    let counted = begun + COUNTED_AFTER.as_micros() as u64..=begun + WRITTEN_FOR.as_micros() as u64;
    let found: Vec<&Arrived> = arrived.iter().filter(|block| counted.contains(&block.at)).collect();
    ensure!(found.len() > 1, "no block arrived");
    let mut times: Vec<f64> = found.iter().map(|block| block.after as f64 / 1e3 - late).collect();
    times.sort_by(f64::total_cmp);
    let span = found[found.len() - 1].at - found[0].at;
    let bits = ((found.len() - 1) * BLOCK * 8) as f64 / span as f64;
    table.add(kind, &format!("{name}: from write to read, p50 [ms]"), quantile(&times, 0.5));
    table.add(kind, &format!("{name}: p99 [ms]"), quantile(&times, 0.99));
    table.add(kind, &format!("{name}: goodput [Mbit/s]"), bits);
    Ok(())
}

/// Memory of the host's connections to the far end and growth of the gateway's own, in bytes: medians of
/// looks while blocks are written.
fn held(world: &World, guest: &Guest, before: f64) -> (f64, f64) {
    std::thread::sleep(COUNTED_AFTER);
    let (mut sockets, mut gateway) = (Vec::new(), Vec::new());
    for _ in 0..20 {
        std::thread::sleep(Duration::from_millis(400));
        if let Ok(text) = world.host.run(&format!("ss -Htinm state established dst {}", at(STAMPED).ip())) {
            sockets.push(text.split_whitespace().filter_map(skmem).sum());
        }
        gateway.push(guest.memory() - before);
    }
    sockets.sort_by(f64::total_cmp);
    gateway.sort_by(f64::total_cmp);
    (quantile(&sockets, 0.5), quantile(&gateway, 0.5))
}

/// Bytes that a socket holds to receive (`r`) and to send (`w`), of `skmem:(r0,rb131072,t0,tb87040,f0,w0,…)`.
fn skmem(word: &str) -> Option<f64> {
    let fields = word.strip_prefix("skmem:(")?.split(',');
    let of = |field: &str| field.strip_prefix(['r', 'w'])?.parse::<f64>().ok();
    Some(fields.filter_map(of).sum())
}
