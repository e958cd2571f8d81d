//! Runs over a TUN with the kernel's TCP, recorded and replayed.

use crate::net;

use std::io::{Read, Write};
use std::net::Shutdown;
use std::path::{Path, PathBuf};

use net::{Net, digest_of, echo, send_noise, serve};
use taut::Bytes;
use taut::blocking::{TcpListener, TcpStream};
use taut::congestion::Registry;
use taut::observe::ConnInfo;
use taut_core::Instant;
use taut_replay::{Played, Player, RecordEnd};
use taut_testbed::{Noise, PATIENCE, Scratch};

const BULK: usize = 24 << 20;

/// Replays a whole recording. Returns the player at its end.
fn replayed(path: &Path) -> Player {
    let mut player = Player::open(path, &Registry::default()).unwrap();
    while let Some(played) = player.step(Instant::NEVER, &mut |_| {}).unwrap() {
        assert_eq!(played, Played::Same);
    }
    assert_eq!(player.end(), Some(RecordEnd::Whole));
    player
}

fn upload(net: &Net) -> ConnInfo {
    let (listener, address) = net.listener(0);
    let server = serve(listener, digest_of);
    let mut stream = TcpStream::connect(&net.stack, address).unwrap();
    let sent = send_noise(&mut stream, BULK, 1);
    stream.shutdown(Shutdown::Write).unwrap();
    assert_eq!(server.join().unwrap(), (BULK, sent));
    stream.info().unwrap()
}

fn download(net: &Net) {
    let (listener, address) = net.listener(1);
    let server = serve(listener, |stream| send_noise(stream, BULK, 2));
    let stream = TcpStream::connect(&net.stack, address).unwrap();
    let got = digest_of(&stream);
    assert_eq!(got, (BULK, server.join().unwrap()));
}

/// Lends memory to the stack, and keeps what it reads without a copy.
fn without_copies(net: &Net) {
    let (listener, address) = net.listener(0);
    let server = serve(listener, echo);
    let stream = TcpStream::connect(&net.stack, address).unwrap();
    let data = Bytes::from(Noise::new(3).bytes(BULK / 8).to_vec());
    let mut read = Vec::new();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut rest = data.clone();
            while !rest.is_empty() {
                stream.write_bytes(&mut rest).unwrap();
            }
            stream.shutdown(Shutdown::Write).unwrap();
            while stream.next_completion().unwrap().is_some() {}
        });
        loop {
            let chunk = stream.read_chunk(10_000).unwrap();
            if chunk.is_empty() {
                break;
            }
            read.push(chunk);
        }
    });
    assert!(read.concat() == data, "bytes intact");
    server.join().unwrap();
}

fn recording(dir: &Scratch) -> PathBuf {
    dir.0.join("run")
}

#[test]
fn replay_12_a_run_against_the_kernel_is_replayed_bit_for_bit() {
    let dir = Scratch::new("replay-live");
    let path = recording(&dir);
    let net = Net::with(|builder| builder.record(&path).build());
    upload(&net);
    download(&net);
    without_copies(&net);
    net.stack.set_sysctl("tcp_congestion_control", "bbr").unwrap();
    // What leaves is lost, one packet in a hundred.
    net.stack.set_qdisc("netem loss 1%").unwrap();
    assert!(upload(&net).total_retrans > 0);
    let counters = net.stack.counters();
    let record = net.stack.recordings().remove(0);
    assert_eq!((record.ended, record.missed), (None, 0));
    drop(net);
    let player = replayed(&path);
    let again = player.stack().counters();
    assert!(again.in_receives >= counters.in_receives && again.retrans_segs >= counters.retrans_segs);
    assert!(player.inputs() >= record.inputs);
}

/// The kernel connects, so a packet may arrive at the wrong shard and be handed over.
#[test]
fn replay_13_each_shard_has_a_recording_of_its_own() {
    let dir = Scratch::new("replay-shards");
    let path = recording(&dir);
    let net = Net::with(|builder| builder.shards(2).record(&path).build());
    let listener = TcpListener::bind(&net.stack, "10.7.0.2:7").unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..16 {
                let (mut stream, _) = listener.accept().unwrap();
                let mut four = [0; 4];
                stream.read_exact(&mut four).unwrap();
                stream.write_all(&four).unwrap();
            }
        });
        for _ in 0..16 {
            let mut stream = net.connect(listener.local_addr().unwrap());
            stream.write_all(b"ping").unwrap();
            let mut four = [0; 4];
            stream.read_exact(&mut four).unwrap();
        }
    });
    drop(listener);
    // Until the last ACK of a FIN has come, and may have been handed over.
    assert!(net.stack.drain(PATIENCE), "{} connections left", net.stack.connections());
    let counters = net.stack.shard_counters();
    drop(net);
    let mut opened = 0;
    for (number, counters) in counters.iter().enumerate() {
        let file = if number == 0 { path.clone() } else { dir.0.join("run.1") };
        let player = replayed(&file);
        assert_eq!(player.shard(), (number as u16, 2));
        assert_eq!(player.stack().counters().passive_opens, counters.passive_opens);
        assert_eq!(player.stack().counters().steered, counters.steered);
        opened += counters.passive_opens;
    }
    assert_eq!(opened, 16);
}
