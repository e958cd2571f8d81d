//! Which flow of UDP or ping of a guest has been idle for longest: its place goes to a new one when there is
//! no other (RFC 4787 has no limit; Linux's connection tracking drops early, too). Called by `gateway.rs`.
//!
//! **Rule.** Only a guest's own flow makes room for it. Datagrams change nothing here: an entry that has a
//! later time meanwhile is put where it belongs when it is first, once for any number of datagrams.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::logic::flows::FlowId;
use crate::logic::guests::Guest;

/// The flows of each guest, by the time at which something passed when they were last looked at.
#[derive(Debug, Default)]
pub(crate) struct Idle(BTreeSet<(Guest, Duration, FlowId)>);

impl Idle {
    pub(crate) fn insert(&mut self, guest: Guest, at: Duration, id: FlowId) {
        self.0.insert((guest, at, id));
    }

    pub(crate) fn remove(&mut self, guest: Guest, at: Duration, id: FlowId) {
        self.0.remove(&(guest, at, id));
    }

    /// The flow of this guest that is first, and the time with which it stands here.
    pub(crate) fn first(&self, guest: Guest) -> Option<(Duration, FlowId)> {
        let own = self.0.range((guest, Duration::ZERO, FlowId::FIRST)..).next();
        own.filter(|(whose, ..)| *whose == guest).map(|(_, at, id)| (*at, *id))
    }
}
