//! The users and groups in a guest's namespace (`user_namespaces(7)`). Called by `inside.rs`.
//!
//! A process may map its own user and group. Further ones are those that `/etc/subuid` and `/etc/subgid` give
//! the user; `newuidmap` and `newgidmap`, which are setuid, map them for a process outside:
//!
//! ```text
//!   guest's process                              its child
//!     unshare(user, network, mounts)
//!     a byte ──────────────────────────────────▶ newuidmap, newgidmap
//!     the reason why they failed, or nothing ◀── ends
//! ```

use std::fs;
use std::io::{self, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};

use nix::unistd::{Uid, User};
use rustix::io::retry_on_intr;
use rustix::process::{Pid, WaitOptions, getegid, geteuid, getpid, waitpid};
use rustix::thread::no_new_privs;
use taut::device::netns;
use taut::device::sys::{Forked, exit_now, fork_alone};

/// Of users and of groups: the program that maps them, the ids that a user has, and the map.
const KINDS: [[&str; 3]; 2] =
    [["newuidmap", "/etc/subuid", "/proc/self/uid_map"], ["newgidmap", "/etc/subgid", "/proc/self/gid_map"]];

/// A range of a map: the first id inside, the first outside, their number.
type Range = [u32; 3];

/// Moves this process, which has one thread, into new user, network and mount namespaces, in which it has all
/// capabilities. Its user is root there, or keeps its number. Returns the reason if further users should be
/// there and are not.
pub(super) fn become_owner(keeps_user: bool) -> io::Result<Option<String>> {
    let own = [geteuid().as_raw(), getegid().as_raw()];
    let inside = if keeps_user { own } else { [0; 2] };
    let mapper = subordinate(own, inside).map(|maps| Mapper::start(&maps)).transpose()?;
    let mut missing = None;
    netns::become_owner(|| {
        missing = mapper.and_then(|mapper| mapper.map().err());
        map_own(own, inside)
    })?;
    Ok(missing)
}

/// Maps this process's own user and group, where nothing is mapped yet.
fn map_own(own: [u32; 2], inside: [u32; 2]) -> io::Result<()> {
    for (kind, [_, _, map]) in KINDS.into_iter().enumerate() {
        if fs::read_to_string(map)?.is_empty() {
            if kind == 1 {
                fs::write("/proc/self/setgroups", "deny")?;
            }
            fs::write(map, format!("{} {} 1", inside[kind], own[kind]))?;
        }
    }
    Ok(())
}

/// Both maps with all ids of this user, if it has any besides its own and the programs are there.
fn subordinate(own: [u32; 2], inside: [u32; 2]) -> Option<[Vec<Range>; 2]> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let is_there = |program: &str| std::env::split_paths(&path).any(|folder| folder.join(program).is_file());
    // Setuid programs have no rights without new privileges.
    if !KINDS.iter().all(|[program, ..]| is_there(program)) || no_new_privs().unwrap_or(true) {
        return None;
    }
    let name = User::from_uid(Uid::from_raw(own[0])).ok().flatten().map(|user| user.name);
    let map = |kind: usize| {
        let text = fs::read_to_string(KINDS[kind][1]).ok()?;
        let given = given(&text, own[0], name.as_deref());
        (!given.is_empty()).then(|| map(own[kind], inside[kind], &given))
    };
    Some([map(0)?, map(1)?])
}

/// First id and number of each range that a file gives a user, by number or name (subuid(5)).
fn given(text: &str, user: u32, name: Option<&str>) -> Vec<(u32, u32)> {
    let range = |line: &str| {
        let mut fields = line.trim().split(':');
        let who = fields.next()?;
        let [first, count] = [fields.next()?.parse().ok()?, fields.next()?.parse().ok()?];
        let is_own = Some(who) == name || who.parse() == Ok(user);
        (is_own && count > 0).then_some((first, count))
    };
    text.lines().filter_map(range).collect()
}

