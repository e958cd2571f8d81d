//! `--device tap:NAME`, `stream:PATH`, `dgram:PATH`, `fd:NUMBER` and their like: devices that carry frames
//! over a descriptor.
//!
//! Called by `link.rs`.

use std::os::fd::RawFd;
use std::os::unix::fs::FileTypeExt as _;
use std::os::unix::net::{UnixDatagram, UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::{fs, io};

use anyhow::{Context as _, bail};
use taut::device::Device;
use taut_device::sys::inherited;
use taut_device::{Cidr, Frames, FramesOptions, from_descriptor};

use crate::shared::log::{self, Level};

/// Where the descriptor comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum FrameSource {
    /// A TAP interface.
    Tap(String),
    /// A stream socket that the peer has made.
    Stream(PathBuf),
    /// A stream socket that taut makes: the first peer is taken.
    StreamListen(PathBuf),
    /// A datagram socket that the peer has made.
    Datagrams(PathBuf),
    /// A datagram socket that taut makes: who sends the first frame is the peer.
    DatagramsListen(PathBuf),
    /// A descriptor that was inherited.
    Descriptor(RawFd),
}

impl FrameSource {
    /// Reads what stands in front of and behind the colon.
    pub(crate) fn parse(kind: &str, place: &str) -> Option<Self> {
        let path = || PathBuf::from(place);
        Some(match kind {
            "tap" => Self::Tap(place.to_owned()),
            "stream" => Self::Stream(path()),
            "stream-listen" => Self::StreamListen(path()),
            "dgram" => Self::Datagrams(path()),
            "dgram-listen" => Self::DatagramsListen(path()),
            "fd" => Self::Descriptor(place.parse().ok().filter(|number| *number >= 0)?),
            _ => return None,
        })
    }

    /// Whether the kernel is the peer.
    pub(crate) const fn is_interface(&self) -> bool {
        matches!(self, Self::Tap(_))
    }

    /// Opens it. Returns the device and its name. Where taut makes the socket, it waits for the peer.
    ///
    /// # Errors
    /// The reason, with the place.
    pub(crate) fn open(
        &self,
        addresses: &[Cidr],
        options: &FramesOptions,
    ) -> anyhow::Result<(Device, String)> {
        let stream = |socket| Frames::stream(socket, addresses, options).map(Device::from);
        let datagrams = |socket| Frames::datagrams(socket, addresses, options).map(Device::from);
        Ok(match self {
            Self::Tap(name) => (Frames::tap(name, addresses, options)?.into(), name.clone()),
            Self::Stream(path) => {
                let socket = UnixStream::connect(path).with_context(|| {
                    format!(
                        "cannot connect to {0}; start its peer first, or have taut make it: stream-listen:{0}",
                        path.display()
                    )
                })?;
                (stream(socket)?, path.display().to_string())
            }
            Self::StreamListen(path) => {
                let place = Place::new(path)?;
                let listener = UnixListener::bind(path).with_context(|| cannot("listen at", path))?;
                waiting(&format!("waiting for the peer at {}", path.display()));
                let (socket, _) = listener.accept().with_context(|| cannot("accept at", path))?;
                drop(place);
                (stream(socket)?, path.display().to_string())
            }
            Self::Datagrams(path) => {
                // The peer answers to an address, which the kernel chooses, without a file.
                let socket = autobound().with_context(|| cannot("make a socket for", path))?;
                socket.connect(path).with_context(|| {
                    format!(
                        "cannot connect to {0}; start its peer first, or have taut make it: dgram-listen:{0}",
                        path.display()
                    )
                })?;
                (datagrams(socket)?, path.display().to_string())
            }
            Self::DatagramsListen(path) => {
                Place::new(path)?.keep();
                let socket = UnixDatagram::bind(path).with_context(|| cannot("listen at", path))?;
                waiting(&format!("waiting for the first frame at {}", path.display()));
                let (_, peer) = socket.recv_from(&mut [0; 1]).with_context(|| cannot("receive at", path))?;
                if peer.is_unnamed() {
                    bail!(
                        "the peer at {} has no address of its own, so nothing can be sent to it; have it bind its socket",
                        path.display()
                    );
                }
                socket.connect_addr(&peer).with_context(|| cannot("answer the peer at", path))?;
                (datagrams(socket)?, path.display().to_string())
            }
            Self::Descriptor(number) => {
                let descriptor = inherited(*number)
                    .with_context(|| format!("no descriptor {number} was handed to this program"))?;
                (from_descriptor(descriptor, addresses, options)?, format!("descriptor {number}"))
            }
        })
    }
}

fn waiting(text: &str) {
    log::notice(Level::Info, "waiting", text);
}

fn cannot(what: &str, path: &Path) -> String {
    format!("cannot {what} {}", path.display())
}

/// A socket with an address that the kernel has chosen: `unix(7)`, "Autobind".
fn autobound() -> io::Result<UnixDatagram> {
    use std::os::linux::net::SocketAddrExt as _;
    use std::os::unix::net::SocketAddr;

    // The standard library has no autobind: a name that nobody else has does the same.
    let name = format!("taut-{}", std::process::id());
    UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(name)?)
}

/// A place for a socket: what a program that has ended left there is removed, and so is the file at the end.
struct Place<'a>(Option<&'a Path>);

impl<'a> Place<'a> {
    fn new(path: &'a Path) -> anyhow::Result<Self> {
        match fs::symlink_metadata(path) {
            Err(_) => {}
            Ok(found) if !found.file_type().is_socket() => {
                bail!("{} exists and is no socket; choose another path", path.display())
            }
            Ok(_) if UnixStream::connect(path).is_ok() => {
                bail!("{} is in use by another program; choose another path", path.display())
            }
            Ok(_) => fs::remove_file(path).with_context(|| cannot("remove the old socket", path))?,
        }
        Ok(Self(Some(path)))
    }

    /// The file stays: the peer sends to it.
    fn keep(mut self) {
        self.0 = None;
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        if let Some(path) = self.0 {
            let _ = fs::remove_file(path);
        }
    }
}
