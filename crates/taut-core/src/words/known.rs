//! Bytes that are known, so that no queue need store them. taut's own; a simulator's payload.
//!
//! A simulator spends a fifth of its time on copies of bytes that nobody reads but to compare them. It may
//! write bytes of one table that repeats. A queue that is given a piece of this table notes where in the
//! table the piece begins, and copies nothing. What the queue gives out is a piece of the table again.
//! Lengths, limits and counts of memory are the same as with stored bytes. Bytes that are not of the table
//! are stored.

/// Bytes that repeat after a period, in a table that lives for ever.
#[derive(Clone, Copy, Debug)]
pub struct Known {
    table: &'static [u8],
    period: usize,
}

impl Known {
    /// A table whose byte at any place equals the one `period` before; `None` if it is shorter than the
    /// period and [`BUFFER_BYTES`](super::BUFFER_BYTES), the longest piece of memory that it stands for, or
    /// does not repeat.
    #[must_use]
    pub fn new(table: &'static [u8], period: usize) -> Option<Self> {
        let long_enough = period > 0 && table.len() >= period.checked_add(super::BUFFER_BYTES)?;
        let repeats = || table.iter().skip(period).eq(table.iter().take(table.len() - period));
        (long_enough && repeats()).then_some(Self { table, period })
    }

    /// Where in the period these bytes begin, if they are a piece of the table: this looks at addresses, not
    /// at bytes.
    #[must_use]
    pub fn place(&self, bytes: &[u8]) -> Option<usize> {
        let start = bytes.as_ptr().addr().checked_sub(self.table.as_ptr().addr())?;
        let is_in = !bytes.is_empty() && start < self.table.len();
        is_in.then_some(start % self.period)
    }

    /// Whether these bytes are the piece of the table at this place, which may lie beyond the first period.
    #[must_use]
    pub fn is_at(&self, place: usize, bytes: &[u8]) -> bool {
        self.place(bytes) == Some(place % self.period)
    }

    /// `len` bytes from this place of the period on.
    #[must_use]
    pub fn bytes(&self, place: usize, len: usize) -> &'static [u8] {
        self.table.get(place..).and_then(|rest| rest.get(..len)).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use std::boxed::Box;
    use std::vec::Vec;

    use proptest::prelude::*;

    use super::*;
    use crate::buffers::{BufferPool, ChunkQueue};
    use crate::words::BUFFER_BYTES;

    const PERIOD: usize = 1_009;

    fn table() -> &'static [u8] {
        let bytes: Vec<u8> =
            (0..PERIOD).map(|i| (i * i / 7) as u8).cycle().take(PERIOD + BUFFER_BYTES).collect();
        Box::leak(bytes.into())
    }

    #[test]
    fn a_table_repeats_and_is_long_enough() {
        let table = table();
        let known = Known::new(table, PERIOD).unwrap();
        assert_eq!(known.place(&table[PERIOD + 5..PERIOD + 9]), Some(5));
        let elsewhere = Vec::from(&table[5..9]);
        assert_eq!(known.place(&elsewhere), None, "equal bytes elsewhere");
        assert!(known.is_at(7 * PERIOD + 5, &table[5..9]) && !known.is_at(6, &table[5..9]));
        assert!(Known::new(&table[1..], PERIOD).is_none(), "too short");
        assert!(Known::new(table, PERIOD - 1).is_none(), "another period");
        assert!(Known::new(table, 0).is_none() && Known::new(table, usize::MAX).is_none());
    }

    proptest! {
        /// One queue knows the table, and another does not. Both hold the same bytes in runs of the same
        /// lengths, and count the same memory; a run that was never stored lies in the table.
        #[test]
        fn lab_30_a_queue_that_knows_holds_the_same(
            steps in prop::collection::vec((0_usize..5, 1_usize..3_000), 1..80),
        ) {
            let table = table();
            let mut pools = [BufferPool::new(), BufferPool::new()];
            pools[1].known = Known::new(table, PERIOD);
            let mut queues = [ChunkQueue::new(), ChunkQueue::new()];
            let (mut read, mut end) = (0_u64, 0_u64);
            let mut all_known = true;
            for (what, n) in steps {
                let place = end as usize % PERIOD;
                let other: Vec<u8> = (0..n).map(|i| i as u8).collect();
                let bytes = match what {
                    0..=2 => &table[place..place + n],
                    3 => &other[..],
                    _ => &[],
                };
                for (queue, pool) in queues.iter_mut().zip(&mut pools) {
                    queue.append(end, bytes, 0, pool);
                }
                end += bytes.len() as u64;
                all_known &= what != 3;
                if what == 4 {
                    read = end.min(read + n as u64);
                    queues.iter_mut().zip(&mut pools).for_each(|(queue, pool)| queue.release_until(read, pool));
                }
                let [stored, known] = [0, 1].map(|i| queues[i].iter().collect::<Vec<_>>());
                prop_assert_eq!(&stored, &known);
                prop_assert_eq!(queues[0].memory(), queues[1].memory());
                prop_assert_eq!(pools[0].budget.usage(), pools[1].budget.usage());
                prop_assert!(!all_known || known.iter().all(|run| table.as_ptr_range().contains(&run.as_ptr())));
            }
        }
    }
}
