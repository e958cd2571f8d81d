//! The settings of TCP Fast Open, and their texts in Linux's form: `tcp_fastopen` is a sum of bits. RFC 7413;
//! Linux's `ip-sysctl`. Called by `settings/sysctl.rs`.

use alloc::string::{String, ToString};

use super::FastOpenKeys;
use crate::words::Duration;

/// Settings of TCP Fast Open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct FastOpenConfig {
    /// Connections may send data in their SYN, if their options ask for it. Linux: bit 1 of `tcp_fastopen`.
    pub client: bool,
    /// Listeners may accept data in a SYN, if their options ask for it. Linux: bit 2.
    pub server: bool,
    /// Connections send data in their SYN even without a cookie. Linux: bit 4.
    pub client_no_cookie: bool,
    /// Listeners accept data in a SYN even without a cookie. Linux: bit 0x200.
    pub server_no_cookie: bool,
    /// Every listener accepts data in a SYN, with its backlog as the limit. Linux: bit 0x400.
    pub all_listeners: bool,
    /// The keys of the cookies; without any, they come from the stack's seed. Linux: `tcp_fastopen_key`.
    pub keys: Option<FastOpenKeys>,
    /// For how long connections send no data in their SYN after a path was found to drop that; twice as long
    /// after the next time, up to 64 times. Zero: such paths are not looked for. Linux:
    /// `tcp_fastopen_blackhole_timeout_sec`.
    pub black_hole_timeout: Duration,
}

impl Default for FastOpenConfig {
    fn default() -> Self {
        Self {
            client: true,
            server: false,
            client_no_cookie: false,
            server_no_cookie: false,
            all_listeners: false,
            keys: None,
            black_hole_timeout: Duration::ZERO,
        }
    }
}

/// `tcp_fastopen`: a sum of bits.
const CLIENT: u32 = 1;
const SERVER: u32 = 2;
const CLIENT_NO_COOKIE: u32 = 4;
const SERVER_NO_COOKIE: u32 = 0x200;
const ALL_LISTENERS: u32 = 0x400;
/// Bits that scripts for older kernels set. Linux takes them, and they mean nothing.
const WITHOUT_MEANING: u32 = 0x70000;

/// What a kernel shows that has no key yet.
const NO_KEY: &str = "00000000-00000000-00000000-00000000";

impl FastOpenConfig {
    /// Sets what `tcp_fastopen` says.
    ///
    /// # Errors
    ///
    /// The allowed values.
    pub(crate) fn set_bits(&mut self, text: &str) -> Result<(), String> {
        let all = CLIENT | SERVER | CLIENT_NO_COOKIE | SERVER_NO_COOKIE | ALL_LISTENERS | WITHOUT_MEANING;
        let text = text.trim();
        let parsed = match text.strip_prefix("0x") {
            Some(digits) => u32::from_str_radix(digits, 16).ok(),
            None => text.parse().ok(),
        };
        let bits = parsed.filter(|bits| bits & !all == 0).ok_or_else(|| {
            "must be a sum of 1 (clients), 2 (listeners), 4 (clients without a cookie), 512 (listeners without a cookie) \
             and 1024 (every listener)"
                .to_string()
        })?;
        self.client = bits & CLIENT != 0;
        self.server = bits & SERVER != 0;
        self.client_no_cookie = bits & CLIENT_NO_COOKIE != 0;
        self.server_no_cookie = bits & SERVER_NO_COOKIE != 0;
        self.all_listeners = bits & ALL_LISTENERS != 0;
        Ok(())
    }

    /// What `tcp_fastopen` shows.
    pub(crate) fn bits(&self) -> u32 {
        let bits = [
            (self.client, CLIENT),
            (self.server, SERVER),
            (self.client_no_cookie, CLIENT_NO_COOKIE),
            (self.server_no_cookie, SERVER_NO_COOKIE),
            (self.all_listeners, ALL_LISTENERS),
        ];
        bits.into_iter().map(|(on, bit)| u32::from(on) * bit).sum()
    }

    /// Sets `tcp_fastopen_key`.
    ///
    /// # Errors
    ///
    /// The allowed values.
    pub(crate) fn set_keys(&mut self, text: &str) -> Result<(), String> {
        text.parse().map(|keys| self.keys = Some(keys).filter(|_| text != NO_KEY))
    }

    /// What `tcp_fastopen_key` shows.
    pub(crate) fn keys_text(&self) -> String {
        self.keys.map_or_else(|| NO_KEY.to_string(), |keys| keys.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::StackConfig;

    #[test]
    fn tfo_01_fast_open_by_linuxs_bits() {
        // Linux, ip-sysctl: client 1, server 2, client without cookie 4, server without cookie 0x200, all
        // listeners 0x400.
        let mut config = StackConfig::default();
        for (text, bits) in [
            ("0x603", [true, true, false, true, true]),
            ("6", [false, true, true, false, false]),
            ("0x70403", [true, true, false, false, true]),
        ] {
            config.set_sysctl("tcp_fastopen", text).unwrap();
            let FastOpenConfig { client, server, client_no_cookie, server_no_cookie, all_listeners, .. } =
                config.fast_open;
            assert_eq!([client, server, client_no_cookie, server_no_cookie, all_listeners], bits, "{text}");
        }
        for (text, shown) in [("0x603", "1539"), ("0x70403", "1027")] {
            config.set_sysctl("tcp_fastopen", text).unwrap();
            assert_eq!(config.sysctl("tcp_fastopen").unwrap(), shown);
        }
    }
}
