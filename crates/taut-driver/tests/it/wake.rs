//! No driver overlooks a device's waker. The stack has no connection, and therefore no timer that could hide
//! a mistake.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Poll, Wake, Waker};
use std::thread;
use std::time::Duration;

use taut_core::{LinkCaps, Network, NetworkChange, RxChecksum, Stack, StackConfig, TxPacket, TxTicket};
use taut_driver::{
    Access, Clock, Device, DriverThread, Interest, News, Received, RxDevice, Sent, Shard, TxDevice, WaitKey,
    portable,
};

use crate::hosts;

/// The packets that are posted at least.
const POSTS_MIN: u64 = 1_000;
/// Longer than a machine that is not stuck lets a thread wait.
const PATIENCE: Duration = Duration::from_secs(30);
/// How long the device calls each driver.
const STRESS: Duration = Duration::from_secs(2);

/// Counts what was posted to the stack and what it took.
#[derive(Default)]
struct Post {
    posted: AtomicU64,
    taken: AtomicU64,
    waker: OnceLock<Waker>,
}

struct Tx;

impl TxDevice for Tx {
    fn news(&mut self, _: &Waker) -> io::Result<News> {
        Ok(News::Waker)
    }

    fn send(&mut self, _: &TxPacket<'_>, ticket: TxTicket) -> Sent {
        Sent::Left(ticket)
    }
}

struct Rx(Arc<Post>);

impl RxDevice for Rx {
    fn news(&mut self, waker: &Waker) -> io::Result<News> {
        self.0.waker.get_or_init(|| waker.clone());
        Ok(News::Waker)
    }

    /// No packet that a stack knows, so it answers nothing.
    fn recv(&mut self, _: &mut Vec<u8>) -> io::Result<Option<Received>> {
        let taken = self.0.taken.load(Ordering::SeqCst);
        if taken == self.0.posted.load(Ordering::SeqCst) {
            return Ok(None);
        }
        self.0.taken.store(taken + 1, Ordering::SeqCst);
        Ok(Some(Received { range: 0..1, checksum: RxChecksum::Verified, gso_size: 0 }))
    }
}

fn shard() -> (Arc<Shard>, Arc<Post>) {
    let post = Arc::new(Post::default());
    let device = Device::new(LinkCaps::plain(1500), Tx, Rx(Arc::clone(&post)));
    let stack = Stack::new(Arc::new(StackConfig::default()), device.caps, [1; 32]);
    (Arc::new(Shard::new(stack, device).unwrap()), post)
}

/// Posts one packet after the other from two threads, each when all before were taken: while the driver is
/// about to sleep.
fn stress(post: &Arc<Post>) {
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        for pause in [0, 7_u32] {
            let over = &over;
            scope.spawn(move || {
                let start = Clock.now();
                let mut number = 0_u32;
                // On a busy machine it takes longer.
                let goes_on = || {
                    Clock.now().since(start) < STRESS.into() || post.posted.load(Ordering::SeqCst) < POSTS_MIN
                };
                while !over.load(Ordering::SeqCst) && goes_on() {
                    let mine = post.posted.fetch_add(1, Ordering::SeqCst) + 1;
                    post.waker.get().unwrap().wake_by_ref();
                    let posted = Clock.now();
                    while post.taken.load(Ordering::SeqCst) < mine {
                        if Clock.now().since(posted) > PATIENCE.into() {
                            over.store(true, Ordering::SeqCst);
                            return;
                        }
                        thread::yield_now();
                    }
                    number = number.wrapping_add(pause);
                    (0..number % 512).for_each(|_| std::hint::spin_loop());
                }
            });
        }
    });
    let (posted, taken) = (post.posted.load(Ordering::SeqCst), post.taken.load(Ordering::SeqCst));
    assert_eq!(taken, posted, "taken, of those that were posted");
    assert!(posted >= POSTS_MIN, "{posted} posts");
}

#[test]
fn the_driver_thread_overlooks_no_waker() {
    let (shard, post) = shard();
    let _driver = DriverThread::spawn(shard, "driver").unwrap();
    stress(&post);
}

#[test]
fn the_parked_thread_overlooks_no_waker() {
    let (shard, post) = shard();
    let _driver = portable::spawn(shard, "driver").unwrap();
    stress(&post);
}

/// A waker that counts its calls.
#[derive(Default)]
struct Calls(AtomicU64);

