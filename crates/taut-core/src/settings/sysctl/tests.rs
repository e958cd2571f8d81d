//! Settings by name: their values, ranges and errors.

extern crate std;
use super::*;

#[test]
fn names_ascend_and_every_value_can_be_set_to_itself() {
    let mut config = StackConfig::default();
    let before: Vec<_> = config.sysctls().collect();
    assert!(before.windows(2).all(|pair| pair[0].0 < pair[1].0));
    for (name, value) in &before {
        match config.set_sysctl(name, value) {
            Ok(()) => {}
            // As in Linux.
            Err(error) => {
                assert_eq!(error, SysctlError::ReadOnly("net.ipv4.tcp_available_congestion_control"));
                assert_eq!(value, "reno cubic bbr dctcp prague");
            }
        }
    }
    assert_eq!(config.sysctls().collect::<Vec<_>>(), before);
}

#[test]
fn defaults_are_those_of_linux() {
    let config = StackConfig::default();
    for (name, value) in [
        ("net.ipv4.ip_default_ttl", "64"),
        ("net.ipv4.tcp_keepalive_time", "7200"),
        ("net.ipv4.tcp_limit_output_bytes", "4194304"),
        ("net.ipv4.tcp_autocorking", "1"),
        // Taut's own: by the rate of the socket.
        ("net.ipv4.tcp_notsent_lowat", "0"),
        ("net.ipv4.tcp_min_tso_segs", "2"),
        ("net.ipv4.tcp_tso_rtt_log", "9"),
        ("net.ipv4.tcp_tso_win_divisor", "3"),
        ("net.ipv4.tcp_pacing_ss_ratio", "200"),
        ("net.ipv4.tcp_pacing_ca_ratio", "120"),
        // The maximum is taut's own: 128 MiB, not 4.
        ("net.ipv4.tcp_wmem", "4096 16384 134217728"),
        ("net.core.wmem_max", "67108864"),
        ("net.ipv4.tcp_slow_start_after_idle", "1"),
        ("net.ipv4.tcp_early_retrans", "3"),
        ("net.ipv4.tcp_retries1", "3"),
        ("net.ipv4.tcp_base_mss", "1024"),
        ("net.ipv4.tcp_mtu_probe_floor", "48"),
        ("net.ipv4.tcp_probe_interval", "600"),
        ("net.ipv4.tcp_probe_threshold", "8"),
        ("net.ipv4.route.min_pmtu", "552"),
        ("net.ipv4.route.mtu_expires", "600"),
        ("net.ipv4.tcp_recovery", "1"),
        ("net.ipv4.tcp_frto", "2"),
        ("net.ipv4.tcp_ecn", "2"),
        ("net.ipv4.tcp_ecn_fallback", "1"),
        ("net.ipv4.tcp_ecn_option", "2"),
        ("net.ipv4.tcp_ecn_option_beacon", "3"),
        ("net.ipv4.tcp_rto_max_ms", "120000"),
        ("net.ipv4.tcp_rto_min_us", "200000"),
        ("net.ipv4.tcp_syn_linear_timeouts", "4"),
        ("net.ipv4.tcp_comp_sack_rtt_percent", "33"),
        ("net.ipv4.tcp_comp_sack_delay_ns", "1000000"),
        ("net.ipv4.tcp_comp_sack_nr", "44"),
        ("net.ipv4.tcp_fin_timeout", "60"),
        ("net.ipv4.tcp_fastopen", "1"),
        ("net.ipv4.tcp_fastopen_blackhole_timeout_sec", "0"),
        ("net.ipv4.tcp_fastopen_key", "00000000-00000000-00000000-00000000"),
        ("net.ipv4.tcp_orphan_retries", "0"),
        // As of a machine of 4 GiB.
        ("net.ipv4.tcp_max_orphans", "16384"),
        ("net.ipv4.tcp_mem", "49152 65536 98304"),
        ("taut.tsq", "auto"),
        ("taut.buffers", "follow-path"),
        ("taut.pacing", "auto"),
    ] {
        assert_eq!(config.sysctl(name).as_deref(), Ok(value), "{name}");
    }
}

