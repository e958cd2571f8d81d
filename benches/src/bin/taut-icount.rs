//! The work whose instructions `taut-bench instructions` counts with callgrind: two stacks in one thread, one
//! super-packet and one ACK per round, in virtual time. Only the functions named `count_*` are counted.

use std::hint::black_box;

use anyhow::{Result, bail};
use taut_bench::pair::{SmoltcpPair, TautPair, received};
use taut_bench::stacks::taut_loop;
use taut_core::{Fate, Instant, RxPacket, Stack, Transmit, TxTicket};

/// 45 full segments: the most that fits a super-packet with timestamps.
const SUPER_PACKET_BYTES: usize = 45 * 1_448;
/// Virtual time between rounds.
const ROUND_NS: u64 = 50_000;

// Each is called from one place and must not be inlined there, or callgrind would not see it.

#[inline(never)]
#[unsafe(no_mangle)]
fn count_taut_write(pair: &mut TautPair, now: Instant, data: &[u8]) -> Result<bool> {
    taut_loop::write(&mut pair.from, pair.sender, now, data)
}

#[inline(never)]
#[unsafe(no_mangle)]
fn count_taut_packet_out(stack: &mut Stack, now: Instant) -> Option<Transmit<'_>> {
    stack.poll_transmit(now)
}

#[inline(never)]
#[unsafe(no_mangle)]
fn count_taut_complete(stack: &mut Stack, now: Instant, ticket: TxTicket) {
    stack.handle_tx(now, ticket, Fate::Left);
}

#[inline(never)]
#[unsafe(no_mangle)]
fn count_taut_packet_in(stack: &mut Stack, now: Instant, packet: RxPacket<'_>) {
    stack.handle_packet(now, packet);
}

#[inline(never)]
#[unsafe(no_mangle)]
fn count_taut_read(pair: &mut TautPair, now: Instant, into: &mut [u8]) -> Result<usize> {
    taut_loop::read(&mut pair.to, pair.receiver, now, into)
}

#[inline(never)]
#[unsafe(no_mangle)]
fn count_taut_ack_in(stack: &mut Stack, now: Instant, packet: RxPacket<'_>) {
    // If the bodies were equal, the compiler would merge this function with `count_taut_packet_in`.
    black_box(());
    stack.handle_packet(now, packet);
}

#[inline(never)]
#[unsafe(no_mangle)]
fn count_smoltcp_write(pair: &mut SmoltcpPair, data: &[u8]) -> Result<usize> {
    pair.write(data)
}

#[inline(never)]
#[unsafe(no_mangle)]
fn count_smoltcp_packet_out(pair: &mut SmoltcpPair) {
    pair.packets_out();
}

#[inline(never)]
#[unsafe(no_mangle)]
fn count_smoltcp_packet_in(pair: &mut SmoltcpPair) {
    pair.packets_in();
}

#[inline(never)]
#[unsafe(no_mangle)]
fn count_smoltcp_read(pair: &mut SmoltcpPair, into: &mut [u8]) -> Result<usize> {
    pair.read(into)
}

#[inline(never)]
#[unsafe(no_mangle)]
fn count_smoltcp_ack_in(pair: &mut SmoltcpPair) {
    pair.ack_in();
}

/// What was carried.
#[derive(Default)]
struct Carried {
    packets: usize,
    acks: usize,
}

fn taut(rounds: u64, data: &[u8], into: &mut [u8]) -> Result<Carried> {
    let mut carried = Carried::default();
    let mut pair = TautPair::new(Instant::from_nanos(1_000_000_000))?;
    for round in 0..rounds {
        let now = Instant::from_nanos(2_000_000_000 + round * ROUND_NS);
        count_taut_write(&mut pair, now, data)?;
        while let Some(Transmit { packet, ticket }) = count_taut_packet_out(&mut pair.from, now) {
            count_taut_packet_in(&mut pair.to, now, received(&packet));
            count_taut_complete(&mut pair.from, now, ticket);
            carried.packets += 1;
        }
        black_box(count_taut_read(&mut pair, now, into)?);
        while let Some(Transmit { packet, ticket }) = pair.to.poll_transmit(now) {
            count_taut_ack_in(&mut pair.from, now, received(&packet));
            pair.to.handle_tx(now, ticket, Fate::Left);
            carried.acks += 1;
        }
        pair.housekeeping(now);
    }
    Ok(carried)
}

fn smoltcp(rounds: u64, data: &[u8], into: &mut [u8]) -> Result<Carried> {
    let mut carried = Carried::default();
    let mut pair = SmoltcpPair::new(512 << 10)?;
    for round in 0..rounds {
        pair.set_now(2_000_000_000 + round * ROUND_NS);
        count_smoltcp_write(&mut pair, data)?;
        count_smoltcp_packet_out(&mut pair);
        carried.packets += pair.under_way();
        count_smoltcp_packet_in(&mut pair);
        black_box(count_smoltcp_read(&mut pair, into)?);
        pair.ack_out();
        carried.acks += pair.under_way();
        count_smoltcp_ack_in(&mut pair);
    }
    Ok(carried)
}

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, stack, rounds] = arguments.as_slice() else { bail!("usage: taut-icount taut|smoltcp ROUNDS") };
    let rounds = rounds.parse()?;
    let (data, mut into) = (vec![0x5a; SUPER_PACKET_BYTES], vec![0; 2 * SUPER_PACKET_BYTES]);
    let carried = match stack.as_str() {
        "taut" => taut(rounds, &data, &mut into)?,
        "smoltcp" => smoltcp(rounds, &data, &mut into)?,
        other => bail!("unknown stack {other}; use taut or smoltcp"),
    };
    println!("{} {}", carried.packets, carried.acks);
    Ok(())
}
