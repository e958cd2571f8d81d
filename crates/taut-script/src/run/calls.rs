//! System calls of a script: the call on the sockets, and its result compared with what the
//! script says, also where a call writes into its arguments.

use taut_core::{Duration, Instant};

use super::waiting::Pending;
use super::{Runner, Wrong};
use crate::constants::flag_names;
use crate::errno::Errno;
use crate::script::{Call, Value};
use crate::sockets::{Called, EpollItem, OptValue, PollFd, Stop};

/// A call that may be made several times until it returns.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Attempt {
    /// It was made before.
    again: bool,
    /// Bytes that were written so far.
    done: usize,
    /// When `poll` or `epoll_wait` gives up.
    timeout: Option<Instant>,
}

impl Attempt {
    pub(super) fn timeout(&self) -> Instant {
        self.timeout.filter(|&at| at != Instant::NEVER).unwrap_or(Instant::ZERO)
    }

    pub(super) fn wakes_at(&self) -> Option<Instant> {
        self.timeout.filter(|&at| at != Instant::NEVER)
    }
}

/// A call's value, or what stopped it; and a difference in what it wrote into its arguments.
type Outcome = (Called<i64>, Option<String>);

fn value(outcome: Called<i64>) -> Result<Outcome, String> {
    Ok((outcome, None))
}

fn done(outcome: Called<()>) -> Result<Outcome, String> {
    Ok((outcome.map(|()| 0), None))
}

impl Runner {
    /// Makes a call for the first time.
    pub(super) fn begin_call(&mut self, line: u32, call: &Call, end: Option<Instant>) -> Result<(), Wrong> {
        let at_line = |what| (line, what);
        let mut attempt = Attempt::default();
        if self.attempt(call, &mut attempt).map_err(at_line)? {
            let early = end.filter(|end| end.since(self.now()) > self.config.tolerance);
            if let Some(end) = early {
                let end = end.since(crate::host::START).as_nanos() as f64 / 1e9;
                return Err((line, format!("{} was to return at {end:.6}, and returned at once", call.name)));
            }
            return Ok(());
        }
        let Some(end) = end else {
            return Err((
                line,
                format!(
                    "{} would block; give it the time of its return, as in +0...0.1 {}(…)",
                    call.name, call.name
                ),
            ));
        };
        self.pending = Some(Pending::new(line, call.clone(), end, attempt));
        Ok(())
    }

    /// Makes a call. Returns whether it returned, and then as the script says.
    pub(super) fn attempt(&mut self, call: &Call, attempt: &mut Attempt) -> Result<bool, String> {
        let (outcome, differs) = self.make(call, attempt)?;
        attempt.again = true;
        self.sockets.settle();
        let actual = match outcome {
            Err(Stop::Blocks) => return Ok(false),
            Err(Stop::Unsupported(what)) => return Err(format!("{}: {what}", call.name)),
            Ok(value) => Ok(value),
            Err(Stop::Fails(errno)) => Err(errno),
        };
        self.note(|| match actual {
            Ok(value) => format!("{}(…) = {value}", call.name),
            Err(errno) => format!("{}(…) = -1 {errno}", call.name),
        });
        self.compare_result(call, actual)?;
        match differs {
            None => Ok(true),
            Some(what) => Err(format!("{}: {what}", call.name)),
        }
    }

    fn compare_result(&self, call: &Call, actual: Result<i64, Errno>) -> Result<(), String> {
        let shown = match actual {
            Ok(value) => value.to_string(),
            Err(errno) => format!("-1 {errno}"),
        };
        let expected = self.number(&call.result)?;
        let same = match (actual, expected) {
            (_, None) => true,
            (Ok(value), Some(expected)) => value == expected,
            (Err(errno), Some(-1)) => call.errno.as_ref().is_none_or(|name| name == errno.0),
            (Err(_), Some(_)) => false,
        };
        if same {
            return Ok(());
        }
        let expected = match &call.errno {
            Some(errno) => format!("-1 {errno}"),
            None => call.result.to_string(),
        };
        Err(format!("{} returned {shown}\n  expected: {expected}\n  actual:   {shown}", call.name))
    }

