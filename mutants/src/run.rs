//! Runs tests with an edit on, until one fails.
//!
//! A first run without any edit times every test and records which edits it reaches; then only those tests run that reach
//! the edit, and that take less than `--slowest`. A run may take five times the processor time of the same
//! tests without an edit, and two seconds: processor time, so that a stopped or busy machine kills nothing.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, bail};

use crate::compile::Program;

const TIMES_CLEAN: f64 = 5.0;
const LEAST_SECONDS: f64 = 2.0;
/// What a test may allocate, in KiB: an edit that grows without bound ends here.
const MEMORY_KIB: u64 = 4 << 20;

/// How an edit was noticed, or not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// By this test.
    Killed(String),
    /// A test did not end, or crashed: the program, and how.
    Ended(String),
    Survived,
    /// No test runs the code.
    Unreached,
}

/// A test program: what its tests take, in seconds, and what they reach.
pub struct Suite {
    pub program: Program,
    times: BTreeMap<String, f64>,
    reached: BTreeMap<String, Vec<u32>>,
}

pub struct Runner {
    suites: Vec<Suite>,
    folder: PathBuf,
    /// Tests that take longer, in seconds, are left out.
    slowest: f64,
}

impl Runner {
    /// Runs everything once, without an edit. All tests must pass. A program that was run with the same sources
    /// (`version`) before is not run again.
    pub fn record(
        programs: Vec<Program>,
        package: &Path,
        scratch: &Path,
        version: &str,
        slowest: f64,
    ) -> Result<Runner> {
        let mut suites = Vec::new();
        for program in programs {
            let folder = scratch.join(&program.name);
            let done = scratch.join(format!("{}.times", program.name));
            let old = std::fs::read_to_string(&done).unwrap_or_default();
            let times = match old.strip_prefix(version) {
                Some(times) => times.to_string(),
                None => {
                    let times = record_one(&program, package, &folder)?;
                    std::fs::write(&done, format!("{version}\n{times}"))?;
                    times
                }
            };
            let times =
                times.lines().filter_map(passed).map(|(name, time)| (name.to_string(), time)).collect();
            let mut reached = BTreeMap::new();
            for entry in std::fs::read_dir(&folder)? {
                let entry = entry?;
                let numbers = std::fs::read_to_string(entry.path())?;
                let numbers = numbers.lines().filter_map(|line| line.parse().ok()).collect();
                reached.insert(entry.file_name().to_string_lossy().into_owned(), numbers);
            }
            suites.push(Suite { program, times, reached });
        }
        Ok(Runner { suites, folder: package.into(), slowest })
    }

    /// Tests that are run, and the seconds that they take.
    pub fn size(&self) -> (usize, f64) {
        let times = || {
            let all = self.suites.iter().flat_map(|suite| suite.times.values());
            all.filter(|time| **time <= self.slowest)
        };
        (times().count(), times().sum())
    }

    /// Tries an edit. `likely` says how often a program has noticed edits of this folder.
    pub fn run(&self, number: u32, likely: impl Fn(&str) -> u64) -> Result<Outcome> {
        let mut parts: Vec<_> = self
            .suites
            .iter()
            .filter_map(|suite| {
                let reaches =
                    |test: &str| suite.reached.get(test).is_some_and(|numbers| numbers.contains(&number));
                let tests: Vec<&str> = suite
                    .times
                    .iter()
                    .filter(|(test, time)| **time <= self.slowest && reaches(test))
                    .map(|(test, _)| test.as_str())
                    .collect();
                let seconds: f64 = tests.iter().map(|test| suite.times[*test]).sum();
                (!tests.is_empty()).then_some((suite, tests, seconds))
            })
            .collect();
        if parts.is_empty() {
            return Ok(Outcome::Unreached);
        }
        // What notices most in the least time comes first.
        let cost = |(suite, _, seconds): &(&Suite, Vec<&str>, f64)| {
            (seconds + 0.02) / (likely(&suite.program.name) as f64 + 1.0)
        };
        parts.sort_by(|a, b| cost(a).total_cmp(&cost(b)));
        for (suite, tests, seconds) in parts {
            let outcome = self.run_some(&suite.program, number, &tests, seconds)?;
            if outcome != Outcome::Survived {
                return Ok(outcome);
            }
        }
        Ok(Outcome::Survived)
    }

