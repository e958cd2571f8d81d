//! The keys of scenarios: one table, and what is made from it. The numbers are those of the statements in
//! docs/spec/lab.md.

use std::collections::BTreeSet;

use taut_core::congestion::Registry;
use taut_lab::scenario::keys::{self, Key, Kind};
use taut_lab::scenario::{Change, Document};

const SMALL: &str = r#"title = "small"
duration = "1s"
measure = ["goodput"]

[topology]
kind = "dumbbell"

[link]
rate = "100mbit"
delay = "5ms"

[[flows]]
app = "bulk"
"#;

fn load(text: &str, sets: &[&str]) -> Result<Document, String> {
    let changes: Vec<Change> = sets.iter().map(|set| Change::parse(set).unwrap()).collect();
    Document::parse("x", "x.toml", text, &changes, &Registry::default()).map_err(|error| error.to_string())
}

fn error(text: &str, sets: &[&str]) -> String {
    load(text, sets).map(|_| ()).unwrap_err()
}

/// The tables of a scenario by path, with the number of one in a list, and their keys.
fn tables(path: &str, keys: &'static [Key], into: &mut Vec<(String, &'static [Key])>) {
    into.push((path.to_owned(), keys));
    for key in keys {
        let Some(inner) = key.kind.keys() else { continue };
        let gap = if path.is_empty() { "" } else { "." };
        let number = if matches!(key.kind, Kind::Tables(_)) { ".0" } else { "" };
        tables(&format!("{path}{gap}{}{number}", key.name), inner, into);
    }
}

#[test]
fn lab_01_the_table_has_every_key_that_the_parser_knows_and_the_page_has_each() {
    let mut all = Vec::new();
    tables("", keys::ALL, &mut all);
    assert!(all.len() > 15, "{}", all.len());
    // The lists of which a table is the first, and tables that are not whole without some keys.
    let there = [
        "link.steps=[{ at = \"1s\", rate = \"1mbit\" }]",
        "link.policer={ rate = \"1mbit\", burst = \"10kb\" }",
        "link.faults.bursts={ p = 0.1, r = 0.5 }",
        "link.back-faults.bursts={ p = 0.1, r = 0.5 }",
        "variants=[{ name = \"a\" }]",
        "cases=[{ name = \"a\" }]",
    ];
    load(SMALL, &there).unwrap();
    // The words of all that the page sets in code.
    let page = include_str!("../../../../docs/reference/scenario.md").split('`').skip(1).step_by(2);
    let is_of_word = |letter: char| letter.is_ascii_alphanumeric() || letter == '-';
    let words: BTreeSet<&str> = page.flat_map(|code| code.split(|letter| !is_of_word(letter))).collect();
    for (path, keys) in all {
        let gap = if path.is_empty() { "" } else { "." };
        let set = format!("{path}{gap}zzz=1");
        let mut sets = there.to_vec();
        sets.push(&set);
        // The parser names the keys of the table in which it found an unknown one.
        let said = error(SMALL, &sets);
        let (_, expected) =
            said.split_once("unknown field `zzz`, expected ").unwrap_or_else(|| panic!("{said}"));
        let parsers: BTreeSet<&str> = expected.split('`').skip(1).step_by(2).collect();
        let tables: BTreeSet<&str> = keys.iter().map(|key| key.name).collect();
        assert_eq!(parsers, tables, "{path}");
        for key in keys {
            assert!(words.contains(key.name), "docs/reference/scenario.md has no `{}`", key.name);
            assert!(!key.about.is_empty() && !key.kind.to_string().is_empty());
        }
    }
}

#[test]
fn lab_03_an_error_names_the_line_and_the_nearest_key() {
    for (from, to, expected) in [
        (
            "delay = \"5ms\"",
            "dealy = \"5ms\"",
            ["x.toml:10: link.dealy: unknown field `dealy`", "; did you mean `delay`?"],
        ),
        ("rate = ", "rat = ", ["x.toml:9: link.rat: unknown field `rat`", "; did you mean `rate`?"]),
        ("title", "titel", ["x.toml:1: titel: unknown field `titel`", "; did you mean `title`?"]),
        (
            "app = \"bulk\"",
            "app = \"bulk\"\nstager = \"1s\"",
            ["x.toml:14: flows.0.stager: ", "; did you mean `stagger`?"],
        ),
        (
            "delay = \"5ms\"",
            "mtu = 9000",
            ["x.toml:10: link.mtu: unknown field `mtu`", "; there is one in [hosts.sender]"],
        ),
        (
            "title",
            "queue = \"fq\"\ntitle",
            ["x.toml:1: queue: unknown field `queue`", "; there is one in [topology]"],
        ),
        // Nothing is near.
        (
            "delay = \"5ms\"",
            "latency = \"5ms\"",
            ["x.toml:10: link.latency: unknown field `latency`", "`back-faults`"],
        ),
    ] {
        assert!(SMALL.contains(from), "{from}");
        let said = error(&SMALL.replacen(from, to, 1), &[]);
        assert!(said.starts_with(expected[0]) && said.ends_with(expected[1]), "{said}\nnot\n{expected:?}");
    }
    // A text that is no file has lines, too; users do not see that of a built-in scenario.
    let placed =
        |file: &str| Document::parse("x", file, "title = ", &[], &Registry::default()).unwrap_err().place;
    assert_eq!(["a text", "scenario tsq"].map(placed), ["a text:1", "scenario tsq"]);
}

