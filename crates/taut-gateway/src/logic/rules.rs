//! Which destinations a guest may reach: rules in order, of which the first that matches decides.
//!
//! ```text
//!   allow tcp 10.1.0.0/16 port 443          an address or network, a kind, ports
//!   deny 10.0.0.0/8                         answered as prohibited
//!   drop udp any port 1900                  not answered
//!   allow *.example.com port 443            what this gateway has told the guest as an address of such a name
//!   allow db.corp within 10.2.0.0/16        the same, if the address is in that network
//!   allow x.example.com port 443 ech        the same, if the name is encrypted (ECH), too
//!   allow any rate 20mbit                   all flows that it allows, together, in each direction
//!   allow tcp any port 22 class interactive the priority of the host's sockets
//! ```
//!
//! Behind the rules of the user come those of [`Rules::DEFAULTS`]: addresses that no router forwards, the
//! host's loopback among them, and the metadata services of clouds are denied; anything else is allowed.
//!
//! **Names.** The owner of a name chooses its addresses, and may choose `127.0.0.1` or a machine behind the
//! host (rebinding). So a rule that allows a name allows no address that is special, unless the rule says
//! `within`. A rule that denies a name denies any address of it, and the question for it, too. So does one
//! that denies any destination: a question is sent to the servers of its domain, with all that it says, so a
//! guest may resolve only names that a rule before that one mentions.
//!
//! A connection that such a rule allows must say a name that it allows before its first byte leaves
//! (`first_bytes/`). QUIC encrypts its name, so at its port a rule with a name allows UDP only if it says
//! `udp`.
//!
//! **Addresses within addresses.** `::a.b.c.d`, `::ffff:a.b.c.d`, `64:ff9b::a.b.c.d` (RFC 6052), 6to4 and
//! `64:ff9b:1::/48` (RFC 8215) lead to an IPv4 address. A rule that denies that one denies these, too; a rule
//! that allows does not. Within `64:ff9b:1::/48` a network chooses the place of the IPv4 address, so each
//! place is judged where it can be.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::ops::RangeInclusive;
use std::str::FromStr;
use std::sync::{Arc, LazyLock};

use taut::FlowKind;
use taut::network::IpPrefix;
use taut::qdisc::Rate;

use crate::logic::rules::rate::Pace;

pub(crate) mod rate;

/// What a rule decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// The flow may go there.
    Allow,
    /// It is refused, as administratively prohibited.
    Deny,
    /// It is not answered.
    Drop,
}

/// Where a rule applies.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Target {
    Any,
    Network(IpPrefix),
    Name { pattern: Pattern, within: Option<IpPrefix> },
}

/// A name, or all names below one.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Pattern {
    name: String,
    /// `*.name`: names below it, and not it itself.
    is_below: bool,
}

impl Pattern {
    fn matches(&self, name: &str) -> bool {
        if !self.is_below {
            return self.name == name;
        }
        name.strip_suffix(&self.name).is_some_and(|front| front.len() > 1 && front.ends_with('.'))
    }
}

/// How urgent the flows of a rule are, for the queue of the interface by which they leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Class {
    /// A person waits for the answer.
    Interactive,
    /// It may take long.
    Bulk,
}

