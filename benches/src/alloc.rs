//! Counts the bytes that are allocated right now, to measure the memory of an idle connection.
//! Only that measurement reads the counter, which costs one relaxed atomic add per allocation.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicI64, Ordering::Relaxed};

static LIVE_BYTES: AtomicI64 = AtomicI64::new(0);

/// The system's allocator, with a running total.
pub struct Counting;

// SAFETY: every call goes to `System` unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        LIVE_BYTES.fetch_add(layout.size() as i64, Relaxed);
        // SAFETY: the caller keeps `GlobalAlloc`'s contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        LIVE_BYTES.fetch_add(layout.size() as i64, Relaxed);
        // SAFETY: as above. Passed on to the system, which returns big buffers as untouched pages.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        LIVE_BYTES.fetch_sub(layout.size() as i64, Relaxed);
        // SAFETY: as above.
        unsafe { System.dealloc(at, layout) }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        LIVE_BYTES.fetch_add(size as i64 - layout.size() as i64, Relaxed);
        // SAFETY: as above.
        unsafe { System.realloc(at, layout, size) }
    }
}

/// Bytes allocated by this process at this moment.
pub fn live_bytes() -> i64 {
    LIVE_BYTES.load(Relaxed)
}