/// One's own id, and all others inside from 0 on.
fn map(own: u32, inside: u32, given: &[(u32, u32)]) -> Vec<Range> {
    let (mut ranges, mut next) = (vec![[inside, own, 1]], 0_u32);
    for &(mut first, mut left) in given {
        while left > 0 {
            if next == inside {
                next = next.saturating_add(1);
            }
            // The last number is no id.
            let room = if next < inside { inside - next } else { u32::MAX - next };
            let count = left.min(room);
            if count == 0 {
                break;
            }
            ranges.push([next, first, count]);
            (next, first, left) = (next + count, first.saturating_add(count), left - count);
        }
    }
    ranges
}

/// A process that stays outside, and maps when it gets a byte.
struct Mapper {
    pid: Pid,
    stream: UnixStream,
}

impl Mapper {
    fn start(maps: &[Vec<Range>; 2]) -> io::Result<Self> {
        let (stream, theirs) = UnixStream::pair()?;
        let guest = getpid();
        match fork_alone()? {
            Forked::Parent(pid) => Ok(Self { pid, stream }),
            Forked::Child => {
                drop(stream);
                _ = run(theirs, guest, maps);
                exit_now(0)
            }
        }
    }

    /// Waits until all is mapped.
    fn map(mut self) -> Result<(), String> {
        let mut said = String::new();
        let answered = self.stream.write_all(&[0]).and_then(|()| self.stream.read_to_string(&mut said));
        _ = retry_on_intr(|| waitpid(Some(self.pid), WaitOptions::empty()));
        match answered {
            Ok(_) if said.is_empty() => Ok(()),
            Ok(_) => Err(said),
            Err(error) => Err(error.to_string()),
        }
    }
}

/// The work of the mapper. Ends at the first program that fails.
fn run(mut stream: UnixStream, guest: Pid, maps: &[Vec<Range>; 2]) -> io::Result<()> {
    stream.read_exact(&mut [0])?;
    for ([program, ..], map) in KINDS.into_iter().zip(maps) {
        let words = map.iter().flatten().map(ToString::to_string);
        let guest = guest.as_raw_pid().to_string();
        let ran = Command::new(program).arg(guest).args(words).stdin(Stdio::null()).output();
        let why = match ran {
            Ok(ran) if ran.status.success() => continue,
            // Its message has its name.
            Ok(ran) if !ran.stderr.is_empty() => String::from_utf8_lossy(&ran.stderr).trim().to_owned(),
            Ok(ran) => format!("{program}: {}", ran.status),
            Err(error) => format!("{program}: {error}"),
        };
        return stream.write_all(why.as_bytes());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gw_216_the_ids_of_a_user_are_read_from_a_file() {
        let text =
            "other:100000:65536\ntester:165536:65536\n\n1234:1000000:10\ntester:1:0\ntester:x:1\ntester:7\n#";
        assert_eq!(given(text, 1_234, Some("tester")), [(165_536, 65_536), (1_000_000, 10)]);
        assert_eq!(given(text, 1_234, None), [(1_000_000, 10)]);
        assert_eq!(given(text, 7, Some("nobody")), []);
    }

    #[test]
    fn gw_216_a_map_has_ones_own_id_and_the_others_around_it() {
        // As podman: without, and with `--userns=keep-id`.
        let given = [(100_000, 65_536)];
        assert_eq!(map(1_000, 0, &given), [[0, 1_000, 1], [1, 100_000, 65_536]]);
        let kept = [[1_000, 1_000, 1], [0, 100_000, 1_000], [1_001, 101_000, 64_536]];
        assert_eq!(map(1_000, 1_000, &given), kept);
        // Ranges that end below, at and above it.
        assert_eq!(map(9, 9, &[(50, 4), (70, 5), (90, 3)]), [[9, 9, 1], [0, 50, 4], [4, 70, 5], [10, 90, 3]]);
        assert_eq!(map(9, 9, &[(50, 4)]), [[9, 9, 1], [0, 50, 4]]);
        // No id is mapped twice, and no number overflows.
        let all = map(7, 7, &[(1, u32::MAX), (5, u32::MAX)]);
        assert_eq!(all, [[7, 7, 1], [0, 1, 7], [8, 8, u32::MAX - 8]]);
    }
}
