//! The state of an instance for a migration or a snapshot: `slirp_state_save` and `slirp_state_load`.
//!
//! **Rule.** The state has no flows. Sockets of the host cannot move, and libslirp, which saves its
//! connections, keeps of them only those to services of the link. After a load all flows are over: what the
//! guest still sends on a connection is answered by a reset. Leases need nothing: a client that renews its
//! address gets it.

/// The version that is saved and taken: libslirp's own, whose state is another one.
pub(crate) const VERSION: i32 = 4;

/// The state: a name, which libslirp's state does not begin with, and the length of the rest.
pub(crate) const STATE: [u8; 12] = *b"taut-slirp\0\0";

/// Whether a state is one of this library's.
pub(crate) fn is_known(version: i32, state: &[u8]) -> bool {
    (1..=VERSION).contains(&version) && state == STATE
}
