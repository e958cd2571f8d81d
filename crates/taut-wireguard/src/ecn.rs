//! Congestion marks across the tunnel: RFC 6040, "normal mode". Pure; called by both halves of the device.
//!
//! **Problem.** A router on the way sees the outer header only. Its mark must reach the inner packet's
//! receiver, and without a mark's meaning changing.
//!
//! **Rule.** The outer header has the inner one's field when a packet enters (§4.1). When it leaves, the two
//! are combined by the table of §4.2 (figure 4). The outer packet's DSCP is 0, as in Linux's `wg`.

use taut_wire::Ecn;

/// The fate of an inner packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Leaving {
    /// It stays as it is.
    Same,
    /// Its field is set.
    Set(Ecn),
    /// It is dropped: there was congestion, and its sender would not understand a mark.
    Drop,
}

/// RFC 6040 §4.2, figure 4.
pub(crate) const fn leave(outer: Ecn, inner: Ecn) -> Leaving {
    match (inner, outer) {
        (Ecn::NotEct, Ecn::Ce) => Leaving::Drop,
        (Ecn::Ect0 | Ecn::Ect1, Ecn::Ce) => Leaving::Set(Ecn::Ce),
        (Ecn::Ect0, Ecn::Ect1) => Leaving::Set(Ecn::Ect1),
        _ => Leaving::Same,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wg_8_marks_are_combined_by_figure_4_of_rfc_6040() {
        use Ecn::{Ce, Ect0, Ect1, NotEct};
        // Rows: the inner field. Columns: the outer one: Not-ECT, ECT(0), ECT(1), CE.
        let figure = [
            (NotEct, [Some(NotEct), Some(NotEct), Some(NotEct), None]),
            (Ect0, [Some(Ect0), Some(Ect0), Some(Ect1), Some(Ce)]),
            (Ect1, [Some(Ect1), Some(Ect1), Some(Ect1), Some(Ce)]),
            (Ce, [Some(Ce); 4]),
        ];
        for (inner, row) in figure {
            for (outer, expected) in [NotEct, Ect0, Ect1, Ce].into_iter().zip(row) {
                let left = match leave(outer, inner) {
                    Leaving::Same => Some(inner),
                    Leaving::Set(ecn) => Some(ecn),
                    Leaving::Drop => None,
                };
                assert_eq!(left, expected, "{inner:?} in {outer:?}");
            }
        }
    }
}
