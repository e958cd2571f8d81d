//! A system call of any number, for code that attacks a sandbox from within: only with the feature `hostile`.

/// Makes the call; an error is its number, negative.
#[must_use]
pub fn raw(call: libc::c_long, arguments: [usize; 6]) -> isize {
    let [a, b, c, d, e, f] = arguments;
    #[expect(unsafe_code, reason = "system call")]
    // SAFETY: the kernel checks pointers; a caller that is refused changes nothing, and no release has this.
    let result = unsafe { libc::syscall(call, a, b, c, d, e, f) };
    if result < 0 {
        return -(std::io::Error::last_os_error().raw_os_error().unwrap_or_default() as isize);
    }
    result as isize
}
