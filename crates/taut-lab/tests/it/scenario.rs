//! Scenarios' files: how they are read, and how mistakes are reported.

use taut_core::Instant;
use taut_core::congestion::{AckEvent, Controller, Definition, Registry, Signal, Window};
use taut_lab::scenario::{Change, Document, builtin};

fn load(text: &str, sets: &[&str]) -> Result<Document, String> {
    load_with(&Registry::default(), text, sets)
}

fn load_with(controllers: &Registry, text: &str, sets: &[&str]) -> Result<Document, String> {
    let changes: Vec<Change> = sets.iter().map(|set| Change::parse(set).unwrap()).collect();
    Document::parse("x", "x.toml", text, &changes, controllers).map_err(|error| error.to_string())
}

const SMALL: &str = r#"title = "small"
duration = "1s"
measure = ["goodput"]

[link]
rate = "100mbit"
delay = "5ms"

[hosts.sender]
qdisc = "pfifo limit 100"
sysctls = { "net.ipv4.tcp_autocorking" = 0, "taut.tsq" = "off" }

[[flows]]
app = "bulk"
count = 2

[[variants]]
name = "one"
[[variants]]
name = "two"
set = { "link.rate" = "10mbit" }
"#;

#[test]
fn those_that_come_with_the_program_are_right() {
    for (name, text) in builtin::ALL {
        if let Err(error) = Document::parse(name, &format!("{name}.toml"), text, &[], &Registry::default()) {
            panic!("{error}");
        }
    }
}

#[test]
fn variants_and_changes_are_made() {
    let document =
        load(SMALL, &["flows.0.count=5", "hosts.sender.sysctls.net.ipv4.tcp_min_tso_segs=3"]).unwrap();
    let variations = document.variations().unwrap();
    let [one, two] = variations.as_slice() else { panic!("{variations:?}") };
    assert_eq!(one.scenario.link.rate.value.bits_per_second(), 100_000_000);
    assert_eq!(two.scenario.link.rate.value.bits_per_second(), 10_000_000);
    assert_eq!(two.parameters["link.rate"], "10mbit");
    assert_eq!(two.scenario.flows[0].count, 5);
    assert_eq!(two.scenario.hosts.sender.sysctls.0["net.ipv4.tcp_min_tso_segs"], "3");
    assert_eq!(two.scenario.hosts.sender.sysctls.0["net.ipv4.tcp_autocorking"], "0");
    // The command line takes precedence.
    let document = load(SMALL, &["link.rate=1gbit"]).unwrap();
    assert!(document.variations().unwrap().iter().all(|v| v.parameters["link.rate"] == "1gbit"));
}

#[test]
fn a_mistake_has_file_line_and_key() {
    let cases = [
        ("rate = \"100mbit\"", "rate = \"fast\"", "x.toml:6: link.rate: "),
        ("delay = \"5ms\"", "latency = \"5ms\"", "x.toml:7: link.latency: unknown field `latency`"),
        ("duration = \"1s\"", "duration = 1.5", "x.toml:2: duration: invalid type"),
        ("\"taut.tsq\" = \"off\"", "\"taut.tsq\" = \"of\"", "x.toml:11: hosts.sender.sysctls.taut.tsq: "),
        (
            "tcp_autocorking\" = 0",
            "tcp_autocork\" = 0",
            "x.toml:11: hosts.sender.sysctls.net.ipv4.tcp_autocork: no such setting",
        ),
        ("pfifo limit 100", "pfifo size 100", "x.toml:10: hosts.sender.qdisc: "),
        ("app = \"bulk\"", "app = \"bulky\"", "x.toml:14: flows.0.app: unknown variant `bulky`"),
        ("count = 2", "think = \"1s\"", "x.toml:15: flows.0.think: does not apply to app = \"bulk\""),
        ("[\"goodput\"]", "[\"speed\"]", "x.toml:3: measure.0: no metric is called speed"),
        ("name = \"two\"", "nam = \"two\"", "x.toml:20: variants.1.nam: unknown field `nam`"),
        (
            "\"link.rate\" = \"10mbit\"",
            "\"link.rat\" = \"10mbit\"",
            "x.toml:21: variant \"two\" sets link.rat: link.rat: unknown field",
        ),
        ("title = \"small\"", "titel = \"small\"", "x.toml:1: titel: unknown field `titel`"),
        (
            "delay = \"5ms\"",
            "steps = [{ at = \"1s\", rate = \"1mbit\" }]",
            "x.toml:7: link.steps: does not apply to kind",
        ),
        ("delay = \"5ms\"", "back-rate = \"1mbit\"", "x.toml:7: link.back-rate: does not apply to kind"),
        (
            "delay = \"5ms\"",
            "policer = { rate = \"1mbit\", burst = \"9kb\" }",
            "x.toml:7: link.policer: does not apply to kind",
        ),
        (
            "delay = \"5ms\"",
            "back-faults = { bursts = { p = 0.01, r = 10 } }",
            "x.toml:7: link.back-faults.bursts.r: must be a share",
        ),
        ("count = 2", "beside = true", "x.toml:15: flows.0.beside: a flow beside the others needs kind"),
        ("[link]", "[link", "x.toml:5: "),
        ("title = \"small\"\n", "", "x.toml: missing field `title`"),
    ];
    for (from, to, expected) in cases {
        assert!(SMALL.contains(from), "{from}");
        let error = load(&SMALL.replacen(from, to, 1), &[]).map(|_| ()).unwrap_err();
        assert!(error.starts_with(expected), "{from} -> {to}:\n{error}\nnot\n{expected}");
    }
}

