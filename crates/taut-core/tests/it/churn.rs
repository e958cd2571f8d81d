//! Many connections: one after the other, and all at the same time. None is lost, none is left over, and the
//! time stays linear.

use crate::support;

use std::collections::BTreeMap;

use support::{A, B, Faults, World, config, pattern};
use taut_core::{ConnId, Duration, Event, LinkCaps, ListenOptions};

/// Opens, uses and closes `count` connections, at most `at_once` at a time.
fn churn(world: &mut World, count: usize, at_once: usize) {
    let to = format!("{B}:80");
    let listener = world.listen(1, &to);
    let (mut opened, mut closed, mut served, mut open) = (0, 0, 0, 0);
    while closed.min(served) < count {
        while open < at_once && opened < count {
            world.connect(0, &to);
            (opened, open) = (opened + 1, open + 1);
        }
        assert!(world.step(world.now + Duration::from_secs(300)), "{closed} of {opened} closed");
        let now = world.now;
        while let Some(event) = world.events[0].pop_front() {
            match event {
                Event::Connected(id) => {
                    let mut conn = world.stacks[0].conn_mut(id).unwrap();
                    assert_eq!(conn.write(now, b"request"), Ok(7));
                }
                Event::Readable(id) => {
                    let mut conn = world.stacks[0].conn_mut(id).unwrap();
                    let mut buffer = [0; 100];
                    while let Ok(len) = conn.read(now, &mut buffer) {
                        if len == 0 {
                            conn.close(now);
                            (closed, open) = (closed + 1, open - 1);
                            break;
                        }
                        assert_eq!(&buffer[..len], b"response");
                    }
                }
                Event::Failed(_, error) => panic!("{error}"),
                _ => {}
            }
        }
        while let Some(event) = world.events[1].pop_front() {
            match event {
                Event::Incoming(_) => while world.stacks[1].accept(listener).is_some() {},
                Event::Readable(id) => {
                    let Some(mut conn) = world.stacks[1].conn_mut(id) else { continue };
                    let mut buffer = [0; 100];
                    while let Ok(len) = conn.read(now, &mut buffer) {
                        if len == 0 {
                            conn.close(now);
                            served += 1;
                            break;
                        }
                        assert_eq!(&buffer[..len], b"request");
                        assert_eq!(conn.write(now, b"response"), Ok(8));
                        conn.shutdown_write(now).unwrap();
                    }
                }
                Event::Failed(_, error) => panic!("{error}"),
                _ => {}
            }
        }
        world.flush();
    }
    world.run_for(Duration::from_secs(200));
    for stack in &world.stacks {
        assert_eq!((stack.connections(), stack.time_waits()), (0, 0));
        assert_eq!(stack.poll_timeout(), None);
    }
    assert_eq!(world.stacks[0].counters().active_opens, count as u64);
    assert_eq!(world.stacks[1].counters().passive_opens, count as u64);
}

#[test]
fn ten_thousand_connections_leave_nothing() {
    let mut world = World::new(1);
    world.faults(Faults { delay: Duration::from_micros(50), ..Faults::default() });
    churn(&mut world, 10_000, 10);
    assert_eq!(world.stacks[0].counters().retrans_segs, 0);
}

#[test]
fn a_thousand_at_a_time_over_a_bad_link() {
    let mut world = World::new(2);
    world.faults(Faults { loss: 20, duplicate: 10, reorder: 50, ..Faults::default() });
    churn(&mut world, 3_000, 1_000);
}

#[test]
fn more_connections_than_ports() {
    // Ports come back out of TIME-WAIT after a second (RFC 6191), so a hundred do for a thousand connections.
    let few = config(A).with(|c| c.ip_local_port_range = (50_000, 50_099));
    let mut world = World::with(3, few, config(B), LinkCaps::plain(1_500));
    world.faults(Faults { delay: Duration::from_millis(25), ..Faults::default() });
    churn(&mut world, 1_000, 3);
    let recycled = world.stacks[0].counters().tw_recycled + world.stacks[1].counters().tw_recycled;
    assert!(recycled >= 900, "{recycled}");
}

