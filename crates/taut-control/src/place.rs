//! Where control sockets are: how they are made, found and removed.
//!
//! The directory belongs to one user and no other user may enter it, so a name in it can be trusted. The
//! socket of a process that died refuses connections; the next program that lists the directory removes it.
//! Called by `server.rs` and by clients.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use rustix::fs::{FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

/// Connections that may wait until the server accepts them.
const BACKLOG: i32 = 8;
/// Stacks of one process that can have a default socket each.
const STACKS_PER_PROCESS: u32 = 1000;

/// The directories that may hold this user's sockets, the preferred one first: `$XDG_RUNTIME_DIR/taut`, for
/// root `/run/taut`, and `/tmp/taut-UID`; or `$TAUT_CONTROL_DIR` alone, if that is set.
///
/// The first call decides for the whole process: one that enters a user namespace later is another user in
/// it, but is still looked for under its first user.
pub fn directories() -> &'static [PathBuf] {
    static OF_THIS_PROCESS: OnceLock<Vec<PathBuf>> = OnceLock::new();
    OF_THIS_PROCESS.get_or_init(find_directories)
}

fn find_directories() -> Vec<PathBuf> {
    if let Some(dir) = std::env::var_os("TAUT_CONTROL_DIR") {
        return vec![PathBuf::from(dir)];
    }
    let uid = rustix::process::geteuid();
    let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|path| path.is_absolute());
    // After `su` or `sudo`, root may still have another user's variable; it must not use that user's
    // directory.
    let runtime = runtime.filter(|path| fs::metadata(path).is_ok_and(|dir| dir.uid() == uid.as_raw()));
    let system = uid.is_root().then(|| PathBuf::from("/run"));
    let mut all: Vec<_> = [runtime, system].into_iter().flatten().map(|base| base.join("taut")).collect();
    all.push(PathBuf::from(format!("/tmp/taut-{}", uid.as_raw())));
    all
}

/// The directory for this process's sockets; made if there is none.
///
/// # Errors
/// [`io::ErrorKind::PermissionDenied`] if other users may use it; otherwise the reason why it could not be
/// made.
pub fn default_directory() -> io::Result<PathBuf> {
    let mut first_error = None;
    for dir in directories() {
        match make_own(dir) {
            Ok(()) => return Ok(dir.clone()),
            Err(error) => first_error.get_or_insert(error),
        };
    }
    Err(first_error.unwrap_or_else(|| io::ErrorKind::NotFound.into()))
}

/// Makes a directory that only this user may use, unless it exists.
fn make_own(dir: &Path) -> io::Result<()> {
    match DirBuilder::new().mode(0o700).create(dir) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
            Err(io::Error::new(error.kind(), format!("cannot make {}: {error}", dir.display())))
        }
        _ => open_own(dir).map(drop),
    }
}

/// Opens a directory, if it is one, belongs to this user, and is closed to others. The checks are made on the
/// descriptor, so that the directory cannot be replaced in between.
fn open_own(dir: &Path) -> io::Result<OwnedFd> {
    let denied = |what: &str| {
        let message = format!(
            "{} {what} and cannot hold control sockets; set TAUT_CONTROL_DIR to another directory",
            dir.display()
        );
        io::Error::new(io::ErrorKind::PermissionDenied, message)
    };
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::RDONLY;
    let opened = match rustix::fs::open(dir, flags, Mode::empty()) {
        Ok(opened) => opened,
        Err(Errno::LOOP | Errno::NOTDIR) => return Err(denied("is not a directory")),
        Err(Errno::ACCESS) => return Err(denied("belongs to another user")),
        Err(error) => return Err(io::Error::new(io::Error::from(error).kind(), dir.display().to_string())),
    };
    let stat = rustix::fs::fstat(&opened)?;
    if stat.st_uid != rustix::process::geteuid().as_raw() {
        return Err(denied("belongs to another user"));
    }
    if stat.st_mode & 0o077 != 0 {
        return Err(denied("is open to other users (close it with chmod 700)"));
    }
    Ok(opened)
}

/// Held while sockets are made and removed, so that no process removes one that has just replaced a dead one.
struct DirectoryLock(#[expect(dead_code, reason = "closing it releases the lock")] OwnedFd);

impl DirectoryLock {
    fn take(dir: &Path) -> io::Result<Self> {
        let opened = open_own(dir)?;
        rustix::fs::flock(&opened, FlockOperation::LockExclusive)?;
        Ok(Self(opened))
    }
}

/// The number of this process. The first call decides, so that it is the one by which others find a process
/// that a sandbox has given a second number.
pub fn process() -> u32 {
    static OF_THIS_PROCESS: OnceLock<u32> = OnceLock::new();
    *OF_THIS_PROCESS.get_or_init(std::process::id)
}

/// A listening control socket. Its file is removed when this is dropped.
#[derive(Debug)]
pub struct Bound {
    file: SocketFile,
    pub(crate) listener: OwnedFd,
    pub(crate) path: PathBuf,
}

/// The file of a control socket, which is removed when this is dropped.
#[derive(Debug)]
pub struct SocketFile(File);

enum File {
    /// Place, device and inode, because the file there may belong to another process when it is removed.
    Own(PathBuf, (u64, u64)),
    /// Another process's, and how to have it removed.
    Outside(Box<dyn Fn() + Send + Sync>),
}

impl std::fmt::Debug for File {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Own(path, _) => f.debug_tuple("Own").field(path).finish(),
            Self::Outside(_) => f.write_str("Outside"),
        }
    }
}

