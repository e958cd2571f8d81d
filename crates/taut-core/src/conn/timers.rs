//! Deadlines of a connection: handshake retries, zero-window probes, keepalive, FIN-WAIT-2, giving up. RFC
//! 9293 §3.8.3–3.8.6, RFC 6298, Linux's counts; called by the stack when a connection's deadline has passed.
//!
//! Loss recovery ([`recovery`](crate::recovery)) and the delayed ACK have timers of their own; this file
//! combines all of them into one deadline.

use super::state::State;
use super::{Conn, StackCx};
use crate::egress::{Gate, TimedOut};
use crate::recovery::RTO_INIT;
use crate::words::{ConnError, Duration, Instant};

/// Shortest wait before the first probe of a closed window, and the ceiling of cork. Linux: `TCP_RTO_MIN`.
const WINDOW_PROBE_MIN: Duration = Duration::from_millis(200);

/// Attempts for a connection that nobody holds, when the setting is 0. Linux: `tcp_orphan_retries`, "about
/// 100 s".
const ORPHAN_RETRIES: u8 = 8;

/// Deadlines of one connection.
#[derive(Debug)]
pub(super) struct Timers {
    /// SYN retransmission, zero-window probe or the end of FIN-WAIT-2: a connection is in one phase at a
    /// time.
    phase: Instant,
    /// When the last segment from the peer arrived; while window probes are unanswered, when the first of
    /// them left.
    arrived: Instant,
    /// Unanswered zero-window or keepalive probes, and attempts to send that a queue of this host dropped.
    unanswered: u8,
    /// Zero-window probes since the window closed, answered or not: how often their interval has doubled.
    window_probe_backoff: u8,
    /// Retransmission timeouts, without those of SYNs, wrapping as Linux's count does.
    timeouts: u16,
    /// Milliseconds of the clock at the last challenge ACK, wrapped; 0 for never.
    challenged_ms: u32,
}

impl Timers {
    pub(super) const fn new(now: Instant) -> Self {
        Self {
            phase: Instant::NEVER,
            arrived: now,
            unanswered: 0,
            window_probe_backoff: 0,
            timeouts: 0,
            challenged_ms: 0,
        }
    }

    /// Timers of a connection whose handshake a listener has begun.
    pub(super) const fn resume(&mut self, phase: Instant, challenged_ms: u32) {
        self.phase = phase;
        self.challenged_ms = challenged_ms;
    }

    /// When the last challenge ACK left.
    pub(super) const fn challenged_ms(&self) -> u32 {
        self.challenged_ms
    }

    pub(super) fn cancel_phase(&mut self) {
        self.phase = Instant::NEVER;
    }
}

/// `base` doubled `times` times, up to `max`.
pub(super) fn backed_off(base: Duration, times: u8, max: Duration) -> Duration {
    (base * (1 << times.min(20))).min(max)
}

