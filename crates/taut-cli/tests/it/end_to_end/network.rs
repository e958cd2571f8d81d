//! `taut addr`, `taut route` and `taut mtu` on a running stack, with the kernel as its peer.

use crate::end_to_end::observe::Observer;
use crate::end_to_end::support::{Lab, TAUT};

#[test]
fn addresses_routes_and_the_mtu_are_shown_and_changed_while_a_stack_serves() {
    let Some(lab) = Lab::new("network", &["curl", "ping"]) else { return };
    let observer = Observer::new("network");
    let _server = observer.start(&lab, &["serve", "."], "serving");
    let answers = |address: &str| {
        let mut ping = std::process::Command::new("ping");
        lab.spawn(ping.args(["-c", "1", "-W", "1", address])).output().status.success()
    };
    assert_eq!(observer.says(&["addr"]), format!("taut0: mtu 1500\n    inet {TAUT}/24\n"));
    assert_eq!(observer.says(&["route"]), "");
    let more = "10.9.0.8";
    assert!(answers(TAUT) && !answers(more));

    assert_eq!(observer.says(&["addr", "add", &format!("{more}/24"), "dev", "taut0"]), "");
    assert!(answers(more), "the kernel reaches it");
    let json = observer.json(&["addr", "show", "dev", "taut0", "--json"]);
    let [first, second] = [0, 1].map(|at| &json[0]["addr_info"][at]);
    assert_eq!((&first["local"], &second["local"]), (&TAUT.into(), &more.into()));
    assert_eq!((&second["family"], &second["prefixlen"]), (&"inet".into(), &24.into()));
    let summary = observer.says(&["ss", "-s"]);
    assert!(summary.contains(&format!("on taut0: {TAUT}/24 {more}/24")), "{summary}");

    assert_eq!(observer.says(&["route", "add", "default", "via", "10.9.0.1", "src", more]), "");
    let shown = observer.says(&["route", "show"]);
    assert_eq!(shown, format!("default via 10.9.0.1 dev taut0 src {more}\n"));
    let json = observer.json(&["route", "del", "default", "via", "10.9.0.1", "-j"]);
    assert_eq!(json, serde_json::json!([]));

    assert_eq!(observer.says(&["mtu", "set", "1300"]), "");
    assert_eq!(observer.says(&["mtu"]), "taut0: mtu 1300\n");
    assert_eq!(observer.json(&["mtu", "--json"])[0]["mtu"], 1_300);

    assert_eq!(observer.says(&["addr", "del", more]), "");
    assert!(answers(TAUT) && !answers(more));

    // Errors name the mistake, and change nothing.
    let fails = |args: &str| observer.fails(&args.split(' ').collect::<Vec<_>>());
    assert!(fails("addr add 10.9.0.8").contains("such as 10.9.0.8/24"));
    assert!(fails("addr add 10.9.0.255/24").contains("not the address of a host"));
    assert!(fails("addr add here/24").contains("is not an address"));
    assert!(fails("addr del 10.9.0.8").contains("no such address"));
    assert!(fails("addr add 10.9.0.8/24 dev eth7").contains("no stack of this user sends over eth7"));
    assert!(fails("addr show taut0").contains("dev taut0"));
    assert!(fails("route add default metric 5").contains("neither via, src nor dev"));
    assert!(fails("route del default via 10.9.0.1").contains("no such address, route"));
    assert!(fails("mtu set 67").contains("an MTU below 68"));
    assert!(fails("mtu set many").contains("write a number of bytes"));
    assert_eq!(observer.says(&["addr"]), format!("taut0: mtu 1300\n    inet {TAUT}/24\n"));
}
