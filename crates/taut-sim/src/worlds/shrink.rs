//! Makes a failing world smaller: leaves out one feature after another, as long as the world still fails in
//! the same way. Each feature draws from its own random numbers, so the rest stays as it was.

use super::plan::{Feature, Plan, Without};
use super::run::run;

/// The smallest failing world that is found by leaving out features one by one; `plan` if it does not fail.
/// Each call of `progress` gets the plan that is tried next.
#[must_use]
pub fn shrink(plan: &Plan, mut progress: impl FnMut(&Plan)) -> Plan {
    let mut smallest = plan.clone();
    let Some(failure) = run(plan).failure else { return smallest };
    // Twice: a feature that was needed may not be when others are gone.
    for _ in 0..2 {
        for &feature in Feature::ALL {
            if smallest.without.0.contains(&feature) {
                continue;
            }
            let mut without = smallest.without.clone();
            without.0.push(feature);
            let smaller = Plan::new(plan.seed, &Without(without.0));
            progress(&smaller);
            if run(&smaller).failure.is_some_and(|other| other.kind == failure.kind) {
                smallest = smaller;
            }
        }
    }
    smallest
}
