//! `poll(2)` and `epoll(7)`: which descriptors are ready, by level, by edge, or once.
//!
//! An edge is news of the stack about the connection (`Event`), or a completed zero-copy write. An entry with
//! `EPOLLET` is reported if it has had an edge since it was last reported; what is reported is everything
//! that is ready then, as in Linux.

use taut_core::State;

use super::{Called, File, Kind, Sockets, Stop, fails};
use crate::constants::constant;

/// An entry of `poll(2)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PollFd {
    /// The descriptor.
    pub fd: i32,
    /// What is asked for.
    pub events: i64,
    /// What is ready.
    pub revents: i64,
}

/// What an epoll reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct EpollItem {
    /// The number that the caller gave.
    pub data: i64,
    /// What is ready.
    pub events: i64,
}

#[derive(Debug, Default)]
pub(super) struct Epoll {
    entries: Vec<Entry>,
}

#[derive(Debug)]
struct Entry {
    fd: i32,
    events: i64,
    data: i64,
    /// It has had an edge that was not reported.
    woken: bool,
    /// `EPOLLONESHOT`, and it was reported.
    is_over: bool,
}

fn bit(name: &str) -> i64 {
    constant(name).unwrap_or(0)
}

impl Sockets {
    /// What is ready at a descriptor, in the bits of `poll(2)`.
    pub(crate) fn ready(&mut self, fd: i32) -> i64 {
        let now = self.now();
        let (kind, has_errors) = match self.files.get(&fd) {
            Some(File::Socket(socket)) => (socket.kind, !socket.completions.is_empty()),
            Some(File::PipeOut { pipe, .. }) => {
                return if self.pipes.get(*pipe).is_some_and(|held| *held > 0) { bit("POLLIN") } else { 0 };
            }
            Some(File::PipeIn { .. }) => return bit("POLLOUT"),
            Some(File::Epoll(_)) => return 0,
            None => return bit("POLLNVAL"),
        };
        let error_taken = self.socket_ref(fd).is_ok_and(|socket| socket.error_taken);
        let id = match kind {
            Kind::New => return bit("POLLOUT") | bit("POLLHUP"),
            Kind::Listening(listener) => {
                let waits = self.host.stack.listeners().any(|info| info.id == listener && info.ready > 0);
                return if waits { bit("POLLIN") | bit("POLLRDNORM") } else { 0 };
            }
            Kind::Conn(id) => id,
        };
        let Some(mut conn) = self.host.stack.conn_mut(id) else { return bit("POLLHUP") };
        let (state, error) = (conn.as_ref().state(), conn.as_ref().error());
        let mut ready = 0;
        if conn.readable() {
            ready |= bit("POLLIN") | bit("POLLRDNORM");
        }
        if conn.writable(now) {
            ready |= bit("POLLOUT") | bit("POLLWRNORM");
        }
        let ended = matches!(
            state,
            State::CloseWait | State::LastAck | State::Closing | State::TimeWait | State::Closed
        );
        if ended {
            ready |= bit("POLLRDHUP");
        }
        if ended && state != State::CloseWait {
            ready |= bit("POLLHUP");
        }
        if has_errors || (error.is_some() && !error_taken) {
            ready |= bit("POLLERR");
        }
        ready
    }

    /// `poll(2)`: fills in `revents` and returns how many are ready.
    ///
    /// # Errors
    /// [`Stop::Blocks`] if none is; the caller knows until when to wait.
    pub(crate) fn poll(&mut self, fds: &mut [PollFd]) -> Called<i64> {
        let always = bit("POLLERR") | bit("POLLHUP") | bit("POLLNVAL");
        let mut count = 0;
        for entry in &mut *fds {
            entry.revents = self.ready(entry.fd) & (entry.events | always);
            count += i64::from(entry.revents != 0);
        }
        if count == 0 { Err(Stop::Blocks) } else { Ok(count) }
    }

    /// `epoll_create(2)` with this number.
    pub(crate) fn epoll_create(&mut self, fd: i32) {
        self.files.insert(fd, File::Epoll(Epoll::default()));
    }

    fn epoll_mut(&mut self, epoll: i32) -> Called<&mut Epoll> {
        match self.files.get_mut(&epoll) {
            Some(File::Epoll(epoll)) => Ok(epoll),
            Some(_) => fails("EINVAL"),
            None => fails("EBADF"),
        }
    }

    /// `epoll_ctl(2)`: 1 adds, 2 deletes, 3 changes.
    ///
    /// # Errors
    /// As `epoll_ctl(2)`.
    pub(crate) fn epoll_ctl(&mut self, epoll: i32, action: i64, fd: i32, item: EpollItem) -> Called<()> {
        if !self.is_open(fd) {
            return fails("EBADF");
        }
        let exclusive = bit("EPOLLEXCLUSIVE");
        let entries = &mut self.epoll_mut(epoll)?.entries;
        let at = entries.iter().position(|entry| entry.fd == fd);
        let EpollItem { data, events } = item;
        // What is ready now is an edge, too.
        let new = Entry { fd, events, data, woken: true, is_over: false };
        match (action, at) {
            (1, Some(_)) => return fails("EEXIST"),
            (1, None) if events & exclusive != 0 && events & bit("EPOLLONESHOT") != 0 => {
                return fails("EINVAL");
            }
            (1, None) => entries.push(new),
            (2 | 3, None) => return fails("ENOENT"),
            (2, Some(at)) => {
                entries.remove(at);
            }
            (3, Some(at)) if events & exclusive == 0 && entries[at].events & exclusive == 0 => {
                entries[at] = new;
            }
            _ => return fails("EINVAL"),
        }
        Ok(())
    }

    /// `epoll_wait(2)`: what is ready, at most `max`.
    ///
    /// # Errors
    /// [`Stop::Blocks`] if nothing is; the caller knows until when to wait.
    pub(crate) fn epoll_wait(&mut self, epoll: i32, max: usize) -> Called<Vec<EpollItem>> {
        let (edge, once) = (bit("EPOLLET"), bit("EPOLLONESHOT"));
        let always = bit("EPOLLERR") | bit("EPOLLHUP");
        let fds: Vec<i32> = self.epoll_mut(epoll)?.entries.iter().map(|entry| entry.fd).collect();
        let mut found = Vec::new();
        for (at, fd) in fds.into_iter().enumerate() {
            if found.len() == max {
                break;
            }
            let ready = self.ready(fd);
            let entry = &mut self.epoll_mut(epoll)?.entries[at];
            let events = ready & (entry.events | always);
            let is_due = events != 0 && !entry.is_over && (entry.woken || entry.events & edge == 0);
            if is_due {
                (entry.woken, entry.is_over) = (false, entry.events & once != 0);
                found.push(EpollItem { data: entry.data, events });
            } else if events == 0 {
                // An edge that led to nothing is over.
                entry.woken = false;
            }
        }
        if found.is_empty() { Err(Stop::Blocks) } else { Ok(found) }
    }

    /// Something happened at a descriptor.
    pub(super) fn wake(&mut self, fd: i32) {
        for file in self.files.values_mut() {
            if let File::Epoll(epoll) = file {
                epoll.entries.iter_mut().filter(|entry| entry.fd == fd).for_each(|entry| entry.woken = true);
            }
        }
    }

    /// A descriptor was closed.
    pub(super) fn forget(&mut self, fd: i32) {
        for file in self.files.values_mut() {
            if let File::Epoll(epoll) = file {
                epoll.entries.retain(|entry| entry.fd != fd);
            }
        }
    }
}
