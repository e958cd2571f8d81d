//! `--log`: the events of a gateway or a proxy, a line for each, on standard error.
//!
//! Called by `gateway.rs` and `proxy.rs`.

use clap::ValueEnum;
use serde_json::{Value, json};
use taut::FlowKind;
use taut_gateway::Event;

use crate::shared::clock;

/// How events are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormat {
    /// A line of text.
    #[default]
    Text,
    /// A JSON object.
    Json,
    /// Not at all.
    None,
}

impl LogFormat {
    /// Writes one event.
    pub(crate) fn write(self, event: &Event) {
        match self {
            Self::Text => eprintln!("taut: {}", text(event)),
            Self::Json => eprintln!("{}", object(event, clock::wall())),
            Self::None => {}
        }
    }

    /// Writes what became of the guest or of the file of rules: the event's name, and a sentence.
    pub(crate) fn say(self, event: &str, sentence: &str) {
        match self {
            Self::Text => eprintln!("taut: {sentence}"),
            Self::Json => eprintln!("{}", notice(event, sentence, clock::wall())),
            Self::None => {}
        }
    }
}

fn notice(event: &str, sentence: &str, time: f64) -> Value {
    json!({ "event": event, "text": sentence, "time": time })
}

const fn name(kind: FlowKind) -> &'static str {
    match kind {
        FlowKind::Tcp => "tcp",
        FlowKind::Udp => "udp",
        FlowKind::Echo => "ping",
    }
}

fn text(event: &Event) -> String {
    match event {
        Event::Denied { guest, kind, to, rule } => {
            format!("denied: {} from {guest} to {to}: {rule}", name(*kind))
        }
        Event::NameDenied { guest, name, rule } => format!("denied: name {name} for {guest}: {rule}"),
        Event::Left { client, to } => {
            format!("client left: tcp from {client} to {to}, which had not answered yet")
        }
        Event::OverLimit { guest, what } => format!("{guest} has too many {}", what.words()),
        Event::NoResources { to } => {
            format!("no descriptor, port or memory for a flow to {to}; see ulimit -n")
        }
        Event::CannotForward { at, why } => format!("{why}; the guest listens at port {}", at.port()),
        Event::CannotAccept { at } => {
            format!("no descriptor or memory to accept a client at {at}; see ulimit -n")
        }
    }
}

fn object(event: &Event, time: f64) -> Value {
    let mut object = match event {
        Event::Denied { guest, kind, to, rule } => json!({
            "event": "denied", "kind": name(*kind), "guest": guest.to_string(), "to": to.to_string(), "rule": rule,
        }),
        Event::NameDenied { guest, name, rule } => {
            json!({ "event": "name-denied", "guest": guest.to_string(), "name": name, "rule": rule })
        }
        Event::Left { client, to } => {
            json!({ "event": "client-left", "client": client.to_string(), "to": to.to_string() })
        }
        Event::OverLimit { guest, what } => {
            json!({ "event": "over-limit", "guest": guest.to_string(), "what": what.words() })
        }
        Event::NoResources { to } => json!({ "event": "no-resources", "to": to.to_string() }),
        Event::CannotForward { at, why } => {
            json!({ "event": "cannot-forward", "at": at.to_string(), "why": why })
        }
        Event::CannotAccept { at } => json!({ "event": "cannot-accept", "at": at.to_string() }),
    };
    object["time"] = json!(time);
    object
}

#[cfg(test)]
mod tests {
    use taut_gateway::Counted;

    use super::*;

    #[test]
    fn an_event_is_a_line_or_an_object() {
        let guest = "10.0.2.15:4000".parse().unwrap();
        let to = "192.0.2.1:25".parse().unwrap();
        let denied = Event::Denied { guest, kind: FlowKind::Tcp, to, rule: "deny any port 25".into() };
        assert_eq!(text(&denied), "denied: tcp from 10.0.2.15:4000 to 192.0.2.1:25: deny any port 25");
        let expected = r#"{"event":"denied","guest":"10.0.2.15:4000","kind":"tcp","rule":"deny any port 25","time":1.5,"to":"192.0.2.1:25"}"#;
        assert_eq!(object(&denied, 1.5).to_string(), expected);
        assert_eq!(
            notice("machine-came", "a virtual machine is there", 2.5).to_string(),
            r#"{"event":"machine-came","text":"a virtual machine is there","time":2.5}"#
        );
        // No event is without a name and a time, and a name with a quotation mark stays one string.
        let name = Event::NameDenied { guest: guest.ip(), name: "a\"b".into(), rule: "deny any".into() };
        let limit = Event::OverLimit { guest: guest.ip(), what: Counted::Connections };
        let port = Event::CannotForward { at: to, why: "in use".into() };
        let left = Event::Left { client: guest, to };
        for event in [name, left, limit, port, Event::NoResources { to }, Event::CannotAccept { at: to }] {
            let read: Value = serde_json::from_str(&object(&event, 0.0).to_string()).unwrap();
            assert!(read["event"].is_string() && read["time"].is_number(), "{read}");
            assert!(!text(&event).contains('\n'));
        }
    }
}