    fn make(&mut self, call: &Call, attempt: &mut Attempt) -> Result<Outcome, String> {
        match call.name.as_str() {
            "socket" => self.call_socket(call),
            "bind" => {
                let fd = self.fd(call, 0)?;
                let at = self.address(call.args.get(1), self.config.local(), self.config.bind_port)?;
                done(self.sockets.bind(fd, at))
            }
            "listen" => {
                let (fd, backlog) = (self.fd(call, 0)?, self.arg(call, 1)?);
                self.subject = Some(fd);
                done(self.sockets.listen(fd, u32::try_from(backlog.max(0)).unwrap_or(u32::MAX)))
            }
            "accept" | "accept4" => {
                let (fd, new) = (self.fd(call, 0)?, self.new_fd(call)?);
                let nonblocking = self.has_flag(self.arg_or(call, 3, 0)?, "SOCK_NONBLOCK");
                let accepted = self.sockets.accept(fd, new).map(|_| i64::from(new));
                if accepted.is_ok() {
                    self.subject = Some(new);
                    if nonblocking {
                        // The descriptor is open.
                        let _ = self.sockets.set_nonblocking(new, true);
                    }
                }
                value(accepted)
            }
            "connect" => self.call_connect(call, attempt.again),
            "read" | "recv" | "recvfrom" | "readv" => {
                let fd = self.fd(call, 0)?;
                let len =
                    if call.name == "readv" { self.iov_len(call.args.get(1))? } else { self.len(call, 2)? };
                let flags = if call.name.starts_with("recv") { self.arg_or(call, 3, 0)? } else { 0 };
                value(self.sockets.read(fd, len, flags).map(|read| read.len as i64))
            }
            "recvmsg" => self.call_recvmsg(call),
            "write" | "send" | "sendto" | "writev" | "sendmsg" => self.call_write(call, attempt),
            "close" => {
                let fd = self.fd(call, 0)?;
                if self.subject == Some(fd) && self.sockets.listener(fd).is_some() {
                    self.subject = None;
                }
                done(self.sockets.close(fd))
            }
            "shutdown" => {
                let (fd, how) = (self.fd(call, 0)?, self.arg(call, 1)?);
                done(self.sockets.shutdown(fd, how))
            }
            "fcntl" => self.call_fcntl(call),
            "ioctl" => self.call_ioctl(call),
            "setsockopt" => self.call_setsockopt(call),
            "getsockopt" => self.call_getsockopt(call),
            "poll" => self.call_poll(call, attempt),
            "epoll_create" | "epoll_create1" => {
                let fd = self.new_fd(call)?;
                self.sockets.epoll_create(fd);
                value(Ok(fd.into()))
            }
            "epoll_ctl" => self.call_epoll_ctl(call),
            "epoll_wait" => self.call_epoll_wait(call, attempt),
            "pipe" => {
                let Some(Value::List(fds)) = call.args.first() else {
                    return Err("pipe takes [3, 4]".to_owned());
                };
                let mut numbers = Vec::new();
                for fd in fds {
                    numbers.push(self.number(fd)?.and_then(|fd| i32::try_from(fd).ok()));
                }
                let &[Some(out), Some(into)] = &numbers[..] else {
                    return Err("pipe takes [3, 4]".to_owned());
                };
                self.sockets.pipe(out, into);
                value(Ok(0))
            }
            "splice" => {
                let (from, to) = (self.fd(call, 0)?, self.fd(call, 2)?);
                let (len, flags) = (self.len(call, 4)?, self.arg_or(call, 5, 0)?);
                value(self.sockets.splice(from, to, len, flags).map(|len| len as i64))
            }
            name => Err(format!("there is no call {name} here; docs/reference/packets.md has the list")),
        }
    }

    fn has_flag(&self, flags: i64, name: &str) -> bool {
        self.config.number(name).is_some_and(|bit| flags & bit != 0)
    }

    fn call_socket(&mut self, call: &Call) -> Result<Outcome, String> {
        let kind = self.arg_or(call, 1, 1)?;
        let nonblocking = self.has_flag(kind, "SOCK_NONBLOCK");
        if self.has_flag(kind, "SOCK_DGRAM") {
            return Err("socket: the stack has TCP only".to_owned());
        }
        let fd = self.new_fd(call)?;
        value(self.sockets.socket(fd, nonblocking).map(|()| fd.into()))
    }

    fn call_connect(&mut self, call: &Call, again: bool) -> Result<Outcome, String> {
        let fd = self.fd(call, 0)?;
        let to = self.address(call.args.get(1), self.config.remote(), self.config.connect_port)?;
        let outcome = self.sockets.connect(fd, to, again);
        self.follow(fd);
        done(outcome)
    }

    /// Packets are those of this descriptor's connection from now on.
    fn follow(&mut self, fd: i32) {
        self.subject = Some(fd);
        if let Some(conn) = self.sockets.conn(fd).and_then(|id| self.sockets.host.stack.conn(id)) {
            let (local, remote) = (conn.local_addr().port(), conn.peer_addr().port());
            self.flow = Some(self.flow_of(local, remote));
        }
    }

