//! A host's processor: what it did, and, if asked to, how long that took. Ours; called by the host.
//!
//! [`Counts`] are always kept: a simulator knows how often somebody was woken or interrupted, whatever a machine would
//! have taken for it. With a [`CpuModel`] each piece of work has a service time on one core: work that comes in while
//! the core is busy waits, work takes effect when it is done, and what came in meanwhile is done together, as a kernel
//! that polls under load does it.

use taut_core::{Duration, Instant};

use crate::rng::Rng;

/// Service times. All zero, the default, is a processor that takes no time.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct CpuModel {
    /// Taking an interrupt.
    pub interrupt: Duration,
    /// A packet's way up through driver and stack; for a merged packet once, and [`rx_segment`](Self::rx_segment) each.
    pub rx_packet: Duration,
    /// A received segment in the driver.
    pub rx_segment: Duration,
    /// A packet's way down, a super-packet being one.
    pub tx_packet: Duration,
    /// Taking back a packet that the NIC has sent.
    pub completion: Duration,
    /// A timer of the stack or of the queue discipline.
    pub timer: Duration,
    /// From one thread to another, or to nobody.
    pub context_switch: Duration,
    /// A call from an application into the stack.
    pub syscall: Duration,
    /// Every piece of work takes up to this share longer, evenly spread: 0.1 is up to 10 %.
    pub jitter: f64,
    /// Interrupts for sent packets are taken by another core, which has nothing else to do.
    pub completions_apart: bool,
    /// Lost wake-ups of a lock-free completion; see [`LostWakeup`]. Only with `completions_apart`.
    pub lost_wakeup: Option<LostWakeup>,
}

/// The race of a sender that looks at a counter and then asks to be told, against a completion on another core that
/// changes the counter and then looks whether to tell: one that falls in between tells nobody. What a host does with
/// autocorking that tests before it sets its flag, and does not test again (Linux 3.14 at first).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LostWakeup {
    /// Time between the look and the request, in which a completion is lost as a wake-up.
    pub window: Duration,
}

impl CpuModel {
    /// Whether nothing takes time.
    #[must_use]
    pub fn is_free(&self) -> bool {
        let Self {
            interrupt,
            rx_packet,
            rx_segment,
            tx_packet,
            completion,
            timer,
            context_switch,
            syscall,
            ..
        } = *self;
        [interrupt, rx_packet, rx_segment, tx_packet, completion, timer, context_switch, syscall]
            .iter()
            .all(|time| time.is_zero())
    }
}

/// What a host did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counts {
    /// Packets that the stack handed down, a super-packet being one. Linux: `IpOutRequests`.
    pub packets_out: u64,
    /// Segments that the NIC sent.
    pub segments_out: u64,
    /// Bytes of IP packets that the NIC sent.
    pub bytes_out: u64,
    /// Segments that the NIC received.
    pub segments_in: u64,
    /// Bytes of IP packets that the NIC received.
    pub bytes_in: u64,
    /// Packets that went up to the stack, merged ones being one. Linux: `IpInReceives`.
    pub packets_in: u64,
    /// Pure ACKs sent.
    pub acks_out: u64,
    /// Pure ACKs received, as segments.
    pub acks_in: u64,
    /// Packets that the root queue would not take, or threw out.
    pub dropped: u64,
    /// Bytes of those, a super-packet's headers being counted once. Linux: `IpExtOutOctets`.
    pub bytes_handed: u64,
    /// Completions that should have resumed a connection, and did not: [`LostWakeup`].
    pub lost_wakeups: u64,
    /// Packets that came in and found the receive ring full.
    pub rx_dropped: u64,
    /// Times that an application was woken.
    pub wakeups: u64,
    /// Times that a core went from one thread to another, or to nobody.
    pub context_switches: u64,
    /// Calls from applications into the stack.
    pub syscalls: u64,
    /// Timers of the stack that fired.
    pub timer_events: u64,
    /// Timers of the root queue discipline that fired.
    pub qdisc_timers: u64,
    /// Interrupts for packets that were sent.
    pub tx_interrupts: u64,
    /// Packets of those: completions.
    pub completions: u64,
    /// Interrupts for packets that came in.
    pub rx_interrupts: u64,
    /// Time for which the core was busy.
    pub busy: Duration,
    /// Writes of applications that were taken, at least in part.
    pub writes: u64,
    /// Bytes that applications wrote.
    pub bytes_written: u64,
    /// Bytes that applications read.
    pub bytes_read: u64,
}

/// What the core is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Nothing.
    Idle,
    /// Work of the kernel that takes effect when the alarm rings.
    Kernel,
    /// Work of applications, likewise.
    Apps,
    /// Paying for what was done.
    Cooling,
}

/// The core of a host.
#[derive(Debug)]
pub(crate) struct Cpu {
    pub(crate) model: CpuModel,
    pub(crate) free: bool,
    pub(crate) phase: Phase,
    /// Received segments that the work at hand was reckoned with.
    pub(crate) reckoned: u64,
    /// Cost of what was done and not paid for yet.
    pub(crate) owed: Duration,
    rng: Rng,
}

impl Cpu {
    pub(crate) fn new(model: CpuModel, rng: Rng) -> Self {
        Self { free: model.is_free(), model, phase: Phase::Idle, reckoned: 0, owed: Duration::ZERO, rng }
    }

    /// Something was done that takes `time`.
    pub(crate) fn owe(&mut self, time: Duration, times: u64) {
        if !self.free {
            self.owed += time * times;
        }
    }

    /// A time that is a little longer by chance.
    pub(crate) fn with_jitter(&mut self, time: Duration) -> Duration {
        time + Duration::from_nanos((time.as_nanos() as f64 * self.model.jitter * self.rng.unit()) as u64)
    }

    /// When work that begins now, and what is owed before it, will be done.
    pub(crate) fn pay(&mut self, now: Instant, cost: Duration, counts: &mut Counts) -> Instant {
        let cost = cost + std::mem::take(&mut self.owed);
        let cost = self.with_jitter(cost);
        counts.busy += cost;
        now + cost
    }
}