impl Class {
    const NAMES: [(&'static str, Self); 2] = [("interactive", Self::Interactive), ("bulk", Self::Bulk)];

    /// `SO_PRIORITY`. Linux: `TC_PRIO_INTERACTIVE`, `TC_PRIO_BULK`; neither needs a right (socket(7)).
    pub(crate) const fn priority(self) -> u32 {
        match self {
            Self::Interactive => 6,
            Self::Bulk => 2,
        }
    }
}

/// One rule.
#[derive(Debug, PartialEq, Eq)]
pub struct Rule {
    action: Action,
    kind: Option<FlowKind>,
    target: Target,
    /// Any port if there is none.
    ports: Vec<RangeInclusive<u16>>,
    /// The name may be encrypted.
    ech: bool,
    /// How much its flows may carry.
    pace: Option<Pace>,
    /// How urgent they are.
    class: Option<Class>,
    /// As it is written.
    text: Arc<str>,
}

/// The last of the defaults.
static ALLOW_ANY: LazyLock<Arc<Rule>> = LazyLock::new(|| {
    let (action, target, ports, text) = (Action::Allow, Target::Any, Vec::new(), "allow any".into());
    Arc::new(Rule { action, kind: None, target, ports, ech: false, pace: None, class: None, text })
});

/// Where QUIC is.
const QUIC_PORT: u16 = 443;

/// A list of rules.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rules {
    rules: Vec<Arc<Rule>>,
    /// So many of them are the user's; the defaults follow.
    own: usize,
}

/// What the rules say of a destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Verdict<'a> {
    /// What to do.
    pub action: Action,
    /// The rule that decided.
    pub rule: &'a Arc<Rule>,
}

/// The text is not a rule.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not a rule: {why}; write, for example, \"deny tcp 10.0.0.0/8 port 25,80-90\"")]
pub struct RuleError {
    text: String,
    why: String,
}

/// A rule cannot be put there, or taken from there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum PlaceError {
    #[error("there is no place {at} for a rule: the first is 1, and the defaults begin at {defaults}")]
    Nowhere { at: usize, defaults: usize },
    #[error("rule {0} is one of the defaults, which stay; a rule in front of them decides first")]
    Default(usize),
    #[error("there are {} rules already; remove one first", MOST)]
    Full,
    #[error("flows leave by a stack of taut's, whose packets have no class; leave the class out")]
    Class,
}

/// Rules of a running gateway's user: each flow is compared with all.
const MOST: usize = 1_024;

/// Networks whose addresses are not anybody's on the Internet. An allowed name does not lead there.
const SPECIAL: [&str; 18] = [
    "0.0.0.0/8",
    "10.0.0.0/8",
    "100.64.0.0/10",
    "127.0.0.0/8",
    "168.63.129.16",
    "169.254.0.0/16",
    "172.16.0.0/12",
    "192.0.0.0/24",
    "192.168.0.0/16",
    "198.18.0.0/15",
    "224.0.0.0/3",
    "::/96",
    "::ffff:0:0/96",
    "64:ff9b:1::/48",
    "fc00::/7",
    "fe80::/10",
    "fec0::/10",
    "ff00::/8",
];

impl Rules {
    /// What is decided where no rule of the user matches. RFC 1122 §3.2.1.3, RFC 4291 §2.5.3: loopback
    /// addresses stay in a host. RFC 3927 §7, RFC 4291 §2.5.6: a router does not forward link-local
    /// addresses. A cloud's metadata service gives the host's credentials to each client: most are at
    /// 169.254.169.254, others at addresses of their own (AWS and Google by IPv6, Azure, Alibaba).
    pub const DEFAULTS: [&'static str; 11] = [
        "deny 127.0.0.0/8",
        "deny ::1",
        "deny 0.0.0.0/8",
        "deny ::",
        "deny 169.254.0.0/16",
        "deny fe80::/10",
        "deny fd00:ec2::254",
        "deny fd20:ce::254",
        "deny 168.63.129.16",
        "deny 100.100.100.200",
        "allow any",
    ];

    /// The networks of RFC 1918, RFC 6598 and RFC 4193, which a host's neighbours have: for those who close
    /// them.
    pub const NO_PRIVATE: [&'static str; 5] = [
        "deny 10.0.0.0/8",
        "deny 100.64.0.0/10",
        "deny 172.16.0.0/12",
        "deny 192.168.0.0/16",
        "deny fc00::/7",
    ];

