//! The gates of the send path in plain words, and what to do when one is shut for most of the time. Pure.
//! Called by `explain.rs`.

/// A gate's name in the stack, its name for people, and what its being shut means and calls for.
struct Reason {
    gate: &'static str,
    words: &'static str,
    advice: &'static str,
}

const REASONS: [Reason; 11] = [
    Reason {
        gate: "no-data",
        words: "application",
        advice: "The application had written nothing more: the stack waited for it, not the other way round. Write \
                 earlier, or in larger pieces.",
    },
    Reason {
        gate: "send-buffer",
        words: "send buffer",
        advice: "All was sent, and the application was refused room for more: the send buffer (tcp_wmem, SO_SNDBUF) or \
                 the low-water mark is too small for the path, or the application comes back late.",
    },
    Reason {
        gate: "pacing",
        words: "pacing",
        advice: "Packets leave at the pacing rate, a little above what the network was seen to deliver, so this is \
                 what a path that is used well looks like. If the rate is too low, look at cwnd, rtt and pacing_rate \
                 in `taut ss -ti`, and whether SO_MAX_PACING_RATE is set.",
    },
    Reason {
        gate: "cwnd",
        words: "congestion window",
        advice: "As much is on its way as the network seems to bear: the network is the limit. Loss makes the window \
                 small: compare retrans with data_segs_out in `taut ss -ti`.",
    },
    Reason {
        gate: "peer-window",
        words: "receiver's window",
        advice: "The receiver does not take more: its application reads too slowly, or its receive buffer (tcp_rmem, \
                 SO_RCVBUF) is too small for the path.",
    },
    Reason {
        gate: "nagle",
        words: "Nagle",
        advice: "Small writes wait for the ACK of the one before. Write each message at once, or set TCP_NODELAY.",
    },
    Reason {
        gate: "cork",
        words: "cork",
        advice: "The application holds back the tail of what it wrote (TCP_CORK, MSG_MORE). Uncork after each message.",
    },
    Reason {
        gate: "autocork",
        words: "autocork",
        advice: "Small writes wait for an earlier packet to leave the device, to share one. Write each message at \
                 once, or set net.ipv4.tcp_autocorking=0.",
    },
    Reason {
        gate: "tso-defer",
        words: "deferred super-packet",
        advice: "Packets wait for the next ACK to become larger. For bulk data that is right; where it delays \
                 requests, set net.ipv4.tcp_tso_win_divisor=0.",
    },
    Reason {
        gate: "small-queue",
        words: "small queue",
        advice: "Enough of this connection is in the device already: the device is the limit, and the queue in front \
                 of it is kept short on purpose. Only a faster device helps. taut.tsq and \
                 net.ipv4.tcp_limit_output_bytes say how much is enough.",
    },
    Reason {
        gate: "device",
        words: "device",
        advice: "The device had no room: whoever takes packets from it is the limit. Look at that queue, or at the \
                 load of this machine.",
    },
];

fn find(gate: &str) -> Option<&'static Reason> {
    REASONS.iter().find(|reason| reason.gate == gate)
}

/// A gate's name for people. That of a gate that a newer stack has is its own.
pub fn words(gate: &str) -> &str {
    find(gate).map_or(gate, |reason| reason.words)
}

/// What it means, and what can be done.
pub fn advice(gate: &str) -> Option<&'static str> {
    find(gate).map(|reason| reason.advice)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_gate_of_the_stack_has_words_and_advice() {
        let config = std::sync::Arc::new(taut_core::StackConfig::default());
        let stack = taut_core::Stack::new(config, taut_core::LinkCaps::plain(1500), [7; 32]);
        let report = stack.report(taut_core::Instant::ZERO);
        for (gate, _) in report.shares {
            assert!(advice(gate).is_some_and(|advice| advice.ends_with('.')), "{gate}");
        }
        assert_eq!(words("peer-window"), "receiver's window");
        assert_eq!(words("moon-phase"), "moon-phase");
    }
}
