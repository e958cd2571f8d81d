//! Descriptors that pass from one process to another. `unix(7)`. Called by `outside.rs`, and by the doors for
//! what is opened in a guest's namespace.

use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, recvmsg, sendmsg,
};

/// The most descriptors of a message.
const DESCRIPTORS: usize = 4;

/// Sends bytes, and four descriptors at most.
pub(crate) fn send(to: impl AsFd, bytes: &[u8], descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() {
        control.push(SendAncillaryMessage::ScmRights(descriptors));
    }
    sendmsg(to, &[IoSlice::new(bytes)], &mut control, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// Receives bytes, and the descriptors that came with them.
pub(crate) fn receive(
    from: impl AsFd,
    into: &mut [u8],
) -> io::Result<(usize, [Option<OwnedFd>; DESCRIPTORS])> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut bytes = [io::IoSliceMut::new(into)];
    let message = recvmsg(from, &mut bytes, &mut control, RecvFlags::CMSG_CLOEXEC)?;
    let descriptors = control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut descriptors) => {
            Some([(); DESCRIPTORS].map(|()| descriptors.next()))
        }
        _ => None,
    });
    Ok((message.bytes, descriptors.unwrap_or_default()))
}
