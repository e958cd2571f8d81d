//! Where the bytes of a relayed connection wait: a gateway or a proxy ends each connection at both sides, so
//! the stack alone sees one half of the way.
//!
//! ```text
//!   sender ── sender's window ──▶ relay ──▶ socket ──▶ network ── receiver's window ──▶ receiver
//!             received, unread    taken     unsent     in flight  the receiver accepts no more
//! ```
//!
//! `taut-gateway` measures at each request. [`Way::most`] and [`Way::gate`] are
//! pure, so that each reader names the same room for the same numbers.

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

/// A place on the way of a relayed connection where bytes wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Room {
    /// The relay's side of the connection to the sender: received, unread. A full one stops the sender.
    SenderWindow,
    /// The relay has taken them, and the socket has not.
    Relay,
    /// The socket towards the receiver: of the host, or of a stack. Unsent.
    Socket,
    /// In flight to the receiver.
    Network,
    /// Unsent, because the receiver's window is full.
    ReceiverWindow,
}

impl Room {
    /// One word, for tables and files.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::SenderWindow => "sender-window",
            Self::Relay => "relay",
            Self::Socket => "socket",
            Self::Network => "network",
            Self::ReceiverWindow => "receiver-window",
        }
    }

    /// Its name in a sentence.
    #[must_use]
    pub const fn words(self) -> &'static str {
        match self {
            Self::SenderWindow => "sender's window",
            Self::ReceiverWindow => "receiver's window",
            other => other.name(),
        }
    }
}

/// The queues of one end of a relayed connection: the host's socket, or a stack's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Queues {
    /// Bytes received that were not read.
    pub unread: u64,
    /// Bytes that the peer may still send; `None` if the kernel does not tell.
    pub offered: Option<u64>,
    /// Bytes written that were not sent.
    pub unsent: u64,
    /// Bytes sent that the peer has not acknowledged.
    pub in_flight: u64,
    /// Bytes that the peer accepts beyond those that it has acknowledged; `None` if the kernel does not tell.
    pub window: Option<u64>,
    /// The longest segment that is sent.
    pub segment: u32,
    /// As much is in flight as the congestion window allows.
    pub is_congested: bool,
    /// Packets leave at the rate at which the network delivers them.
    pub is_paced: bool,
    /// Bytes a second that the peer got, as last measured.
    pub rate: u64,
}

/// One way of a relayed connection, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Way {
    /// In the [sender's window](Room::SenderWindow).
    pub sender_window: u64,
    /// Bytes that the sender may still send.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub offered: Option<u64>,
    /// In the [relay](Room::Relay).
    pub relay: u64,
    /// In the [socket](Room::Socket).
    pub socket: u64,
    /// In the [network](Room::Network).
    pub network: u64,
    /// Bytes that the receiver accepts beyond those that it has acknowledged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub receiver_window: Option<u64>,
    /// Bytes a second that the receiver got, as last measured.
    pub rate: u64,
    /// The room that holds most; none if no bytes wait.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub most: Option<Room>,
    /// The room that bytes cannot leave faster; none if the sender has sent no more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gate: Option<Room>,
}

impl Way {
    /// From one end to the other, between which the relay holds so many bytes.
    #[must_use]
    pub fn new(from: &Queues, relay: u64, to: &Queues) -> Self {
        let gate = gate(from, relay, to);
        let socket = if gate == Some(Room::ReceiverWindow) { Room::ReceiverWindow } else { Room::Socket };
        let rooms = [
            (Room::SenderWindow, from.unread),
            (Room::Relay, relay),
            (socket, to.unsent),
            (Room::Network, to.in_flight),
        ];
        let most = rooms.into_iter().filter(|(_, bytes)| *bytes > 0).max_by_key(|(_, bytes)| *bytes);
        Self {
            sender_window: from.unread,
            offered: from.offered,
            relay,
            socket: to.unsent,
            network: to.in_flight,
            receiver_window: to.window,
            rate: to.rate,
            most: most.map(|(room, _)| room),
            gate,
        }
    }

    /// Bytes in this room. Those behind a full receiver's window are in the socket.
    #[must_use]
    pub const fn bytes(&self, room: Room) -> u64 {
        match room {
            Room::SenderWindow => self.sender_window,
            Room::Relay => self.relay,
            Room::Socket | Room::ReceiverWindow => self.socket,
            Room::Network => self.network,
        }
    }
}

