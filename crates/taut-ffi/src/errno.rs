//! taut's errors as Linux's numbers, those that a kernel socket would return. Called by both forms.

use std::error::Error;
use std::ffi::c_int;
use std::io;

use libc::{
    EACCES, EADDRINUSE, EADDRNOTAVAIL, EAGAIN, ECONNABORTED, ECONNREFUSED, ECONNRESET, EDESTADDRREQ,
    EHOSTUNREACH, EINVAL, EIO, EMFILE, EMSGSIZE, ENETUNREACH, ENOBUFS, ENOPROTOOPT, ENOTCONN, EPIPE, EPROTO,
    ETIMEDOUT,
};
use taut_core::congestion::AlgorithmError;
use taut_core::{
    ConnError, ConnectError, DatagramError, ListenError, NetworkError, OptionError, ReadError, SysctlError,
    WriteError,
};

use crate::border::Errno;

/// The number of an error that ended a connection.
pub(crate) const fn of_conn(error: ConnError) -> c_int {
    match error {
        ConnError::Refused => ECONNREFUSED,
        ConnError::Reset => ECONNRESET,
        ConnError::TimedOut => ETIMEDOUT,
        ConnError::HostUnreachable => EHOSTUNREACH,
        ConnError::NetworkUnreachable => ENETUNREACH,
        ConnError::Aborted => ECONNABORTED,
        ConnError::AddressRemoved => EADDRNOTAVAIL,
        _ => EIO,
    }
}

/// `From<$error> for Errno`, by a function that returns the number.
macro_rules! numbers {
    ($($error:ty => $number:expr),* $(,)?) => { $(
        impl From<$error> for Errno {
            fn from(error: $error) -> Self {
                let number: fn($error) -> c_int = $number;
                Self(number(error))
            }
        }
    )* };
}

numbers! {
    ConnError => of_conn,
    ConnectError => |error| match error {
        ConnectError::AddrNotAvailable => EADDRNOTAVAIL,
        ConnectError::AddrInUse => EADDRINUSE,
        ConnectError::NetworkUnreachable => ENETUNREACH,
        ConnectError::InvalidPeer => EINVAL,
        ConnectError::TooManyConnections => EMFILE,
        _ => EIO,
    },
    ListenError => |error| match error {
        ListenError::AddrInUse => EADDRINUSE,
        ListenError::AddrNotAvailable => EADDRNOTAVAIL,
        _ => EIO,
    },
    // Linux: a socket that does not wait and is still connecting, `sk_stream_wait_connect`.
    ReadError => |error| match error {
        ReadError::WouldBlock | ReadError::NotConnected => EAGAIN,
        ReadError::Conn(error) => of_conn(error),
        _ => EIO,
    },
    WriteError => |error| match error {
        WriteError::WouldBlock | WriteError::NotConnected => EAGAIN,
        WriteError::Shutdown => EPIPE,
        WriteError::Conn(error) => of_conn(error),
        _ => EIO,
    },
    DatagramError => |error| match error {
        DatagramError::WouldBlock => EAGAIN,
        DatagramError::Closed => ENOTCONN,
        DatagramError::NoDestination => EDESTADDRREQ,
        DatagramError::TooLong => EMSGSIZE,
        DatagramError::AddrNotAvailable => EADDRNOTAVAIL,
        DatagramError::InvalidPeer | DatagramError::Invalid => EINVAL,
        DatagramError::Refused => ECONNREFUSED,
        DatagramError::HostUnreachable => EHOSTUNREACH,
        DatagramError::NetworkUnreachable => ENETUNREACH,
        DatagramError::NoProtocol => ENOPROTOOPT,
        DatagramError::Protocol => EPROTO,
        DatagramError::Denied => EACCES,
        DatagramError::TimedOut => ETIMEDOUT,
        DatagramError::TooManyGroups => ENOBUFS,
        _ => EIO,
    },
    OptionError => |_| EINVAL,
    NetworkError => |_| EINVAL,
    SysctlError => |error| if matches!(error, SysctlError::Unknown(_)) { libc::ENOENT } else { EINVAL },
    AlgorithmError => |error| if matches!(error, AlgorithmError::Unknown { .. }) { libc::ENOENT } else { EINVAL },
}

/// That of a socket of `taut`, whose source is the stack's error.
impl From<io::Error> for Errno {
    fn from(error: io::Error) -> Self {
        if let Some(number) = error.raw_os_error() {
            return Self(number);
        }
        let source = error.get_ref().map(|source| source as &(dyn Error + 'static));
        source.and_then(of_source).unwrap_or_else(|| Self(of_kind(error.kind())))
    }
}

fn of_source(source: &(dyn Error + 'static)) -> Option<Errno> {
    fn of<E: Error + Clone + Into<Errno> + 'static>(source: &(dyn Error + 'static)) -> Option<Errno> {
        source.downcast_ref::<E>().cloned().map(Into::into)
    }
    of::<ConnError>(source)
        .or_else(|| of::<ReadError>(source))
        .or_else(|| of::<WriteError>(source))
        .or_else(|| of::<DatagramError>(source))
        .or_else(|| of::<ConnectError>(source))
        .or_else(|| of::<ListenError>(source))
        .or_else(|| of::<AlgorithmError>(source))
}

const fn of_kind(kind: io::ErrorKind) -> c_int {
    match kind {
        io::ErrorKind::WouldBlock => EAGAIN,
        io::ErrorKind::NotConnected => ENOTCONN,
        // The device is gone.
        io::ErrorKind::NetworkDown => libc::ENETDOWN,
        io::ErrorKind::InvalidInput => EINVAL,
        io::ErrorKind::TimedOut => ETIMEDOUT,
        io::ErrorKind::PermissionDenied => EACCES,
        io::ErrorKind::NotFound => libc::ENOENT,
        io::ErrorKind::ResourceBusy => libc::EBUSY,
        _ => EIO,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// errno(3), and what Linux's sockets return: connect(2), send(2), recv(2), udp(7).
    #[test]
    fn ffi_03_errors_are_those_of_a_kernel_socket() {
        for (found, number) in [
            (Errno::from(ConnError::Refused), ECONNREFUSED),
            (Errno::from(WriteError::Conn(ConnError::Reset)), ECONNRESET),
            (Errno::from(WriteError::Shutdown), EPIPE),
            (Errno::from(WriteError::NotConnected), EAGAIN),
            (Errno::from(ReadError::WouldBlock), EAGAIN),
            (Errno::from(DatagramError::TooLong), EMSGSIZE),
            (Errno::from(DatagramError::NoProtocol), ENOPROTOOPT),
            (Errno::from(io::Error::other(DatagramError::Protocol)), EPROTO),
            (Errno::from(io::Error::new(io::ErrorKind::NotConnected, ReadError::NotConnected)), EAGAIN),
            (Errno::from(io::Error::from(io::ErrorKind::NotConnected)), ENOTCONN),
            (Errno::from(io::Error::from_raw_os_error(libc::EPERM)), libc::EPERM),
        ] {
            assert_eq!(found, Errno(number));
        }
    }
}
