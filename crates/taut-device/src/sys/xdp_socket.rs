//! `AF_XDP`: memory that the kernel shares, four rings of places in it, and a socket. Linux:
//! Documentation/networking/af_xdp.rst, linux/if_xdp.h. Called by `xdp`, whose first page says who owns which
//! slot.
//!
//! **What makes this safe.** The memory is divided once: one [`Area`] is written by the half that sends, the
//! other read by the half that receives. Each ring has one producer and one consumer, of which one is the
//! kernel. An entry is read or written only between the two indices, and the index that passes it on is
//! stored with release and loaded with acquire. The kernel writes to memory that it was given, and to no
//! other; what it says about places in it is checked like input from a network.

use std::io;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::io::Errno;

use super::check;

/// Bytes of a chunk: a page, which every driver takes.
pub(crate) const CHUNK: usize = 4_096;
/// A packet goes on in the next descriptor.
pub(crate) const CONTINUES: u32 = libc::XDP_PKT_CONTD;

/// A place in the shared memory, and how many bytes are there.
pub(crate) use libc::xdp_desc as Descriptor;

/// Memory from `mmap`.
#[derive(Debug)]
struct Mapping {
    at: NonNull<u8>,
    len: usize,
}

#[expect(unsafe_code, reason = "memory from mmap belongs to no thread")]
// SAFETY: it is plain memory of the process. Who uses which part of it is the matter of `Area` and `Ring`.
unsafe impl Send for Mapping {}
#[expect(unsafe_code, reason = "memory from mmap belongs to no thread")]
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Memory of its own, all zero, or with a descriptor the ring of a socket that has this number.
    fn new(len: usize, ring: Option<(&OwnedFd, i64)>) -> io::Result<Self> {
        let (flags, fd, offset) = match ring {
            // Shared, or a child would get copies that the kernel does not use.
            None => (libc::MAP_SHARED | libc::MAP_ANONYMOUS, -1, 0),
            Some((socket, offset)) => (libc::MAP_SHARED | libc::MAP_POPULATE, socket.as_raw_fd(), offset),
        };
        #[expect(unsafe_code, reason = "system call")]
        // SAFETY: the kernel chooses an address that nothing else uses.
        let at = unsafe {
            let access = libc::PROT_READ | libc::PROT_WRITE;
            libc::mmap(std::ptr::null_mut(), len, access, flags, fd, offset as libc::off_t)
        };
        if at == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let at = NonNull::new(at.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { at, len })
    }

    /// An index or a flag of a ring.
    fn word(&self, at: u64) -> io::Result<&AtomicU32> {
        let at =
            usize::try_from(at).ok().filter(|at| at.is_multiple_of(4) && at.saturating_add(4) <= self.len);
        let at = at.ok_or(io::ErrorKind::InvalidData)?;
        #[expect(unsafe_code, reason = "words that are shared with the kernel")]
        // SAFETY: it is aligned and within the mapping, as was checked, and lives as long. The kernel, too,
        // accesses it as one word.
        Ok(unsafe { AtomicU32::from_ptr(self.at.as_ptr().add(at).cast()) })
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        #[expect(unsafe_code, reason = "system call")]
        // SAFETY: it is the whole of what mmap returned, and nothing refers to it any more.
        unsafe {
            libc::munmap(self.at.as_ptr().cast(), self.len);
        }
    }
}

/// A part of the shared memory that one half of a device uses.
#[derive(Debug)]
pub(crate) struct Area {
    memory: Arc<Mapping>,
    start: usize,
    end: usize,
}

impl Area {
    /// The place of this chunk of the area, as the kernel knows it.
    pub(crate) const fn place(&self, chunk: u32) -> u64 {
        (self.start + chunk as usize * CHUNK) as u64
    }

    /// How many chunks it has.
    pub(crate) const fn chunks(&self) -> u32 {
        ((self.end - self.start) / CHUNK) as u32
    }