    /// These rules, and behind them [`DEFAULTS`](Self::DEFAULTS).
    ///
    /// # Errors
    /// The first text that is not a rule.
    pub fn parse<'a>(texts: impl IntoIterator<Item = &'a str>) -> Result<Self, RuleError> {
        let rule = |text: &str| text.parse().map(Arc::new);
        let rules = texts.into_iter().chain(Self::DEFAULTS).map(rule).collect::<Result<Vec<_>, _>>()?;
        Ok(Self { own: rules.len() - Self::DEFAULTS.len(), rules })
    }

    /// All of them, in the order in which they are asked.
    pub fn iter(&self) -> impl Iterator<Item = &Rule> {
        self.rules.iter().map(|rule| &**rule)
    }

    /// Rules that were there before, and are read again, share their rates with the flows that they allowed.
    pub(crate) fn keep_rates(&mut self, before: &Self) {
        for rule in self.rules.iter_mut().filter(|rule| rule.pace.is_some()) {
            if let Some(same) = before.rules.iter().find(|same| *same == rule) {
                *rule = Arc::clone(same);
            }
        }
    }

    /// How many come before the defaults.
    pub(crate) const fn own(&self) -> usize {
        self.own
    }

    /// Puts a rule at this place, before the one that is there: the first is 1, the last the place of the
    /// first default.
    pub(crate) fn insert(&mut self, at: usize, rule: Rule) -> Result<(), PlaceError> {
        if !(1..=self.own + 1).contains(&at) {
            return Err(PlaceError::Nowhere { at, defaults: self.own + 1 });
        }
        if self.own >= MOST {
            return Err(PlaceError::Full);
        }
        self.rules.insert(at - 1, Arc::new(rule));
        self.own += 1;
        Ok(())
    }

    /// Takes out the rule at this place. The defaults stay.
    pub(crate) fn remove(&mut self, at: usize) -> Result<Arc<Rule>, PlaceError> {
        if !(1..=self.rules.len()).contains(&at) {
            return Err(PlaceError::Nowhere { at, defaults: self.own + 1 });
        }
        if at > self.own {
            return Err(PlaceError::Default(at));
        }
        self.own -= 1;
        Ok(self.rules.remove(at - 1))
    }

    /// What may become of a flow to this destination, whose address the guest has been told for these names.
    #[must_use]
    #[expect(clippy::needless_pass_by_value, reason = "an iterator")]
    pub fn check<'a>(
        &self,
        kind: FlowKind,
        to: SocketAddr,
        names: impl Iterator<Item = &'a str> + Clone,
    ) -> Verdict<'_> {
        let rule = self.rules.iter().find(|rule| rule.matches(kind, to, names.clone()));
        let rule = rule.unwrap_or(&ALLOW_ANY);
        Verdict { action: rule.action, rule }
    }

    /// The same by the defaults alone.
    pub(crate) fn check_defaults(&self, kind: FlowKind, to: SocketAddr) -> Verdict<'_> {
        let rule = self.rules[self.own..].iter().find(|rule| rule.matches(kind, to, std::iter::empty()));
        let rule = rule.unwrap_or(&ALLOW_ANY);
        Verdict { action: rule.action, rule }
    }

    /// Whether a rule is for this name.
    pub(crate) fn mentions(&self, name: &str) -> bool {
        let is_for =
            |rule: &Arc<Rule>| matches!(&rule.target, Target::Name { pattern, .. } if pattern.matches(name));
        self.rules.iter().any(is_for)
    }

    /// The rule that denies a question for this name, whatever its addresses: the first one without a kind
    /// or ports that denies the name or any destination, if no rule before it allows the name something.
    #[must_use]
    pub fn check_name(&self, name: &str) -> Option<Verdict<'_>> {
        let concerns = |rule: &&Arc<Rule>| {
            let is_for_all = rule.kind.is_none() && rule.ports.is_empty();
            match (&rule.target, rule.action) {
                (Target::Any, Action::Allow) => true,
                (Target::Name { pattern, .. }, Action::Allow) => pattern.matches(name),
                (Target::Any, _) => is_for_all,
                (Target::Name { pattern, within: None }, _) => is_for_all && pattern.matches(name),
                (Target::Network(_) | Target::Name { .. }, _) => false,
            }
        };
        let rule = self.rules.iter().find(concerns)?;
        (rule.action != Action::Allow).then_some(Verdict { action: rule.action, rule })
    }
}

