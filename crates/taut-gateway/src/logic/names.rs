//! Which names a guest has been told for an address: what rules with names are checked against.
//!
//! An address stays known for as long as its record lives, and for five minutes at least, because programs
//! keep what they have resolved; for a day at most. There are 1,024 pairs for each guest, and 64 guests with
//! any. Beyond that, those whose time is over first go: a rule that allows a name then fails closed, and the
//! guest must ask again. Called by `gateway.rs`.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use crate::logic::guests::Guest;

const LEAST: Duration = Duration::from_secs(300);
const MOST: Duration = Duration::from_secs(86_400);
pub(crate) const MAX_PAIRS: usize = 1_024;
pub(crate) const MAX_GUESTS: usize = 64;

/// The names of all guests.
#[derive(Debug, Default)]
pub(crate) struct Names(BTreeMap<Guest, Told>);

#[derive(Debug, Default)]
struct Told {
    until: BTreeMap<(IpAddr, Arc<str>), Duration>,
    by_end: BTreeSet<(Duration, IpAddr, Arc<str>)>,
}

impl Names {
    /// A guest has been told that a name has this address, for `ttl`.
    pub(crate) fn learn(
        &mut self,
        now: Duration,
        guest: Guest,
        name: &Arc<str>,
        address: IpAddr,
        ttl: Duration,
    ) {
        if !self.0.contains_key(&guest) && self.0.len() >= MAX_GUESTS {
            let first = |told: &Told| told.by_end.last().map(|(end, ..)| *end);
            let oldest = self.0.iter().min_by_key(|(_, told)| first(told)).map(|(guest, _)| *guest);
            oldest.map(|guest| self.0.remove(&guest));
        }
        let told = self.0.entry(guest).or_default();
        let end = now + ttl.clamp(LEAST, MOST);
        let pair = (address, Arc::clone(name));
        if let Some(before) = told.until.get(&pair).copied() {
            if before >= end {
                return;
            }
            told.by_end.remove(&(before, address, Arc::clone(name)));
        }
        told.until.insert(pair, end);
        told.by_end.insert((end, address, Arc::clone(name)));
        while told.until.len() > MAX_PAIRS
            && let Some((_, address, name)) = told.by_end.pop_first()
        {
            told.until.remove(&(address, name));
        }
    }

    /// The names of an address that the guest may still use.
    pub(crate) fn of(
        &self,
        now: Duration,
        guest: Guest,
        address: IpAddr,
    ) -> impl Iterator<Item = &str> + Clone {
        let first = (address, Arc::from(""));
        let told = self.0.get(&guest).map(|told| told.until.range(first..));
        told.into_iter()
            .flatten()
            .take_while(move |((own, _), _)| *own == address)
            .filter(move |(_, until)| **until > now)
            .map(|((_, name), _)| &**name)
    }
}
