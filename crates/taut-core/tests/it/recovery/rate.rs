//! Samples of the delivery rate, as a congestion control of one's own gets them: draft-ietf-ccwg-bbr §4.1.

use std::sync::{Arc, Mutex};

use taut_core::congestion::{AckEvent, Controller, Definition, RateSample, Signal, Window};
use taut_core::{Algorithm, Duration, Instant, StackConfig};

use crate::recovery::scene::{established, sent};
use crate::support::trace::{Offer, Trace};

type Samples = Arc<Mutex<Vec<Option<RateSample>>>>;

/// Writes down the sample of each ACK; its window stays.
#[derive(Debug)]
struct Spy(Samples);

impl Controller for Spy {
    fn observe(&mut self, ack: &AckEvent<'_>) {
        self.0.lock().unwrap().push(ack.rate.copied());
    }

    fn on_ack(&mut self, _: &mut Window, _: &AckEvent<'_>) {}

    fn reduce(&mut self, window: &Window, _: Signal, _: Instant) -> u32 {
        window.cwnd()
    }
}

/// A connection with a round trip of 100 ms and a window of ten segments of 1000 bytes, and the samples that
/// it gives.
fn spied() -> (Trace, Samples) {
    let samples = Samples::default();
    let to = samples.clone();
    let spy = Algorithm::new(Definition::new("spy", move |_| Spy(to.clone()))).unwrap();
    let config = StackConfig::default().with(|c| {
        c.congestion.control = spy;
        c.recovery.tail_loss_probes = false;
        c.recovery.frto = false;
    });
    (established(config, Offer::EASY), samples)
}

fn last(samples: &Samples) -> Option<RateSample> {
    *samples.lock().unwrap().last().expect("an ACK came")
}

#[test]
fn bbr_64_a_sample_is_what_was_delivered_in_the_longer_of_two_times() {
    let (mut t, samples) = spied();
    t.write(20_000);
    assert_eq!(sent(&mut t).len(), 10);
    t.wait_ms(100);
    // All ten left at once: only the time to acknowledge them counts.
    inject!(t, ".", ack(5_001));
    let sample = last(&samples).unwrap();
    assert_eq!((sample.delivered, sample.interval), (5, Duration::from_millis(100)));
    assert_eq!((sample.prior_delivered, sample.tx_in_flight), (0, 5));
    t.poll();
    t.wait_ms(10);
    inject!(t, ".", ack(10_001));
    let sample = last(&samples).unwrap();
    assert_eq!((sample.delivered, sample.interval), (10, Duration::from_millis(110)));
    // Five left with the first ACK, five with the second. Before the newest, the second ACK had delivered
    // ten; ten more come 100 ms after it. The newest left 110 ms after the packet of the second ACK's sample.
    t.poll();
    t.wait_ms(100);
    inject!(t, ".", ack(20_001));
    let sample = last(&samples).unwrap();
    assert_eq!((sample.delivered, sample.interval), (10, Duration::from_millis(110)));
}

#[test]
fn bbr_65_a_sample_shorter_than_the_least_round_trip_is_none() {
    // §4.1.2.3: the ACK was for another transmission. All ten are delayed; the timeout retransmits the first.
    let (mut t, samples) = spied();
    t.write(10_000);
    assert_eq!(sent(&mut t).len(), 10);
    // RFC 6298: 100 ms and four times half of that. 5 ms later the first original arrives: 1 segment since
    // the beginning.
    t.wait_ms(305);
    assert_eq!(t.info().ca_state, "loss");
    inject!(t, ".", ack(1_001));
    assert!(last(&samples).unwrap().interval >= Duration::from_millis(300));
    // That ACK sends the second again, which arrives 5 ms later: 1 segment in 5 ms, of a path of 100.
    t.poll();
    t.wait_ms(5);
    let before = samples.lock().unwrap().len();
    inject!(t, ".", ack(2_001));
    assert_eq!(samples.lock().unwrap().len(), before + 1);
    assert_eq!(last(&samples), None);
}

#[test]
fn bbr_66_a_flight_with_too_little_data_is_limited_by_the_application() {
    // §4.1.2.4: what is sent until more is delivered than was in flight when the application fell short, here
    // three.
    let (mut t, samples) = spied();
    t.write(3_000);
    t.poll();
    t.write(17_000);
    t.poll();
    t.wait_ms(100);
    // With three delivered, three more leave; with ten, seven. (Newest segment of the ACK, limited)
    for (ack, limited) in [(3_001, true), (10_001, true), (13_001, true), (20_001, false)] {
        inject!(t, ".", ack(ack));
        assert_eq!(last(&samples).unwrap().is_app_limited, limited, "{ack}");
        t.poll();
        t.wait_ms(100);
    }
}