    fn call_write(&mut self, call: &Call, attempt: &mut Attempt) -> Result<Outcome, String> {
        let fd = self.fd(call, 0)?;
        let mut to = None;
        let (len, flags) = match call.name.as_str() {
            "write" => (self.len(call, 2)?, 0),
            "writev" => (self.iov_len(call.args.get(1))?, 0),
            "sendmsg" => {
                let message = call.args.get(1);
                to = message.and_then(|message| message.field("msg_name"));
                (
                    self.iov_len(message.and_then(|message| message.field("msg_iov")))?,
                    self.arg_or(call, 2, 0)?,
                )
            }
            name => {
                to = call.args.get(4).filter(|_| name == "sendto");
                (self.len(call, 2)?, self.arg_or(call, 3, 0)?)
            }
        };
        if !self.has_flag(flags, "MSG_FASTOPEN") {
            return value(self.sockets.write(fd, len, flags, &mut attempt.done).map(|len| len as i64));
        }
        let to = match to {
            Some(given) => Some(self.address(Some(given), self.config.remote(), self.config.connect_port)?),
            None => None,
        };
        let sent = self.sockets.send_to(fd, to, len, flags, &mut attempt.done, attempt.again);
        if !attempt.again {
            self.follow(fd);
        }
        value(sent.map(|len| len as i64))
    }

    fn call_recvmsg(&mut self, call: &Call) -> Result<Outcome, String> {
        let fd = self.fd(call, 0)?;
        let message = call.args.get(1).unwrap_or(&Value::Any);
        let flags = self.arg_or(call, 2, 0)?;
        let control = match message.field("msg_control") {
            Some(Value::List(items)) => Some(items.clone()),
            _ => None,
        };
        if self.has_flag(flags, "MSG_ERRQUEUE") {
            let found = match self.sockets.completion(fd) {
                Ok(found) => found,
                Err(stop) => return Ok((Err(stop), None)),
            };
            let family = if self.config.local().is_ipv4() {
                ("SOL_IP", "IP_RECVERR")
            } else {
                ("SOL_IPV6", "IPV6_RECVERR")
            };
            let actual = [
                ("ee_errno", 0),
                ("ee_origin", self.config.number("SO_EE_ORIGIN_ZEROCOPY").unwrap_or(0)),
                ("ee_type", 0),
                ("ee_code", found.copied.into()),
                ("ee_info", found.first.into()),
                ("ee_data", found.last.into()),
            ];
            let differs = match control {
                Some(control) => self.control_differs(&control, family, &actual)?,
                None => None,
            };
            return Ok((Ok(0), differs));
        }
        let len = self.iov_len(message.field("msg_iov"))?;
        let read = match self.sockets.read(fd, len, flags) {
            Ok(read) => read,
            Err(stop) => return Ok((Err(stop), None)),
        };
        let differs = match (control, read.inq) {
            (Some(control), Some(inq)) => {
                self.control_differs(&control, ("SOL_TCP", "TCP_CM_INQ"), &[("", inq)])?
            }
            (Some(control), None) if !control.is_empty() => {
                Some(format!("there is no control message\n  expected: {}", Value::List(control)))
            }
            _ => None,
        };
        Ok((Ok(read.len as i64), differs))
    }

    /// Compares the one control message that there is.
    fn control_differs(
        &self,
        expected: &[Value],
        (level, kind): (&str, &str),
        actual: &[(&str, i64)],
    ) -> Result<Option<String>, String> {
        let mut wrong = Vec::new();
        let [message] = expected else { return Ok(Some("there is one control message".to_owned())) };
        for (field, name) in [("cmsg_level", level), ("cmsg_type", kind)] {
            let wanted = message.field(field).map(|value| self.number(value)).transpose()?.flatten();
            if wanted.is_some() && wanted != self.config.number(name) {
                wrong.push(format!("{field} is {name}"));
            }
        }
        let data = message.field("cmsg_data").unwrap_or(&Value::Any);
        for (name, is) in actual {
            let wanted = if name.is_empty() { Some(data) } else { data.field(name) };
            let wanted = wanted.map(|value| self.number(value)).transpose()?.flatten();
            if let Some(wanted) = wanted.filter(|wanted| wanted != is) {
                let name = if name.is_empty() { "cmsg_data" } else { name };
                wrong.push(format!("{name} is {is}, expected {wanted}"));
            }
        }
        Ok(if wrong.is_empty() { None } else { Some(wrong.join("; ")) })
    }

