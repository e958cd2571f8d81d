//! A host's processor: counts its work and, with a model, how long that takes. Called by the host.
//!
//! [`Counts`] are always kept: a simulator knows how often an application was woken or a core interrupted,
//! however long that would take. With a [`CpuModel`], each piece of work has a service time on one core. Work
//! that arrives while the core is busy waits, and takes effect when it is done; work that arrived meanwhile
//! is done together, as in a kernel that polls under load. With [`Wakeups`], the core sleeps when it has no
//! work, and does what happens meanwhile when it has woken up, which may be late.

mod wakeups;

use taut_core::{Duration, Instant};

use crate::rng::Rng;
pub use wakeups::Wakeups;

/// Service times. The default, all zero, is a processor that takes no time.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct CpuModel {
    /// Taking an interrupt.
    pub interrupt: Duration,
    /// A packet's way up through driver and stack. A merged packet takes it once, and
    /// [`rx_segment`](Self::rx_segment) for each segment.
    pub rx_packet: Duration,
    /// A received segment in the driver.
    pub rx_segment: Duration,
    /// A packet's way down; a super-packet counts once.
    pub tx_packet: Duration,
    /// Taking back a packet that the NIC has sent.
    pub completion: Duration,
    /// A timer of the stack or of the queue discipline.
    pub timer: Duration,
    /// Switching from one thread to another, or to the idle thread.
    pub context_switch: Duration,
    /// A call from an application into the stack.
    pub syscall: Duration,
    /// Every piece of work takes up to this share longer, uniformly distributed: 0.1 is up to 10 %.
    pub jitter: f64,
    /// Whether another core, which has no other work, takes the interrupts for sent packets.
    pub completions_apart: bool,
    /// Lost wake-ups of lock-free completions; see [`LostWakeup`]. Only with `completions_apart`.
    pub lost_wakeup: Option<LostWakeup>,
    /// How late the core wakes up when there is work again. With `completions_apart`, the core that takes
    /// back sent packets is awake, and what they resume leaves at once: a TUN's kernel, or another thread.
    pub wakeups: Wakeups,
}

/// A race between a sender and a completion on another core. The sender looks at a counter and then asks to
/// be notified; the completion changes the counter and then looks whether to notify. A completion between the
/// two steps of the sender notifies nobody. This happens with autocorking that tests before it sets its flag,
/// and does not test again (Linux 3.14 at first).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LostWakeup {
    /// Time between the look and the request, in which a completion causes no wake-up.
    pub window: Duration,
}

impl CpuModel {
    /// Whether all work takes no time.
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

/// Counts of a host's activity.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counts {
    /// Packets that the stack handed down; a super-packet counts once. Linux: `IpOutRequests`.
    pub packets_out: u64,
    /// Segments that the NIC sent.
    pub segments_out: u64,
    /// Bytes of IP packets that the NIC sent.
    pub bytes_out: u64,
    /// Segments that the NIC received.
    pub segments_in: u64,
    /// Bytes of IP packets that the NIC received.
    pub bytes_in: u64,
    /// Packets that went up to the stack; a merged packet counts once. Linux: `IpInReceives`.
    pub packets_in: u64,
    /// Pure ACKs sent.
    pub acks_out: u64,
    /// Pure ACKs received, as segments.
    pub acks_in: u64,
    /// Packets that the root queue refused or dropped later.
    pub dropped: u64,
    /// Bytes of the packets handed down; a super-packet's headers count once. Linux: `IpExtOutOctets`.
    pub bytes_handed: u64,
    /// Completions that should have resumed a connection but did not: [`LostWakeup`].
    pub lost_wakeups: u64,
    /// Packets that arrived when the receive ring was full.
    pub rx_dropped: u64,
    /// Times that an application was woken.
    pub wakeups: u64,
    /// Times that a core switched from one thread to another, or to the idle thread.
    pub context_switches: u64,
    /// Calls from applications into the stack.
    pub syscalls: u64,
    /// Timers of the stack that fired.
    pub timer_events: u64,
    /// Timers of the root queue discipline that fired.
    pub qdisc_timers: u64,
    /// Interrupts for sent packets.
    pub tx_interrupts: u64,
    /// Packets completed by those interrupts.
    pub completions: u64,
    /// Interrupts for received packets.
    pub rx_interrupts: u64,
    /// Time for which the core was busy.
    pub busy: Duration,
    /// Writes of applications that were accepted at least in part.
    pub writes: u64,
    /// Bytes that applications wrote.
    pub bytes_written: u64,
    /// Bytes that applications read.
    pub bytes_read: u64,
}

/// The current work of the core.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Nothing.
    Idle,
    /// Nothing yet: the core wakes up when the alarm rings.
    Waking,
    /// Work of the kernel that takes effect when the alarm rings.
    Kernel,
    /// Work of applications that takes effect when the alarm rings.
    Apps,
    /// Spending the time of work that was already done.
    Cooling,
}

/// The core of a host.
#[derive(Debug)]
pub(crate) struct Cpu {
    pub(crate) model: CpuModel,
    pub(crate) free: bool,
    pub(crate) phase: Phase,
    /// Received segments for which the current work was charged.
    pub(crate) reckoned: u64,
    /// Cost of work done but not yet charged.
    pub(crate) owed: Duration,
    rng: Rng,
}

impl Cpu {
    pub(crate) fn new(model: CpuModel, rng: Rng) -> Self {
        Self { free: model.is_free(), model, phase: Phase::Idle, reckoned: 0, owed: Duration::ZERO, rng }
    }

    /// Charges for work that takes `time`.
    pub(crate) fn owe(&mut self, time: Duration, times: u64) {
        if !self.free {
            self.owed += time * times;
        }
    }

    /// Whether the core sleeps when it has no work, and so wakes up late.
    pub(crate) fn sleeps(&self) -> bool {
        self.model.wakeups != Wakeups::Exact
    }

    /// When a core that sleeps and is woken now begins to work.
    pub(crate) fn wake(&mut self, now: Instant) -> Instant {
        now + self.model.wakeups.lateness(&mut self.rng)
    }

    /// The time with random jitter added.
    pub(crate) fn with_jitter(&mut self, time: Duration) -> Duration {
        time + Duration::from_nanos((time.as_nanos() as f64 * self.model.jitter * self.rng.unit()) as u64)
    }

    /// When work that begins now will be done, including the time still owed.
    pub(crate) fn pay(&mut self, now: Instant, cost: Duration, counts: &mut Counts) -> Instant {
        let cost = cost + std::mem::take(&mut self.owed);
        let cost = self.with_jitter(cost);
        counts.busy += cost;
        now + cost
    }
}
