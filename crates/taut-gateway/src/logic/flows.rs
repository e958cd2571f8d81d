//! Flows by name, and which of them must end.
//!
//! A name is a place in a table and a serial number: it is found at once, however many flows there are, and
//! once its flow is gone it is no name of the one that has the place then. Two tables have the same places:
//! what the gateway knows of a flow ([`Flows`]), and whether its task must end ([`Stops`]), which only the
//! runner knows.

use std::task::{Poll, Waker};

use slab::Slab;

/// A table this small is kept when it is empty.
const KEPT: usize = 64;

/// A flow of this gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct FlowId {
    serial: u32,
    place: u32,
}

impl FlowId {
    /// None comes before it.
    pub(crate) const FIRST: Self = Self { serial: 0, place: 0 };
}

/// The table of flows.
#[derive(Debug)]
pub(crate) struct Flows<T> {
    places: Slab<(u32, T)>,
    serial: u32,
}

impl<T> Default for Flows<T> {
    fn default() -> Self {
        Self { places: Slab::new(), serial: 0 }
    }
}

impl<T> Flows<T> {
    /// Adds a flow, and names it.
    pub(crate) fn insert(&mut self, flow: T) -> FlowId {
        self.serial = self.serial.wrapping_add(1);
        let entry = self.places.vacant_entry();
        let id = FlowId { serial: self.serial, place: entry.key() as u32 };
        entry.insert((id.serial, flow));
        id
    }

    pub(crate) fn get(&self, id: FlowId) -> Option<&T> {
        self.places.get(id.place as usize).filter(|(serial, _)| *serial == id.serial).map(|(_, flow)| flow)
    }

    pub(crate) fn get_mut(&mut self, id: FlowId) -> Option<&mut T> {
        let entry = self.places.get_mut(id.place as usize);
        entry.filter(|(serial, _)| *serial == id.serial).map(|(_, flow)| flow)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (FlowId, &T)> {
        self.places
            .iter()
            .map(|(place, (serial, flow))| (FlowId { serial: *serial, place: place as u32 }, flow))
    }

    /// The flows at the places from this one on, in their order.
    pub(crate) fn at(&self, place: usize) -> impl Iterator<Item = (usize, &T)> {
        let all = place..self.places.capacity();
        all.filter_map(|place| Some((place, &self.places.get(place)?.1)))
    }

    pub(crate) fn remove(&mut self, id: FlowId) -> Option<T> {
        self.get(id)?;
        let (_, flow) = self.places.remove(id.place as usize);
        if self.places.is_empty() && self.places.capacity() > KEPT {
            // After a peak the memory goes back.
            self.places.shrink_to_fit();
        }
        Some(flow)
    }
}

/// Whether a flow's task must end.
#[derive(Debug, Default)]
enum Stop {
    /// No task has this place.
    #[default]
    Free,
    /// It goes on, and has not asked.
    Runs,
    /// It goes on, and wants to hear.
    Waits(Waker),
    /// It must end.
    Ends,
}

/// Which flows' tasks must end. All names are of flows that [`Flows`] knows. Wakers are returned to the
/// caller, who uses or drops them without the lock: that may drop a whole task.
#[derive(Debug, Default)]
pub(crate) struct Stops {
    places: Vec<Stop>,
    taken: usize,
}

impl Stops {
    /// A task has this flow now.
    pub(crate) fn begin(&mut self, id: FlowId) {
        let place = id.place as usize;
        if place >= self.places.len() {
            self.places.resize_with(place + 1, Stop::default);
        }
        self.places[place] = Stop::Runs;
        self.taken += 1;
    }

    /// It has it no more.
    pub(crate) fn remove(&mut self, id: FlowId) -> Option<Waker> {
        let stop = std::mem::take(self.places.get_mut(id.place as usize)?);
        self.taken -= usize::from(!matches!(stop, Stop::Free));
        if self.taken == 0 && self.places.capacity() > KEPT {
            self.places = Vec::new();
        }
        match stop {
            Stop::Waits(waker) => Some(waker),
            _ => None,
        }
    }