impl SocketFile {
    /// Where it is, if this process has made it.
    #[must_use]
    pub fn path(&self) -> Option<&Path> {
        match &self.0 {
            File::Own(path, _) => Some(path),
            File::Outside(_) => None,
        }
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        match &self.0 {
            File::Own(path, file) if identity(path).as_ref() == Some(file) => _ = fs::remove_file(path),
            File::Own(..) => {}
            File::Outside(remove) => remove(),
        }
    }
}

fn identity(path: &Path) -> Option<(u64, u64)> {
    fs::symlink_metadata(path).ok().map(|file| (file.dev(), file.ino()))
}

impl Bound {
    /// One that another process of this user has made, and removes at a call of `remove`. In a user
    /// namespace, root looks like a stranger; so the file's mode decides alone who may connect.
    #[must_use]
    pub fn from_outside(listener: OwnedFd, remove: impl Fn() + Send + Sync + 'static) -> Self {
        Self { file: SocketFile(File::Outside(Box::new(remove))), listener, path: PathBuf::new() }
    }

    /// The socket and its file apart.
    #[must_use]
    pub fn into_parts(self) -> (OwnedFd, SocketFile) {
        (self.listener, self.file)
    }

    /// Whether the user at the other end of a connection may be served.
    pub(crate) fn serves(&self, socket: &impl std::os::fd::AsFd) -> bool {
        matches!(self.file.0, File::Outside(_)) || peer_uid(socket).is_ok_and(is_trusted)
    }

    /// Listens at `PID.sock` in the default directory, or `PID-2.sock` and so on for a process's further
    /// stacks.
    ///
    /// # Errors
    /// As for [`default_directory`]; also when the socket cannot be made.
    pub fn at_default() -> io::Result<Self> {
        Self::in_directory(&default_directory()?)
    }

    fn in_directory(dir: &Path) -> io::Result<Self> {
        let _lock = DirectoryLock::take(dir)?;
        let pid = process();
        for nth in 1..=STACKS_PER_PROCESS {
            let name = if nth == 1 { format!("{pid}.sock") } else { format!("{pid}-{nth}.sock") };
            match Self::at(&dir.join(name)) {
                Err(error) if error.kind() == io::ErrorKind::AddrInUse => {}
                bound => return bound,
            }
        }
        Err(io::ErrorKind::AddrInUse.into())
    }

    /// Listens at a path. A dead socket there is replaced.
    ///
    /// # Errors
    /// Any other file is there, or the socket cannot be made.
    pub fn at(path: &Path) -> io::Result<Self> {
        let explain = |error: io::Error| {
            io::Error::new(error.kind(), format!("control socket {}: {error}", path.display()))
        };
        match bind(path) {
            Err(Errno::ADDRINUSE) if is_dead(path) => {
                fs::remove_file(path).map_err(explain)?;
                bind(path)
            }
            bound => bound,
        }
        .map_err(|error| explain(error.into()))
        .and_then(|listener| {
            let file = identity(path).ok_or_else(|| explain(io::ErrorKind::NotFound.into()))?;
            let file = SocketFile(File::Own(path.to_owned(), file));
            Ok(Self { file, listener, path: path.to_owned() })
        })
    }
}

fn bind(path: &Path) -> Result<OwnedFd, Errno> {
    let address = SocketAddrUnix::new(path)?;
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    // Linux gives the file the mode of the socket, so that it is never open to others, not even for a moment.
    rustix::fs::fchmod(&socket, Mode::RUSR | Mode::WUSR)?;
    rustix::net::bind(&socket, &address)?;
    rustix::net::listen(&socket, BACKLOG)?;
    Ok(socket)
}

/// Connects without waiting.
///
/// # Errors
/// Those of `connect(2)`.
pub fn connect(path: &Path) -> Result<OwnedFd, Errno> {
    let address = SocketAddrUnix::new(path)?;
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    rustix::net::connect(socket.as_fd(), &address)?;
    Ok(socket)
}

/// Whether the path is the socket of a process that has ended: nothing listens there.
fn is_dead(path: &Path) -> bool {
    let is_socket = fs::symlink_metadata(path)
        .is_ok_and(|file| std::os::unix::fs::FileTypeExt::is_socket(&file.file_type()));
    is_socket && connect(path).err() == Some(Errno::CONNREFUSED)
}

/// A socket at which a stack listens.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Running {
    /// The process's ID, from the socket's name.
    pub pid: u32,
    /// The socket.
    pub path: PathBuf,
}

/// This user's running stacks, sorted by process. Removes the sockets of dead ones.
///
/// # Errors
/// When a directory exists but cannot be used.
pub fn running() -> io::Result<Vec<Running>> {
    let mut found = Vec::new();
    for dir in directories() {
        match running_in(dir) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            listed => found.extend(listed?),
        }
    }
    found.sort();
    Ok(found)
}

