//! Errors of system calls, by Linux's names and numbers. Made by the sockets; compared by the runner.

use std::fmt;

use taut_core::ConnError;

/// An error of a system call: its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Errno(pub &'static str);

/// Name, number on Linux, and text of each that a call can return.
const TABLE: [(&str, i32, &str); 24] = [
    ("EPERM", 1, "Operation not permitted"),
    ("EBADF", 9, "Bad file descriptor"),
    ("EAGAIN", 11, "Resource temporarily unavailable"),
    ("EEXIST", 17, "File exists"),
    ("ENOENT", 2, "No such file or directory"),
    ("EINVAL", 22, "Invalid argument"),
    ("ENOTTY", 25, "Inappropriate ioctl for device"),
    ("EPIPE", 32, "Broken pipe"),
    ("EDESTADDRREQ", 89, "Destination address required"),
    ("ENOTSOCK", 88, "Socket operation on non-socket"),
    ("ENOPROTOOPT", 92, "Protocol not available"),
    ("EOPNOTSUPP", 95, "Operation not supported"),
    ("EADDRINUSE", 98, "Address already in use"),
    ("EADDRNOTAVAIL", 99, "Cannot assign requested address"),
    ("ENETUNREACH", 101, "Network is unreachable"),
    ("ECONNABORTED", 103, "Software caused connection abort"),
    ("ECONNRESET", 104, "Connection reset by peer"),
    ("EISCONN", 106, "Transport endpoint is already connected"),
    ("ENOTCONN", 107, "Transport endpoint is not connected"),
    ("ETIMEDOUT", 110, "Connection timed out"),
    ("ECONNREFUSED", 111, "Connection refused"),
    ("EHOSTUNREACH", 113, "No route to host"),
    ("EALREADY", 114, "Operation already in progress"),
    ("EINPROGRESS", 115, "Operation now in progress"),
];

impl Errno {
    fn row(self) -> Option<&'static (&'static str, i32, &'static str)> {
        TABLE.iter().find(|(name, ..)| *name == self.0)
    }

    /// Linux's number.
    #[must_use]
    pub fn number(self) -> i32 {
        self.row().map_or(0, |&(_, number, _)| number)
    }

    /// The error of a connection.
    #[must_use]
    pub const fn of(error: ConnError) -> Self {
        Self(match error {
            ConnError::Refused => "ECONNREFUSED",
            ConnError::TimedOut => "ETIMEDOUT",
            ConnError::HostUnreachable => "EHOSTUNREACH",
            ConnError::NetworkUnreachable => "ENETUNREACH",
            ConnError::Aborted => "ECONNABORTED",
            _ => "ECONNRESET",
        })
    }
}

impl fmt::Display for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.row() {
            Some((name, _, text)) => write!(f, "{name} ({text})"),
            None => f.write_str(self.0),
        }
    }
}