    /// The chunk that contains this place.
    pub(crate) fn chunk_of(&self, place: u64) -> Option<u32> {
        let place = usize::try_from(place).ok().filter(|place| (self.start..self.end).contains(place))?;
        u32::try_from((place - self.start) / CHUNK).ok()
    }

    /// The address of so many bytes at a place, if all of them are in the area.
    fn at(&self, place: u64, len: usize) -> Option<*mut u8> {
        let place = usize::try_from(place).ok().filter(|place| *place >= self.start)?;
        if place.checked_add(len)? > self.end {
            return None;
        }
        #[expect(unsafe_code, reason = "memory that is shared with the kernel")]
        // SAFETY: it is within the mapping.
        Some(unsafe { self.memory.at.as_ptr().add(place) })
    }

    /// Writes bytes, and returns whether there was room for them.
    pub(crate) fn write(&mut self, place: u64, bytes: &[u8]) -> bool {
        let Some(to) = self.at(place, bytes.len()) else { return false };
        #[expect(unsafe_code, reason = "memory that is shared with the kernel")]
        // SAFETY: there is room, in memory of this half alone.
        unsafe {
            to.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len());
        }
        true
    }

    /// Reads bytes, and returns whether they are there.
    pub(crate) fn read(&mut self, place: u64, bytes: &mut [u8]) -> bool {
        let Some(from) = self.at(place, bytes.len()) else { return false };
        #[expect(unsafe_code, reason = "memory that is shared with the kernel")]
        // SAFETY: the bytes are there, in memory that the kernel has passed on to this half alone.
        unsafe {
            from.copy_to_nonoverlapping(bytes.as_mut_ptr(), bytes.len());
        }
        true
    }
}

/// A ring, of which the kernel has the other end.
#[derive(Debug)]
pub(crate) struct Ring<T> {
    memory: Mapping,
    /// Where its parts are in the memory.
    at: libc::xdp_ring_offset,
    size: u32,
    /// How far this end has come; it is stored in the memory when the other end is to see it.
    own: u32,
    entries: std::marker::PhantomData<T>,
}

/// What the entries of a ring may be: any bits are a value.
pub(crate) trait Entry: Copy {}
impl Entry for u64 {}
impl Entry for Descriptor {}

impl<T: Entry> Ring<T> {
    fn map(socket: &OwnedFd, page: i64, at: libc::xdp_ring_offset, size: u32) -> io::Result<Self> {
        let len = usize::try_from(at.desc).map_err(io::Error::other)? + size as usize * size_of::<T>();
        let memory = Mapping::new(len, Some((socket, page)))?;
        // Checked once, for the calls below.
        for word in [at.producer, at.consumer, at.flags] {
            memory.word(word)?;
        }
        if !size.is_power_of_two() || !at.desc.is_multiple_of(align_of::<T>() as u64) {
            return Err(io::ErrorKind::InvalidData.into());
        }
        Ok(Self { memory, at, size, own: 0, entries: std::marker::PhantomData })
    }

    fn load(&self, word: u64) -> u32 {
        self.memory.word(word).map_or(self.own, |word| word.load(Ordering::Acquire))
    }

    fn store(&self, word: u64) {
        if let Ok(word) = self.memory.word(word) {
            word.store(self.own, Ordering::Release);
        }
    }

    fn entry(&self, index: u32) -> *mut T {
        let index = (index & (self.size - 1)) as usize;
        #[expect(unsafe_code, reason = "a ring that is shared with the kernel")]
        // SAFETY: the index is less than the size, and so many entries follow this offset in the mapping.
        unsafe {
            self.memory.at.as_ptr().add(self.at.desc as usize).cast::<T>().add(index)
        }
    }

    /// As producer: adds an entry, which the kernel sees after the next [`publish`](Self::publish). Returns
    /// whether there was room.
    pub(crate) fn push(&mut self, entry: T) -> bool {
        if self.own.wrapping_sub(self.load(self.at.consumer)) >= self.size {
            return false;
        }
        #[expect(unsafe_code, reason = "a ring that is shared with the kernel")]
        // SAFETY: the entry is aligned and in the mapping, and the kernel does not read it yet.
        unsafe {
            self.entry(self.own).write_volatile(entry);
        }
        self.own = self.own.wrapping_add(1);
        true
    }

