//! `taut --help` by groups, `taut man` and `taut completions`: as users and their shells see them.

use std::io::Write as _;
use std::process::{Command, Stdio};

use taut_testbed::{Scratch, live};

use crate::end_to_end::support::taut;

fn says(args: &[&str]) -> String {
    let output = taut(args).output().unwrap();
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn the_help_groups_the_commands_by_what_they_are_for() {
    let help = says(&["--help"]);
    let place = |text: &str| help.find(text).unwrap_or_else(|| panic!("{text:?} is not in:\n{help}"));
    let order = [
        "Usage: taut <COMMAND>",
        "Run:\n",
        "  serve        Serves the files of a directory over HTTP/1.1\n",
        "Observe running stacks:\n",
        "  ss           ",
        "Change running stacks:\n",
        "  qdisc        ",
        "Network for other programs:\n",
        "  gateway      Gives a command, container or VM network access without root\n",
        "Study:\n",
        "  lab          ",
        "Shell:\n",
        "  completions  ",
        "Options:\n",
        "--version",
        "Example:\n  taut demo\n",
    ];
    assert!(order.map(place).is_sorted(), "{help}");
    assert!(!help.contains("Commands:\n") && !help.contains('\x1b'), "{help}");
    let long = help.lines().filter(|line| line.chars().count() > 100).count();
    assert!(help.lines().count() <= 60 && long == 0, "{help}");
}

/// Runs a program, and gives it `text`.
fn piped(program: &str, args: &[&str], text: &str) -> (bool, String, String) {
    let mut command = Command::new(program);
    let piped = command.args(args).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = piped.spawn().unwrap();
    child.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
    (output.status.success(), text(&output.stdout), text(&output.stderr))
}

#[test]
fn every_manual_page_is_written_and_can_be_read() {
    let dir = Scratch::new("man");
    says(&["man", "--output", dir.0.to_str().unwrap()]);
    let mut pages: Vec<_> = std::fs::read_dir(&dir.0).unwrap().map(|page| page.unwrap().path()).collect();
    pages.sort();
    let names: Vec<_> = pages.iter().map(|page| page.file_name().unwrap().to_str().unwrap()).collect();
    for name in ["taut.1", "taut-gateway.1", "taut-lab-run.1", "taut-completions.1"] {
        assert!(names.contains(&name), "{name}: {names:?}");
    }
    assert_eq!(says(&["man", "lab", "run"]), std::fs::read_to_string(dir.0.join("taut-lab-run.1")).unwrap());
    let has_groff = live::ready(&["groff"]);
    for page in &pages {
        let source = std::fs::read_to_string(page).unwrap();
        for part in [".TH ", ".SH NAME", ".SH SYNOPSIS", ".SH DESCRIPTION"] {
            assert!(source.contains(part), "{}: {part}", page.display());
        }
        if has_groff {
            let (read, text, faults) = piped("groff", &["-k", "-man", "-Tutf8", "-ww", "-P-cbou"], &source);
            assert!(
                read && faults.is_empty() && text.contains("SYNOPSIS"),
                "{}: {faults}{text}",
                page.display()
            );
        }
    }
    let output = taut(&["man", "gateway", "nothing"]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(1) && said.contains("gateway has no command nothing"), "{said}");
}

#[test]
fn bash_completes_commands_and_options() {
    let script = says(&["completions", "bash"]);
    let complete = |words: &[&str], last: &str| {
        let line = words.join(" ");
        // As bash calls it: the words of the line, and the number of the one to complete.
        let ask = format!(
            "{script}\nCOMP_WORDS=({line} '{last}'); COMP_CWORD={}; _taut taut '{last}' '{}'\n\
             printf '%s\\n' \"${{COMPREPLY[@]}}\"\n",
            words.len(),
            words[words.len() - 1]
        );
        let (ran, text, faults) = piped("bash", &["--norc"], &ask);
        assert!(ran && faults.is_empty(), "{faults}");
        text.lines().map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(complete(&["taut"], "gat"), ["gateway"]);
    assert_eq!(complete(&["taut", "gateway"], "--show"), ["--show-rules"]);
    assert_eq!(complete(&["taut", "lab"], "sw"), ["sweep"]);
    for (shell, part) in [
        ("zsh", "#compdef taut"),
        ("fish", "complete -c taut"),
        ("powershell", "Register-ArgumentCompleter"),
        ("elvish", "edit:completion:arg-completer[taut]"),
    ] {
        let script = says(&["completions", shell]);
        assert!(script.contains(part) && script.contains("gateway"), "{shell}");
    }
}
