//! A part of a task that is polled only when something woke it, and not whenever its task is.
//!
//! A connection's task waits for both ways at once. A response wakes the way down; without this, the way up
//! would look for bytes of the guest, too, which takes the stack's lock.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};

/// A future with a waker of its own.
pub(crate) struct Apart<'a, F> {
    work: Pin<&'a mut F>,
    call: Option<Arc<Call>>,
}

struct Call {
    task: Waker,
    woken: AtomicBool,
}

impl<'a, F: Future> Apart<'a, F> {
    pub(crate) const fn new(work: Pin<&'a mut F>) -> Self {
        Self { work, call: None }
    }
}

impl<F: Future> Future for Apart<'_, F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let call = match &self.call {
            Some(call) if call.task.will_wake(cx.waker()) => {
                if !call.woken.swap(false, Ordering::AcqRel) {
                    return Poll::Pending;
                }
                Arc::clone(call)
            }
            // The first time, or somebody else polls now.
            _ => {
                let call = Arc::new(Call { task: cx.waker().clone(), woken: AtomicBool::new(false) });
                self.call = Some(Arc::clone(&call));
                call
            }
        };
        self.work.as_mut().poll(&mut Context::from_waker(&Waker::from(call)))
    }
}

impl Wake for Call {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.woken.store(true, Ordering::Release);
        self.task.wake_by_ref();
    }
}

#[cfg(test)]
mod tests {
    use std::cell::{Cell, RefCell};
    use std::future::poll_fn;
    use std::pin::pin;

    use super::*;

    #[derive(Default)]
    struct Count(std::sync::atomic::AtomicU32);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn it_is_polled_when_it_was_woken_and_when_another_task_polls() {
        let (polls, waker) = (Cell::new(0), RefCell::new(None));
        let work = pin!(poll_fn(|cx| {
            polls.set(polls.get() + 1);
            waker.replace(Some(cx.waker().clone()));
            if polls.get() == 4 { Poll::Ready(7) } else { Poll::Pending }
        }));
        let mut apart = pin!(Apart::new(work));
        let (first, second) = (Arc::new(Count::default()), Arc::new(Count::default()));
        let mut poll =
            |task: &Arc<Count>| apart.as_mut().poll(&mut Context::from_waker(&Waker::from(Arc::clone(task))));
        assert_eq!((poll(&first), polls.get()), (Poll::Pending, 1));
        assert_eq!((poll(&first), polls.get()), (Poll::Pending, 1));
        waker.take().unwrap().wake();
        assert_eq!(first.0.load(Ordering::Relaxed), 1);
        assert_eq!((poll(&first), polls.get()), (Poll::Pending, 2));
        // Another waker: what was registered would wake the one before.
        assert_eq!((poll(&second), polls.get()), (Poll::Pending, 3));
        assert_eq!((poll(&second), polls.get()), (Poll::Pending, 3));
        waker.take().unwrap().wake_by_ref();
        assert_eq!((first.0.load(Ordering::Relaxed), second.0.load(Ordering::Relaxed)), (1, 1));
        assert_eq!((poll(&second), polls.get()), (Poll::Ready(7), 4));
    }
}
