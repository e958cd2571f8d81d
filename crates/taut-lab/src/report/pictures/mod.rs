//! The list of pictures. Each has a file; all take the same variants of a run set, and return `None` when
//! none of them has the values. Called by `html.rs` and by `taut plot`.

mod blocked;
mod distributions;
mod flows;
mod goodput;
mod losses;
pub(super) mod queues;
mod sequence;
mod window;

use crate::data::RunSet;
use crate::report::figures::{Case, Figure, Shown, cases};

/// A picture's name, and the function that draws it.
type Entry = (&'static str, fn(&[Shown<'_>]) -> Option<Figure>);

/// All pictures, in the order in which a report shows them.
const ALL: [Entry; 11] = [
    ("goodput", goodput::figure),
    ("fairness", goodput::fairness),
    ("queues", queues::figure),
    ("sequence", sequence::figure),
    ("losses", losses::figure),
    ("window", window::figure),
    ("flows", flows::figure),
    ("rtt", distributions::rtt),
    ("latency", distributions::latency),
    ("bursts", distributions::bursts),
    ("blocked", blocked::figure),
];

/// Names of all pictures, in the order in which a report shows them.
pub const NAMES: [&str; ALL.len()] = {
    let mut names = [""; ALL.len()];
    let mut at = 0;
    while at < names.len() {
        names[at] = ALL[at].0;
        at += 1;
    }
    names
};

/// The pictures for which a run set has values: for each case, in the order of [`NAMES`].
#[must_use]
pub fn figures(set: &RunSet) -> Vec<Figure> {
    cases(set).iter().flat_map(of_case).collect()
}

/// The pictures of one case.
pub(crate) fn of_case(case: &Case<'_>) -> Vec<Figure> {
    let named = |figure: Figure| Figure { case: case.name.to_owned(), ..figure };
    ALL.iter().filter_map(|(_, draw)| draw(&case.shown)).map(named).collect()
}
