//! How much memory the buffers of a whole stack may hold: `tcp_mem`, with Linux's three limits and what
//! follows from each. Linux 6.18 (`__sk_mem_raise_allocated`); kept by the [`BufferPool`](super::BufferPool),
//! asked by writes and by arriving data.
//!
//! **Problem.** Each connection has a limit, but ten thousand connections at their limits are more than any
//! machine has, and who fills them is the peers' choice.
//!
//! **Rule.** Counted is memory, not payload: whole chunks with [`CHUNK_OVERHEAD`], in write queues, read
//! queues and out of order; of what an application lent, the bytes that are queued. Three limits, in pages of
//! 4 KiB:
//!
//! ```text
//!   pressure  above it, windows and send buffers stop growing, and a connection may take more only while all together would
//!             stay below `high` if each held as much as this one
//!   low       down to it, that goes on
//!   high      above it, nothing more is taken
//! ```
//!
//! A connection may always have a minimum, that of `tcp_rmem` and of `tcp_wmem`: without one, nobody would
//! get on who could free memory. Data that is refused on arrival is retransmitted by the peer; a refused
//! write waits.
//!
//! **Numbers.** Linux takes a sixteenth of the machine's memory for `pressure`, three quarters of that for
//! `low` and one and a half times as much for `high`. A library is a guest in a process, and its core cannot
//! ask how large the machine is, so these are the numbers of a machine of 4 GiB: 192, 256 and 384 MiB. That
//! is two connections with the largest buffers, or 2,000 with the first ones.

/// The unit of [`MemoryLimits`]: a page of most machines, whatever this one's is.
const PAGE_BYTES: u64 = 4_096;

/// What a chunk costs besides its bytes: the count of its holders, its places in lists, and what an allocator
/// adds. Counted in `tests/memory.rs`.
pub(crate) const CHUNK_OVERHEAD: usize = 192;

/// An orphan that holds no more than this may stay even above `high`. Linux: `SOCK_MIN_SNDBUF`.
const ORPHAN_MIN: u64 = 4_608;

/// Limits of the memory in the buffers of all connections, in pages of 4,096 bytes. Linux: `tcp_mem`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::exhaustive_structs, reason = "three numbers, as the setting has them")]
pub struct MemoryLimits {
    /// Pressure ends when no more than this is held.
    pub low: u32,
    /// Pressure begins when more than this is held.
    pub pressure: u32,
    /// Above this, only minima are taken.
    pub high: u32,
}

impl Default for MemoryLimits {
    fn default() -> Self {
        Self { low: 49_152, pressure: 65_536, high: 98_304 }
    }
}

/// What the connections of one stack hold; for several stacks that share the limits of their user.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(clippy::exhaustive_structs, reason = "the driver makes sums of it")]
pub struct MemoryUse {
    /// Bytes of memory in buffers.
    pub bytes: u64,
    /// Connections in any state.
    pub connections: u32,
}

/// How scarce memory is, as a connection needs to know it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Spare {
    /// Bytes that all connections together may take before there is pressure.
    pub(crate) bytes: u64,
    /// There is pressure.
    pub(crate) pressed: bool,
}

impl Spare {
    /// No limit.
    pub(crate) const ANY: Self = Self { bytes: u64::MAX, pressed: false };
}

/// What is held, and what may be.
#[derive(Debug)]
pub(crate) struct Budget {
    /// Bytes held by this stack.
    used: u64,
    /// The most bytes that this stack may hold without pressure: less, if others hold some.
    calm_max: u64,
    /// Whether there is pressure.
    pressed: bool,
    /// How often it began.
    pressures: u64,
    /// Connections of this stack.
    connections: u32,
    /// Those of them that their application has released, and the most that may be.
    orphans: u32,
    orphans_max: u32,
    /// What other stacks hold.
    elsewhere: MemoryUse,
    limits: MemoryLimits,
}

impl Budget {
    pub(super) const fn new() -> Self {
        // Until the limits are set, there are none.
        let none = MemoryLimits { low: u32::MAX, pressure: u32::MAX, high: u32::MAX };
        Self {
            used: 0,
            calm_max: u64::MAX,
            pressed: false,
            pressures: 0,
            connections: 0,
            orphans: 0,
            orphans_max: u32::MAX,
            elsewhere: MemoryUse { bytes: 0, connections: 0 },
            limits: none,
        }
    }

    /// `tcp_mem` and `tcp_max_orphans` were set.
    pub(crate) fn limit(&mut self, limits: MemoryLimits, orphans_max: u32) {
        self.limits = limits;
        self.orphans_max = orphans_max;
        self.weigh();
    }

    /// The application has released a connection that is not over.
    pub(crate) const fn add_orphan(&mut self) {
        self.orphans += 1;
    }

    /// How many of them there are.
    pub(crate) const fn orphans(&self) -> u32 {
        self.orphans
    }

    /// Such a connection is over.
    pub(crate) const fn remove_orphan(&mut self) {
        self.orphans = self.orphans.saturating_sub(1);
    }

    /// Whether an orphan that holds so many bytes must go. Linux: `tcp_check_oom`.
    pub(crate) fn is_too_much(&self, held: u64) -> bool {
        self.orphans > self.orphans_max || (held > ORPHAN_MIN && self.total() > bytes(self.limits.high))
    }

