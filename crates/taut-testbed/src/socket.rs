//! TCP sockets of the kernel's with the options of a stack's, so that one description of an experiment holds
//! for both.
//!
//! All are made in the namespace of the calling thread: call them inside
//! [`Kernel::enter`](crate::Kernel::enter).

use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};

use rustix::net::sockopt;
use socket2::{Domain, Protocol, Socket, Type};
use taut_core::ConnOptions;
use taut_device::sys;

/// Room for bursts: when a listener's queue is full, the kernel drops ACKs and answers with SYN cookies, and
/// then resets connections that were established.
const BACKLOG: i32 = 4_096;

/// A socket that is not connected yet. The congestion control is given by name, since the kernel may have one
/// that taut lacks; the machine's own without one, which a namespace cannot change.
///
/// # Errors
/// When the kernel has no such congestion control, or refuses an option.
pub fn socket(to: SocketAddr, options: &ConnOptions, congestion: Option<&str>) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(to), Type::STREAM, Some(Protocol::TCP))?;
    // First: some of what a congestion control does at the start cannot be undone.
    let congestion = congestion.or(options.congestion.as_ref().map(taut_core::Algorithm::name));
    if let Some(name) = congestion {
        socket.set_tcp_congestion(name.as_bytes())?;
    }
    if options.nodelay {
        socket.set_tcp_nodelay(true)?;
    }
    if options.notsent_lowat > 0 {
        socket.set_tcp_notsent_lowat(options.notsent_lowat)?;
    }
    // The namespace's root may go beyond the limits of the machine.
    if let Some(bytes) = options.sndbuf {
        sockopt::set_socket_send_buffer_size_force(&socket, bytes as usize)
            .or_else(|_| sockopt::set_socket_send_buffer_size(&socket, bytes as usize))?;
    }
    if let Some(bytes) = options.rcvbuf {
        sockopt::set_socket_recv_buffer_size_force(&socket, bytes as usize)
            .or_else(|_| sockopt::set_socket_recv_buffer_size(&socket, bytes as usize))?;
    }
    if let Some(rate) = options.max_pacing_rate {
        sys::set_max_pacing_rate(&socket, rate)?;
    }
    if let Some(mss) = options.maxseg {
        socket.set_tcp_mss(u32::from(mss))?;
    }
    Ok(socket)
}

/// A connection.
///
/// # Errors
/// Those of [`socket`], or when nobody answers.
pub fn connect(to: SocketAddr, options: &ConnOptions, congestion: Option<&str>) -> io::Result<TcpStream> {
    let socket = socket(to, options, congestion)?;
    socket.connect(&to.into())?;
    Ok(socket.into())
}

/// A listener with room for bursts; the connections that it accepts have its congestion control.
///
/// # Errors
/// Those of [`socket`], or when the address is taken.
pub fn listen(at: SocketAddr, congestion: Option<&str>) -> io::Result<TcpListener> {
    let socket = socket(at, &ConnOptions::default(), congestion)?;
    // As std's: a port in TIME-WAIT is free.
    socket.set_reuse_address(true)?;
    socket.bind(&at.into())?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}
