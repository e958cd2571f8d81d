//! What people and programs write: queue disciplines, settings, requests on the control socket. Nothing
//! panics, and what is accepted is printed in a form that is accepted again, with the same meaning.
#![no_main]

use libfuzzer_sys::fuzz_target;
use taut_control::Request;
use taut_core::StackConfig;
use taut_link::{QdiscSpec, Rate};

fuzz_target!(|data: &[u8]| {
    let _ = serde_json::from_slice::<Request>(data);
    let Ok(text) = std::str::from_utf8(data) else { return };
    if let Ok(spec) = text.parse::<QdiscSpec>() {
        assert_eq!(spec.to_string().parse(), Ok(spec.clone()), "{spec}");
        let mut queue = spec.build::<()>(1);
        let _ = taut_link::Qdisc::dequeue(&mut queue, taut_core::Instant::ZERO);
    }
    let _ = text.parse::<Rate>();
    let mut config = StackConfig::default();
    if let Some((name, value)) = text.split_once('=')
        && config.set_sysctl(name, value).is_ok()
    {
        let printed = config.sysctl(name).expect("it was just set");
        config.set_sysctl(name, &printed).expect("what is printed is accepted");
        assert_eq!(config.sysctl(name), Ok(printed));
    }
});
