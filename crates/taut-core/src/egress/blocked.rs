//! Why nothing was sent: the single value from which counters, time shares, timers and explanations derive.
//! taut's own; returned by every gate of `plan`. A deadline taken from anything else would make the driver
//! spin while another gate is shut.
//!
//! One table, in the order in which the gates are asked: when two are shut, the earlier one is named. So
//! "cwnd" does not say that the peer's window would have had room, only that it was not asked. From this
//! table come [`Blocked`], [`Gate`], the names and advice of `taut explain`, the columns of the lab's files,
//! and the table in docs/spec/send-path.md.

use core::fmt;

use crate::words::Instant;

/// Makes the two types from the table: a gate's variant, its name, its name in plain words, when it is shut,
/// and what to do if it is shut most of the time.
macro_rules! gates {
    ($($(#[$doc:meta])* $gate:ident $({ $(#[$field_doc:meta])* $field:ident: $type:ty })? = $name:literal, $words:literal,
        shut: $shut:literal, advice: $advice:literal;)*) => {
        /// The gate that was shut, in the order in which the gates are asked.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[non_exhaustive]
        pub enum Blocked {
            $($(#[$doc])* $gate $({ $(#[$field_doc])* $field: $type })?,)*
        }

        /// A [`Blocked`] in one byte, which every connection keeps: without the time, which pacing keeps.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u8)]
        pub enum Gate {
            $($(#[$doc])* $gate,)*
        }

        impl Gate {
            /// All gates, in the order in which they are asked.
            pub const ALL: [Self; Self::COUNT] = [$(Self::$gate),*];
            /// The number of gates.
            pub const COUNT: usize = [$($name),*].len();

            /// One word, for tables and files.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$gate => $name,)*
                }
            }

            /// Its name in a sentence.
            #[must_use]
            pub const fn words(self) -> &'static str {
                match self {
                    $(Self::$gate => $words,)*
                }
            }

            /// When it is shut.
            #[must_use]
            pub const fn shut_when(self) -> &'static str {
                match self {
                    $(Self::$gate => $shut,)*
                }
            }

            /// What it means, and what to do, if it is shut most of the time.
            #[must_use]
            pub const fn advice(self) -> &'static str {
                match self {
                    $(Self::$gate => $advice,)*
                }
            }

            /// The reason, with the time at which the next packet departs.
            #[allow(unused_variables, reason = "only one gate has a time")]
            pub(crate) const fn reason(self, departure: Instant) -> Blocked {
                match self {
                    $(Self::$gate => Blocked::$gate $({ $field: departure })?,)*
                }
            }
        }

        impl Blocked {
            /// Which gate it is.
            #[must_use]
            pub const fn gate(self) -> Gate {
                match self {
                    $(Self::$gate $({ $field: _ })? => Gate::$gate,)*
                }
            }
        }
    };
}

gates! {
    /// Everything written has been sent.
    NoData = "no-data", "application",
        shut: "everything written has been sent",
        advice: "The application wrote nothing more: the stack waited for the application, not the other way round. \
                 Write earlier, or in larger pieces.";
    /// Everything written has been sent, and the application wanted to write more: its send buffer is too
    /// small, or it has not yet written again although there is room now.
    SendBuffer = "send-buffer", "send buffer",
        shut: "everything written has been sent, and the application was refused room for more",
        advice: "Everything was sent, and the application was refused room for more: the send buffer (tcp_wmem, \
                 SO_SNDBUF) or the low-water mark is too small for the path, or the application is slow to write again.";
    /// The next packet departs at `until`.
    Pacing {
        /// When the gate opens by itself.
        until: Instant
    } = "pacing", "pacing",
        shut: "it is not yet time for the next packet",
        advice: "Packets leave at the pacing rate, a little above the rate at which the network delivers: this is normal \
                 for a path in full use. If the rate is too low, look at cwnd, rtt and pacing_rate in `taut ss -ti`, \
                 and check whether SO_MAX_PACING_RATE is set.";
    /// As much is in flight as the congestion window allows.
    Cwnd = "cwnd", "congestion window",
        shut: "as much is in flight as the congestion window allows",
        advice: "As much is in flight as the network seems able to carry: the network is the limit. Loss keeps the \
                 window small: compare retrans with data_segs_out in `taut ss -ti`.";
    /// The peer's window has no room for the next segment.
    PeerWindow = "peer-window", "receiver's window",
        shut: "the peer's window has no room for the next segment",
        advice: "The receiver accepts no more: its application reads too slowly, or its receive buffer (tcp_rmem, \
                 SO_RCVBUF) is too small for the path.";
    /// A small piece waits for the ACK of an earlier small one.
    Nagle = "nagle", "Nagle",
        shut: "a small piece waits for the ACK of an earlier small one",
        advice: "Small writes wait for the ACK of the previous one. Write each message with a single call, or set \
                 TCP_NODELAY.";
    /// The application corked the tail.
    Cork = "cork", "cork",
        shut: "the application corked the tail",
        advice: "The application holds back the end of its data (TCP_CORK, MSG_MORE). Uncork after each message.";
    /// A small write waits for an earlier packet to leave the device.
    Autocork = "autocork", "autocork",
        shut: "a small write waits for an earlier packet to leave the device",
        advice: "Small writes wait until an earlier packet has left the device, so that they can share a packet. Write \
                 each message with a single call, or set net.ipv4.tcp_autocorking=0.";
    /// A super-packet waits for the ACK that will make it bigger.
    TsoDefer = "tso-defer", "deferred super-packet",
        shut: "a super-packet waits for the ACK that will make it bigger",
        advice: "Packets wait for the next ACK, which lets them become larger. That is right for bulk data; where it \
                 delays requests, set net.ipv4.tcp_tso_win_divisor=0.";
    /// Enough of this connection is below TCP already.
    SmallQueue = "small-queue", "small queue",
        shut: "enough of this connection is below TCP already",
        advice: "The device already holds enough data of this connection: the device is the limit, and the queue in \
                 front of it is kept short on purpose. Only a faster device helps. taut.tsq and \
                 net.ipv4.tcp_limit_output_bytes set the amount.";
    /// The device has no room.
    Device = "device", "device",
        shut: "the device has no room",
        advice: "The device had no room: the queue or program that takes packets from it is the limit. Look at that, or \
                 at the load on this machine.";
}

impl Gate {
    /// The gate with that [name](Self::name).
    #[must_use]
    pub fn by_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|gate| gate.name() == name)
    }
}

impl Blocked {
    /// One word for tables.
    #[must_use]
    pub const fn name(self) -> &'static str {
        self.gate().name()
    }
}

impl fmt::Display for Blocked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl fmt::Display for Gate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use std::format;
    use std::string::String;

    #[test]
    fn names_are_unique_and_advice_is_a_sentence() {
        for gate in Gate::ALL {
            assert_eq!(Gate::by_name(gate.name()), Some(gate));
            assert!(gate.advice().ends_with('.'), "{gate}");
            assert_eq!(gate.reason(Instant::ZERO).gate(), gate);
        }
        assert_eq!(Gate::by_name("moon-phase"), None);
    }

    /// docs/spec/send-path.md has the same table.
    #[test]
    fn the_document_has_this_table() {
        let document = include_str!("../../../../docs/spec/send-path.md");
        let rows: String =
            Gate::ALL.iter().map(|gate| format!("| `{}` | {} |\n", gate.name(), gate.shut_when())).collect();
        assert!(document.contains(&rows), "docs/spec/send-path.md should have:\n{rows}");
    }
}
