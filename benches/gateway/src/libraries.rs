//! slirp4netns on several libraries of libslirp's interface, a column each (`benches/slirp.sh` makes the
//! programs).

use std::path::PathBuf;
use std::process::Command;
use std::str::FromStr;

use anyhow::{Context as _, Result, bail, ensure};

use crate::gateways::{Kind, Programs};
use crate::table::{Table, print_columns};
use crate::work::Row;

/// slirp4netns on one library, as `NAME=PROGRAM`.
#[derive(Clone, Debug)]
pub struct Library {
    name: String,
    program: PathBuf,
}

impl FromStr for Library {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, program) = text.split_once('=').ok_or("NAME=PROGRAM is expected")?;
        Ok(Self { name: name.to_owned(), program: program.into() })
    }
}

impl Library {
    /// The versions of slirp4netns and of its library.
    fn version(&self) -> Result<String> {
        let output = Command::new(&self.program).arg("--version").output();
        let output = output.with_context(|| format!("{} is missing", self.program.display()))?;
        let text = String::from_utf8_lossy(&output.stdout);
        let mut lines = text.lines().filter(|line| line.contains("slirp"));
        Ok(format!("{}, {}", lines.next().unwrap_or_default(), lines.next().unwrap_or_default()))
    }
}

/// Measures each in turns, by `measure`, and prints the table.
pub fn run(
    libraries: &[Library],
    (rows, rounds, json): (&[Row], u32, bool),
    programs: &mut Programs,
    mut measure: impl FnMut(&Programs, Kind, &[Row], &mut Table),
) -> Result<()> {
    const KIND: Kind = Kind::Slirp4netns;
    for library in libraries {
        println!("{}: {}", library.name, library.version()?);
    }
    let mut tables: Vec<Table> = libraries.iter().map(|_| Table::default()).collect();
    for round in 0..rounds {
        for (library, table) in libraries.iter().zip(&mut tables) {
            eprintln!("round {} of {rounds}: {}", round + 1, library.name);
            programs.slirp4netns.clone_from(&library.program);
            measure(programs, KIND, rows, table);
        }
    }
    ensure!(!tables.is_empty(), "no library");
    let columns: Vec<_> =
        libraries.iter().zip(&tables).map(|(library, table)| (&*library.name, KIND, table)).collect();
    print_columns(&columns);
    for (library, table) in libraries.iter().zip(&tables) {
        println!("{}:", library.name);
        table.print_notes();
        if json {
            println!("{}", table.json());
        }
    }
    if tables.iter().all(Table::is_empty) {
        bail!("nothing was measured");
    }
    Ok(())
}
