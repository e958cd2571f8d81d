//! Where the bytes of a relayed connection wait, in words: a line for each way by `taut explain`, a token by
//! `taut ss -e`. The numbers and the names of rooms are `taut_control::rooms`.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use taut_control::Client;
use taut_control::rooms::{FlowRooms, Room, Way};

use crate::shared::text;

/// Relayed connections by the ends of the stack's side.
#[derive(Clone, Debug, Default)]
pub(crate) struct Relayed(BTreeMap<(SocketAddr, SocketAddr), FlowRooms>);

impl Relayed {
    /// The ones of a running stack, if they are shown. A stack of an earlier version has none.
    pub(crate) fn of(client: &mut Client, is_shown: bool) -> Self {
        let rooms = if is_shown { client.rooms().unwrap_or_default() } else { Vec::new() };
        Self(rooms.into_iter().map(|rooms| ((rooms.local, rooms.peer), rooms)).collect())
    }

    pub(crate) fn get(&self, local: SocketAddr, peer: SocketAddr) -> Option<&FlowRooms> {
        self.0.get(&(local, peer))
    }

    pub(crate) fn all(&self) -> Vec<&FlowRooms> {
        self.0.values().collect()
    }
}

/// A line for each way.
pub(crate) fn lines(rooms: &FlowRooms) -> String {
    format!("  up    {}\n  down  {}", sentence(&rooms.up), sentence(&rooms.down))
}

/// `2.10 MB/s; 31.0 kB wait in the network: the line to the receiver is the gate`.
fn sentence(way: &Way) -> String {
    let places = [
        ("sender's window", way.sender_window),
        ("relay", way.relay),
        ("socket", way.socket),
        ("network", way.network),
    ];
    let waiting = places.iter().filter(|(_, bytes)| *bytes > 0);
    let waiting: Vec<_> =
        waiting.map(|(room, bytes)| format!("{} in the {room}", text::bytes(*bytes))).collect();
    if waiting.is_empty() {
        return "no bytes wait: the sender has sent no more".to_owned();
    }
    let waiting = waiting.join(", ").replacen(" in", " wait in", 1);
    let rate = if way.rate > 0 { format!("{}/s; ", text::bytes(way.rate)) } else { String::new() };
    format!("{rate}{waiting}: {}", why(way.gate))
}

/// The meaning of a gate.
const fn why(gate: Option<Room>) -> &'static str {
    match gate {
        None | Some(Room::SenderWindow) => "the sender has sent no more",
        Some(Room::Relay) => "the relay is the gate, by its CPU time or its limit of bytes that wait",
        Some(Room::Socket) => "the socket is the gate: this host's device is full",
        Some(Room::Network) => "the network is the gate: the line to the receiver carries no more",
        Some(Room::ReceiverWindow) => "the receiver's window is the gate: the receiver accepts no more",
    }
}

/// `up:(network:31000,gate:network)`; a way on which no bytes wait has no token.
pub(crate) fn tokens(rooms: &FlowRooms) -> String {
    let token = |(name, way): (&str, &Way)| {
        let most = way.most?;
        let gate = way.gate.map_or(String::new(), |gate| format!(",gate:{}", gate.name()));
        Some(format!(" {name}:({}:{}{gate})", most.name(), way.bytes(most)))
    };
    [("up", &rooms.up), ("down", &rooms.down)].into_iter().filter_map(token).collect()
}

#[cfg(test)]
mod tests {
    use taut_control::rooms::Queues;

    use super::*;

    fn rooms() -> FlowRooms {
        let end = "10.9.0.1:80".parse().unwrap();
        let guest = Queues { unread: 5_000, ..Queues::default() };
        let host = Queues {
            unsent: 10_000,
            in_flight: 31_000,
            segment: 1_448,
            is_congested: true,
            rate: 2_100_000,
            ..Queues::default()
        };
        FlowRooms { local: end, peer: end, up: Way::new(&guest, 0, &host), down: Way::default() }
    }

    #[test]
    fn wait_9_each_way_has_a_sentence() {
        let expected = "  up    2.10 MB/s; 5.00 kB wait in the sender's window, 10.0 kB in the socket, 31.0 kB in the network: \
                        the network is the gate: the line to the receiver carries no more\n  \
                        down  no bytes wait: the sender has sent no more";
        assert_eq!(lines(&rooms()), expected);
    }

    #[test]
    fn wait_9_ss_has_a_token_for_a_way_on_which_bytes_wait() {
        assert_eq!(tokens(&rooms()), " up:(network:31000,gate:network)");
    }
}