    fn call_fcntl(&mut self, call: &Call) -> Result<Outcome, String> {
        let (fd, command) = (self.fd(call, 0)?, self.arg(call, 1)?);
        let (rdwr, nonblock) = (2, self.config.number("O_NONBLOCK").unwrap_or(0));
        match command {
            // F_GETFD, F_SETFD: there is no exec.
            1 | 2 => value(Ok(0)),
            3 if !self.sockets.is_open(fd) => value(Err(Stop::Fails(Errno("EBADF")))),
            3 => value(Ok(rdwr | if self.sockets.is_nonblocking(fd) { nonblock } else { 0 })),
            4 => {
                let flags = self.arg(call, 2)?;
                done(self.sockets.set_nonblocking(fd, flags & nonblock != 0))
            }
            other => Err(format!("fcntl {other}: there are F_GETFL and F_SETFL here")),
        }
    }

    /// The name of a constant, if the script writes one, else the name of the number among `names`.
    fn name_of(&self, value: Option<&Value>, names: &[&str]) -> Result<String, String> {
        match value {
            Some(Value::Name(name)) => Ok(name.clone()),
            Some(value) => {
                let number = self.number(value)?;
                let found = names.iter().find(|name| self.config.number(name) == number);
                found.map(|&name| name.to_owned()).ok_or_else(|| format!("{value}: write its name"))
            }
            None => Err("an argument is missing".to_owned()),
        }
    }

    fn call_ioctl(&mut self, call: &Call) -> Result<Outcome, String> {
        let fd = self.fd(call, 0)?;
        let request = self.name_of(call.args.get(1), &["SIOCINQ", "SIOCOUTQ", "SIOCOUTQNSD", "FIONBIO"])?;
        let expected = call.args.get(2).map(|value| self.number(value)).transpose()?.flatten();
        let actual = match self.sockets.ioctl(fd, &request, expected.unwrap_or(0)) {
            Ok(actual) => actual,
            Err(stop) => return Ok((Err(stop), None)),
        };
        let differs = expected.filter(|&expected| expected != actual);
        Ok((Ok(0), differs.map(|expected| format!("{request} gives {actual}, expected {expected}"))))
    }

    fn call_setsockopt(&mut self, call: &Call) -> Result<Outcome, String> {
        let fd = self.fd(call, 0)?;
        let name = self.option_name(call)?;
        let given = call.args.get(3).ok_or("setsockopt takes a value")?;
        let option = match given {
            Value::Text(text) => OptValue::Text(text.clone()),
            Value::List(values) if matches!(&values[..], [Value::Text(_)]) => match &values[..] {
                [Value::Text(text)] => OptValue::Text(text.clone()),
                _ => OptValue::Int(0),
            },
            Value::Struct(_) => OptValue::Linger(self.field(given, "onoff")?, self.field(given, "linger")?),
            other => OptValue::Int(self.number(other)?.ok_or("setsockopt: the value must be given")?),
        };
        done(self.sockets.set_option(fd, &name, &option))
    }

    fn field(&self, of: &Value, name: &str) -> Result<i64, String> {
        let short = name.to_owned();
        let field = of.field(name).or_else(|| of.field(&format!("l_{short}")));
        field
            .map(|value| self.number(value))
            .transpose()?
            .flatten()
            .ok_or_else(|| format!("{of} has no number {name}"))
    }

    /// The option by its name, without its level.
    fn option_name(&self, call: &Call) -> Result<String, String> {
        let level = call.args.get(1).map(|value| self.number(value)).transpose()?.flatten();
        match level {
            Some(1 | 6) => {}
            _ => return Err("options are those of SOL_SOCKET and SOL_TCP here".to_owned()),
        }
        self.name_of(call.args.get(2), &[])
    }

    fn call_getsockopt(&mut self, call: &Call) -> Result<Outcome, String> {
        let fd = self.fd(call, 0)?;
        let name = self.option_name(call)?;
        let given = call.args.get(3).cloned().unwrap_or(Value::Any);
        let actual = match self.sockets.option(fd, &name) {
            Ok(actual) => actual,
            Err(stop) => return Ok((Err(stop), None)),
        };
        let differs = match (&actual, &given) {
            (_, Value::Any) => None,
            (OptValue::Int(is), value) => {
                let wanted = self.number(value)?;
                wanted
                    .filter(|wanted| wanted != is)
                    .map(|wanted| format!("{name} is {is}, expected {wanted}"))
            }
            (OptValue::Text(is), Value::Text(wanted)) => {
                (is != wanted).then(|| format!("{name} is \"{is}\", expected \"{wanted}\""))
            }
            (OptValue::Linger(on, seconds), value) => {
                let wanted = (self.field(value, "onoff")?, self.field(value, "linger")?);
                (wanted != (*on, *seconds)).then(|| format!("{name} is {{onoff={on}, linger={seconds}}}"))
            }
            (OptValue::Text(is), _) => Some(format!("{name} is \"{is}\"")),
        };
        Ok((Ok(0), differs))
    }