/// A full room fills those before it: the last one that is not empty decides.
fn gate(from: &Queues, relay: u64, to: &Queues) -> Option<Room> {
    let next = to.unsent.min(to.segment.into());
    if to.unsent == 0 {
        return (relay > 0 || from.unread > 0).then_some(Room::Relay);
    }
    Some(match to.window {
        // First, as in the gates of a stack: lost segments fill the receiver's window, too.
        _ if to.is_congested => Room::Network,
        Some(window) if to.in_flight + next > window => Room::ReceiverWindow,
        _ if to.is_paced => Room::Network,
        _ => Room::Socket,
    })
}

/// The rooms of a relayed connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FlowRooms {
    /// The stack's end, as in [`ConnSnapshot`](crate::snapshot::ConnSnapshot).
    pub local: SocketAddr,
    /// The peer of the stack's end.
    pub peer: SocketAddr,
    /// From the guest of a gateway, or the client of a proxy.
    pub up: Way,
    /// To the guest or the client.
    pub down: Way,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ends of 1,000-byte segments: unread at the one; unsent, in flight and the window at the other.
    fn way(unread: u64, relay: u64, [unsent, in_flight, window]: [u64; 3], is_congested: bool) -> Way {
        let from = Queues { unread, ..Queues::default() };
        let to = Queues {
            unsent,
            in_flight,
            window: Some(window),
            segment: 1_000,
            is_congested,
            ..Queues::default()
        };
        Way::new(&from, relay, &to)
    }

    #[test]
    fn gw_155_the_room_that_holds_most_and_the_one_that_is_the_gate_are_named() {
        use Room::{Network, ReceiverWindow, Relay, SenderWindow, Socket};
        const OPEN: u64 = 1 << 20;
        for (way, most, gate) in [
            (way(0, 0, [0, 0, OPEN], false), None, None),
            // All has left: the sender has sent no more, whether the line is full or not.
            (way(0, 0, [0, 20_000, OPEN], true), Some(Network), None),
            (way(9_000, 0, [0, 0, OPEN], false), Some(SenderWindow), Some(Relay)),
            (way(0, 9_000, [0, 5_000, OPEN], false), Some(Relay), Some(Relay)),
            // A slow line: every room before it is full.
            (way(9_000, 4_000, [10_000, 31_000, OPEN], true), Some(Network), Some(Network)),
            (way(99_000, 4_000, [10_000, 31_000, OPEN], true), Some(SenderWindow), Some(Network)),
            (way(0, 0, [10_000, 2_000, OPEN], false), Some(Socket), Some(Socket)),
            // A receiver that does not read; one with room for less than a segment; lost segments.
            (way(0, 0, [10_000, 0, 0], false), Some(ReceiverWindow), Some(ReceiverWindow)),
            (way(0, 0, [10_000, 31_000, 31_999], false), Some(Network), Some(ReceiverWindow)),
            (way(0, 0, [10_000, 31_000, 32_000], false), Some(Network), Some(Socket)),
            (way(0, 0, [10_000, 31_000, 31_000], true), Some(Network), Some(Network)),
            (way(0, 0, [500, 100, 600], false), Some(Socket), Some(Socket)),
        ] {
            assert_eq!((way.most, way.gate), (most, gate), "{way:?}");
        }
    }

    #[test]
    fn gw_155_a_paced_socket_waits_for_the_network_unless_its_receiver_accepts_no_more() {
        let paced =
            |window| Queues { unsent: 9, window, segment: 1_000, is_paced: true, ..Queues::default() };
        let gate = |window| Way::new(&Queues::default(), 0, &paced(window)).gate;
        assert_eq!([gate(None), gate(Some(9))], [Some(Room::Network); 2]);
        assert_eq!(gate(Some(8)), Some(Room::ReceiverWindow));
    }

    #[test]
    fn gw_155_names_of_rooms_in_files_are_those_in_text() {
        use Room::{Network, ReceiverWindow, Relay, SenderWindow, Socket};
        for room in [SenderWindow, Relay, Socket, Network, ReceiverWindow] {
            assert_eq!(serde_json::to_string(&room).unwrap(), format!("\"{}\"", room.name()));
            assert_eq!(room.words().replace("'s ", "-"), room.name());
        }
    }
}
