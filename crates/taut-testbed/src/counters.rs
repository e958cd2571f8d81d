//! The kernel's counters of a namespace, by `nstat`'s names: `/proc/net/snmp` and `/proc/net/netstat`. Called
//! by live runs, which print them next to a stack's counters of the same names.

use std::collections::BTreeMap;
use std::fs;
use std::io;

use crate::Kernel;

impl Kernel {
    /// All counters since the namespace was made: `TcpOutSegs`, `TcpExtTCPTimeouts` …
    ///
    /// # Errors
    /// If `/proc` is missing.
    pub fn counters(&self) -> io::Result<BTreeMap<String, u64>> {
        self.enter(|| {
            let mut all = BTreeMap::new();
            for file in ["snmp", "netstat"] {
                parse(&fs::read_to_string(format!("/proc/thread-self/net/{file}"))?, &mut all);
            }
            Ok(all)
        })?
    }
}

/// Parses pairs of lines: one of names, then one of values.
fn parse(text: &str, into: &mut BTreeMap<String, u64>) {
    let lines: Vec<&str> = text.lines().collect();
    for pair in lines.chunks_exact(2) {
        let (Some((table, names)), Some((_, values))) = (pair[0].split_once(':'), pair[1].split_once(':'))
        else {
            continue;
        };
        for (name, value) in names.split_whitespace().zip(values.split_whitespace()) {
            if let Ok(value) = value.parse() {
                into.insert(format!("{table}{name}"), value);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_have_nstats_names() {
        let text = "Ip: Forwarding InReceives\nIp: 1 25\nTcpExt: TCPTimeouts X\nTcpExt: 3 -1\n";
        let mut all = BTreeMap::new();
        parse(text, &mut all);
        assert_eq!(all["IpInReceives"], 25);
        assert_eq!(all["TcpExtTCPTimeouts"], 3);
        assert!(!all.contains_key("TcpExtX"));
    }
}