    /// When a call with this timeout in milliseconds gives up.
    fn give_up(&self, attempt: &mut Attempt, timeout_ms: i64) -> Instant {
        *attempt.timeout.get_or_insert_with(|| match u64::try_from(timeout_ms) {
            Ok(ms) => self.sockets.host.now() + Duration::from_millis(ms),
            Err(_) => Instant::NEVER,
        })
    }

    fn call_poll(&mut self, call: &Call, attempt: &mut Attempt) -> Result<Outcome, String> {
        let Some(Value::List(entries)) = call.args.first() else {
            return Err("poll takes [{fd=4, events=POLLIN, revents=POLLIN}]".to_owned());
        };
        let entries = entries.clone();
        let give_up = {
            let timeout = self.arg(call, 2)?;
            self.give_up(attempt, timeout)
        };
        let mut fds = Vec::new();
        for entry in &entries {
            let fd = i32::try_from(self.field(entry, "fd")?).map_err(|_| "fd is no descriptor")?;
            fds.push(PollFd { fd, events: self.field(entry, "events")?, revents: 0 });
        }
        let outcome = match self.sockets.poll(&mut fds) {
            Err(Stop::Blocks) if self.now() >= give_up => Ok(0),
            outcome => outcome,
        };
        if outcome.is_err() {
            return Ok((outcome, None));
        }
        let mut wrong = Vec::new();
        for (entry, polled) in entries.iter().zip(&fds) {
            let wanted = entry.field("revents").map(|value| self.number(value)).transpose()?.flatten();
            if let Some(wanted) = wanted.filter(|&wanted| wanted != polled.revents) {
                let (is, wanted) = (flag_names(polled.revents, "POLL"), flag_names(wanted, "POLL"));
                wrong.push(format!("revents of {} is {is}, expected {wanted}", polled.fd));
            }
        }
        Ok((outcome, if wrong.is_empty() { None } else { Some(wrong.join("; ")) }))
    }

    fn call_epoll_ctl(&mut self, call: &Call) -> Result<Outcome, String> {
        let (epoll, action, fd) = (self.fd(call, 0)?, self.arg(call, 1)?, self.fd(call, 2)?);
        let item = match call.args.get(3) {
            Some(item @ Value::Struct(_)) => {
                EpollItem { events: self.field(item, "events")?, data: self.data(item)? }
            }
            _ => EpollItem { events: 0, data: 0 },
        };
        done(self.sockets.epoll_ctl(epoll, action, fd, item))
    }

    /// The number with an entry of epoll, by whatever name of the union.
    fn data(&self, item: &Value) -> Result<i64, String> {
        let found = ["fd", "ptr", "u32", "u64"].into_iter().find_map(|name| item.field(name));
        Ok(found.map(|value| self.number(value)).transpose()?.flatten().unwrap_or(0))
    }

    fn call_epoll_wait(&mut self, call: &Call, attempt: &mut Attempt) -> Result<Outcome, String> {
        let epoll = self.fd(call, 0)?;
        let max = self.len(call, 2)?;
        let give_up = {
            let timeout = self.arg(call, 3)?;
            self.give_up(attempt, timeout)
        };
        let found = match self.sockets.epoll_wait(epoll, max) {
            Err(Stop::Blocks) if self.now() >= give_up => Vec::new(),
            Err(stop) => return Ok((Err(stop), None)),
            Ok(found) => found,
        };
        let expected = match call.args.get(1) {
            Some(item @ Value::Struct(_)) => vec![item.clone()],
            Some(Value::List(items)) => items.clone(),
            _ => Vec::new(),
        };
        let mut wrong = Vec::new();
        for (item, wanted) in found.iter().zip(&expected) {
            let (events, data) = (self.field(wanted, "events")?, self.data(wanted)?);
            if events != item.events {
                let (is, wanted) = (flag_names(item.events, "EPOLL"), flag_names(events, "EPOLL"));
                wrong.push(format!("events of {} is {is}, expected {wanted}", item.data));
            }
            if data != item.data {
                wrong.push(format!("the entry is that of {}, expected {data}", item.data));
            }
        }
        Ok((Ok(found.len() as i64), if wrong.is_empty() { None } else { Some(wrong.join("; ")) }))
    }
}
