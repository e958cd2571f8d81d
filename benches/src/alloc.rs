//! Counts the bytes that are allocated right now, to measure the memory of an idle connection.
//! It counts only while that measurement runs: several threads that add to one counter slow each other down.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering::Relaxed};

static COUNTS: AtomicBool = AtomicBool::new(false);
static LIVE_BYTES: AtomicI64 = AtomicI64::new(0);

fn count(bytes: i64) {
    if COUNTS.load(Relaxed) {
        LIVE_BYTES.fetch_add(bytes, Relaxed);
    }
}

/// Begins or ends counting. Only the growth between two readings in between means something.
pub fn set_counting(on: bool) {
    COUNTS.store(on, Relaxed);
}

/// The system's allocator, with a running total.
pub struct Counting;

// SAFETY: every call goes to `System` unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as i64);
        // SAFETY: the caller keeps `GlobalAlloc`'s contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as i64);
        // SAFETY: as above. Passed on to the system, which returns big buffers as untouched pages.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        count(-(layout.size() as i64));
        // SAFETY: as above.
        unsafe { System.dealloc(at, layout) }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(size as i64 - layout.size() as i64);
        // SAFETY: as above.
        unsafe { System.realloc(at, layout, size) }
    }
}

/// Bytes allocated by this process at this moment, apart from a constant.
pub fn live_bytes() -> i64 {
    LIVE_BYTES.load(Relaxed)
}
