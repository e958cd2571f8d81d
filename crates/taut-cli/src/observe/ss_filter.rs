//! The common part of `ss`'s filter language: `state established`, `sport = :80`, `dst 10.0.0.1`. Pure.
//! Called by `ss.rs`.

use std::net::{IpAddr, SocketAddr};

/// States in `ss`'s order and words, and the words by which its filters know them; then those of flows, which
/// `ss` does not have.
const STATES: [(&str, &str); 13] = [
    ("ESTAB", "established"),
    ("SYN-SENT", "syn-sent"),
    ("SYN-RECV", "syn-recv"),
    ("FIN-WAIT-1", "fin-wait-1"),
    ("FIN-WAIT-2", "fin-wait-2"),
    ("TIME-WAIT", "time-wait"),
    ("UNCONN", "closed"),
    ("CLOSE-WAIT", "close-wait"),
    ("LAST-ACK", "last-ack"),
    ("LISTEN", "listening"),
    ("CLOSING", "closing"),
    ("PENDING", "pending"),
    ("DROPPED", "dropped"),
];

/// Words for groups of states, with the states that they leave out.
const GROUPS: [(&str, &[&str]); 4] = [
    ("all", &[]),
    ("connected", &["LISTEN", "UNCONN", "PENDING", "DROPPED"]),
    ("synchronized", &["LISTEN", "UNCONN", "SYN-SENT", "PENDING", "DROPPED"]),
    ("default", &["LISTEN", "UNCONN", "SYN-RECV", "TIME-WAIT", "PENDING", "DROPPED"]),
];

/// The connections to show.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Filter {
    states: Vec<&'static str>,
    /// The filter names states.
    pub has_states: bool,
    terms: Vec<Term>,
}

#[derive(Clone, Debug, PartialEq)]
struct Term {
    of_peer: bool,
    address: Option<IpAddr>,
    port: Option<(Order, u16)>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Order {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

impl Order {
    fn parse(word: &str) -> Option<Self> {
        Some(match word {
            "=" | "==" | "eq" => Self::Equal,
            "!=" | "ne" | "neq" => Self::NotEqual,
            "<" | "lt" => Self::Less,
            "<=" | "le" | "leq" => Self::LessOrEqual,
            ">" | "gt" => Self::Greater,
            ">=" | "ge" | "geq" => Self::GreaterOrEqual,
            _ => return None,
        })
    }

    fn holds(self, left: u16, right: u16) -> bool {
        match self {
            Self::Equal => left == right,
            Self::NotEqual => left != right,
            Self::Less => left < right,
            Self::LessOrEqual => left <= right,
            Self::Greater => left > right,
            Self::GreaterOrEqual => left >= right,
        }
    }
}

fn group(word: &str) -> Option<Vec<&'static str>> {
    let (_, without) = GROUPS.into_iter().find(|(name, _)| *name == word)?;
    Some(STATES.into_iter().map(|(state, _)| state).filter(|state| !without.contains(state)).collect())
}

/// The states that a word means.
fn states(word: &str) -> Result<Vec<&'static str>, String> {
    let word = match word {
        "listen" => "listening",
        "established" | "estab" => "established",
        other => other,
    };
    let one = STATES.into_iter().find(|(_, name)| *name == word).map(|(state, _)| vec![state]);
    one.or_else(|| group(word)).ok_or_else(|| {
        let known: Vec<_> =
            STATES.iter().map(|(_, name)| *name).chain(GROUPS.iter().map(|(name, _)| *name)).collect();
        format!("unknown state {word:?}; choose one of {}", known.join(", "))
    })
}

impl Filter {
    /// Reads the words of the command line; one argument may hold several. `default` is the group that is
    /// shown if no state is given.
    ///
    /// # Errors
    /// The word that cannot be parsed.
    pub(crate) fn parse(arguments: &[String], default: &str) -> Result<Self, String> {
        let mut words = arguments.iter().flat_map(|argument| argument.split_whitespace()).peekable();
        let mut filter = Self { states: Vec::new(), has_states: false, terms: Vec::new() };
        let mut without = Vec::new();
        while let Some(word) = words.next() {
            let mut next = |what: &str| words.next().ok_or_else(|| format!("{word} needs {what}"));
            match word {
                "and" | "&&" | "&" | "(" | ")" => {}
                "state" => {
                    filter.states.extend(states(next("a state")?)?);
                    filter.has_states = true;
                }
                "exclude" => without.extend(states(next("a state")?)?),
                "sport" | "dport" => {
                    let order = next("an operator and a port, such as = :80")?;
                    let (order, port) = match Order::parse(order) {
                        Some(order) => (order, next("a port, such as :80")?),
                        None => (Order::Equal, order),
                    };
                    let port = port.trim_start_matches(':').parse();
                    let port = port.map_err(|_| format!("{word}: not a port, such as :80"))?;
                    let of_peer = word == "dport";
                    filter.terms.push(Term { of_peer, address: None, port: Some((order, port)) });
                }
                "src" | "dst" => {
                    let mut text = next("an address")?;
                    if text == "=" {
                        text = next("an address")?;
                    }
                    let (address, port) = endpoint(text).ok_or_else(|| {
                        format!("{word}: {text:?} is not ADDRESS, ADDRESS:PORT, [ADDRESS]:PORT or :PORT")
                    })?;
                    let port = port.map(|port| (Order::Equal, port));
                    filter.terms.push(Term { of_peer: word == "dst", address, port });
                }
                other => {
                    return Err(format!(
                        "unknown word {other:?}; a filter consists of state, exclude, sport, dport, src, dst, and"
                    ));
                }
            }
        }
        if !filter.has_states {
            filter.states = states(default)?;
        }
        filter.states.retain(|state| !without.contains(state));
        filter.states.dedup();
        Ok(filter)
    }