    /// Whether the task must end; if not, it is woken when it must. Returns also the waker that this one
    /// replaces.
    pub(crate) fn poll(&mut self, id: FlowId, waker: &Waker) -> (Poll<()>, Option<Waker>) {
        let Some(stop) = self.places.get_mut(id.place as usize) else { return (Poll::Pending, None) };
        match stop {
            Stop::Ends => (Poll::Ready(()), None),
            Stop::Waits(known) if known.will_wake(waker) => (Poll::Pending, None),
            Stop::Free | Stop::Runs | Stop::Waits(_) => {
                match std::mem::replace(stop, Stop::Waits(waker.clone())) {
                    Stop::Waits(known) => (Poll::Pending, Some(known)),
                    _ => (Poll::Pending, None),
                }
            }
        }
    }

    /// It need not end after all.
    pub(crate) fn continues(&mut self, id: FlowId, waker: &Waker) {
        if let Some(stop) = self.places.get_mut(id.place as usize) {
            *stop = Stop::Waits(waker.clone());
        }
    }

    /// The waker of this flow's task; one that has none yet will look by itself.
    pub(crate) fn waker(&self, id: FlowId) -> Option<Waker> {
        match self.places.get(id.place as usize)? {
            Stop::Waits(waker) => Some(waker.clone()),
            _ => None,
        }
    }

    /// This flow's task must end.
    pub(crate) fn end(&mut self, id: FlowId) -> Option<Waker> {
        end(self.places.get_mut(id.place as usize)?)
    }

    /// All must.
    pub(crate) fn end_all(&mut self) -> Vec<Waker> {
        self.places.iter_mut().filter_map(end).collect()
    }
}

fn end(stop: &mut Stop) -> Option<Waker> {
    match stop {
        Stop::Free => None,
        stop => match std::mem::replace(stop, Stop::Ends) {
            Stop::Waits(waker) => Some(waker),
            _ => None,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gw_93_a_name_is_of_one_flow_only() {
        let mut flows = Flows::default();
        let names: Vec<FlowId> = (0..3).map(|number| flows.insert(number)).collect();
        assert_eq!(flows.remove(names[1]), Some(1));
        let next = flows.insert(9);
        assert_eq!((next.place, flows.get(next)), (names[1].place, Some(&9)));
        assert!(flows.get(names[1]).is_none() && flows.get_mut(names[1]).is_none());
        assert!(flows.remove(names[1]).is_none());
        assert_eq!([names[0], names[2]].map(|name| flows.get(name).copied()), [Some(0), Some(2)]);
    }

    #[test]
    fn gw_93_a_task_hears_that_it_must_end_whenever_it_asks() {
        let mut flows = Flows::default();
        let [early, late, other] = [(); 3].map(|()| flows.insert(()));
        let (mut stops, waker) = (Stops::default(), Waker::noop());
        for id in [early, late, other] {
            stops.begin(id);
        }
        assert!(stops.poll(early, waker).0.is_pending());
        // One asks before, the other one afterwards, and each as often as it likes.
        assert!(stops.end(early).is_some() && stops.end(late).is_none());
        for id in [early, late, early, late] {
            assert!(stops.poll(id, waker).0.is_ready());
        }
        assert!(stops.poll(other, waker).0.is_pending());
        // The next flow at this place goes on.
        stops.remove(early);
        stops.begin(early);
        assert!(stops.poll(early, waker).0.is_pending());
        assert_eq!(stops.end_all().len(), 2);
        assert!([early, late, other].iter().all(|id| stops.poll(*id, waker).0.is_ready()));
    }

    #[test]
    fn gw_93_memory_goes_back_when_all_are_gone() {
        let (mut flows, mut stops) = (Flows::default(), Stops::default());
        let names: Vec<FlowId> = (0..1_000).map(|_| flows.insert([0_u8; 80])).collect();
        names.iter().for_each(|id| stops.begin(*id));
        for id in names {
            stops.remove(id);
            flows.remove(id);
        }
        assert_eq!((flows.places.capacity(), stops.places.capacity()), (0, 0));
    }
}
