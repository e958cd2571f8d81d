//! The border to C: no panic crosses it, errors leave as negative numbers, and pointers become values.
//! taut's own; called by every function of the header.
#![expect(unsafe_code, reason = "memory of C, under the rules that the header states")]

use std::ffi::{CStr, c_char, c_int, c_void};
use std::mem::MaybeUninit;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, TryLockError};

use libc::socklen_t;

/// An error as Linux's number, positive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Errno(pub(crate) c_int);

pub(crate) type Answer<T> = Result<T, Errno>;

/// Runs what is behind a function of C: its value, or a negative error. A panic is ENOTRECOVERABLE.
pub(crate) fn door(run: impl FnOnce() -> Answer<i64>) -> i64 {
    match catch_unwind(AssertUnwindSafe(run)) {
        Ok(Ok(value)) => value,
        Ok(Err(Errno(number))) => -i64::from(number),
        Err(payload) => {
            // Dropping it could panic again.
            std::mem::forget(payload);
            -i64::from(libc::ENOTRECOVERABLE)
        }
    }
}

/// [`door`] of a function that returns 0.
pub(crate) fn door_unit(run: impl FnOnce() -> Answer<()>) -> c_int {
    door(|| run().map(|()| 0)) as c_int
}

/// [`door`] of a function that returns a length.
pub(crate) fn door_len(run: impl FnOnce() -> Answer<usize>) -> isize {
    door(|| run().map(|len| len as i64)) as isize
}

/// Runs with the value behind a lock. EBUSY if another call is under way, from a callback or on another
/// thread; ENOTRECOVERABLE after a panic.
pub(crate) fn enter<T, R>(lock: Option<&Mutex<T>>, run: impl FnOnce(&mut T) -> Answer<R>) -> Answer<R> {
    match given(lock)?.try_lock() {
        Ok(mut inside) => run(&mut inside),
        Err(TryLockError::WouldBlock) => Err(Errno(libc::EBUSY)),
        Err(TryLockError::Poisoned(_)) => Err(Errno(libc::ENOTRECOVERABLE)),
    }
}

/// The signals that a thread has blocked, until it gets them back.
struct Mask(libc::sigset_t);

impl Drop for Mask {
    fn drop(&mut self) {
        // SAFETY: a set that `pthread_sigmask` has filled.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.0, std::ptr::null_mut()) };
    }
}

/// Runs what begins threads, which block all signals: handlers of the program run on its own threads.
pub(crate) fn without_signals<T>(run: impl FnOnce() -> T) -> T {
    let (mut all, mut before) = (MaybeUninit::uninit(), MaybeUninit::uninit());
    // SAFETY: both sets are this function's, and filled by the calls.
    let _mask = unsafe {
        libc::sigfillset(all.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr());
        Mask(before.assume_init())
    };
    run()
}

/// An argument that must not be NULL.
pub(crate) fn given<T>(pointer: Option<T>) -> Answer<T> {
    pointer.ok_or(Errno(libc::EFAULT))
}

/// An object that a function of the header has made for the program.
///
/// # Safety
/// `object` is NULL, or was made by taut and is not freed during the call.
pub(crate) unsafe fn object<'a, T>(object: *mut T) -> Answer<&'a T> {
    given(unsafe { object.as_ref() })
}

/// # Safety
/// `data` has `len` bytes, which do not change while the slice is used.
pub(crate) unsafe fn bytes<'a>(data: *const c_void, len: usize) -> Answer<&'a [u8]> {
    if len == 0 {
        return Ok(&[]);
    }
    if data.is_null() || isize::try_from(len).is_err() {
        return Err(Errno(libc::EFAULT));
    }
    Ok(unsafe { std::slice::from_raw_parts(data.cast(), len) })
}

/// # Safety
/// `data` has room for `len` bytes, which nothing else uses while the slice is used.
pub(crate) unsafe fn bytes_mut<'a>(data: *mut c_void, len: usize) -> Answer<&'a mut [u8]> {
    if len == 0 {
        return Ok(&mut []);
    }
    if data.is_null() || isize::try_from(len).is_err() {
        return Err(Errno(libc::EFAULT));
    }
    Ok(unsafe { std::slice::from_raw_parts_mut(data.cast(), len) })
}

/// Writes as many bytes as there is room for, and how many that are, as `getsockopt(2)`.
///
/// # Safety
/// `into` has as many bytes as `len` says, and nothing else uses them.
pub(crate) unsafe fn write_some(from: &[u8], into: *mut c_void, len: Option<&mut socklen_t>) -> Answer<()> {
    let len = given(len)?;
    let count = from.len().min(*len as usize);
    unsafe { bytes_mut(into, count)? }.copy_from_slice(&from[..count]);
    *len = count as socklen_t;
    Ok(())
}