#[test]
fn ranges_are_kept_and_errors_say_what_is_allowed() {
    let mut config = StackConfig::default();
    for (name, value) in [
        ("net.ipv4.tcp_autocorking", "2"),
        ("net.ipv4.tcp_min_tso_segs", "0"),
        ("net.ipv4.tcp_min_tso_segs", "256"),
        ("net.ipv4.tcp_tso_rtt_log", "32"),
        ("net.ipv4.tcp_pacing_ss_ratio", "1001"),
        ("net.ipv4.tcp_limit_output_bytes", "2147483648"),
        ("net.ipv4.tcp_limit_output_bytes", "-1"),
        ("net.ipv4.tcp_limit_output_bytes", "lots"),
        ("net.ipv4.tcp_wmem", "4096 16384"),
        ("net.ipv4.tcp_mem", "3 2 4"),
        ("net.ipv4.tcp_mem", "0 1 2"),
        ("net.ipv4.tcp_mem", "1 2"),
        ("net.ipv4.tcp_wmem", "4096 16384 1 1"),
        ("net.ipv4.tcp_wmem", "4096 100 4000"),
        ("net.ipv4.tcp_recovery", "2"),
        ("net.ipv4.tcp_early_retrans", "1"),
        ("net.ipv4.ip_local_port_range", "5 4"),
        ("net.ipv4.tcp_congestion_control", "vegas"),
        ("net.ipv4.tcp_fastopen", "8"),
        ("net.ipv4.tcp_fastopen", "0x"),
        ("net.ipv4.tcp_fastopen", "-1"),
        ("net.ipv4.tcp_fastopen_key", "1-2-3"),
        ("taut.tsq", "fixed:0"),
        ("taut.pacing", "on"),
    ] {
        let before = config.sysctl(name).unwrap();
        let error = config.set_sysctl(name, value).unwrap_err();
        assert!(matches!(&error, SysctlError::Invalid { expected, .. } if !expected.is_empty()), "{name}");
        assert_eq!(config.sysctl(name), Ok(before));
    }
    assert_eq!(config.sysctl("net.ipv4.nonsense"), Err(SysctlError::Unknown("net.ipv4.nonsense".into())));
    let error = config.set_sysctl("tcp_min_tso_segs", "0").unwrap_err();
    assert_eq!(error.to_string(), "net.ipv4.tcp_min_tso_segs = 0: must be a whole number from 1 to 255");
}

#[test]
fn ecn_by_linuxs_numbers() {
    // Linux, ip-sysctl: 0 neither requests nor accepts ECN, 1 does both, 2 accepts; 3 to 5 accept
    // accurate ECN too, and request accurate ECN, RFC 3168's, or none.
    use EcnPolicy::{Accept, AcceptAccurate, AcceptAccurateAskClassic, Ask, AskAccurate, Off};
    let mut config = StackConfig::default();
    for (number, policy) in
        [Off, Ask, Accept, AskAccurate, AcceptAccurateAskClassic, AcceptAccurate].into_iter().enumerate()
    {
        config.set_sysctl("tcp_ecn", &number.to_string()).unwrap();
        assert_eq!(config.ecn.policy, policy, "{number}");
    }
    assert!(config.set_sysctl("tcp_ecn", "6").is_err());
}

#[test]
fn an_older_rule_names_the_feature_that_it_needs() {
    for older in ["fixed", "fixed:40000", "at-write", "may-hold-head", "wake-at-mark"] {
        let why = refusal(older, false, "must be off");
        assert!(why.ends_with("needs the feature `history` of taut-core"), "{why}");
        assert_eq!(refusal(older, true, "must be off"), "must be off");
    }
    assert_eq!(refusal("at-Write", false, "must be off"), "must be off");
}

#[cfg(feature = "history")]
#[test]
fn histories_by_name() {
    let mut config = StackConfig::default();
    config.set_sysctl("taut.tsq", "fixed").unwrap();
    assert_eq!(config.send.tsq, TsqMode::Fixed { cap_bytes: 131_072 });
    config.set_sysctl("taut.tsq", "fixed:40000").unwrap();
    assert_eq!(config.sysctl("taut.tsq").unwrap(), "fixed:40000");
    config.set_sysctl("taut.autosizing", "at-write").unwrap();
    assert_eq!(config.send.autosizing, AutosizeMode::AtWrite);
    config.set_sysctl("taut.lowat", "wake-at-mark").unwrap();
    assert_eq!(config.send.lowat, LowatMode::WakeAtMark);
}
