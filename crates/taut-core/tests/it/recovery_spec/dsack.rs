//! DSACK: what the peer received twice. RFC 2883 §4.

use crate::recovery_spec::rig::{Rig, Setup};

fn six() -> Rig {
    let mut r = Rig::open(Setup::default());
    r.send(6);
    r.at(100);
    r
}

#[test]
fn dsack_01_a_first_block_below_the_ack_or_inside_the_second() {
    let reported = |upto: u32, blocks: &[(u32, u32)]| {
        let mut r = six();
        r.ack(upto, blocks);
        r.stack.counters().tcp_dsack_recv
    };
    assert_eq!(reported(3, &[(1, 2)]), 1, "§4.1.1");
    assert_eq!(reported(3, &[(2, 3)]), 1, "up to the ACK");
    assert_eq!(reported(3, &[(2, 4)]), 0, "beyond it");
    assert_eq!(reported(0, &[(2, 3), (2, 5)]), 1, "§4.1.3");
    assert_eq!(reported(0, &[(4, 5), (2, 5)]), 1);
    assert_eq!(reported(0, &[(1, 3), (2, 5)]), 0, "only partly inside");
    assert_eq!(reported(0, &[(4, 6), (2, 5)]), 0);
    assert_eq!(reported(0, &[(2, 5), (4, 5)]), 0, "only the first block");
    assert_eq!(reported(0, &[(4, 7), (3, 8)]), 0, "never sent");
}

#[test]
fn dsack_02_it_delivers_nothing() {
    let mut r = six();
    r.ack(3, &[]);
    let delivered = r.info().delivered;
    r.ack(3, &[(1, 2)]);
    assert_eq!((r.info().delivered, r.info().sacked), (delivered, 0));
    // Inside the second block, that alone counts.
    r.ack(3, &[(4, 5), (4, 6)]);
    assert_eq!((r.info().delivered, r.info().sacked), (delivered + 2, 2));
}