impl Default for Rules {
    fn default() -> Self {
        // Each is a rule, as a test shows.
        Self {
            rules: Self::DEFAULTS.iter().filter_map(|text| text.parse().map(Arc::new).ok()).collect(),
            own: 0,
        }
    }
}

impl Rule {
    /// Whether it allows destinations by their names: the first bytes of a connection must say one of them.
    pub(crate) const fn allows_names(&self) -> bool {
        matches!((self.action, &self.target), (Action::Allow, Target::Name { .. }))
    }

    /// Whether the name may be encrypted.
    pub(crate) const fn allows_ech(&self) -> bool {
        self.ech
    }

    /// How much its flows may carry.
    pub(crate) const fn pace(&self) -> Option<&Pace> {
        self.pace.as_ref()
    }

    /// Whether it bounds the rate of its flows.
    #[must_use]
    pub const fn has_rate(&self) -> bool {
        self.pace.is_some()
    }

    /// How urgent its flows are.
    pub(crate) const fn class(&self) -> Option<Class> {
        self.class
    }

    /// Whether it says how urgent its flows are.
    #[must_use]
    pub const fn has_class(&self) -> bool {
        self.class.is_some()
    }

    /// As it is written.
    pub(crate) fn text(&self) -> Arc<str> {
        Arc::clone(&self.text)
    }

    fn matches<'a>(&self, kind: FlowKind, to: SocketAddr, mut names: impl Iterator<Item = &'a str>) -> bool {
        let is_port = |port| self.ports.is_empty() || self.ports.iter().any(|ports| ports.contains(&port));
        if self.kind.is_some_and(|own| own != kind) || (kind != FlowKind::Echo && !is_port(to.port())) {
            return false;
        }
        if kind == FlowKind::Echo && !self.ports.is_empty() {
            return false;
        }
        let is_quic = kind == FlowKind::Udp && to.port() == QUIC_PORT;
        if is_quic && self.allows_names() && self.kind.is_none() {
            return false;
        }
        let ip = to.ip();
        let has = |network: &IpPrefix| match self.action {
            Action::Allow => network.contains(ip),
            Action::Deny | Action::Drop => {
                network.contains(ip) || embedded(ip).into_iter().any(|inner| network.contains(inner))
            }
        };
        match &self.target {
            Target::Any => true,
            Target::Network(network) => has(network),
            Target::Name { pattern, within } => {
                names.any(|name| pattern.matches(name))
                    && match within {
                        Some(network) => has(network),
                        None => self.action != Action::Allow || !is_special(ip),
                    }
            }
        }
    }
}

/// Whether an address is not one of the Internet.
#[must_use]
pub fn is_special(ip: IpAddr) -> bool {
    let is_in = |ip: IpAddr| {
        SPECIAL.iter().any(|network| prefix(network).is_some_and(|network| network.contains(ip)))
    };
    is_in(ip) || embedded(ip).into_iter().any(is_in)
}

/// The IPv4 addresses to which an IPv6 address may lead.
fn embedded(ip: IpAddr) -> Vec<IpAddr> {
    let IpAddr::V6(v6) = ip else { return Vec::new() };
    let bits = v6.to_bits();
    match v6.segments() {
        [0, 0, 0, 0, 0, 0 | 0xffff, ..] | [0x64, 0xff9b, 0, 0, 0, 0, ..] => {
            vec![Ipv4Addr::from_bits(bits as u32).into()]
        }
        [0x2002, ..] => vec![Ipv4Addr::from_bits((bits >> 80) as u32).into()],
        [0x64, 0xff9b, 1, ..] => translated(&v6.octets()),
        _ => Vec::new(),
    }
}

