//! The stack's errors as [`io::Error`]s of the kinds that kernel sockets return.

use std::io;

use taut_core::congestion::AlgorithmError;
use taut_core::{
    ConnError, ConnectError, DatagramError, FlowError, ListenError, OptionError, ReadError, WriteError,
};

pub(crate) fn conn(error: ConnError) -> io::Error {
    let kind = match error {
        ConnError::Refused => io::ErrorKind::ConnectionRefused,
        ConnError::Reset => io::ErrorKind::ConnectionReset,
        ConnError::TimedOut => io::ErrorKind::TimedOut,
        ConnError::HostUnreachable => io::ErrorKind::HostUnreachable,
        ConnError::NetworkUnreachable => io::ErrorKind::NetworkUnreachable,
        ConnError::Aborted => io::ErrorKind::ConnectionAborted,
        ConnError::AddressRemoved => io::ErrorKind::AddrNotAvailable,
        _ => io::ErrorKind::Other,
    };
    io::Error::new(kind, error)
}

pub(crate) fn read(error: ReadError) -> io::Error {
    match error {
        ReadError::WouldBlock => io::ErrorKind::WouldBlock.into(),
        ReadError::NotConnected => io::Error::new(io::ErrorKind::NotConnected, error),
        ReadError::Conn(error) => conn(error),
        _ => io::Error::other(error),
    }
}

pub(crate) fn write(error: WriteError) -> io::Error {
    match error {
        WriteError::WouldBlock => io::ErrorKind::WouldBlock.into(),
        WriteError::Shutdown => io::Error::new(io::ErrorKind::BrokenPipe, error),
        WriteError::NotConnected => io::Error::new(io::ErrorKind::NotConnected, error),
        WriteError::Conn(error) => conn(error),
        _ => io::Error::other(error),
    }
}

pub(crate) fn connect(error: ConnectError) -> io::Error {
    let kind = match error {
        ConnectError::AddrNotAvailable => io::ErrorKind::AddrNotAvailable,
        ConnectError::AddrInUse => io::ErrorKind::AddrInUse,
        ConnectError::NetworkUnreachable => io::ErrorKind::NetworkUnreachable,
        ConnectError::InvalidPeer => io::ErrorKind::InvalidInput,
        ConnectError::TooManyConnections => io::ErrorKind::QuotaExceeded,
        _ => io::ErrorKind::Other,
    };
    io::Error::new(kind, error)
}

pub(crate) fn listen(error: ListenError) -> io::Error {
    let kind = match error {
        ListenError::AddrInUse => io::ErrorKind::AddrInUse,
        ListenError::AddrNotAvailable => io::ErrorKind::AddrNotAvailable,
        ListenError::TooManyFilters => io::ErrorKind::QuotaExceeded,
        _ => io::ErrorKind::Other,
    };
    io::Error::new(kind, error)
}

pub(crate) fn flow(error: FlowError) -> io::Error {
    let kind = match error {
        FlowError::Gone => io::ErrorKind::ConnectionAborted,
        FlowError::TooManyConnections | FlowError::NoRoom => io::ErrorKind::QuotaExceeded,
        FlowError::OtherKind => io::ErrorKind::InvalidInput,
        _ => io::ErrorKind::Other,
    };
    io::Error::new(kind, error)
}

pub(crate) fn algorithm(error: AlgorithmError) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, error)
}

pub(crate) fn option(error: OptionError) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, error)
}

pub(crate) fn datagram(error: DatagramError) -> io::Error {
    let kind = match error {
        DatagramError::WouldBlock => return io::ErrorKind::WouldBlock.into(),
        DatagramError::Closed => io::ErrorKind::NotConnected,
        DatagramError::AddrNotAvailable => io::ErrorKind::AddrNotAvailable,
        DatagramError::NoDestination | DatagramError::InvalidPeer | DatagramError::Invalid => {
            io::ErrorKind::InvalidInput
        }
        DatagramError::Refused => io::ErrorKind::ConnectionRefused,
        DatagramError::HostUnreachable => io::ErrorKind::HostUnreachable,
        DatagramError::NetworkUnreachable => io::ErrorKind::NetworkUnreachable,
        DatagramError::Denied => io::ErrorKind::PermissionDenied,
        DatagramError::TooManyGroups => io::ErrorKind::QuotaExceeded,
        DatagramError::TimedOut => io::ErrorKind::TimedOut,
        // EMSGSIZE, ENOPROTOOPT and EPROTO have no kind of their own.
        _ => io::ErrorKind::Other,
    };
    io::Error::new(kind, error)
}

/// The connection is no longer known to the stack.
pub(crate) fn gone() -> io::Error {
    io::ErrorKind::NotConnected.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_those_of_kernel_sockets_and_the_source_is_kept() {
        for (error, kind) in [
            (ConnError::Refused, io::ErrorKind::ConnectionRefused),
            (ConnError::Reset, io::ErrorKind::ConnectionReset),
            (ConnError::TimedOut, io::ErrorKind::TimedOut),
            (ConnError::HostUnreachable, io::ErrorKind::HostUnreachable),
            (ConnError::NetworkUnreachable, io::ErrorKind::NetworkUnreachable),
            (ConnError::Aborted, io::ErrorKind::ConnectionAborted),
            (ConnError::AddressRemoved, io::ErrorKind::AddrNotAvailable),
        ] {
            let converted = conn(error);
            assert_eq!(converted.kind(), kind);
            let source = converted.get_ref().and_then(|source| source.downcast_ref::<ConnError>());
            assert_eq!(source, Some(&error));
        }
        assert_eq!(write(WriteError::Shutdown).kind(), io::ErrorKind::BrokenPipe);
    }
}