    /// What the other stacks hold now.
    pub(crate) fn set_elsewhere(&mut self, elsewhere: MemoryUse) {
        self.elsewhere = elsewhere;
        self.weigh();
    }

    /// There are so many connections now.
    pub(crate) const fn set_connections(&mut self, connections: usize) {
        self.connections = connections as u32;
    }

    /// What this stack holds.
    pub(crate) const fn usage(&self) -> MemoryUse {
        MemoryUse { bytes: self.used, connections: self.connections }
    }

    /// Whether there is pressure.
    #[inline]
    pub(crate) const fn is_pressed(&self) -> bool {
        self.pressed
    }

    /// The memory that is left.
    #[inline]
    pub(crate) const fn spare(&self) -> Spare {
        Spare { bytes: self.calm_max.saturating_sub(self.used), pressed: self.pressed }
    }

    /// How often pressure began.
    #[inline]
    pub(crate) const fn pressures(&self) -> u64 {
        self.pressures
    }

    /// Whether a connection that holds `held` bytes may take `more`. It may up to `least` bytes in any case.
    pub(crate) fn allows(&self, held: u64, more: u64, least: u64) -> bool {
        if !self.pressed || held < least {
            return true;
        }
        let high = bytes(self.limits.high);
        let all = u64::from(self.connections) + u64::from(self.elsewhere.connections);
        self.total() + more <= high && all.saturating_mul(held + more) < high
    }

    /// Memory is taken.
    #[inline]
    pub(super) fn charge(&mut self, bytes: usize) {
        self.used += bytes as u64;
        if self.used > self.calm_max {
            self.press();
        }
    }

    /// Memory is given back.
    #[inline]
    pub(super) fn uncharge(&mut self, bytes: usize) {
        self.used = self.used.saturating_sub(bytes as u64);
        if self.pressed {
            self.weigh();
        }
    }

    #[cold]
    fn press(&mut self) {
        self.pressures += u64::from(!self.pressed);
        self.pressed = true;
    }

    fn total(&self) -> u64 {
        self.used.saturating_add(self.elsewhere.bytes)
    }

    /// What is held has changed other than by [`charge`](Self::charge), or the limits have.
    fn weigh(&mut self) {
        self.calm_max = bytes(self.limits.pressure).saturating_sub(self.elsewhere.bytes);
        if self.used > self.calm_max {
            self.press();
        } else if self.total() <= bytes(self.limits.low) {
            self.pressed = false;
        }
    }
}

fn bytes(pages: u32) -> u64 {
    u64::from(pages) * PAGE_BYTES
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: usize = PAGE_BYTES as usize;

    fn budget() -> Budget {
        let mut budget = Budget::new();
        budget.limit(MemoryLimits { low: 10, pressure: 20, high: 40 }, 3);
        budget.set_connections(4);
        budget
    }

    #[test]
    fn mem_01_pressure_begins_above_pressure_and_ends_at_low() {
        let mut budget = budget();
        budget.charge(20 * PAGE);
        assert!(!budget.is_pressed(), "at the limit, not above it");
        budget.charge(1);
        assert_eq!((budget.is_pressed(), budget.pressures()), (true, 1));
        budget.charge(PAGE);
        budget.uncharge(11 * PAGE);
        assert!(budget.is_pressed(), "one byte above low");
        budget.uncharge(1);
        assert!(!budget.is_pressed());
        budget.charge(11 * PAGE);
        assert_eq!((budget.is_pressed(), budget.pressures()), (true, 2));
    }

    #[test]
    fn mem_02_what_other_stacks_hold_counts() {
        let mut budget = budget();
        budget.charge(5 * PAGE);
        budget.set_elsewhere(MemoryUse { bytes: 15 * PAGE_BYTES, connections: 4 });
        assert!(!budget.is_pressed());
        budget.charge(1);
        assert!(budget.is_pressed());
        // Eight connections: each may hold less than a fifth of 40 pages more than it has, if all did.
        assert!(budget.allows(4 * PAGE_BYTES, PAGE_BYTES - 1, 1));
        assert!(!budget.allows(4 * PAGE_BYTES, PAGE_BYTES, 1));
        budget.set_elsewhere(MemoryUse::default());
        assert!(!budget.is_pressed());
        assert_eq!(budget.usage(), MemoryUse { bytes: 5 * PAGE_BYTES + 1, connections: 4 });
    }

    #[test]
    fn mem_03_under_pressure_each_has_its_share_and_always_a_minimum() {
        let mut budget = budget();
        assert!(budget.allows(1 << 40, 1 << 40, 0), "without pressure, anything");
        budget.charge(21 * PAGE);
        // Linux: fewer than 40 pages, if all four held as much.
        assert!(budget.allows(9 * PAGE_BYTES, PAGE_BYTES - 1, 1));
        assert!(!budget.allows(9 * PAGE_BYTES, PAGE_BYTES, 1));
        // Above high, nothing but the minimum.
        budget.charge(19 * PAGE);
        assert!(!budget.allows(4_096, 1, 4_096));
        assert!(budget.allows(4_095, 100, 4_096));
    }
}