/// RFC 6052 §2.2: the IPv4 address behind a prefix of 48, 56, 64 or 96 bits. Octet 8 and what follows the
/// address are zero.
fn translated(octets: &[u8; 16]) -> Vec<IpAddr> {
    let places = [[6, 7, 9, 10], [7, 9, 10, 11], [9, 10, 11, 12], [12, 13, 14, 15]];
    let may_be =
        |place: &&[usize; 4]| octets[8] == 0 && octets[place[3] + 1..].iter().all(|octet| *octet == 0);
    let at = |place: &[usize; 4]| Ipv4Addr::from(place.map(|at| octets[at]));
    // No place begins with an empty octet: that would be "this network" (RFC 1122 §3.2.1.3).
    places.iter().filter(may_be).map(at).filter(|inner| inner.octets()[0] != 0).map(IpAddr::V4).collect()
}

/// `address` or `address/length`.
fn prefix(text: &str) -> Option<IpPrefix> {
    let (address, len) = match text.split_once('/') {
        Some((address, len)) => (address.parse().ok()?, len.parse().ok()?),
        None => {
            let address: IpAddr = text.parse().ok()?;
            (address, if address.is_ipv4() { 32 } else { 128 })
        }
    };
    IpPrefix::new(address, len)
}

fn ports(text: &str) -> Option<Vec<RangeInclusive<u16>>> {
    let one = |text: &str| {
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        let range: RangeInclusive<u16> = first.parse().ok()?..=last.parse().ok()?;
        (!range.is_empty()).then_some(range)
    };
    text.split(',').map(one).collect()
}

/// A name as DNS compares it: small letters, without the dot at its end (RFC 4343).
fn pattern(text: &str) -> Option<Pattern> {
    let (name, is_below) = text.strip_prefix("*.").map_or((text, false), |name| (name, true));
    let name = name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase();
    let is_label = |label: &str| {
        (1..=63).contains(&label.len())
            && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_')
    };
    // An address that is mistyped must not become a name.
    let has_letter = name.bytes().any(|byte| byte.is_ascii_alphabetic());
    (name.split('.').all(is_label) && has_letter).then_some(Pattern { name, is_below })
}

impl FromStr for Rule {
    type Err = RuleError;

    fn from_str(text: &str) -> Result<Self, RuleError> {
        let wrong = |why: &str| RuleError { text: text.to_owned(), why: why.to_owned() };
        let mut words = text.split_whitespace().peekable();
        let action = match words.next() {
            Some("allow") => Action::Allow,
            Some("deny") => Action::Deny,
            Some("drop") => Action::Drop,
            _ => return Err(wrong("it begins with allow, deny or drop")),
        };
        let kind = match words.peek() {
            Some(&"tcp") => Some(FlowKind::Tcp),
            Some(&"udp") => Some(FlowKind::Udp),
            Some(&"ping") => Some(FlowKind::Echo),
            _ => None,
        };
        if kind.is_some() {
            words.next();
        }
        let target = words.next().ok_or_else(|| wrong("it has no destination: any, a network or a name"))?;
        let mut target = if target == "any" {
            Target::Any
        } else if let Some(network) = prefix(target) {
            Target::Network(network)
        } else if let Some(pattern) = pattern(target) {
            Target::Name { pattern, within: None }
        } else {
            return Err(wrong(&format!("{target} is no network and no name")));
        };
        let (mut chosen, mut ech, mut pace, mut class) = (Vec::new(), false, None, None);
        while let Some(word) = words.next() {
            let is_by_name = action == Action::Allow && matches!(target, Target::Name { .. });
            if word == "ech" && is_by_name && !ech {
                ech = true;
                continue;
            }
            let value = words.next().ok_or_else(|| wrong(&format!("nothing follows {word}")))?;
            match (word, &mut target) {
                ("port", _) if kind != Some(FlowKind::Echo) && chosen.is_empty() => {
                    chosen = ports(value).ok_or_else(|| wrong(&format!("{value} are no ports")))?;
                }
                ("within", Target::Name { within: within @ None, .. }) => {
                    let network = prefix(value).ok_or_else(|| wrong(&format!("{value} is no network")))?;
                    *within = Some(network);
                }
                ("rate", _) if action == Action::Allow && pace.is_none() => {
                    let rate = value.parse::<Rate>().map_err(|error| wrong(&error.to_string()))?;
                    pace = Some(Pace::new(rate));
                }
                ("class", _) if action == Action::Allow && kind == Some(FlowKind::Tcp) && class.is_none() => {
                    class = Class::NAMES.iter().find(|(name, _)| *name == value).map(|(_, class)| *class);
                    class.ok_or_else(|| wrong("a class is interactive or bulk"))?;
                }
                // One socket of the host carries all datagrams of a guest's port.
                ("class", _) => return Err(wrong("a class is for allow tcp, once")),
                _ => return Err(wrong(&format!("{word} does not belong there"))),
            }
        }
        let rule = Self { action, kind, target, ports: chosen, ech, pace, class, text: "".into() };
        Ok(Self { text: rule.to_string().into(), ..rule })
    }
}

