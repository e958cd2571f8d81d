//! Who else held memory when a run was recorded: the answers to a stack's questions, see [`Witness`]. They
//! are noted with each input, and given again when it is replayed.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use taut_core::Witness;

/// Questions during one input, and which of them were answered with yes. Almost always none is: an input asks
/// none or one.
#[derive(Debug, Default)]
pub(crate) struct Answers {
    /// How many there were. All of this is used under the lock of the stack.
    asked: AtomicU32,
    held: Mutex<Vec<u32>>,
}

impl Answers {
    fn held(&self) -> MutexGuard<'_, Vec<u32>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn next(&self) -> u32 {
        let number = self.asked.load(Relaxed);
        self.asked.store(number.wrapping_add(1), Relaxed);
        number
    }

    /// Ends an input: `note` gets the numbers of the questions that were answered with yes, if there are any.
    pub(crate) fn end(&self, note: impl FnOnce(&[u32])) {
        if self.asked.load(Relaxed) == 0 {
            return;
        }
        self.asked.store(0, Relaxed);
        let mut held = self.held();
        if !held.is_empty() {
            note(&held);
            held.clear();
        }
    }

    /// How many questions of this input are answered with yes.
    #[cfg(test)]
    pub(crate) fn count(&self) -> usize {
        self.held().len()
    }

    /// Begins an input during which these questions are answered with yes.
    pub(crate) fn begin(&self, held: &[u32]) {
        self.asked.store(0, Relaxed);
        let mut given = self.held();
        given.clear();
        given.extend_from_slice(held);
    }
}

/// Notes the truth, as long as it is recorded.
#[derive(Debug)]
pub(crate) struct Notes(pub(crate) Weak<Answers>);

impl Witness for Notes {
    fn is_held(&mut self, is_held: bool) -> bool {
        if let Some(answers) = self.0.upgrade() {
            let number = answers.next();
            if is_held {
                answers.held().push(number);
            }
        }
        is_held
    }
}

/// Answers what was noted.
#[derive(Debug)]
pub(crate) struct Given(pub(crate) Arc<Answers>);

impl Witness for Given {
    fn is_held(&mut self, _: bool) -> bool {
        let number = self.0.next();
        self.0.held().contains(&number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_noted_is_answered() {
        let noted = Arc::new(Answers::default());
        let mut notes = Notes(Arc::downgrade(&noted));
        let truth = [false, true, false, false, true];
        assert!(truth.iter().all(|&is_held| notes.is_held(is_held) == is_held));
        let mut held = Vec::new();
        noted.end(|numbers| held = numbers.to_vec());
        assert_eq!(held, [1, 4]);
        noted.end(|_| panic!("the next input asked nothing"));

        let given = Arc::new(Answers::default());
        let mut answers = Given(Arc::clone(&given));
        for _ in 0..2 {
            given.begin(&held);
            assert_eq!(truth.map(|_| answers.is_held(false)), truth);
        }
        given.begin(&[]);
        assert!(!answers.is_held(true));
    }
}