/// A text; `None` for NULL. EINVAL if it is not UTF-8.
///
/// # Safety
/// `text` is NULL or ends in a zero byte, and does not change while it is used.
pub(crate) unsafe fn text<'a>(text: *const c_char) -> Answer<Option<&'a str>> {
    if text.is_null() {
        return Ok(None);
    }
    let text = unsafe { CStr::from_ptr(text) };
    text.to_str().map(Some).map_err(|_| Errno(libc::EINVAL))
}

/// A struct of the header whose first field is its size, as the program that was compiled with it has it.
///
/// # Safety
/// It is `repr(C)`, begins with a `usize`, has no padding that matters, and all its bytes may be zero.
pub(crate) unsafe trait Sized0: Copy {
    /// The size that it had first: fields that are added later do not change it.
    const FIRST: usize;
}

/// The struct of a program that has fewer fields, whose others are zero, or more, which must be zero. Linux:
/// `copy_struct_from_user`, E2BIG included.
///
/// # Safety
/// `from` is NULL, or has as many bytes as its first field says.
pub(crate) unsafe fn sized<T: Sized0>(from: *const T) -> Answer<T> {
    let size = unsafe { room(from)? };
    let all = unsafe { bytes(from.cast(), size)? };
    let (known, beyond) = all.split_at(size.min(size_of::<T>()));
    if beyond.iter().any(|byte| *byte != 0) {
        return Err(Errno(libc::E2BIG));
    }
    let mut value = MaybeUninit::<T>::zeroed();
    unsafe {
        value.as_mut_ptr().cast::<u8>().copy_from_nonoverlapping(known.as_ptr(), known.len());
        Ok(value.assume_init())
    }
}

/// The size of a program's struct, which its first field states, before taut writes to it.
///
/// # Safety
/// `into` is NULL, or has as many bytes as its first field says.
pub(crate) unsafe fn room<T: Sized0>(into: *const T) -> Answer<usize> {
    if into.is_null() {
        return Err(Errno(libc::EFAULT));
    }
    let size = unsafe { into.cast::<usize>().read_unaligned() };
    if size < T::FIRST { Err(Errno(libc::EINVAL)) } else { Ok(size) }
}

/// Writes a struct to a program that has [`room`] for it. The size stays.
///
/// # Safety
/// As for [`room`].
pub(crate) unsafe fn write_sized<T: Sized0>(into: *mut T, value: &T) -> Answer<()> {
    let size = unsafe { room(into)? };
    let skip = size_of::<usize>();
    let len = size.min(size_of::<T>()) - skip;
    let from = std::ptr::from_ref(value).cast::<u8>();
    unsafe { into.cast::<u8>().add(skip).copy_from_nonoverlapping(from.add(skip), len) };
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Clone, Copy, Debug, PartialEq)]
    #[repr(C)]
    struct Pair {
        size: usize,
        first: u64,
        second: u64,
    }

    unsafe impl Sized0 for Pair {
        const FIRST: usize = 16;
    }

    #[test]
    fn ffi_01_no_panic_crosses_the_border() {
        let lock = Mutex::new(7);
        assert_eq!(door(|| enter(Some(&lock), |seven| Ok(*seven))), 7);
        let panics = || door(|| enter(Some(&lock), |_: &mut i64| -> Answer<i64> { panic!("on purpose") }));
        assert_eq!(panics(), -i64::from(libc::ENOTRECOVERABLE));
        assert_eq!(door(|| enter(Some(&lock), |seven| Ok(*seven))), -i64::from(libc::ENOTRECOVERABLE));
        assert_eq!(door(|| enter::<i64, i64>(None, |_| Ok(7))), -i64::from(libc::EFAULT));
    }

    /// copy_struct_from_user(9): older and newer programs.
    #[test]
    fn ffi_02_structs_of_other_versions() {
        let pair = |size| Pair { size, first: 1, second: 2 };
        assert_eq!(unsafe { sized(&pair(24)) }, Ok(pair(24)));
        assert_eq!(unsafe { sized(&pair(16)) }, Ok(Pair { size: 16, first: 1, second: 0 }));
        assert_eq!(unsafe { sized(&pair(8)) }, Err(Errno(libc::EINVAL)));
        assert_eq!(unsafe { sized::<Pair>(std::ptr::null()) }, Err(Errno(libc::EFAULT)));
        let newer = [32_u64, 1, 2, 0];
        assert_eq!(unsafe { sized(newer.as_ptr().cast::<Pair>()) }, Ok(pair(32)));
        let unknown = [32_u64, 1, 2, 3];
        assert_eq!(unsafe { sized(unknown.as_ptr().cast::<Pair>()) }, Err(Errno(libc::E2BIG)));
        let mut older = Pair { size: 16, first: 0, second: 9 };
        assert_eq!(unsafe { write_sized(&mut older, &pair(24)) }, Ok(()));
        assert_eq!(older, Pair { size: 16, first: 1, second: 9 });
    }
}