impl Wake for Calls {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

/// One that waits until no connection is left is woken once, by the last one; one that waits for a change of
/// the addresses, by that alone.
#[test]
fn the_last_connection_and_a_change_of_the_network_wake_once() {
    let pair = hosts::Pair::new(LinkCaps::plain(1500), |_| {});
    let shard = &pair.near.shard;
    let [second, _] = pair.connect();
    let calls = [Interest::Idle, Interest::Network].map(|interest| {
        let calls = Arc::new(Calls::default());
        let waker = Waker::from(Arc::clone(&calls));
        let pending = |_: &mut Access<'_>| Poll::<io::Result<()>>::Pending;
        assert!(shard.poll(interest, WaitKey::unique(), &waker, pending).is_pending());
        calls
    });
    let counts = || calls.each_ref().map(|calls| calls.0.load(Ordering::SeqCst));
    pair.send(100_000, 1);
    let abort = |id| shard.access(|access| access.stack.conn_mut(id).unwrap().abort(access.now));
    abort(second);
    assert_eq!(counts(), [0, 0], "another connection is left");
    abort(pair.conns[0]);
    assert_eq!(counts(), [1, 0]);
    let other = Network { address: [10, 0, 0, 9].into(), prefix: 24 };
    shard.change_network(NetworkChange::AddAddress(other)).unwrap();
    assert_eq!(counts(), [1, 1]);
}

#[cfg(feature = "tokio")]
mod tokio_task {
    use std::net::UdpSocket;

    use tokio::runtime::{Builder, Runtime};

    use super::*;

    fn runtimes() -> [Runtime; 2] {
        let build = |mut builder: Builder| builder.enable_all().build().unwrap();
        let mut multi = Builder::new_multi_thread();
        multi.worker_threads(2);
        [build(Builder::new_current_thread()), build(multi)]
    }

    fn overlooks_nothing(portable: bool) {
        for runtime in runtimes() {
            let (shard, post) = shard();
            let theirs = Arc::clone(&shard);
            let task = thread::spawn(move || {
                runtime.block_on(async {
                    if portable {
                        taut_driver::tokio::run_portable(theirs).await
                    } else {
                        taut_driver::tokio::run(theirs).await
                    }
                })
            });
            stress(&post);
            assert!(!task.is_finished());
            shard.close();
            task.join().unwrap().unwrap();
        }
    }

    #[test]
    fn the_task_overlooks_no_waker() {
        overlooks_nothing(false);
    }

    #[test]
    fn the_portable_task_overlooks_no_waker() {
        overlooks_nothing(true);
    }

    /// Its descriptor is a socket that can be in error.
    struct Failing {
        socket: UdpSocket,
        asked: Arc<AtomicU64>,
    }

    impl TxDevice for Failing {
        fn news(&mut self, _: &Waker) -> io::Result<News> {
            Ok(News::Fd(self.socket.try_clone()?.into()))
        }

        fn send(&mut self, _: &TxPacket<'_>, ticket: TxTicket) -> Sent {
            Sent::Left(ticket)
        }

        fn poll_done(&mut self) -> Option<TxTicket> {
            self.asked.fetch_add(1, Ordering::SeqCst);
            None
        }
    }

    /// A sending half announces tickets by an error of its descriptor, for which no driver registers.
    #[test]
    fn an_error_of_the_sending_half_is_heard() {
        for runtime in runtimes() {
            let nobody = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
            let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
            socket.connect(nobody).unwrap();
            let (asked, sends) = (Arc::new(AtomicU64::new(0)), socket.try_clone().unwrap());
            let tx = Failing { socket, asked: Arc::clone(&asked) };
            let device = Device::new(LinkCaps::plain(1500), tx, Rx(Arc::default()));
            let stack = Stack::new(Arc::new(StackConfig::default()), device.caps, [1; 32]);
            let shard = Arc::new(Shard::new(stack, device).unwrap());
            let theirs = Arc::clone(&shard);
            let task = thread::spawn(move || runtime.block_on(taut_driver::tokio::run(theirs)));
            thread::sleep(Duration::from_millis(100));
            let before = asked.load(Ordering::SeqCst);
            thread::sleep(Duration::from_millis(100));
            assert_eq!(asked.load(Ordering::SeqCst), before, "a socket that can be written is no news");
            // Nobody has the port, so the socket is in error.
            sends.send(b"?").unwrap();
            let start = Clock.now();
            while asked.load(Ordering::SeqCst) == before {
                assert!(Clock.now().since(start) < PATIENCE.into(), "the error was not heard");
                thread::sleep(Duration::from_millis(1));
            }
            shard.close();
            task.join().unwrap().unwrap();
        }
    }

    /// A second driver is refused, and leaves the first one alone.
    #[test]
    fn a_shard_has_one_driver() {
        for runtime in runtimes() {
            let (shard, _) = shard();
            let _driver = portable::spawn(Arc::clone(&shard), "driver").unwrap();
            let refused = runtime.block_on(taut_driver::tokio::run(Arc::clone(&shard))).unwrap_err();
            assert_eq!(refused.kind(), io::ErrorKind::InvalidInput);
            let refused = DriverThread::spawn(Arc::clone(&shard), "second").unwrap_err();
            assert_eq!(refused.kind(), io::ErrorKind::InvalidInput);
            assert!(!shard.is_closed());
        }
    }
}