#[test]
fn a_mistake_of_the_command_line_is_its_own() {
    for (set, expected) in [
        ("link.rate=fast", "--set link.rate=fast: link.rate: "),
        ("link.rates=1gbit", "--set link.rates=1gbit: link.rates: unknown field `rates`"),
        (
            "flows.7.count=3",
            "--set flows.7.count=3: flows.7.count: there is no 7: this is a list of 1, numbered from 0",
        ),
        ("duration.x=3", "--set duration.x=3: duration.x: duration is a value"),
        ("flows.0.count=lots", "--set flows.0.count=lots: flows.0.count: invalid type: string"),
        ("warm-up=2s", "--set warm-up=2s: warm-up: must be shorter than the duration"),
    ] {
        let error = load(SMALL, &[set]).map(|_| ()).unwrap_err();
        assert!(error.starts_with(expected), "{error}\nnot\n{expected}");
    }
    assert!(Change::parse("link.rate").is_err());
    assert!(Change::parse("=3").is_err());
}

/// A congestion control with two parameters that does nothing.
fn controllers() -> Registry {
    #[derive(Debug)]
    struct Mine;
    impl Controller for Mine {
        fn on_ack(&mut self, _: &mut Window, _: &AckEvent<'_>) {}
        fn reduce(&mut self, window: &Window, _: Signal, _: Instant) -> u32 {
            window.cwnd()
        }
    }
    let mut controllers = Registry::default();
    let mine = Definition::new("mine", |_| Mine).param("gain", 2.0, 1.0..=4.0, "").param(
        "floor",
        4.0,
        2.0..=9.0,
        "",
    );
    controllers.add(mine).unwrap();
    controllers
}

#[test]
fn a_users_congestion_control_is_named_wherever_one_can_be() {
    let congestion = |sets: &[&str]| {
        let document = load_with(&controllers(), SMALL, sets)?;
        let scenario = document.variations().unwrap().remove(0).scenario;
        let chosen = scenario.flows[0].options.options().congestion.map(|algorithm| algorithm.to_string());
        Ok((chosen.unwrap_or_default(), scenario.default_congestion()))
    };
    let is = |flow: &str, stack: &str| Ok::<_, String>((flow.to_owned(), stack.to_owned()));
    assert_eq!(congestion(&[]), is("", "cubic"));
    assert_eq!(congestion(&["congestion=mine"]), is("mine", "cubic"));
    assert_eq!(congestion(&["congestion=mine:gain=3,floor=5"]), is("mine:gain=3,floor=5", "cubic"));
    let own = "flows.0.options.congestion=reno";
    assert_eq!(congestion(&["congestion=mine", own]), is("reno", "cubic"));
    let setting = "hosts.sender.sysctls.tcp_congestion_control=mine:floor=7";
    assert_eq!(congestion(&[setting]), is("", "mine:floor=7"));
    // A parameter changed by itself, as in a sweep.
    let gain = |value| format!("congestion.gain={value}");
    assert_eq!(congestion(&["congestion=mine", &gain("1.5")]), is("mine:gain=1.5", "cubic"));
    let sets = ["congestion=mine:gain=3,floor=5", &gain("4"), "congestion.floor=6"];
    assert_eq!(congestion(&sets), is("mine:gain=4,floor=6", "cubic"));
    let sets = [own, "flows.0.options.congestion=mine", "flows.0.options.congestion.floor=3"];
    assert_eq!(congestion(&sets), is("mine:floor=3", "cubic"));
}

#[test]
fn a_congestion_control_that_is_none_is_told_with_those_there_are() {
    let known = "choose one of reno, cubic, bbr, dctcp, prague, mine";
    let unknown = format!("congestion: unknown congestion control vegas; {known}");
    let text = SMALL.replacen("title", "congestion = \"vegas\"\ntitle", 1);
    let error = load_with(&controllers(), &text, &[]).map(|_| ()).unwrap_err();
    assert_eq!(error, format!("x.toml:1: {unknown}"));
    for (sets, expected) in [
        (&["congestion=vegas"][..], format!("--set congestion=vegas: {unknown}")),
        (
            &["congestion=mine:gain=5"],
            "--set congestion=mine:gain=5: congestion: mine: gain = 5: must be a number from 1 to 4".into(),
        ),
        (
            &["congestion=mine", "congestion.gian=2"],
            "--set congestion.gian=2: congestion: mine: unknown parameter gian; \
             it has gain, a number from 1 to 4; floor, a number from 2 to 9"
                .into(),
        ),
        (
            &["congestion.gain=2"],
            "--set congestion.gain=2: congestion.gain: there is no congestion control to take this parameter"
                .into(),
        ),
        (
            &["flows.0.options.congestion=mine:floor=1"],
            "--set flows.0.options.congestion=mine:floor=1: flows.0.options.congestion: \
             mine: floor = 1: must be a number from 2 to 9"
                .into(),
        ),
        (
            &["hosts.receiver.sysctls.tcp_congestion_control=mine:gain=0"],
            "--set hosts.receiver.sysctls.tcp_congestion_control=mine:gain=0: \
             hosts.receiver.sysctls.tcp_congestion_control: \
             net.ipv4.tcp_congestion_control = mine:gain=0: mine: gain = 0: must be a number from 1 to 4"
                .into(),
        ),
    ] {
        let error = load_with(&controllers(), SMALL, sets).map(|_| ()).unwrap_err();
        assert_eq!(error, expected);
    }
}
