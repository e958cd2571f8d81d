//! Mutation testing of `taut-core`: breaks it by small edits, one at a time, and sees whether its tests notice.
//!
//! Building the tests takes a minute and running them a quarter of one, so edits are not built one by one. All edits that
//! can be made are compiled into one copy, each behind a switch that the environment turns (`edit.rs`), and the tests that
//! reach an edit run once with it on (`run.rs`). docs/reliability.md has the results.

mod compile;
mod edit;
mod find;
mod run;
mod store;
mod tree;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Context, Result, bail};
use clap::Parser;

use crate::compile::Compiler;
use crate::edit::Edit;
use crate::run::{Outcome, Runner};
use crate::store::Store;
use crate::tree::{FOLDERS, Tree};

/// Breaks taut-core by small edits, one at a time, and sees whether its tests notice
#[derive(Parser)]
struct Options {
    /// Only this folder: egress, recovery, congestion, ingress or conn (repeatable)
    #[arg(long)]
    folder: Vec<String>,
    /// Which edits are chosen: each seed puts all edits of a folder into an order of its own
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// How many edits of each folder, from the start of that order
    #[arg(long, default_value_t = 100)]
    count: usize,
    /// Leave out as many at the start of the order: a second sample that shares none with the first
    #[arg(long, default_value_t = 0)]
    skip: usize,
    /// Instead of a sample, every edit whose name contains this (repeatable)
    #[arg(long)]
    only: Vec<String>,
    /// Forget what earlier runs found
    #[arg(long)]
    fresh: bool,
    /// Print the chosen edits, and run nothing
    #[arg(long)]
    list: bool,
    /// Print for each edit how it was noticed
    #[arg(long)]
    verbose: bool,
    /// How many edits are tried at the same time
    #[arg(short, long, default_value_t = 2)]
    jobs: usize,
    /// Leave out tests that take longer, in seconds: an edit that only they notice counts as one that
    /// survived
    #[arg(long, value_name = "SECONDS", default_value_t = 4.0)]
    slowest: f64,
}