fn running_in(dir: &Path) -> io::Result<Vec<Running>> {
    let _lock = DirectoryLock::take(dir)?;
    let mut found = Vec::new();
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        let Some(pid) = pid_of(&path) else { continue };
        if is_dead(&path) {
            _ = fs::remove_file(&path);
        } else {
            found.push(Running { pid, path });
        }
    }
    Ok(found)
}

/// The process whose socket this is, if it is one of ours.
fn pid_of(path: &Path) -> Option<u32> {
    let stem = path.file_name()?.to_str()?.strip_suffix(".sock")?;
    let (pid, nth) = stem.split_once('-').unwrap_or((stem, "2"));
    nth.parse::<u32>().ok()?;
    pid.parse().ok()
}

/// The user at the other end of a connected socket.
pub(crate) fn peer_uid(socket: &impl std::os::fd::AsFd) -> io::Result<u32> {
    Ok(rustix::net::sockopt::socket_peercred(socket)?.uid.as_raw())
}

/// Whether that user may see and control this user's stacks.
pub(crate) fn is_trusted(uid: u32) -> bool {
    uid == 0 || uid == rustix::process::geteuid().as_raw()
}

pub(crate) fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use taut_testbed::Scratch;

    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::symlink_metadata(path).unwrap().permissions().mode() & 0o777
    }

    #[test]
    fn a_name_says_whose_socket_it_is() {
        let pid = |name: &str| pid_of(&Path::new("/run/taut").join(name));
        assert_eq!(pid("123.sock"), Some(123));
        assert_eq!(pid("123-2.sock"), Some(123));
        for other in ["123", "x.sock", "123-x.sock", ".sock", "123.nstat", "-2.sock"] {
            assert_eq!(pid(other), None, "{other}");
        }
    }

    #[test]
    fn the_directory_and_the_socket_are_the_owners_only() {
        let scratch = Scratch::new("place-modes");
        let dir = scratch.join("taut");
        make_own(&dir).unwrap();
        make_own(&dir).unwrap();
        assert_eq!(mode(&dir), 0o700);
        let bound = Bound::in_directory(&dir).unwrap();
        assert_eq!(mode(&bound.path), 0o600);
        let pid = std::process::id();
        assert_eq!(bound.path, dir.join(format!("{pid}.sock")));
        let second = Bound::in_directory(&dir).unwrap();
        assert_eq!(second.path, dir.join(format!("{pid}-2.sock")));
        let paths: Vec<_> = running_in(&dir).unwrap().into_iter().map(|running| running.path).collect();
        assert_eq!(paths.len(), 2);
        let (first, second_path) = (bound.path.clone(), second.path.clone());
        drop((bound, second));
        assert!(!first.exists() && !second_path.exists());
    }

    #[test]
    fn a_directory_that_others_may_use_is_refused() {
        let scratch = Scratch::new("place-refused");
        let refused = |path: &Path| {
            let error = make_own(path).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::PermissionDenied, "{error}");
            error.to_string()
        };
        let open = scratch.join("open");
        DirBuilder::new().create(&open).unwrap();
        fs::set_permissions(&open, fs::Permissions::from_mode(0o750)).unwrap();
        assert!(refused(&open).contains("chmod 700"));
        let link = scratch.join("link");
        symlink(&*scratch, &link).unwrap();
        assert!(refused(&link).contains("not a directory"));
        let file = scratch.join("file");
        fs::write(&file, "").unwrap();
        assert!(refused(&file).contains("not a directory"));
        // "/" must not be used for sockets, whether or not root runs this test.
        assert!(make_own(Path::new("/")).is_err());
    }

    #[test]
    fn what_a_dead_process_left_is_removed_and_nothing_else() {
        let scratch = Scratch::new("place-stale");
        let dead = scratch.join("4000000.sock");
        drop(std::os::unix::net::UnixListener::bind(&dead).unwrap());
        let file = scratch.join("4000001.sock");
        fs::write(&file, "not a socket").unwrap();
        let live = Bound::in_directory(&scratch).unwrap();
        let found = running_in(&scratch).unwrap();
        assert!(!dead.exists() && file.exists() && live.path.exists());
        assert!(found.iter().any(|running| running.path == live.path));
    }

    #[test]
    fn a_dead_socket_is_replaced_and_a_live_one_or_a_file_is_not() {
        let scratch = Scratch::new("place-replace");
        let path = scratch.join("a.sock");
        drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
        let bound = Bound::at(&path).unwrap();
        let error = Bound::at(&path).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
        assert!(error.to_string().contains("a.sock"), "{error}");
        // A file that replaced the socket at the same path is kept.
        fs::remove_file(&path).unwrap();
        fs::write(&path, "mine").unwrap();
        drop(bound);
        assert_eq!(fs::read(&path).unwrap(), b"mine");
        assert_eq!(Bound::at(&path).unwrap_err().kind(), io::ErrorKind::AddrInUse);
        assert!(Bound::at(&scratch.join("x".repeat(200))).is_err());
    }
}
