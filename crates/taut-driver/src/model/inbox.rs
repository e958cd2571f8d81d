//! Packets that shards hand over to another: the owner hears of each.

use std::sync::Arc;

use loom::thread;
use taut_core::RxChecksum;

use super::{check, here, sleep};
use crate::device::Received;
use crate::shard::handover::Inbox;
use crate::wake::call::{Call, Ear};

fn put(inbox: &Inbox) {
    let received = Received { range: 0..1, checksum: RxChecksum::Verified, gso_size: 0 };
    assert!(inbox.put(&[1], &received));
}

/// Two shards hand over two packets each; the owner sleeps until it is called, and takes what there is, or at
/// most `most` and comes again.
fn the_owner_gets_all(most: usize) {
    check(3, move || {
        let call = Arc::new(Call::default());
        let inbox = Arc::new(Inbox::new(Arc::clone(&call)));
        let shards = [1, 2].map(|_| {
            let inbox = Arc::clone(&inbox);
            thread::spawn(move || (0..2).for_each(|_| put(&inbox)))
        });
        let (me, waker) = here();
        call.listen(Ear::Waker(waker));
        let mut got = 0;
        while got < 4 {
            sleep(&me);
            loop {
                let taken = inbox.take(most).len();
                got += taken;
                if taken < most {
                    break;
                }
            }
        }
        shards.into_iter().for_each(|shard| shard.join().unwrap());
        assert_eq!((got, inbox.take(most).len()), (4, 0));
    });
}

#[test]
fn an_owner_that_sleeps_gets_all_packets() {
    the_owner_gets_all(64);
}

#[test]
fn an_owner_that_takes_a_part_gets_the_rest() {
    the_owner_gets_all(1);
}

/// What stays announced until it is drained, as a descriptor does, shows exactly whether packets wait: a
/// descriptor that stayed readable would keep the driver busy for nothing, and one that did not would let
/// packets wait.
#[test]
fn the_announcement_agrees_with_the_inbox() {
    check(3, || {
        let call = Arc::new(Call::default());
        let inbox = Arc::new(Inbox::new(Arc::clone(&call)));
        let shard = {
            let inbox = Arc::clone(&inbox);
            thread::spawn(move || (0..2).for_each(|_| put(&inbox)))
        };
        let taken: usize = (0..2).map(|_| inbox.take(64).len()).sum();
        shard.join().unwrap();
        assert_eq!(call.drain(), taken < 2, "{taken} of 2 packets taken");
        assert_eq!(inbox.take(64).len(), 2 - taken);
    });
}