/// One of many transfers: bytes of the pattern, each with its own offset.
#[derive(Clone, Copy, Default)]
struct Stream {
    offset: u64,
    position: u64,
    end: u64,
}

impl Stream {
    fn byte(self, at: u64) -> u8 {
        pattern(self.offset + at)
    }
}

#[test]
fn a_thousand_transfers_at_once_over_a_bad_link() {
    const STREAMS: usize = 1_000;
    let mut world = World::with(4, config(A), config(B), LinkCaps::offloading(1_500));
    let faults = Faults { loss: 10, duplicate: 5, reorder: 50, rate: 50_000_000, ..Faults::default() };
    world.faults(Faults { completion_delay: Duration::from_micros(300), ..faults });
    let to = format!("{B}:80");
    let options = ListenOptions { backlog: 2_000, ..ListenOptions::default() };
    let listener = world.stacks[1].listen(to.parse().unwrap(), options).unwrap();
    let mut sending: BTreeMap<ConnId, Stream> = BTreeMap::new();
    // By the port that the peer connected from.
    let mut expected: BTreeMap<u16, Stream> = BTreeMap::new();
    let mut receiving: BTreeMap<ConnId, Stream> = BTreeMap::new();
    for n in 0..STREAMS as u64 {
        let id = world.connect(0, &to);
        let stream = Stream { offset: n * 7_919, position: 0, end: 1 + world.rng.below(40_000) };
        sending.insert(id, stream);
        expected.insert(world.stacks[0].conn(id).unwrap().local_addr().port(), stream);
    }
    let mut paused: Vec<(u64, usize, ConnId)> = Vec::new();
    let (mut done, start) = (0, world.now);
    while done < STREAMS {
        assert!(world.now.since(start) < Duration::from_secs(300), "{done} are done");
        world.step(world.now + Duration::from_millis(5));
        let now = world.now;
        let mut todo: Vec<(usize, ConnId)> = Vec::new();
        for side in [0, 1] {
            while let Some(event) = world.events[side].pop_front() {
                match event {
                    Event::Incoming(_) => {
                        while let Some((id, peer)) = world.stacks[1].accept(listener) {
                            receiving.insert(id, expected[&peer.port()]);
                            todo.push((1, id));
                        }
                    }
                    Event::Connected(id) | Event::Writable(id) | Event::Readable(id) => {
                        // Sometimes an application is busy with something else.
                        if world.rng.chance(100) {
                            let until = now.as_millis() + world.rng.below(300);
                            paused.push((until, side, id));
                        } else {
                            todo.push((side, id));
                        }
                    }
                    Event::Failed(id, error) => panic!("{side} {id:?} {error}"),
                    _ => {}
                }
            }
        }
        paused.retain(|&(until, side, id)| {
            let wait = until > now.as_millis();
            if !wait {
                todo.push((side, id));
            }
            wait
        });
        for (side, id) in todo {
            let Some(mut conn) = world.stacks[side].conn_mut(id) else { continue };
            if side == 0 {
                let Some(stream) = sending.get_mut(&id) else { continue };
                while stream.position < stream.end {
                    let until = stream.end.min(stream.position + 3_000);
                    let piece: Vec<u8> = (stream.position..until).map(|at| stream.byte(at)).collect();
                    match conn.write(now, &piece) {
                        Ok(count) => stream.position += count as u64,
                        Err(_) => break,
                    }
                }
                if stream.position == stream.end {
                    conn.close(now);
                }
            } else {
                let Some(stream) = receiving.get_mut(&id) else { continue };
                let mut buffer = [0; 5_000];
                while let Ok(count) = conn.read(now, &mut buffer) {
                    if count == 0 {
                        assert_eq!(stream.position, stream.end);
                        conn.close(now);
                        done += 1;
                        break;
                    }
                    for &byte in &buffer[..count] {
                        assert_eq!(byte, stream.byte(stream.position));
                        stream.position += 1;
                    }
                }
            }
        }
        world.flush();
    }
    world.run_for(Duration::from_secs(300));
    for stack in &world.stacks {
        assert_eq!((stack.connections(), stack.time_waits()), (0, 0));
    }
}
