//! Records (`MSG_EOR`) on the wire: Linux 6.18's packets for the same calls.

use crate::support;

use support::trace::{Offer, Trace};
use taut_core::{SetOption, WriteFlags};
use taut_wire::Flags;

/// Writes a record of `len` bytes.
fn record(t: &mut Trace, len: usize) {
    let now = t.now;
    let flags = WriteFlags { eor: true, ..WriteFlags::default() };
    assert_eq!(t.conn().write_with(now, &vec![0; len], flags), Ok(len));
}

/// Three segments are in flight and wait for an ACK, so what is written now leaves later, all at once.
fn full() -> Trace {
    let mut t = Trace::accepted(Offer { win: 3_000, ..Offer::EASY });
    t.write(3_000);
    for at in [1, 1_001, 2_001] {
        expect!(t, ".", seq(at), len(1_000));
    }
    t
}

#[test]
fn each_record_is_pushed() {
    let mut t = full();
    let now = t.now;
    t.conn().set_option(now, SetOption::Nodelay(true)).unwrap();
    for len in [100, 200, 300] {
        record(&mut t, len);
    }
    expect_nothing!(t);
    inject!(t, ".", seq(1), ack(3_001), win(3_000));
    for (at, len) in [(3_001, 100), (3_101, 200), (3_301, 300)] {
        assert!(expect!(t, ".", seq(at), len(len)).flags.contains(Flags::PSH), "{at}");
    }
    expect_nothing!(t);
}
