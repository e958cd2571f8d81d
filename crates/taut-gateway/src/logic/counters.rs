//! What a gateway counts.

use crate::logic::flow::Side;

macro_rules! counters {
    ($($(#[$doc:meta])* $field:ident,)*) => {
        /// Counts since the gateway began.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        #[non_exhaustive]
        pub struct Counters {
            $($(#[$doc])* pub $field: u64,)*
        }

        impl Counters {
            /// Name and value of each, in a fixed order.
            pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> {
                [$((stringify!($field), self.$field)),*].into_iter()
            }
        }
    };
}

counters! {
    /// Connections that guests began.
    connections,
    /// Flows of UDP.
    udp_flows,
    /// Pings.
    pings,
    /// Flows to guests, at forwarded ports.
    forwarded,
    /// Flows whose upstream was reached.
    reached,
    /// Flows that the upstream refused, or an ICMP error did.
    refused,
    /// Flows to which nobody answered.
    silent,
    /// Connections whose client left before they were there.
    left,
    /// Flows that a rule denied or dropped.
    denied,
    /// Datagrams from outside, to a port of a guest's, that the filter or a rule did not let in.
    filtered,
    /// Datagrams that the rate of a rule dropped.
    over_rate,
    /// Flows of UDP and pings whose place a newer one of the same guest has taken.
    replaced,
    /// Flows, and questions, for which a guest or the gateway had no room.
    over_limit,
    /// Flows for which this host had no descriptor, port or memory.
    no_resources,
    /// Connections that both sides ended.
    finished,
    /// Connections that one side reset.
    reset,
    /// Flows that were idle for too long.
    idle,
    /// Bytes from guests.
    bytes_up,
    /// Bytes to guests.
    bytes_down,
    /// Questions of guests.
    questions,
    /// Questions that the gateway answered itself: its own names, and names that a rule denies.
    answered_here,
    /// Questions that no name server answered, or all with SERVFAIL, NOTIMP or REFUSED.
    unanswered,
    /// Lines of the log that were left out because they came too fast.
    events_left_out,
}

impl Counters {
    pub(crate) const fn count_bytes(&mut self, from: Side, bytes: usize) {
        match from {
            Side::Guest => self.bytes_up += bytes as u64,
            Side::Upstream => self.bytes_down += bytes as u64,
        }
    }
}
