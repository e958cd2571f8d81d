//! The load of others: the cores that other processes use while the comparison measures.
//!
//! From `proc_stat(5)` and `proc_pid_stat(5)`: the time during which the machine's processors are not idle,
//! minus that of this process. Both count in ticks of 10 ms, so a span of less than a second says little.
//! Called by `mod.rs`.

use std::fs;

use crate::shared::clock::Stopwatch;

/// `USER_HZ`, which is 100 on every Linux that has these files.
const TICKS_PER_SECOND: f64 = 100.0;

/// CPU time at one moment. Without `/proc`, nothing is known.
#[derive(Clone, Copy)]
pub(super) struct Load {
    watch: Stopwatch,
    others_ticks: Option<f64>,
}

impl Load {
    pub(super) fn start() -> Self {
        Self { watch: Stopwatch::start(), others_ticks: now() }
    }

    /// Cores that other processes have used since the start.
    pub(super) fn others_cores(self) -> Option<f64> {
        let ticks = now()? - self.others_ticks?;
        // Below zero by the rounding to ticks only.
        Some((ticks / TICKS_PER_SECOND / self.watch.elapsed().as_secs_f64()).max(0.0))
    }
}

fn now() -> Option<f64> {
    let machine = busy_ticks(&fs::read_to_string("/proc/stat").ok()?)?;
    Some(machine - own_ticks(&fs::read_to_string("/proc/self/stat").ok()?)?)
}

/// Of all processors together, the time that a hypervisor gave to other machines included.
fn busy_ticks(stat: &str) -> Option<f64> {
    let mut fields = stat.lines().next()?.split_whitespace();
    (fields.next()? == "cpu").then_some(())?;
    let ticks: Vec<f64> = fields.map_while(|field| field.parse().ok()).collect();
    // user nice system idle iowait irq softirq steal; what follows is counted in these already.
    let [user, nice, system, _idle, _iowait, irq, softirq, steal] = *ticks.first_chunk()?;
    Some(user + nice + system + irq + softirq + steal)
}

/// Of all threads of a process, those that have ended included.
fn own_ticks(stat: &str) -> Option<f64> {
    // The name of the program, in parentheses, may have spaces. After it come `state` and ten numbers, then
    // the times.
    let (_, after) = stat.rsplit_once(')')?;
    let mut times = after.split_whitespace().skip(11).map_while(|field| field.parse::<f64>().ok());
    Some(times.next()? + times.next()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn busy_and_own_time_are_the_fields_of_the_manual() {
        // proc_stat(5): 1 idle and 2 iowait are not busy, 64 and 128 of guests are in user and nice.
        let stat = "cpu  4 8 16 1 2 32 256 512 64 128\ncpu0 9 9 9 9 9 9 9 9 9 9\n";
        assert_eq!(busy_ticks(stat), Some(828.0));
        // proc_pid_stat(5): utime is field 14, stime 15, and those of children follow.
        let stat = "3 (a b) c) S 4 5 6 7 8 9 10 11 12 13 1400 15 16 17 18\n";
        assert_eq!(own_ticks(stat), Some(1415.0));
        for broken in ["", "cpu", "cpu 1 2 3", "intr 1 2 3 4 5 6 7 8"] {
            assert_eq!(busy_ticks(broken), None, "{broken}");
        }
        assert_eq!(own_ticks("3 (a) S 4"), None);
    }

    #[test]
    fn another_process_counts_and_this_one_does_not() {
        let load = Load::start();
        let one = std::time::Duration::from_secs(1);
        let mut other = std::process::Command::new("sh").args(["-c", "while :; do :; done"]).spawn().unwrap();
        std::thread::sleep(one);
        let beside = load.others_cores();
        other.kill().unwrap();
        other.wait().unwrap();
        // It shares the processors with whatever else runs, so it gets a part of one.
        let beside = beside.unwrap();
        assert!(beside > 0.2, "{beside}");
        // This process' own loop: the machine's and its own time rise alike. However long it takes for so
        // many ticks of its own: what counts as others' is in the machine's beside them.
        let machine = || busy_ticks(&fs::read_to_string("/proc/stat").unwrap()).unwrap();
        let own = || own_ticks(&fs::read_to_string("/proc/self/stat").unwrap()).unwrap();
        let (machine_before, load, own_before, watch) = (machine(), Load::start(), own(), Stopwatch::start());
        while own() - own_before < 50.0 {}
        let (mine, seconds) = (own() - own_before, watch.elapsed().as_secs_f64());
        let others = load.others_cores().unwrap() * seconds * 100.0;
        let busy = machine() - machine_before;
        assert!(
            others + mine <= busy + 10.0,
            "{others} ticks of others, {mine} of its own, {busy} of the machine"
        );
    }
}