    /// As producer: passes on what was added.
    pub(crate) fn publish(&self) {
        self.store(self.at.producer);
    }

    /// As producer: how many entries the kernel has not taken yet.
    pub(crate) fn untaken(&self) -> u32 {
        self.own.wrapping_sub(self.load(self.at.consumer)).min(self.size)
    }

    /// As producer: whether the kernel must be called to take what was added.
    pub(crate) fn needs_wakeup(&self) -> bool {
        self.load(self.at.flags) & libc::XDP_RING_NEED_WAKEUP != 0
    }

    /// As consumer: the entry that is so many behind the next one, if the kernel has added it.
    pub(crate) fn peek(&self, ahead: u32) -> Option<T> {
        let filled = self.load(self.at.producer).wrapping_sub(self.own);
        if filled > self.size || ahead >= filled {
            return None;
        }
        #[expect(unsafe_code, reason = "a ring that is shared with the kernel")]
        // SAFETY: the entry is aligned and in the mapping, and the kernel does not write it until it is
        // released.
        Some(unsafe { self.entry(self.own.wrapping_add(ahead)).read_volatile() })
    }

    /// As consumer: gives entries back to the kernel.
    pub(crate) fn release(&mut self, count: u32) {
        self.own = self.own.wrapping_add(count);
        self.store(self.at.consumer);
    }
}

/// A socket that is not bound yet, its rings, and its memory.
#[derive(Debug)]
pub(crate) struct Parts {
    pub(crate) socket: OwnedFd,
    pub(crate) tx: Ring<Descriptor>,
    pub(crate) completion: Ring<u64>,
    /// The memory of packets that leave.
    pub(crate) outgoing: Area,
    pub(crate) rx: Ring<Descriptor>,
    pub(crate) fill: Ring<u64>,
    /// The memory of packets that arrive.
    pub(crate) incoming: Area,
}

/// A socket with so many chunks for each direction, a power of two: all rings have as many places, so none of
/// them is ever full.
pub(crate) fn open(chunks: u32) -> io::Result<Parts> {
    let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    #[expect(unsafe_code, reason = "system call")]
    // SAFETY: the call has no pointers, and what it returns belongs to nobody else.
    let socket = unsafe {
        let fd = libc::socket(libc::AF_XDP, kind, 0);
        check(fd)?;
        OwnedFd::from_raw_fd(fd)
    };
    let half = chunks as usize * CHUNK;
    let memory = Arc::new(Mapping::new(2 * half, None)?);
    #[expect(unsafe_code, reason = "all zero is a value")]
    // SAFETY: it is a struct of numbers.
    let mut registration: libc::xdp_umem_reg = unsafe { std::mem::zeroed() };
    registration.addr = memory.at.as_ptr().expose_provenance() as u64;
    registration.len = memory.len as u64;
    registration.chunk_size = CHUNK as u32;
    set(&socket, libc::XDP_UMEM_REG, &registration)?;
    for ring in
        [libc::XDP_UMEM_FILL_RING, libc::XDP_UMEM_COMPLETION_RING, libc::XDP_RX_RING, libc::XDP_TX_RING]
    {
        set(&socket, ring, &chunks)?;
    }
    let at = offsets(&socket)?;
    let area = |start| Area { memory: Arc::clone(&memory), start, end: start + half };
    Ok(Parts {
        tx: Ring::map(&socket, libc::XDP_PGOFF_TX_RING, at.tx, chunks)?,
        completion: Ring::map(&socket, libc::XDP_UMEM_PGOFF_COMPLETION_RING as i64, at.cr, chunks)?,
        outgoing: area(half),
        rx: Ring::map(&socket, libc::XDP_PGOFF_RX_RING, at.rx, chunks)?,
        fill: Ring::map(&socket, libc::XDP_UMEM_PGOFF_FILL_RING as i64, at.fr, chunks)?,
        incoming: area(0),
        socket,
    })
}

