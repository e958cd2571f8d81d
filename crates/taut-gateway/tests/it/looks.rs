//! The rooms in which bytes of a connection wait, between two kernels: GW-156 to 158 of
//! `docs/spec/gateway.md`.
#![cfg(target_os = "linux")]

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};

use taut::taut_control::rooms::{FlowRooms, Room, Way};
use taut_gateway::Server;
use taut_testbed::{PATIENCE, eventually, now};

use crate::{live, proxy};

/// The only connection.
fn only(server: &Server) -> Option<FlowRooms> {
    let found = server.rooms(PATIENCE);
    assert!(found.len() <= 1, "{found:?}");
    found.first().copied()
}

/// Writes until nothing more is taken for a moment, and returns how much was.
fn fill(stream: &mut TcpStream) -> u64 {
    stream.set_nonblocking(true).unwrap();
    let (mut sum, mut refused) = (0, 0);
    while refused < 20 {
        match stream.write(&[7; 65_536]) {
            Ok(count) => (sum, refused) = (sum + count as u64, 0),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                refused += 1;
                std::thread::sleep(std::time::Duration::from_millis(10));
            }
            Err(error) => panic!("{error}"),
        }
    }
    stream.set_nonblocking(false).unwrap();
    sum
}

fn nothing_waits(way: &Way) -> bool {
    (way.most, way.gate) == (None, None)
}

fn is_idle(server: &Server) -> bool {
    only(server).is_some_and(|rooms| nothing_waits(&rooms.up) && nothing_waits(&rooms.down))
}

/// Each end of a connection sends once, and the other one does not read. `ends`: of the stack, of its peer.
fn peer_does_not_read(
    server: &Server,
    pair: impl Fn() -> (TcpStream, TcpStream),
    ends: impl Fn(&TcpStream, &TcpStream) -> [SocketAddr; 2],
) {
    assert_eq!(server.rooms(PATIENCE), []);
    for is_up in [true, false] {
        let (mut client, mut served) = pair();
        let [local, peer] = ends(&client, &served);
        let (from, to) = if is_up { (&mut client, &mut served) } else { (&mut served, &mut client) };
        eventually("an idle connection", || is_idle(server));
        let sent = fill(from);
        let mut rooms = only(server).unwrap();
        eventually("the receiver is the gate", || {
            rooms = only(server).unwrap();
            let way = if is_up { &rooms.up } else { &rooms.down };
            way.gate == Some(Room::ReceiverWindow)
        });
        assert_eq!([rooms.local, rooms.peer], [local, peer]);
        let (way, other) = if is_up { (&rooms.up, &rooms.down) } else { (&rooms.down, &rooms.up) };
        assert!(nothing_waits(other), "{rooms:?}");
        let waiting = way.sender_window + way.relay + way.socket + way.network;
        assert!(way.socket > 0 && waiting < sent, "{way:?}");
        to.read_exact(&mut vec![0; sent as usize]).unwrap();
        eventually("nothing waits", || is_idle(server));
        drop((client, served));
        eventually("no connection is left", || only(server).is_none());
    }
}

fn guests_peer_does_not_read(world: &live::World) {
    peer_does_not_read(
        &world.server,
        || world.pair(),
        |client, served| [served.local_addr().unwrap(), client.local_addr().unwrap()],
    );
}

#[test]
fn gw_156_a_guests_peer_that_does_not_read_is_the_gate() {
    let Some(world) = live::plain() else { return };
    guests_peer_does_not_read(&world);
}

#[test]
fn gw_156_a_peer_of_another_stack_that_does_not_read_is_the_gate() {
    let Some(world) = live::by_another_stack() else { return };
    guests_peer_does_not_read(&world);
}

#[test]
fn gw_156_a_proxys_peer_that_does_not_read_is_the_gate() {
    let Some(world) = proxy::plain() else { return };
    peer_does_not_read(
        &world.server,
        || world.pair(),
        |_, served| [served.peer_addr().unwrap(), served.local_addr().unwrap()],
    );
}

#[test]
fn gw_157_a_line_that_delivers_nothing_is_the_gate() {
    let Some(world) = live::plain() else { return };
    world.far.run("ip address add 10.49.0.1/32 dev lo").unwrap();
    world.far.run("ip route replace local 10.50.0.0/16 dev lo src 10.49.0.1").unwrap();
    let (mut client, served) = world.pair();
    // A host that does not forward drops without a word what comes in for others.
    world.far.run("ip route del local 10.50.0.0/16 dev lo").unwrap();
    world.far.run("ip route add 10.50.0.0/16 dev lo src 10.49.0.1").unwrap();
    let sent = fill(&mut client);
    let mut rooms = only(&world.server).unwrap();
    eventually("the network is the gate", || {
        rooms = only(&world.server).unwrap();
        rooms.up.gate == Some(Room::Network)
    });
    let Way { sender_window, relay, socket, network, .. } = rooms.up;
    assert!(network > 0 && socket > 0, "{rooms:?}");
    // Nothing is acknowledged: each byte that has left the guest is in one of the rooms.
    assert!(sender_window + relay + socket + network <= sent, "{rooms:?} {sent}");
    drop((client, served));
}

#[test]
fn gw_158_no_look_waits_for_a_connection_that_has_ended() {
    let Some(world) = live::plain() else { return };
    let pairs: Vec<_> = (0..20).map(|_| world.pair()).collect();
    eventually("all answer", || world.server.rooms(PATIENCE).len() == pairs.len());
    std::thread::scope(|scope| {
        let looks: Vec<_> = (0..4)
            .map(|_| {
                let server = &world.server;
                scope.spawn(move || {
                    let began = now();
                    for _ in 0..50 {
                        _ = server.rooms(PATIENCE * 4);
                    }
                    began.elapsed()
                })
            })
            .collect();
        drop(pairs);
        for look in looks {
            assert!(look.join().unwrap() < PATIENCE * 4, "a look waited to its end");
        }
    });
    eventually("no connection is left", || world.server.rooms(PATIENCE).is_empty());
}