    fn run_some(&self, program: &Program, number: u32, tests: &[&str], seconds: f64) -> Result<Outcome> {
        let limit = (seconds * TIMES_CLEAN).max(LEAST_SECONDS).ceil() as u64;
        let mut child = command(program, &self.folder, Some(limit))
            .args(["--test-threads=1", "--exact"])
            .args(tests)
            .env("TAUT_MUTANT", number.to_string())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .with_context(|| format!("cannot run {}", program.path.display()))?;
        let failed = first_failure(&mut child)?;
        if failed.is_some() {
            let _ = child.kill();
        }
        let status = child.wait()?;
        Ok(match failed {
            Some(test) => Outcome::Killed(format!("{}::{test}", program.name)),
            None if status.success() => Outcome::Survived,
            None => Outcome::Ended(format!("{}: {status}", program.name)),
        })
    }
}

/// What the program prints; which edits its tests reach is in `folder` then.
fn record_one(program: &Program, package: &Path, folder: &Path) -> Result<String> {
    let _ = std::fs::remove_dir_all(folder);
    std::fs::create_dir_all(folder)?;
    // With one thread for tests, they would all run on the main one, which has no test's name.
    let output = command(program, package, None)
        .args(["--test-threads=2", "-Zunstable-options", "--report-time"])
        .env("RUSTC_BOOTSTRAP", "1")
        .env("TAUT_MUTANT_RECORD", folder)
        .output()
        .with_context(|| format!("cannot run {}", program.path.display()))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    if !output.status.success() {
        bail!("the tests of {} fail without any edit:\n{text}", program.name);
    }
    Ok(text)
}

/// The program under `sh`, which sets the limits.
fn command(program: &Program, folder: &Path, seconds: Option<u64>) -> Command {
    let mut command = Command::new("sh");
    let limits = seconds.map_or(String::new(), |seconds| {
        format!("ulimit -c 0; ulimit -t {seconds}; ulimit -v {MEMORY_KIB}; ")
    });
    command
        .args(["-c", &format!("{limits}exec \"$0\" \"$@\"")])
        .arg(&program.path)
        .current_dir(folder)
        // The same cases each time, and none remembered from an edit.
        .env("PROPTEST_RNG_SEED", "1")
        .env("PROPTEST_DISABLE_FAILURE_PERSISTENCE", "true")
        .env("RUST_BACKTRACE", "0")
        .stderr(Stdio::null());
    command
}

/// Reads what the tests print up to the first that fails.
fn first_failure(child: &mut Child) -> Result<Option<String>> {
    let output = child.stdout.take().context("the output is a pipe")?;
    for line in BufReader::new(output).split(b'\n') {
        let line = line?;
        let line = String::from_utf8_lossy(&line);
        if let Some(rest) = line.strip_prefix("test ")
            && let Some((name, _)) =
                rest.split_once(" ... FAILED").or_else(|| rest.split_once(" - should panic ... FAILED"))
        {
            return Ok(Some(name.to_string()));
        }
    }
    Ok(None)
}

/// `test a::b ... ok <0.123s>`
fn passed(line: &str) -> Option<(&str, f64)> {
    let (name, rest) = line.strip_prefix("test ")?.split_once(" ... ok")?;
    let time = rest.trim().strip_prefix('<').and_then(|rest| rest.strip_suffix("s>"))?;
    Some((name.trim_end_matches(" - should panic"), time.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_of_a_test_is_read() {
        assert_eq!(passed("test a::b ... ok <0.125s>"), Some(("a::b", 0.125)));
        assert_eq!(passed("test a::b - should panic ... ok <2.000s>"), Some(("a::b", 2.0)));
        assert_eq!(passed("test a::b ... ignored"), None);
    }
}