#[test]
fn lab_03_an_error_names_the_nearest_word() {
    for (from, to, expected) in [
        (
            "app = \"bulk\"",
            "app = \"blk\"",
            ["x.toml:13: flows.0.app: unknown variant `blk`", "; did you mean `bulk`?"],
        ),
        (
            "\"goodput\"",
            "\"godput\"",
            ["x.toml:3: measure.0: no metric is called godput", "; did you mean `goodput`?"],
        ),
        ("title", "host = \"linux\"\ntitle", ["x.toml:1: host: unknown variant `linux`", "or `linux-6.18`"]),
    ] {
        assert!(SMALL.contains(from), "{from}");
        let said = error(&SMALL.replacen(from, to, 1), &[]);
        assert!(said.starts_with(expected[0]) && said.ends_with(expected[1]), "{said}\nnot\n{expected:?}");
    }
    for (set, near) in [("net.ipv4.tcp_sakc", "tcp_sack"), ("tcp_sakc", "tcp_sack"), ("taut.tqs", "taut.tsq")]
    {
        let said = error(SMALL, &[&format!("hosts.sender.sysctls.{set}=1")]);
        assert!(said.ends_with(&format!("no such setting: {set}; did you mean `{near}`?")), "{said}");
    }
}

#[test]
fn lab_28_two_of_a_list_do_not_have_one_name() {
    let cases = |one: &str, other: &str| {
        format!("{SMALL}\n[[cases]]\nname = \"{one}\"\n\n[[cases]]\nname = \"{other}\"\n")
    };
    let line = |text: &str| text.lines().count();
    for (one, other, why) in [
        ("a", "a", "is the name of an earlier one"),
        ("5 ms", "5-MS", "its files would have the same names as those of \"5 ms\""),
        ("…", "..", "its files would have the same names as those of \"…\""),
    ] {
        let text = cases(one, other);
        assert_eq!(error(&text, &[]), format!("x.toml:{}: cases.1.name: {why}", line(&text)));
        let text = text.replace("[[cases]]", "[[variants]]");
        assert_eq!(error(&text, &[]), format!("x.toml:{}: variants.1.name: {why}", line(&text)));
    }
    // Of another language, they are two.
    assert!(load(&cases("µ", "β"), &[]).is_ok());
}

#[test]
fn lab_03_a_number_out_of_its_range_is_told_with_the_range() {
    for (set, expected) in [
        ("flows.0.count=0", "flows.0.count: must be from 1 to 20000"),
        ("flows.0.count=-1", "flows.0.count: must be from 1 to 20000"),
        ("hosts.sender.mtu=70000", "hosts.sender.mtu: must be from 576 to 65535"),
        ("hosts.receiver.pacing-shift=256", "hosts.receiver.pacing-shift: must be from 0 to 255"),
        ("hosts.receiver.cpu.jitter=101", "hosts.receiver.cpu.jitter: must be from 0 to 100"),
        ("topology.queue-bdp=-0.5", "topology.queue-bdp: must be from 0 to 1000"),
        ("topology.pairs=0", "topology.pairs: must be from 1 to 10000"),
        ("seeds=0", "seeds: must be at least 1, and less than 2^32"),
        ("hosts.sender.nic.tx=4294967296", "hosts.sender.nic.tx: must be at least 1, and less than 2^32"),
        ("flows.0.transactions=-1", "flows.0.transactions: must be at least 0"),
        ("link.faults.loss=1.5", "link.faults.loss: must be a share from 0 to 1"),
        ("link.back-faults.reorder=150%", "link.back-faults.reorder: must be a share from 0 to 1"),
        ("link.back-faults.reorder=1%", "link.back-faults.reorder: needs reorder-delay"),
        ("flows.0.pair=1", "flows.0.pair: must be less than 1, the number of pairs"),
        // What TOML calls a list, a table and a word.
        (
            "link.delay=[5]",
            "link.delay: invalid type: a list, expected a time such as \"20ms\": s, ms, us, ns",
        ),
        ("measure={ a = 1 }", "measure: invalid type: a table, expected a list of metrics"),
        ("flows.0=1", "flows.0: invalid type: integer `1`, expected a table"),
        ("host=5", "host: invalid type, expected one of ideal, linux-6.18"),
        ("flows.app=rr", "flows.app: there is no app: this is a list of 1, numbered from 0"),
    ] {
        assert_eq!(error(SMALL, &[set]), format!("--set {set}: {expected}"));
    }
    for (count, expected) in [
        ("0", "must be from 1 to 20000"),
        ("\"2\"", "invalid type: string \"2\", expected a whole number from 1 to 20000"),
    ] {
        let text = SMALL.replace("app = \"bulk\"", &format!("app = \"bulk\"\ncount = {count}"));
        assert_eq!(error(&text, &[]), format!("x.toml:14: flows.0.count: {expected}"));
    }
    let text = SMALL.replace("delay = \"5ms\"", "delay = 5");
    assert!(error(&text, &[]).ends_with("integer `5`, expected a time such as \"20ms\": s, ms, us, ns"));
}