impl Conn {
    /// The earliest of all timers.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        let tx = self.tx.deadline().unwrap_or(Instant::NEVER);
        let rx = self.rx.deadline().unwrap_or(Instant::NEVER);
        let first = tx.min(rx).min(self.timers.phase).min(self.extra_timers()).min(self.tx.look_at_loans());
        (first != Instant::NEVER).then_some(first)
    }

    /// Does all work that is due. Returns whether the path may be a black hole for data in SYNs.
    pub(crate) fn on_timeout(&mut self, cx: &mut StackCx<'_>) -> bool {
        let now = cx.now;
        cx.counters.delayed_acks += u64::from(self.rx.on_timeout(now));
        let send = self.send_cx(cx);
        if let Some(timed_out) = self.tx.on_timeout(&send, &mut cx.shared.totals, cx.counters) {
            self.on_retransmission_timeout(cx, timed_out);
        }
        self.judge_mtu_probe(cx);
        if self.give_up_at() <= now {
            self.suspect_syn_data(self.tx.recovery().timeouts().saturating_add(1), true);
            self.give_up(cx);
        }
        if self.timers.phase <= now {
            self.timers.phase = Instant::NEVER;
            self.on_phase_timeout(cx);
        }
        if self.keepalive_at() <= now {
            self.set_keepalive_at(Instant::NEVER);
            self.on_keepalive_timeout(cx);
        }
        if self.tx.look_at_loans() <= now {
            self.check_loans(cx);
        }
        self.tx.release_idle();
        self.take_black_hole()
    }

    fn on_retransmission_timeout(&mut self, cx: &mut StackCx<'_>, timed_out: TimedOut) {
        let TimedOut { since, timeouts, waited } = timed_out;
        cx.counters.tcp_timeouts += 1;
        self.timers.timeouts = self.timers.timeouts.wrapping_add(1);
        // RFC 9293 §3.8.6.1: a peer that closed its window in front of data in flight and still answers is
        // alive. But nobody waits for the data of an orphan.
        let answers =
            self.tx.window_bytes() == 0 && cx.now.since(self.timers.arrived) <= cx.config.recovery.rto_max;
        if answers && !self.flags.orphan {
            self.tx.excuse_timeout();
        } else if self.must_go(cx) {
            self.abort_for_memory(cx);
        } else if self.has_waited_too_long(cx, since, timeouts, waited) && !self.is_soon(cx, timed_out) {
            self.suspect_syn_data(timeouts, true);
            self.give_up(cx);
        } else {
            self.suspect_syn_data(timeouts, false);
            self.suspect_black_hole(cx, timed_out);
        }
    }

    /// Whether data has been unanswered for the user timeout, or else for the configured number of attempts.
    /// `waited`: the time before this attempt.
    fn has_waited_too_long(
        &self,
        cx: &StackCx<'_>,
        since: Option<Instant>,
        attempts: u8,
        waited: Duration,
    ) -> bool {
        match self.user_timeout() {
            Some(timeout) => since.is_some_and(|since| cx.now.since(since) >= timeout),
            None => attempts > self.attempts_max(cx, waited),
        }
    }

    /// Whether the configured number of attempts was soon made because the least RTO is short: an outage is
    /// as long as ever. Linux counts the time alone; a clock that jumps would end the connection then
    /// (JUMP-1).
    fn is_soon(&self, cx: &StackCx<'_>, timed_out: TimedOut) -> bool {
        let attempts = self.attempts_max(cx, timed_out.waited);
        self.user_timeout().is_none() && !timed_out.has_lasted(cx.now, attempts, &cx.config.recovery)
    }

    /// How many attempts are answered by nothing before the connection is given up. `waited`: the time before
    /// this one.
    fn attempts_max(&self, cx: &StackCx<'_>, waited: Duration) -> u8 {
        if self.flags.orphan { Self::orphan_retries(cx, waited) } else { cx.config.tcp.retries2 }
    }

    /// When the user timeout ends the wait for an answer to retransmissions: it does not wait for the next of
    /// these (Linux: `tcp_clamp_rto_to_user_timeout`).
    fn give_up_at(&self) -> Instant {
        let Some(timeout) = self.user_timeout() else { return Instant::NEVER };
        self.tx.recovery().first_timeout_at().map_or(Instant::NEVER, |since| since + timeout)
    }

    /// How often the data of a connection that nobody holds is sent again, or its peer's window probed, when
    /// `waited` was the time before this attempt. Linux: `tcp_orphan_retries`.
    fn orphan_retries(cx: &StackCx<'_>, waited: Duration) -> u8 {
        match cx.config.tcp.orphan_retries {
            0 if waited < cx.config.recovery.rto_max => ORPHAN_RETRIES,
            retries => retries,
        }
    }

    /// Whether nobody holds the connection, and there are too many such ones, or no memory. Linux:
    /// `tcp_out_of_resources`.
    fn must_go(&self, cx: &StackCx<'_>) -> bool {
        self.flags.orphan && cx.pool.budget.is_too_much(self.tx.queued())
    }

    fn user_timeout(&self) -> Option<Duration> {
        self.extras.as_ref().and_then(|extras| extras.user_timeout)
    }

    fn on_phase_timeout(&mut self, cx: &mut StackCx<'_>) {
        match self.state {
            State::SynSent | State::SynReceived => self.on_syn_timeout(cx),
            // The peer never closed its side, and the application no longer reads.
            State::FinWait2 => self.finish(cx),
            _ => self.on_window_probe_timeout(cx),
        }
    }

    fn on_syn_timeout(&mut self, cx: &mut StackCx<'_>) {
        let most = match self.state {
            State::SynSent => cx.config.tcp.syn_retries.saturating_add(cx.config.tcp.syn_linear_timeouts),
            // Linux: once more, because the connection is in use.
            _ if self.is_fast_child() => cx.config.tcp.synack_retries.saturating_add(1),
            _ => cx.config.tcp.synack_retries,
        };
        let waited = self.handshake.waited(cx.now);
        let user_timeout = self.user_timeout().is_some_and(|timeout| waited >= timeout);
        let is_last = self.syns.retries >= most || user_timeout;
        cx.counters.tcp_timeouts += 1;
        self.suspect_syn_data(self.syns.retries.saturating_add(1), is_last);
        if is_last {
            if self.state == State::SynSent {
                return self.give_up(cx);
            }
            return self.fail(cx, ConnError::TimedOut);
        }
        self.syns.retries += 1;
        cx.counters.retrans_segs += 1;
        self.flags.syn_due = true;
    }

    /// A SYN left: sets the time of its retransmission.
    pub(super) fn arm_syn(&mut self, cx: &StackCx<'_>) {
        let linear = if self.state == State::SynSent { cx.config.tcp.syn_linear_timeouts } else { 0 };
        let times = self.syns.retries.saturating_sub(linear);
        self.timers.phase = cx.now + backed_off(RTO_INIT, times, cx.config.recovery.rto_max);
    }

    /// Nothing is in flight, and data is queued that no ACK will release: arms the timer that probes the
    /// peer's window or ends the cork (RFC 9293 §3.8.6.1).
    pub(super) fn arm_window_probe(&mut self, cx: &StackCx<'_>) {
        if self.timers.phase == Instant::NEVER {
            let config = &cx.config.recovery;
            let base = self.tx.recovery().rto(config).max(WINDOW_PROBE_MIN);
            self.timers.phase = cx.now + backed_off(base, self.timers.window_probe_backoff, config.rto_max);
            if let Some(timeout) = self.user_timeout().filter(|_| self.timers.unanswered > 0) {
                self.timers.phase = self.timers.phase.min(self.timers.arrived + timeout);
            }
        }
    }

    /// The window opened, or data left: no probe is needed.
    pub(super) fn cancel_window_probe(&mut self) {
        if self.state.is_synchronized() && self.state != State::FinWait2 {
            self.timers.phase = Instant::NEVER;
            self.timers.window_probe_backoff = 0;
        }
    }

    /// Data leaves. While this host drops what is handed out, the timer stays: it says when the next attempt
    /// counts.
    pub(super) fn cancel_unneeded_probe(&mut self) {
        if self.timers.unanswered == 0 {
            self.cancel_window_probe();
        }
    }

    fn on_window_probe_timeout(&mut self, cx: &mut StackCx<'_>) {
        if self.tx.recovery().packets_out() > 0 || !self.tx.has_unsent() {
            return;
        }
        self.tx.resume();
        match self.tx.blocked() {
            // The ceiling of cork: the tail that was held back leaves with PSH.
            Gate::Cork | Gate::Nagle => return self.tx.release_tail(),
            // RFC 9293 §3.8.6.2.1: the override timeout.
            Gate::PeerWindow if self.tx.window_end() > self.tx.nxt() => return self.tx.squeeze(),
            Gate::PeerWindow => {}
            // The tickets that others have below TCP may never come back.
            Gate::SmallQueue => return cx.shared.meter.on_overdue(cx.now),
            _ => return,
        }
        if !self.count_attempt(cx) {
            return;
        }
        self.timers.window_probe_backoff = self.timers.window_probe_backoff.saturating_add(1);
        cx.counters.tcp_win_probe += 1;
        self.flags.window_probe_due = true;
        self.arm_window_probe(cx);
    }

    /// An attempt that nothing has answered yet. Ends the connection, and returns false, if there were too
    /// many. A peer that answers may keep its window closed indefinitely (RFC 9293 §3.8.6.1); one that does
    /// not is gone.
    fn count_attempt(&mut self, cx: &mut StackCx<'_>) -> bool {
        let asked = self.timers.unanswered > 0;
        let since = asked.then_some(self.timers.arrived);
        // The time that has just passed.
        let rto_max = cx.config.recovery.rto_max;
        let base = self.tx.recovery().rto(&cx.config.recovery).max(WINDOW_PROBE_MIN);
        let backoff = self.timers.window_probe_backoff;
        let waited = backed_off(base, backoff, rto_max);
        // A peer that answers and keeps its window closed does not keep a connection that nobody holds for
        // ever. Linux: `tcp_probe_timer`.
        let over = self.flags.orphan && waited >= rto_max && backoff >= cx.config.tcp.orphan_retries;
        if self.must_go(cx) {
            self.abort_for_memory(cx);
            return false;
        }
        if over || self.has_waited_too_long(cx, since, self.timers.unanswered.saturating_add(1), waited) {
            self.give_up(cx);
            return false;
        }
        if !asked {
            self.timers.arrived = cx.now;
        }
        self.timers.unanswered = self.timers.unanswered.saturating_add(1);
        true
    }

    /// A queue of this host dropped new data, and nothing is in flight: tries again, each time after twice as
    /// long. The attempts count like probes of a closed window (Linux: `icsk_probes_out`), so a host that
    /// never lets anything out ends the connection. An attempt in between, because the application writes
    /// more, is none that counts: a busy writer would use up all of them within a millisecond.
    pub(super) fn retry_dropped(&mut self, cx: &mut StackCx<'_>) {
        if self.timers.phase != Instant::NEVER {
            return;
        }
        let attempts = self.timers.unanswered;
        if self.count_attempt(cx) {
            self.timers.window_probe_backoff = attempts;
            self.arm_window_probe(cx);
        }
    }

    /// Probes that nothing has answered yet.
    pub(super) const fn unanswered_probes(&self) -> u8 {
        self.timers.unanswered
    }

    /// Retransmission timeouts, those of SYNs included.
    pub(super) const fn total_timeouts(&self) -> u16 {
        self.timers.timeouts.wrapping_add(self.syns.retries as u16)
    }

    /// When the last segment from the peer arrived.
    pub(super) const fn arrived_at(&self) -> Instant {
        self.timers.arrived
    }

    /// A valid segment arrived.
    pub(super) fn note_arrival(&mut self, now: Instant) {
        self.timers.arrived = now;
        self.timers.unanswered = 0;
    }

    /// A keepalive of the peer arrived, which is no valid segment: it is alive.
    pub(super) fn note_keepalive(&mut self, now: Instant) {
        if self.timers.unanswered == 0 {
            self.timers.arrived = now;
        }
    }

    /// SO_KEEPALIVE was set, or the connection opened.
    pub(super) fn arm_keepalive(&mut self, cx: &StackCx<'_>) {
        let keepalive = self.extras.as_ref().and_then(|extras| extras.keepalive);
        self.set_keepalive_at(match keepalive {
            Some(keepalive) if self.state.is_synchronized() => cx.now + keepalive.idle,
            _ => Instant::NEVER,
        });
    }

    /// The earliest timer of those that few connections have.
    fn extra_timers(&self) -> Instant {
        if self.extras.is_none() { Instant::NEVER } else { self.keepalive_at().min(self.give_up_at()) }
    }

    fn keepalive_at(&self) -> Instant {
        self.extras.as_ref().map_or(Instant::NEVER, |extras| extras.keepalive_at)
    }

    fn set_keepalive_at(&mut self, at: Instant) {
        if let Some(extras) = &mut self.extras {
            extras.keepalive_at = at;
        }
    }

    /// A probe is due at once, and again at once.
    #[cfg(test)]
    pub(crate) fn make_keepalive_endless(&mut self, now: Instant) {
        if let Some(keepalive) = self.extras.as_mut().and_then(|extras| extras.keepalive.as_mut()) {
            keepalive.idle = Duration::ZERO;
        }
        self.set_keepalive_at(now);
    }

    fn on_keepalive_timeout(&mut self, cx: &mut StackCx<'_>) {
        let Some(keepalive) = self.extras.as_ref().and_then(|extras| extras.keepalive) else { return };
        if !self.state.is_synchronized() {
            return;
        }
        // Data in flight has a timer of its own, and so has data that waits for a window.
        if self.tx.recovery().packets_out() > 0 || self.tx.has_unsent() {
            self.set_keepalive_at(cx.now + keepalive.idle);
            return;
        }
        // A peer that sent a segment meanwhile is alive.
        let due = self.timers.arrived + keepalive.idle;
        if due > cx.now && self.timers.unanswered == 0 {
            self.set_keepalive_at(due);
            return;
        }
        let user_timeout = self.user_timeout();
        let gone = match user_timeout {
            Some(timeout) => self.timers.unanswered > 0 && cx.now.since(self.timers.arrived) >= timeout,
            None => self.timers.unanswered >= keepalive.count,
        };
        if gone {
            self.flags.rst_due = true;
            return self.give_up(cx);
        }
        // With a user timeout, the count does not end it.
        self.timers.unanswered = self.timers.unanswered.saturating_add(1);
        cx.counters.tcp_keepalive += 1;
        self.flags.window_probe_due = true;
        self.set_keepalive_at(cx.now + keepalive.interval);
    }

    /// FIN-WAIT-2 after the application has released the connection ends by a timer. Linux:
    /// `tcp_fin_timeout`.
    pub(super) fn arm_fin_wait(&mut self, cx: &StackCx<'_>) {
        if self.state == State::FinWait2 && !self.flags.held {
            self.timers.phase = cx.now + cx.config.tcp.fin_timeout;
        }
    }

    /// Whether a challenge ACK may leave now; they are rate-limited because any host can provoke them (RFC
    /// 5961 §10).
    pub(super) fn may_challenge(&mut self, cx: &StackCx<'_>) -> bool {
        let now_ms = (cx.now.as_millis() as u32).max(1);
        let least = cx.config.tcp.invalid_ratelimit.as_millis() as u32;
        if self.timers.challenged_ms != 0 && now_ms.wrapping_sub(self.timers.challenged_ms) < least {
            return false;
        }
        self.timers.challenged_ms = now_ms;
        true
    }

    /// The connection is over: no timer may fire any more.
    pub(super) fn cancel_timers(&mut self) {
        self.timers.phase = Instant::NEVER;
        self.set_keepalive_at(Instant::NEVER);
        self.tx.stop();
        self.rx.stop();
    }
}