fn main() -> Result<()> {
    let options = Options::parse();
    if let Some(unknown) = options.folder.iter().find(|folder| !FOLDERS.contains(&folder.as_str())) {
        bail!("no folder {unknown}; there are {}", FOLDERS.join(", "));
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().context("mutants/ is in the repository")?;
    let dir = std::env::var_os("MUTANTS_DIR").map_or_else(|| root.join("target/mutants"), PathBuf::from);
    std::fs::create_dir_all(&dir).with_context(|| format!("cannot make {}", dir.display()))?;
    let dir = dir.canonicalize()?;

    let tree = Tree::new(root, &dir.join("tree"));
    let edits = tree.edits()?;
    let equivalent = store::equivalent(&root.join("mutants"))?;
    let names: BTreeSet<String> = edits.iter().map(|edit| edit.name.to_string()).collect();
    for stale in equivalent.keys().filter(|name| !names.contains(*name)) {
        eprintln!("mutants: an equivalent edit is no more: {stale}");
    }

    // What does not compile is known from earlier, or found now; it is not part of the order that samples are taken from.
    let compiler = Compiler { tree: &tree, target: dir.join("build") };
    let memory = dir.join("not-rust");
    let mut not_rust: BTreeSet<String> =
        std::fs::read_to_string(&memory).unwrap_or_default().lines().map(str::to_string).collect();
    let mut compiled: BTreeMap<usize, &Edit> =
        edits.iter().enumerate().filter(|(_, edit)| !not_rust.contains(&edit.name.to_string())).collect();
    let dropped = compiler.drop_what_does_not_compile(&mut compiled)?;
    not_rust.extend(dropped.iter().map(|number| edits[*number].name.to_string()));
    std::fs::write(&memory, not_rust.iter().map(|name| format!("{name}\n")).collect::<String>())?;

    let chosen = choose(&options, &compiled);
    eprintln!(
        "mutants: {} edits compile, {} do not; {} chosen",
        compiled.len(),
        not_rust.len(),
        chosen.len()
    );
    if options.list {
        for number in &chosen {
            println!("{}:{}: {}", edits[*number].name.file, edits[*number].line, edits[*number].name);
        }
        return Ok(());
    }

    let results = dir.join("results");
    if options.fresh {
        let _ = std::fs::remove_file(&results);
    }
    let store = Store::open(&results, &tree.version()?)?;
    let store = try_edits(&options, &edits, &chosen, &equivalent, &compiler, store, &dir)?;
    report(&options, &edits, &chosen, &equivalent, &store);
    Ok(())
}

/// The sample: of each folder as many as wanted, in an order that only the seed and the edits' names decide.
fn choose(options: &Options, compiled: &BTreeMap<usize, &Edit>) -> Vec<usize> {
    let mut chosen = Vec::new();
    for folder in FOLDERS {
        if !options.folder.is_empty() && !options.folder.iter().any(|wanted| wanted == folder) {
            continue;
        }
        let mut order: Vec<_> = compiled
            .iter()
            .filter(|(_, edit)| edit.folder() == folder)
            .map(|(number, edit)| (rank(options.seed, &edit.name.to_string()), *number))
            .collect();
        if options.only.is_empty() {
            order.sort_unstable();
            chosen.extend(order.iter().skip(options.skip).take(options.count).map(|(_, number)| *number));
        } else {
            let wanted = |name: String| options.only.iter().any(|part| name.contains(part.as_str()));
            chosen.extend(
                order
                    .iter()
                    .map(|(_, number)| *number)
                    .filter(|number| wanted(compiled[number].name.to_string())),
            );
        }
    }
    chosen
}

/// FNV-1a of the name, begun with the seed and mixed at the end (splitmix64): the same on every machine, for ever.
fn rank(seed: u64, name: &str) -> u64 {
    let mut hash = 0xcbf2_9ce4_8422_2325 ^ seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    for byte in name.bytes() {
        hash = (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
    }
    hash = (hash ^ (hash >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    hash = (hash ^ (hash >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    hash ^ (hash >> 31)
}

fn try_edits(
    options: &Options,
    edits: &[Edit],
    chosen: &[usize],
    equivalent: &BTreeMap<String, String>,
    compiler: &Compiler<'_>,
    store: Store,
    dir: &Path,
) -> Result<Store> {
    let wanted: Vec<usize> = chosen
        .iter()
        .copied()
        .filter(|number| {
            let name = edits[*number].name.to_string();
            store.get(&name).is_none() && !equivalent.contains_key(&name)
        })
        .collect();
    if wanted.is_empty() {
        return Ok(store);
    }
    let programs = compiler.build()?;
    let package = compiler.tree.copy.join("crates/taut-core");
    let (reached, version) = (dir.join("reached"), compiler.tree.version()?);
    let runner = Runner::record(programs, &package, &reached, &version, options.slowest)?;
    let (tests, seconds) = runner.size();
    eprintln!("mutants: {tests} tests pass in {seconds:.0} s without an edit; {} edits to try", wanted.len());

    let (next, done) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let store = Mutex::new(store);
    let work = || -> Result<()> {
        while let Some(&number) = wanted.get(next.fetch_add(1, Ordering::Relaxed)) {
            let edit = &edits[number];
            let likely =
                |program: &str| store.lock().expect("no thread panics").kills(edit.folder(), program);
            let outcome = runner.run(u32::try_from(number)?, likely)?;
            let place = format!("{}/{}", done.fetch_add(1, Ordering::Relaxed) + 1, wanted.len());
            match &outcome {
                Outcome::Killed(_) | Outcome::Ended(_) => eprint!("\rmutants: {place} "),
                missed => eprintln!("\r{place} {missed:?}: {}:{}: {}", edit.name.file, edit.line, edit.name),
            }
            store.lock().expect("no thread panics").put(&edit.name.to_string(), outcome)?;
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..options.jobs.max(1)).map(|_| scope.spawn(work)).collect();
        workers.into_iter().try_for_each(|worker| worker.join().expect("no thread panics"))
    })?;
    eprintln!();
    Ok(store.into_inner().expect("no thread panics"))
}

fn report(
    options: &Options,
    edits: &[Edit],
    chosen: &[usize],
    equivalent: &BTreeMap<String, String>,
    store: &Store,
) {
    for number in chosen {
        let edit = &edits[*number];
        let place = format!("{}:{}: {}", edit.name.file, edit.line, edit.name);
        if equivalent.contains_key(&edit.name.to_string()) {
            continue;
        }
        match store.get(&edit.name.to_string()) {
            Some(Outcome::Killed(by) | Outcome::Ended(by)) if options.verbose => {
                println!("killed {place}  by {by}")
            }
            Some(Outcome::Killed(_) | Outcome::Ended(_)) => {}
            Some(Outcome::Unreached) => println!("UNREACHED {place}"),
            Some(Outcome::Survived) | None => println!("SURVIVED {place}"),
        }
    }
    println!(
        "{:<12} {:>6} {:>7} {:>11} {:>9} {:>7}",
        "folder", "edits", "killed", "equivalent", "survived", "killed"
    );
    let mut all = [0; 4];
    for folder in FOLDERS {
        let mut row = [0; 4];
        for number in chosen.iter().filter(|number| edits[**number].folder() == folder) {
            let name = edits[*number].name.to_string();
            row[0] += 1;
            row[match store.get(&name) {
                _ if equivalent.contains_key(&name) => 2,
                Some(Outcome::Killed(_) | Outcome::Ended(_)) => 1,
                _ => 3,
            }] += 1;
        }
        if row[0] > 0 {
            print_row(folder, row);
        }
        for (sum, value) in all.iter_mut().zip(row) {
            *sum += value;
        }
    }
    print_row("all", all);
}

fn print_row(name: &str, [edits, killed, equivalent, survived]: [usize; 4]) {
    let rate = 100.0 * killed as f64 / (killed + survived).max(1) as f64;
    println!("{name:<12} {edits:>6} {killed:>7} {equivalent:>11} {survived:>9} {rate:>6.1}%");
}
