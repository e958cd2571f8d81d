//! The kernel's TCP sockets with the options of a stack's, so that one description of an experiment applies
//! to both.
//!
//! All are made in the namespace of the calling thread: call them inside
//! [`Kernel::enter`](crate::Kernel::enter).

use std::fs;
use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};

use rustix::net::sockopt;
use socket2::{Domain, Protocol, Socket, Type};
use taut_core::ConnOptions;
use taut_device::sys;

/// Room for bursts: when a listener's queue is full, the kernel drops ACKs and answers with SYN cookies, and
/// then resets connections that were established.
const BACKLOG: i32 = 4_096;

/// A socket that is not connected yet. The congestion control is given by name, because the kernel may have
/// one that taut lacks; `None` means the machine's default, which a namespace cannot change.
///
/// # Errors
/// When the kernel has no such congestion control, or refuses an option.
pub fn socket(to: SocketAddr, options: &ConnOptions, congestion: Option<&str>) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(to), Type::STREAM, Some(Protocol::TCP))?;
    // Set first: some effects of a congestion control's initialisation cannot be undone.
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
    // Root of the namespace may exceed the machine's limits.
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

/// A connected socket.
///
/// # Errors
/// Those of [`socket`], or when the peer does not answer.
pub fn connect(to: SocketAddr, options: &ConnOptions, congestion: Option<&str>) -> io::Result<TcpStream> {
    let socket = socket(to, options, congestion)?;
    socket.connect(&to.into())?;
    Ok(socket.into())
}

/// A listener with room for bursts; connections that it accepts have its congestion control.
///
/// # Errors
/// Those of [`socket`], or when the address is in use.
pub fn listen(at: SocketAddr, congestion: Option<&str>) -> io::Result<TcpListener> {
    let socket = socket(at, &ConnOptions::default(), congestion)?;
    // Like std's listener: a port in TIME-WAIT counts as free.
    socket.set_reuse_address(true)?;
    socket.bind(&at.into())?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

/// The congestion control of sockets that do not ask for one, by name.
///
/// # Errors
/// When there is no such file of the kernel's, as where `/proc` is not mounted.
pub fn default_congestion() -> io::Result<String> {
    fs::read_to_string("/proc/sys/net/ipv4/tcp_congestion_control").map(|name| name.trim().to_owned())
}

/// The congestion controls that the kernel has loaded, by name.
///
/// # Errors
/// As [`default_congestion`].
pub fn available_congestion() -> io::Result<Vec<String>> {
    let names = fs::read_to_string("/proc/sys/net/ipv4/tcp_available_congestion_control")?;
    Ok(names.split_whitespace().map(str::to_owned).collect())
}
