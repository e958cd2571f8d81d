//! The owners of four-tuples: tables of connections, half-open connections, TIME-WAIT entries and flows, and
//! the index over them. Called by the stack for each packet.

use crate::config::StackConfig;
use crate::stack::incoming::FlowTable;
use crate::stack::opening::half_open::HalfOpenTable;
use crate::stack::tables::demux::{Demux, Owner};
use crate::stack::tables::table::Table;
use crate::stack::tables::time_wait::TimeWaitTable;
use crate::words::Tuple;

/// All owners of tuples.
#[derive(Debug)]
pub(crate) struct Tables {
    pub(crate) conns: Table,
    pub(crate) half_open: HalfOpenTable,
    pub(crate) time_wait: TimeWaitTable,
    pub(crate) flows: FlowTable,
    pub(crate) demux: Demux,
}

impl Tables {
    pub(crate) fn new(demux_key: (u64, u64), config: &StackConfig) -> Self {
        Self {
            conns: Table::new(),
            half_open: HalfOpenTable::new(),
            time_wait: TimeWaitTable::new(config.max_tw_buckets, config.time_wait),
            flows: FlowTable::new(),
            demux: Demux::new(demux_key),
        }
    }

    /// The owner of `tuple`.
    pub(crate) fn find(&mut self, tuple: &Tuple) -> Option<Owner> {
        let Self { conns, half_open, time_wait, flows, demux } = self;
        demux.find(tuple, |owner| tuple_of(conns, half_open, time_wait, flows, owner))
    }

    /// Adds an owner whose tuple is in no table yet.
    pub(crate) fn insert(&mut self, tuple: &Tuple, owner: Owner) {
        let Self { conns, half_open, time_wait, flows, demux } = self;
        demux.insert(tuple, owner, |owner| tuple_of(conns, half_open, time_wait, flows, owner));
    }
}

fn tuple_of(
    conns: &Table,
    half_open: &HalfOpenTable,
    time_wait: &TimeWaitTable,
    flows: &FlowTable,
    owner: Owner,
) -> Option<Tuple> {
    match owner {
        Owner::Conn(slot) => conns.at(slot).map(|conn| conn.tuple),
        Owner::HalfOpen(slot) => half_open.at(slot).map(|entry| entry.tuple),
        Owner::TimeWait(slot) => {
            time_wait.get(slot).map(|entry| Tuple { local: entry.local, peer: entry.peer })
        }
        Owner::Flow(slot) => flows.at(slot).map(|flow| flow.tuple),
    }
}