/// As it is written.
impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.action {
            Action::Allow => "allow",
            Action::Deny => "deny",
            Action::Drop => "drop",
        })?;
        match self.kind {
            Some(FlowKind::Tcp) => f.write_str(" tcp")?,
            Some(FlowKind::Udp) => f.write_str(" udp")?,
            Some(FlowKind::Echo) => f.write_str(" ping")?,
            None => {}
        }
        let network = |f: &mut fmt::Formatter<'_>, network: &IpPrefix| {
            let bits = if network.address().is_ipv4() { 32 } else { 128 };
            write!(f, " {}", network.address())?;
            if network.prefix_len() < bits { write!(f, "/{}", network.prefix_len()) } else { Ok(()) }
        };
        match &self.target {
            Target::Any => f.write_str(" any")?,
            Target::Network(own) => network(f, own)?,
            Target::Name { pattern, within } => {
                write!(f, " {}{}", if pattern.is_below { "*." } else { "" }, pattern.name)?;
                if let Some(own) = within {
                    f.write_str(" within")?;
                    network(f, own)?;
                }
            }
        }
        for (at, ports) in self.ports.iter().enumerate() {
            f.write_str(if at == 0 { " port " } else { "," })?;
            write!(f, "{}", ports.start())?;
            if ports.end() > ports.start() {
                write!(f, "-{}", ports.end())?;
            }
        }
        f.write_str(if self.ech { " ech" } else { "" })?;
        self.pace.iter().try_for_each(|pace| write!(f, " rate {}", pace.rate()))?;
        let name = Class::NAMES.iter().find(|(_, class)| Some(*class) == self.class);
        name.into_iter().try_for_each(|(name, _)| write!(f, " class {name}"))
    }
}

/// The unspecified address of the same family, at any port.
pub(crate) const fn any_port(like: SocketAddr) -> SocketAddr {
    match like {
        SocketAddr::V4(_) => SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0),
        SocketAddr::V6(_) => SocketAddr::new(IpAddr::V6(Ipv6Addr::UNSPECIFIED), 0),
    }
}

/// The senders whose datagrams reach a guest's UDP port (RFC 4787 §5), as far as rules allow them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum UdpFilter {
    /// Addresses that the port has sent to, from any of their ports: "address-dependent filtering", which
    /// REQ-8 recommends where filtering matters most.
    #[default]
    Address,
    /// Anybody: "endpoint-independent filtering", which REQ-8 recommends where applications matter most.
    Any,
}
