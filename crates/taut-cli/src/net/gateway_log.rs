//! The events of a gateway or a proxy in the log (`shared/log.rs`), a line for each.
//!
//! Called by `gateway.rs` and `proxy.rs`.

use serde_json::{Map, Value, json};
use taut::FlowKind;
use taut_gateway::{Ended, Event, pings_are_allowed};

use crate::shared::log::{self, Level};

/// Logs one event. As text, of the flows that have ended only those that a dry run would have denied.
pub(crate) fn write(event: &Event) {
    if matches!(event, Event::Ended(flow) if !flow.decision.would_deny) && !log::is_json() {
        return;
    }
    let (name, fields) = fields(event);
    let fields = match fields {
        Value::Object(fields) => fields,
        _ => Map::new(),
    };
    log::event(level(event), name, &text(event), fields);
}

/// Logs what became of the guest or of the file of rules: the event's name, and a sentence.
pub(crate) fn say(level: Level, event: &str, sentence: &str) {
    log::event(level, event, sentence, Map::new());
}

const NO_PING: &str = "the guest cannot ping, because this host does not let this user; as root: sysctl -w \
                       net.ipv4.ping_group_range='0 2147483647'";

/// Logs that guests cannot ping, if that is so: pings leave by the host's sockets, which need a right. By
/// another way they need none, or are refused.
pub(crate) fn look_for_pings(by_host: bool) {
    if by_host && !pings_are_allowed() {
        say(Level::Warn, "no-ping", NO_PING);
    }
}

const fn level(event: &Event) -> Level {
    match event {
        Event::Denied { .. } | Event::NameDenied { .. } | Event::Ended(_) | Event::Left { .. } => Level::Info,
        Event::OverLimit { .. }
        | Event::NoResources { .. }
        | Event::CannotForward { .. }
        | Event::CannotAccept { .. } => Level::Warn,
    }
}

const fn name(kind: FlowKind) -> &'static str {
    match kind {
        FlowKind::Tcp => "tcp",
        FlowKind::Udp => "udp",
        FlowKind::Echo => "ping",
    }
}

const fn denied(is_dry: bool) -> &'static str {
    if is_dry { "would be denied" } else { "denied" }
}

fn ended(Ended { kind, to, decision, bytes: [up, down], time }: &Ended) -> String {
    let what = if decision.would_deny { denied(true) } else { "ended" };
    let name = decision.name.as_ref().map(|name| format!(" ({name})")).unwrap_or_default();
    let sums = format!("{up} bytes up, {down} down, {:.3} s", time.as_secs_f64());
    format!("{what}: {} from {} to {to}{name}: {}; {sums}", self::name(*kind), decision.guest, decision.rule)
}

fn text(event: &Event) -> String {
    match event {
        Event::Denied { guest, kind, to, rule } => {
            format!("denied: {} from {guest} to {to}: {rule}", name(*kind))
        }
        Event::NameDenied { guest, name, rule, is_dry } => {
            format!("{}: name {name} for {guest}: {rule}", denied(*is_dry))
        }
        Event::Ended(flow) => ended(flow),
        Event::Left { client, to } => {
            format!("client left: tcp from {client} to {to}, which had not answered yet")
        }
        Event::OverLimit { guest, what } => format!("{guest} has too many {}", what.words()),
        Event::NoResources { to } => {
            format!("no descriptor, port or memory for a flow to {to}; see ulimit -n")
        }
        Event::CannotForward { why, .. } => why.clone(),
        Event::CannotAccept { at } => {
            format!("no descriptor or memory to accept a client at {at}; see ulimit -n")
        }
    }
}

/// The name of an event, and what JSON has of it.
fn fields(event: &Event) -> (&'static str, Value) {
    match event {
        Event::Denied { guest, kind, to, rule } => (
            "denied",
            json!({ "kind": name(*kind), "guest": guest.to_string(), "to": to.to_string(), "rule": **rule }),
        ),
        Event::NameDenied { guest, name, rule, is_dry } => (
            "name-denied",
            json!({ "guest": guest.to_string(), "name": name, "rule": **rule, "dry-run": is_dry }),
        ),
        Event::Ended(Ended { kind, to, decision, bytes: [up, down], time }) => (
            log::FLOW,
            json!({
                "kind": name(*kind), "guest": decision.guest.to_string(), "to": to.to_string(),
                "name": decision.name, "rule": *decision.rule, "would-deny": decision.would_deny,
                "up": up, "down": down, "seconds": time.as_secs_f64(),
            }),
        ),
        Event::Left { client, to } => {
            ("client-left", json!({ "client": client.to_string(), "to": to.to_string() }))
        }
        Event::OverLimit { guest, what } => {
            ("over-limit", json!({ "guest": guest.to_string(), "what": what.words() }))
        }
        Event::NoResources { to } => ("no-resources", json!({ "to": to.to_string() })),
        Event::CannotForward { at, why } => ("cannot-forward", json!({ "at": at.to_string(), "why": why })),
        Event::CannotAccept { at } => ("cannot-accept", json!({ "at": at.to_string() })),
    }
}

#[cfg(test)]
mod tests {
    use taut_gateway::Counted;

    use super::*;

    #[test]
    fn an_event_is_a_line_and_has_fields() {
        let guest = "10.0.2.15:4000".parse().unwrap();
        let to = "192.0.2.1:25".parse().unwrap();
        let denied = Event::Denied { guest, kind: FlowKind::Tcp, to, rule: "deny any port 25".into() };
        assert_eq!(text(&denied), "denied: tcp from 10.0.2.15:4000 to 192.0.2.1:25: deny any port 25");
        let expected =
            r#"{"guest":"10.0.2.15:4000","kind":"tcp","rule":"deny any port 25","to":"192.0.2.1:25"}"#;
        assert_eq!((fields(&denied).0, fields(&denied).1.to_string()), ("denied", expected.to_owned()));
        // A name with a quotation mark stays one string.
        let name = Event::NameDenied {
            guest: guest.ip(),
            name: "a\"b".into(),
            rule: "deny any".into(),
            is_dry: false,
        };
        let limit = Event::OverLimit { guest: guest.ip(), what: Counted::Connections };
        let port = Event::CannotForward { at: to, why: "in use".into() };
        let left = Event::Left { client: guest, to };
        for event in [name, left, limit, port, Event::NoResources { to }, Event::CannotAccept { at: to }] {
            let read: Value = serde_json::from_str(&fields(&event).1.to_string()).unwrap();
            assert!(read.is_object() && !fields(&event).0.is_empty(), "{read}");
            assert!(!text(&event).contains('\n'));
        }
    }
}
