//! The priority of a thread, for those that have to wake up in time. `sched(7)`, `setpriority(2)`.

use std::fmt;
use std::io;
use std::str::FromStr;

use crate::sys;

/// The priority of a thread among all threads of the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Priority {
    /// A nice value, from −20, the highest priority, to 19; other threads have 0.
    Nice(i8),
    /// A real-time priority (`SCHED_FIFO`), from 1 to 99: before all threads without one.
    RealTime(u8),
}

impl Priority {
    /// Gives the calling thread this priority. Threads that it starts get the ordinary one.
    ///
    /// # Errors
    /// [`io::ErrorKind::PermissionDenied`] without `CAP_SYS_NICE` and without such a limit (`ulimit -e`,
    /// `ulimit -r`), or [`io::ErrorKind::InvalidInput`].
    pub fn apply(self) -> io::Result<()> {
        let explain = |error: io::Error| {
            let (name, limit) = match self {
                Self::Nice(_) => ("RLIMIT_NICE", "-e"),
                Self::RealTime(_) => ("RLIMIT_RTPRIO", "-r"),
            };
            let needed = match error.kind() {
                io::ErrorKind::PermissionDenied => {
                    format!(" (needed: CAP_SYS_NICE, or a higher {name}, `ulimit {limit}`)")
                }
                _ => String::new(),
            };
            io::Error::new(error.kind(), format!("cannot have the priority {self}: {error}{needed}"))
        };
        match self {
            Self::Nice(nice) => {
                sys::set_scheduler(libc::SCHED_OTHER, 0).and_then(|()| sys::set_nice(nice.into()))
            }
            Self::RealTime(priority) => sys::set_scheduler(libc::SCHED_FIFO, priority.into()),
        }
        .map_err(explain)
    }
}

impl fmt::Display for Priority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nice(nice) => write!(f, "nice:{nice}"),
            Self::RealTime(priority) => write!(f, "realtime:{priority}"),
        }
    }
}

/// The text is not a priority.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PriorityError;

impl fmt::Display for PriorityError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("not realtime:1 to realtime:99, nor nice:-20 to nice:19")
    }
}

impl std::error::Error for PriorityError {}

impl FromStr for Priority {
    type Err = PriorityError;

    fn from_str(text: &str) -> Result<Self, PriorityError> {
        let parsed = match text.split_once(':') {
            Some(("nice", nice)) => nice.parse().ok().map(Self::Nice),
            Some(("realtime", priority)) => priority.parse().ok().map(Self::RealTime),
            _ => None,
        };
        let is_valid = |priority: &Self| match priority {
            Self::Nice(nice) => (-20..=19).contains(nice),
            Self::RealTime(priority) => (1..=99).contains(priority),
        };
        parsed.filter(is_valid).ok_or(PriorityError)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_priorities() {
        for (text, priority) in [
            ("realtime:1", Priority::RealTime(1)),
            ("realtime:99", Priority::RealTime(99)),
            ("nice:-20", Priority::Nice(-20)),
            ("nice:19", Priority::Nice(19)),
        ] {
            assert_eq!(text.parse(), Ok(priority));
            assert_eq!(priority.to_string(), text);
        }
        for text in ["", "realtime", "realtime:0", "realtime:100", "nice:20", "nice:-21", "fifo:1", "nice:"] {
            assert_eq!(text.parse::<Priority>(), Err(PriorityError), "{text}");
        }
    }

    #[test]
    fn a_thread_without_the_privilege_is_refused() {
        use rustix::thread::{CapabilitySet, capabilities, set_capabilities};
        let refused = std::thread::spawn(|| {
            let mut mine = capabilities(None).unwrap();
            mine.effective.remove(CapabilitySet::SYS_NICE);
            set_capabilities(None, mine).unwrap();
            [Priority::Nice(-20), Priority::RealTime(99)]
                .map(|priority| priority.apply().map_err(|e| (e.kind(), e.to_string())))
        });
        let denied = std::io::ErrorKind::PermissionDenied;
        let [nice, realtime] = refused.join().unwrap();
        // The limits of this user may allow it.
        for (result, limit) in [(nice, "ulimit -e"), (realtime, "ulimit -r")] {
            if let Err((kind, said)) = result {
                assert!(kind == denied && said.contains(limit) && said.contains("CAP_SYS_NICE"), "{said}");
            }
        }
    }

    #[test]
    fn a_limit_of_the_kernel_is_named() {
        // 100 is no priority of SCHED_FIFO, for root either.
        let error = Priority::RealTime(100).apply().unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
        assert!(error.to_string().starts_with("cannot have the priority realtime:100: "), "{error}");
    }
}