    /// The state, if the filter allows only one; it then need not be shown.
    #[must_use]
    pub(crate) fn has_one_state(&self) -> bool {
        self.has_states && self.states.len() == 1
    }

    /// Whether a connection in this state can pass.
    #[must_use]
    pub(crate) fn has_state(&self, state: &str) -> bool {
        self.states.contains(&state)
    }

    /// Whether any flow can pass.
    #[must_use]
    pub(crate) fn shows_flows(&self) -> bool {
        self.has_state("PENDING") || self.has_state("DROPPED")
    }

    /// Whether a connection passes; a listener has no peer.
    #[must_use]
    pub(crate) fn passes(&self, state: &str, local: SocketAddr, peer: Option<SocketAddr>) -> bool {
        self.has_state(state) && self.terms.iter().all(|term| term.holds(local, peer))
    }
}

impl Term {
    fn holds(&self, local: SocketAddr, peer: Option<SocketAddr>) -> bool {
        let Some(end) = (if self.of_peer { peer } else { Some(local) }) else { return false };
        self.address.is_none_or(|address| address == end.ip().to_canonical())
            && self.port.is_none_or(|(order, port)| order.holds(end.port(), port))
    }
}

/// Reads `ADDRESS`, `ADDRESS:PORT`, `[ADDRESS]`, `[ADDRESS]:PORT`, `:PORT` or `*:PORT`.
#[must_use]
pub(crate) fn endpoint(text: &str) -> Option<(Option<IpAddr>, Option<u16>)> {
    if let Ok(address) = text.parse::<SocketAddr>() {
        return Some((Some(address.ip().to_canonical()), Some(address.port())));
    }
    let bare = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or(text);
    if let Ok(address) = bare.parse::<IpAddr>() {
        return Some((Some(address.to_canonical()), None));
    }
    let port = text.strip_prefix('*').unwrap_or(text).strip_prefix(':')?;
    Some((None, Some(port.parse().ok()?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filter(text: &[&str]) -> Result<Filter, String> {
        let words: Vec<_> = text.iter().map(|&word| word.to_owned()).collect();
        Filter::parse(&words, "default")
    }

    fn at(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }

    fn passes(text: &[&str], state: &str, local: &str, peer: &str) -> bool {
        filter(text).unwrap().passes(state, at(local), Some(at(peer)))
    }

    #[test]
    fn without_words_connections_are_shown_and_listeners_are_not() {
        let all = filter(&[]).unwrap();
        assert!(all.has_state("ESTAB") && all.has_state("CLOSE-WAIT") && all.has_state("SYN-SENT"));
        assert!(!all.has_state("LISTEN") && !all.has_state("TIME-WAIT") && !all.shows_flows());
        assert!(!all.has_one_state());
    }

    #[test]
    fn states_ports_and_addresses_are_joined() {
        let ends = ("10.0.0.2:40000", "10.0.0.1:5201");
        let shown = |text: &[&str]| passes(text, "ESTAB", ends.0, ends.1);
        assert!(shown(&["state", "established"]));
        assert!(shown(&["state connected dst 10.0.0.1"]));
        assert!(!shown(&["state", "fin-wait-1"]));
        assert!(!shown(&["exclude", "established"]));
        assert!(shown(&["dport", "=", ":5201"]) && shown(&["dport = 5201"]) && shown(&["dport :5201"]));
        assert!(!shown(&["sport", "=", ":5201"]));
        assert!(shown(&["sport >= :40000 and dst 10.0.0.1:5201"]));
        assert!(!shown(&["sport > :40000"]) && shown(&["sport != :80"]) && shown(&["sport lt :40001"]));
        assert!(shown(&["src = 10.0.0.2"]) && !shown(&["src 10.0.0.1"]) && shown(&["dst :5201"]));
        assert!(passes(&["dst [fd00::1]:80"], "ESTAB", "[fd00::2]:1", "[fd00::1]:80"));
        assert!(filter(&["state", "listening"]).unwrap().has_one_state());
    }

    #[test]
    fn a_listener_has_no_peer_to_match() {
        let listening = filter(&["state listening"]).unwrap();
        assert!(listening.passes("LISTEN", at("0.0.0.0:80"), None));
        let to = filter(&["state listening dport = :80"]).unwrap();
        assert!(!to.passes("LISTEN", at("0.0.0.0:80"), None));
    }

    #[test]
    fn what_is_not_understood_is_said() {
        for (words, named) in [
            (vec!["state"], "state"),
            (vec!["state", "happy"], "happy"),
            (vec!["sport", "=", ":x"], "sport"),
            (vec!["sport", "="], "port"),
            (vec!["dst", "nowhere"], "nowhere"),
            (vec!["autobound"], "autobound"),
        ] {
            let error = filter(&words).unwrap_err();
            assert!(error.contains(named), "{error}");
        }
    }
}