fn set<V>(socket: &OwnedFd, option: i32, value: &V) -> io::Result<()> {
    #[expect(unsafe_code, reason = "system call")]
    // SAFETY: the kernel reads a value of the length given, which outlives the call. The memory that a
    // registration names is kept as long as the rings that lead to it are used.
    check(unsafe {
        let len = size_of::<V>() as libc::socklen_t;
        libc::setsockopt(socket.as_raw_fd(), libc::SOL_XDP, option, (&raw const *value).cast(), len)
    })
}

fn offsets(socket: &OwnedFd) -> io::Result<libc::xdp_mmap_offsets> {
    #[expect(unsafe_code, reason = "system call")]
    // SAFETY: all zero is a value of this struct of numbers; the kernel writes as much as the length says.
    unsafe {
        let mut at: libc::xdp_mmap_offsets = std::mem::zeroed();
        let mut len = size_of_val(&at) as libc::socklen_t;
        let into = (&raw mut at).cast();
        let option = libc::XDP_MMAP_OFFSETS;
        check(libc::getsockopt(socket.as_raw_fd(), libc::SOL_XDP, option, into, &raw mut len))?;
        // Before Linux 5.4 the rings had no flags.
        if len as usize != size_of_val(&at) { Err(io::ErrorKind::Unsupported.into()) } else { Ok(at) }
    }
}

/// How packets get from and to the driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Copying {
    /// Copied by the kernel: on any interface.
    Copy,
    /// The driver uses the shared memory itself.
    Zero,
}

/// Binds a socket to a queue of an interface. `pieces` lets a packet lie in several chunks: Linux 6.6.
pub(crate) fn bind(
    socket: &OwnedFd,
    interface: u32,
    queue: u32,
    copying: Copying,
    pieces: bool,
) -> io::Result<()> {
    let how = match copying {
        Copying::Copy => libc::XDP_COPY,
        Copying::Zero => libc::XDP_ZEROCOPY,
    };
    let address = libc::sockaddr_xdp {
        sxdp_family: libc::AF_XDP as u16,
        sxdp_flags: how | libc::XDP_USE_NEED_WAKEUP | if pieces { libc::XDP_USE_SG } else { 0 },
        sxdp_ifindex: interface,
        sxdp_queue_id: queue,
        sxdp_shared_umem_fd: 0,
    };
    #[expect(unsafe_code, reason = "system call")]
    // SAFETY: the kernel reads one address of the length given, which outlives the call.
    check(unsafe {
        let len = size_of_val(&address) as libc::socklen_t;
        libc::bind(socket.as_raw_fd(), (&raw const address).cast(), len)
    })
}

/// Makes the kernel send what is in the TX ring.
pub(crate) fn wake_tx(socket: &OwnedFd) -> Result<(), Errno> {
    #[expect(unsafe_code, reason = "system call")]
    // SAFETY: the call has no pointers: there is no message and no address.
    let sent = unsafe {
        libc::sendto(socket.as_raw_fd(), std::ptr::null(), 0, libc::MSG_DONTWAIT, std::ptr::null(), 0)
    };
    if sent < 0 { Err(last_errno()) } else { Ok(()) }
}

/// Makes the kernel look at the fill ring.
pub(crate) fn wake_rx(socket: &OwnedFd) {
    #[expect(unsafe_code, reason = "system call")]
    // SAFETY: as above.
    let _ = unsafe {
        let nobody = std::ptr::null_mut();
        libc::recvfrom(
            socket.as_raw_fd(),
            std::ptr::null_mut(),
            0,
            libc::MSG_DONTWAIT,
            nobody,
            std::ptr::null_mut(),
        )
    };
}

fn last_errno() -> Errno {
    Errno::from_io_error(&io::Error::last_os_error()).unwrap_or(Errno::IO)
}
