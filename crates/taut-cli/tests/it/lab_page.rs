//! The samples of docs/reference/lab.md are what the commands print. What is printed after `…`, and of live
//! runs, is not compared: the first is left out, the second differs from run to run.

use std::path::Path;
use std::process::Command;

use taut_testbed::Scratch;

const PAGE: &str = include_str!("../../../../docs/reference/lab.md");

/// The blocks of code in this language.
fn blocks(language: &str) -> impl Iterator<Item = &'static str> {
    let begin = format!("\n```{language}\n");
    PAGE.match_indices(&begin)
        .map(move |(at, begin)| &PAGE[at + begin.len()..])
        .map(|rest| &rest[..=rest.find("\n```").unwrap()])
        .collect::<Vec<_>>()
        .into_iter()
}

fn taut(directory: &Path, words: &str) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_taut"))
        .args(words.split_whitespace())
        .current_dir(directory)
        .output()
        .unwrap();
    assert!(output.status.success(), "taut {words}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Commands of a block, each with what the page says that it prints.
fn commands(block: &str) -> Vec<(&str, &str)> {
    block
        .split("$ ")
        .filter(|part| !part.is_empty())
        .map(|part| part.split_once('\n').unwrap_or((part, "")))
        .collect()
}

#[test]
fn lab_13_commands_print_what_the_page_shows() {
    let scratch = Scratch::new("lab-page");
    let mut compared = 0;
    for block in blocks("text").filter(|block| block.starts_with("$ ") && !block.contains("alias")) {
        for (command, shown) in commands(block) {
            if let Some(file) = command.strip_prefix("cat ") {
                // The points that are shown are all of the lower rate.
                std::fs::write(scratch.0.join(file), shown.replace(", \"link.rate=100mbit\"", "")).unwrap();
                continue;
            }
            let printed = taut(&scratch.0, command.strip_prefix("taut ").unwrap());
            let shown = shown.split('…').next().unwrap();
            for (shown, printed) in shown.lines().zip(printed.lines()) {
                assert_eq!(
                    shown.split_whitespace().collect::<Vec<_>>(),
                    printed.split_whitespace().collect::<Vec<_>>()
                );
                compared += 1;
            }
            assert!(printed.lines().count() >= shown.lines().count(), "{command}: {printed}");
        }
    }
    assert!(compared > 12, "{compared} lines");
    let events = scratch.0.join("lab-results/single-flow/cubic-sim-seed1/events.jsonl");
    let events = std::fs::read_to_string(events).unwrap();
    let shown = blocks("text").find(|block| block.starts_with("{\"schema\"")).unwrap();
    assert!(events.starts_with(shown), "{shown}");
}

#[test]
fn lab_13_parts_of_scenarios_are_understood() {
    let scratch = Scratch::new("lab-page-parts");
    std::fs::write(scratch.0.join("cell.csv"), "0,1mbit\n0.5,12mbit\n1,0\n2,3mbit\n").unwrap();
    let mut parts = 0;
    for part in blocks("toml") {
        let before = "title = \"a part\"\nduration = \"2s\"\nmeasure = [\"goodput\"]\n";
        let whole = format!(
            "{before}{part}delay = \"5ms\"\n\n[topology]\nkind = \"dumbbell\"\n\n[[flows]]\napp = \"bulk\"\n"
        );
        std::fs::write(scratch.0.join("part.toml"), whole).unwrap();
        taut(&scratch.0, "lab run part.toml --seeds 1 --no-files");
        parts += 1;
    }
    assert!(parts > 0);
    // The scenario that the command writes is whole.
    taut(&scratch.0, "lab new my.toml");
    taut(&scratch.0, "lab run my.toml --seeds 1 --no-files");
}

#[test]
fn lab_13_commands_that_the_page_lists_are_there() {
    let mut checked = 0;
    for block in blocks("console") {
        for line in block.lines() {
            let command = line.split('#').next().unwrap().trim().strip_prefix("$ ").unwrap();
            let Some(words) = command.strip_prefix("taut ") else { continue };
            let words: Vec<&str> = words.split_whitespace().collect();
            let help = taut(Path::new("."), &format!("{} --help", words[..2.min(words.len())].join(" ")));
            for flag in words.iter().filter(|word| word.starts_with("--")) {
                assert!(help.contains(flag), "{command}: {flag}");
                checked += 1;
            }
        }
    }
    assert!(checked > 5, "{checked} flags");
}
