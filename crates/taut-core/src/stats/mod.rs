//! Counters of a stack, by the names that `nstat` prints.

macro_rules! counters {
    ($($(#[doc = $doc:literal])+ $field:ident = $name:literal,)*) => {
        /// Counts since the stack began.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        #[non_exhaustive]
        pub struct Counters {
            $($(#[doc = $doc])+ pub $field: u64,)*
        }

        impl Counters {
            /// Adds the counts of another stack, for several stacks that their user sees as one.
            pub const fn add(&mut self, other: &Self) {
                $(self.$field += other.$field;)*
            }

            /// Name and value of each, in a fixed order.
            pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> {
                [$(($name, self.$field)),*].into_iter()
            }

            /// Name of each and what it counts, in the same order.
            pub fn described() -> impl Iterator<Item = (&'static str, &'static str)> {
                [$(($name, concat!($($doc),+))),*].into_iter().map(|(name, doc)| (name, doc.trim_start()))
            }
        }
    };
}

counters! {
    /// Packets received.
    in_receives = "IpInReceives",
    /// Packets with an unusable IP header.
    in_hdr_errors = "IpInHdrErrors",
    /// Packets to addresses that are not ours, or of a transport protocol that we do not speak.
    in_discards = "IpInDiscards",
    /// Packets handed to the link.
    out_requests = "IpOutRequests",
    /// Packets that a queue of this host dropped, of senders that do not send them again.
    out_discards = "IpOutDiscards",
    /// Fragments received.
    reasm_reqds = "IpReasmReqds",
    /// Packets put together from fragments.
    reasm_oks = "IpReasmOKs",
    /// Packets that were not put together: fragments overlap, do not arrive, or find no memory.
    reasm_fails = "IpReasmFails",
    /// Packets whose fragments did not all arrive in time.
    reasm_timeout = "IpReasmTimeout",
    /// Packets whose fragments overlap or contradict each other.
    reasm_overlaps = "IpExtReasmOverlaps",
    /// Packets that were sent in fragments.
    frag_oks = "IpFragOKs",
    /// Fragments sent.
    frag_creates = "IpFragCreates",
    /// Packets received that were not ECN-capable; here and below, those inside super-packets are counted.
    in_no_ect_pkts = "IpExtInNoECTPkts",
    /// Packets received with ECT(1).
    in_ect1_pkts = "IpExtInECT1Pkts",
    /// Packets received with ECT(0).
    in_ect0_pkts = "IpExtInECT0Pkts",
    /// Packets received with CE (congestion experienced).
    in_ce_pkts = "IpExtInCEPkts",
    /// ICMP messages received.
    icmp_in_msgs = "IcmpInMsgs",
    /// ICMP messages with a bad header or checksum.
    icmp_in_errors = "IcmpInErrors",
    /// Errors of ICMP received: a destination cannot be reached, or a packet is too big.
    icmp_in_dest_unreachs = "IcmpInDestUnreachs",
    /// Errors of ICMP received: a packet's hops or time were over.
    icmp_in_time_excds = "IcmpInTimeExcds",
    /// Errors of ICMP received: a header made no sense.
    icmp_in_parm_probs = "IcmpInParmProbs",
    /// Echo requests received.
    icmp_in_echos = "IcmpInEchos",
    /// Echo replies received.
    icmp_in_echo_reps = "IcmpInEchoReps",
    /// Echo requests sent.
    icmp_out_echos = "IcmpOutEchos",
    /// Echo replies sent.
    icmp_out_echo_reps = "IcmpOutEchoReps",
    /// Errors sent: a closed port, or an unknown protocol.
    icmp_out_dest_unreachs = "IcmpOutDestUnreachs",
    /// Errors sent: fragments did not all arrive in time.
    icmp_out_time_excds = "IcmpOutTimeExcds",
    /// Errors sent: a header made no sense.
    icmp_out_parm_probs = "IcmpOutParmProbs",
    /// Errors not sent because there were too many.
    icmp_out_rate_limited = "IcmpOutRateLimitHost",
    /// ICMP messages sent.
    icmp_out_msgs = "IcmpOutMsgs",
    /// Connections opened by us.
    active_opens = "TcpActiveOpens",
    /// Connections opened by a peer.
    passive_opens = "TcpPassiveOpens",
    /// Handshakes that failed: connections that ended in SYN-SENT or SYN-RECEIVED (RFC 4022).
    attempt_fails = "TcpAttemptFails",
    /// Connections that ended in ESTABLISHED or CLOSE-WAIT, by a RST of either end or because nothing
    /// answered (RFC 4022).
    estab_resets = "TcpEstabResets",
    /// TCP segments received, counting those inside super-packets.
    in_segs = "TcpInSegs",
    /// TCP segments sent, without retransmissions.
    out_segs = "TcpOutSegs",
    /// TCP segments retransmitted.
    retrans_segs = "TcpRetransSegs",
    /// TCP segments with a bad header or checksum.
    in_errs = "TcpInErrs",
    /// Segments sent with RST.
    out_rsts = "TcpOutRsts",
    /// Retransmission timeouts.
    tcp_timeouts = "TcpExtTCPTimeouts",
    /// Tail loss probes sent.
    tcp_loss_probes = "TcpExtTCPLossProbes",
    /// Challenge ACKs of RFC 5961.
    tcp_challenge_ack = "TcpExtTCPChallengeACK",
    /// Segments outside the window dropped.
    tcp_out_of_window = "TautOutOfWindow",
    /// Segments rejected by PAWS.
    paws_estab = "TcpExtPAWSEstab",
    /// SYNs dropped because a listener's queues were full.
    listen_overflows = "TcpExtListenOverflows",
    /// SYNs, and cookies that came back, dropped because of a cap that the application has set on its
    /// listener.
    listen_capped = "TautListenCapped",
    /// Flows that came in through a filter and wait for a decision, or did.
    flows_in = "TautFlowsIn",
    /// Those that the application accepted.
    flows_accepted = "TautFlowsAccepted",
    /// Those that it refused.
    flows_refused = "TautFlowsRefused",
    /// Those that it dropped.
    flows_dropped = "TautFlowsDropped",
    /// Those that it did not decide in time.
    flows_expired = "TautFlowsExpired",
    /// Those that the peer reset before the decision.
    flows_withdrawn = "TautFlowsWithdrawn",
    /// SYNs dropped because as many flows were pending as may be.
    flows_overflows = "TautFlowsOverflows",
    /// UDP and echo flows that came in through a filter and wait for a decision, or did.
    datagram_flows_in = "TautDatagramFlowsIn",
    /// Those that the application accepted.
    datagram_flows_accepted = "TautDatagramFlowsAccepted",
    /// Those that it refused.
    datagram_flows_refused = "TautDatagramFlowsRefused",
    /// Those that it dropped.
    datagram_flows_dropped = "TautDatagramFlowsDropped",
    /// Those that it did not decide in time.
    datagram_flows_expired = "TautDatagramFlowsExpired",
    /// Accepted ones that were idle for too long.
    datagram_flows_idle = "TautDatagramFlowsIdle",
    /// Datagrams dropped because there were as many flows as may be, or as much waited in them.
    datagram_flows_overflows = "TautDatagramFlowsOverflows",
    /// SYNs answered by a cookie.
    syncookies_sent = "TcpExtSyncookiesSent",
    /// Cookies that came back, and opened a connection if there was room to accept it.
    syncookies_recv = "TcpExtSyncookiesRecv",
    /// ACKs of no valid cookie, at a listener that had sent cookies shortly before.
    syncookies_failed = "TcpExtSyncookiesFailed",
    /// Half-open connections dropped for a newer one, without cookies.
    req_q_full_drop = "TcpExtTCPReqQFullDrop",
    /// Times that the memory in all buffers exceeded `tcp_mem`'s pressure.
    tcp_memory_pressures = "TcpExtTCPMemoryPressures",
    /// Segments for which there was no memory at first.
    prune_called = "TcpExtPruneCalled",
    /// Segments for which data out of order was dropped.
    ofo_pruned = "TcpExtOfoPruned",
    /// Segments for which that was not enough.
    rcv_pruned = "TcpExtRcvPruned",
    /// Segments that were next, and were dropped for lack of memory.
    tcp_rcvq_drop = "TcpExtTCPRcvQDrop",
    /// Segments out of order that were dropped, wholly or in part, for lack of memory or because there are
    /// too many.
    tcp_ofo_drop = "TcpExtTCPOFODrop",
    /// Connections that were given up because nothing answered.
    tcp_abort_on_timeout = "TcpExtTCPAbortOnTimeout",
    /// Connections reset when the application released them, because there were too many such ones, or no
    /// memory.
    tcp_abort_on_memory = "TcpExtTCPAbortOnMemory",
    /// Connections reset because the application released them with data unread.
    tcp_abort_on_close = "TcpExtTCPAbortOnClose",
    /// Connections reset because data came after the application had released them.
    tcp_abort_on_data = "TcpExtTCPAbortOnData",
    /// Connections whose SYN-ACK acknowledged data in our SYN.
    tcp_fast_open_active = "TcpExtTCPFastOpenActive",
    /// Connections whose SYN-ACK did not acknowledge the data in our SYN.
    tcp_fast_open_active_fail = "TcpExtTCPFastOpenActiveFail",
    /// Connections that a SYN with a valid cookie opened at once.
    tcp_fast_open_passive = "TcpExtTCPFastOpenPassive",
    /// SYNs with a cookie that is not valid.
    tcp_fast_open_passive_fail = "TcpExtTCPFastOpenPassiveFail",
    /// SYNs whose data was ignored because a listener had enough pending connections.
    tcp_fast_open_listen_overflow = "TcpExtTCPFastOpenListenOverflow",
    /// SYNs that requested a cookie.
    tcp_fast_open_cookie_reqd = "TcpExtTCPFastOpenCookieReqd",
    /// Times that connections stopped to send data in SYNs, because a path seemed to drop them.
    tcp_fast_open_blackhole = "TcpExtTCPFastOpenBlackhole",
    /// Connections that a SYN with a cookie of the backup key opened.
    tcp_fast_open_passive_alt_key = "TcpExtTCPFastOpenPassiveAltKey",
    /// Datagrams delivered to a socket of UDP.
    udp_in_datagrams = "UdpInDatagrams",
    /// Datagrams to a port that no socket has.
    udp_no_ports = "UdpNoPorts",
    /// Datagrams that were not delivered, for the next two reasons or because their header makes no sense.
    udp_in_errors = "UdpInErrors",
    /// Datagrams sent.
    udp_out_datagrams = "UdpOutDatagrams",
    /// Datagrams that found no room in a socket's receive buffer.
    udp_rcvbuf_errors = "UdpRcvbufErrors",
    /// Datagrams that a queue of this host dropped.
    udp_sndbuf_errors = "UdpSndbufErrors",
    /// Datagrams with a bad checksum.
    udp_in_csum_errors = "UdpInCsumErrors",
    /// TIME-WAIT entries made.
    time_wait = "TcpExtTW",
    /// TIME-WAIT entries reused for a new connection.
    tw_recycled = "TcpExtTWRecycled",
    /// Zero-window probes sent.
    tcp_win_probe = "TcpExtTCPWinProbe",
    /// Keepalive probes sent.
    tcp_keepalive = "TcpExtTCPKeepAlive",
    /// First transmissions, in segments.
    tcp_orig_data_sent = "TcpExtTCPOrigDataSent",
    /// Times that a write began to wait for a completion; further writes that join the wait do not count.
    tcp_auto_corking = "TcpExtTCPAutoCorking",
    /// Retransmissions that had to wait for their own copy to leave this host.
    tcp_spurious_rtx_host_queues = "TcpExtTCPSpuriousRtxHostQueues",
    /// Segments retransmitted in recovery.
    tcp_fast_retrans = "TcpExtTCPFastRetrans",
    /// Segments retransmitted after a retransmission timeout.
    tcp_slow_start_retrans = "TcpExtTCPSlowStartRetrans",
    /// Retransmissions that a queue of this host dropped.
    tcp_retrans_fail = "TcpExtTCPRetransFail",
    /// MTU probes (segments larger than known to fit) that arrived.
    tcp_mtup_success = "TcpExtTCPMTUPSuccess",
    /// MTU probes that did not arrive.
    tcp_mtup_fail = "TcpExtTCPMTUPFail",
    /// Times that a black hole for large segments was suspected.
    mtu_black_holes = "TautMtuBlackHoles",
    /// Losses that a tail loss probe repaired.
    tcp_loss_probe_recovery = "TcpExtTCPLossProbeRecovery",
    /// Segments delivered that the peer reported as marked.
    tcp_delivered_ce = "TcpExtTCPDeliveredCE",
    /// ACKs that reported data received twice.
    tcp_dsack_recv = "TcpExtTCPDSACKRecv",
    /// Reductions undone because D-SACKs reported every retransmission as unnecessary.
    tcp_dsack_undo = "TcpExtTCPDSACKUndo",
    /// Timeouts that were undone.
    tcp_loss_undo = "TcpExtTCPLossUndo",
    /// Fast recoveries undone by the ACK that ended them.
    tcp_full_undo = "TcpExtTCPFullUndo",
    /// Fast recoveries undone before their end.
    tcp_partial_undo = "TcpExtTCPPartialUndo",
    /// Timeouts that F-RTO found to be spurious.
    tcp_spurious_rtos = "TcpExtTCPSpuriousRTOs",
    /// ACKs that left when their delay ended.
    delayed_acks = "TcpExtDelayedACKs",
    /// ACKs of out-of-order data that were combined with a later one.
    tcp_ack_compressed = "TcpExtTCPAckCompressed",
    /// Times that a connection began to wait for a completion because enough of its data was below TCP
    /// already.
    tsq_throttled = "TautTsqThrottled",
    /// Times that it waited for its turn at a device whose completions are measured.
    tsq_turns_awaited = "TautTsqTurnsAwaited",
    /// Packets let through although the limit was reached, because no later event would have resumed the
    /// connection.
    tsq_exempt = "TautTsqExempt",
    /// Writes held back for a completion.
    autocork_held = "TautAutocorkHeld",
    /// Times that a packet had to wait for its departure time.
    pacing_blocked = "TautPacingBlocked",
    /// Waits that ended more than 100 µs after that time, because the thread woke up late; the next three,
    /// too.
    pacing_late_100us = "TautPacingLate100us",
    /// More than 1 ms after it.
    pacing_late_1ms = "TautPacingLate1ms",
    /// More than 10 ms after it: the time beyond is not made good.
    pacing_late_10ms = "TautPacingLate10ms",
    /// More than 50 ms after it.
    pacing_late_50ms = "TautPacingLate50ms",
    /// The sum of the times by which all of them were late, in nanoseconds.
    pacing_late_ns = "TautPacingLateNs",
    /// The part of that sum that was not made good.
    pacing_lost_ns = "TautPacingLostNs",
    /// Packets that arrived at a shard other than their connection's and were handed over.
    steered = "TautSteered",
    /// Packets handed over that were lost because the other shard was too far behind.
    steered_lost = "TautSteeredLost",
    /// Packets whose payload the device put at its reader's memory.
    placed = "TautPlaced",
    /// Packets that the device dropped: a queue in it was full, or the system had no memory.
    device_drops = "TautDeviceDrops",
    /// Packets that the device will never take, each with an error: they are too large, or of a kind that it
    /// cannot send.
    device_errors = "TautDeviceErrors",
    /// Packets whose completion came after the call that sent them: they were below for a while.
    device_late = "TautDeviceLate",
    /// Late completions of packets that a later packet had overtaken.
    device_out_of_order = "TautDeviceOutOfOrder",
    /// Packets without a completion, such as those that a queue below dropped.
    device_unreported = "TautDeviceUnreported",
    /// Packets that were longer than a header can say, and were not sent. Never happens.
    out_too_long = "TautOutTooLong",
    /// Packets dropped because their source is a loopback address, which never is on a link.
    in_loopback = "TautInLoopback",
    /// Packets without a connection that were dropped because their source is this host, a group or a
    /// broadcast address.
    in_martians = "TautInMartians",
    /// Leases that a server of DHCP gave or prolonged.
    dhcp_leases = "TautDhcpLeases",
    /// Leases that were over, refused, or of an address that another station has.
    dhcp_leases_lost = "TautDhcpLeasesLost",
    /// Times that a super-packet waited for an ACK, to become larger.
    tso_deferred = "TautTsoDeferred",
}
mod histogram;

pub use histogram::{Histogram, Lateness};