#[test]
fn lab_04_a_share_may_be_in_percent() {
    let loss = |set: &str| load(SMALL, &[set]).unwrap().base().unwrap().link.faults.loss;
    // 0.5 / 100, as IEEE 754 has it.
    assert_eq!(loss("link.faults.loss=0.5%"), 0.005);
    assert_eq!(loss("link.faults.loss= 2 % "), 0.02);
    assert_eq!(loss("link.faults.loss=100%"), 1.0);
    assert_eq!(loss("link.faults.loss=0.005"), 0.005);
    assert_eq!(loss("link.faults.loss=1"), 1.0);
    let bursts =
        load(SMALL, &["link.faults.bursts={ p = \"0.1%\", r = 0.5, bad = \"90%\", good = \"1%\" }"]).unwrap();
    let bursts = bursts.base().unwrap().link.faults.bursts.unwrap();
    assert_eq!((bursts.p, bursts.r, bursts.bad, bursts.good), (0.001, 0.5, 0.9, 0.01));
    // A number after a text, as in a sweep over a scenario that has a text.
    let text = SMALL.replace("delay = \"5ms\"", "delay = \"5ms\"\nfaults = { loss = \"1%\" }");
    let changed = load(&text, &["link.faults.loss=0"]).unwrap();
    assert_eq!(changed.base().unwrap().link.faults.loss, 0.0);
    assert_eq!(load(&text, &[]).unwrap().base().unwrap().link.faults.loss, 0.01);
    for wrong in ["half", "%", "1 percent", "inf%"] {
        let said = error(SMALL, &[&format!("link.faults.loss={wrong}")]);
        assert!(said.contains("link.faults.loss: ") && said.contains("such as \"0.5%\""), "{said}");
    }
}

#[test]
fn lab_05_what_a_case_or_a_variant_sets_has_a_line() {
    let text = format!(
        "{SMALL}\n[[cases]]\nname = \"near\"\nset = {{ \"link.delay\" = \"1ms\" }}\n\n[[cases]]\nname = \"far\"\nset = {{ \"link.delay\" = \
         \"1parsec\" }}\n\n[[variants]]\nname = \"v\"\n[variants.set]\n\"flows.0.count\" = 0\n"
    );
    let line_of = |what: &str| text.lines().position(|line| line.contains(what)).unwrap() + 1;
    let (case, variant) = (line_of("1parsec"), line_of("count"));
    let said = error(&text.replace("= 0\n", "= 1\n"), &[]);
    let expected =
        format!("x.toml:{case}: case \"far\" sets link.delay: link.delay: \"1parsec\" is not a time");
    assert!(said.starts_with(&expected), "{said}\nnot\n{expected}");
    let said = error(&text.replace("1parsec", "9ms"), &[]);
    let expected =
        format!("x.toml:{variant}: variant \"v\" sets flows.0.count: flows.0.count: must be from 1 to 20000");
    assert_eq!(said, expected);
    // One case of several: its number in the file is another.
    let good = load(&text.replace("1parsec", "9ms").replace("= 0\n", "= 1\n"), &[])
        .unwrap()
        .only_case("far")
        .unwrap();
    assert_eq!(good.variations().unwrap().len(), 1);
}
