//! The congestion controls of a stack by name: the built-in ones and the user's. A part of
//! [`CongestionConfig`](super::CongestionConfig); `sysctl.rs`, sockets and the lab's scenarios look names up
//! in it. Linux: `net.ipv4.tcp_available_congestion_control`.

use alloc::string::String;
use alloc::vec::Vec;

use super::{Algorithm, AlgorithmError, Definition};

/// The congestion controls available by name; by default, the built-in ones.
#[derive(Clone, Debug)]
pub struct Registry(Vec<Algorithm>);

impl Default for Registry {
    fn default() -> Self {
        Self(Algorithm::built_in().into())
    }
}

impl Registry {
    /// Adds a congestion control, and returns it with the default values of its parameters.
    ///
    /// # Errors
    /// [`AlgorithmError::Definition`] if the definition is invalid or its name is taken.
    pub fn add(&mut self, definition: Definition) -> Result<Algorithm, AlgorithmError> {
        let algorithm = Algorithm::new(definition)?;
        if self.find(algorithm.name()).is_some() {
            let why = alloc::format!("the name is taken; it must differ from {}", self.names());
            return Err(AlgorithmError::Definition { name: algorithm.name().into(), why });
        }
        self.0.push(algorithm.clone());
        Ok(algorithm)
    }

    /// The congestion control that a text describes: `cubic`, or with parameters `mine:gain=2.5,floor=4`.
    ///
    /// # Errors
    /// [`AlgorithmError::Unknown`] and [`AlgorithmError::Param`].
    pub fn algorithm(&self, text: &str) -> Result<Algorithm, AlgorithmError> {
        let (name, params) = match text.trim().split_once(':') {
            Some((name, params)) => (name, Some(params)),
            None => (text.trim(), None),
        };
        let found = self.find(name).cloned();
        let algorithm =
            found.ok_or_else(|| AlgorithmError::Unknown { name: name.into(), known: self.names() })?;
        params.map_or(Ok(algorithm.clone()), |params| algorithm.with_text(params))
    }

    /// All of them, with the default values of their parameters.
    pub fn iter(&self) -> impl Iterator<Item = &Algorithm> {
        self.0.iter()
    }

    fn find(&self, name: &str) -> Option<&Algorithm> {
        self.iter().find(|algorithm| algorithm.name() == name)
    }

    fn names(&self) -> String {
        self.iter().map(Algorithm::name).collect::<Vec<_>>().join(", ")
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use crate::StackConfig;
    use crate::congestion::{AckEvent, Congestion, Controller, EcnUse, Signal, Window};
    use crate::words::Instant;
    use alloc::string::ToString;
    use alloc::sync::Arc;
    use core::sync::atomic::{AtomicU32, Ordering};

    /// Sets cwnd to its parameter at every ACK.
    #[derive(Debug)]
    struct Fixed(u32);

    impl Controller for Fixed {
        fn on_ack(&mut self, window: &mut Window, _ack: &AckEvent<'_>) {
            window.set_cwnd(self.0);
        }

        fn reduce(&mut self, window: &Window, _why: Signal, _now: Instant) -> u32 {
            window.cwnd()
        }
    }

    fn fixed() -> Definition {
        Definition::new("fixed", |params| Fixed(params.get("cwnd") as u32))
            .param("cwnd", 7.0, 1.0..=1e6, "congestion window in segments")
            .param("gain", 0.5, -1.0..=f64::INFINITY, "nothing")
    }

    fn registry() -> Registry {
        let mut registry = Registry::default();
        registry.add(fixed()).unwrap();
        registry
    }

    fn cwnd_of(algorithm: Algorithm) -> u32 {
        let mut cc = Congestion::new(algorithm);
        cc.on_ack(AckEvent::new(Instant::from_nanos(1), 1448, 1), true);
        cc.cwnd()
    }

    #[test]
    fn those_built_in_have_linux_names_and_are_well_defined() {
        let names = Algorithm::built_in().map(|algorithm| algorithm.name().to_string());
        assert_eq!(names, ["reno", "cubic", "bbr", "dctcp", "prague"]);
        for algorithm in Algorithm::built_in() {
            let again = Registry::default().algorithm(algorithm.name()).unwrap();
            assert_eq!(again, algorithm);
            assert_eq!((again.ecn(), again.paces()), (algorithm.ecn(), algorithm.paces()));
        }
        assert_eq!(Algorithm::prague().ecn(), EcnUse::L4s);
    }

    #[test]
    fn a_users_own_is_had_by_name_with_its_parameters() {
        let registry = registry();
        for (text, cwnd) in [("fixed", 7), ("fixed:cwnd=40", 40), (" fixed: gain = -1 , cwnd = 3 ", 3)] {
            assert_eq!(cwnd_of(registry.algorithm(text).unwrap()), cwnd, "{text}");
        }
        assert_eq!(cwnd_of(Algorithm::new(fixed()).unwrap().with("cwnd", 12.0).unwrap()), 12);
    }

    #[test]
    fn a_text_is_read_and_printed_alike() {
        let registry = registry();
        for (text, printed) in [
            ("cubic", "cubic"),
            ("fixed:cwnd=7", "fixed"),
            ("fixed:gain=1e3", "fixed:gain=1000"),
            ("fixed:gain=inf,cwnd=8.25", "fixed:cwnd=8.25,gain=inf"),
        ] {
            let algorithm = registry.algorithm(text).unwrap();
            assert_eq!(algorithm.to_string(), printed);
            assert_eq!(registry.algorithm(printed).unwrap(), algorithm);
        }
        assert_ne!(registry.algorithm("fixed"), registry.algorithm("fixed:cwnd=8"));
        let odd = Algorithm::new(fixed()).unwrap().with("cwnd", 1.0 / 3.0 + 1.0).unwrap();
        assert_eq!(registry.algorithm(&odd.to_string()).unwrap(), odd, "to the last bit");
        assert_eq!(std::format!("{:8}|", Algorithm::bbr()), "bbr     |");
    }

    #[test]
    fn errors_say_what_there_is() {
        let registry = registry();
        for (text, error) in [
            (
                "vegas",
                "unknown congestion control vegas; choose one of reno, cubic, bbr, dctcp, prague, fixed",
            ),
            (
                "vegas:a=1",
                "unknown congestion control vegas; choose one of reno, cubic, bbr, dctcp, prague, fixed",
            ),
            (
                "fixed:cwd=3",
                "fixed: unknown parameter cwd; it has cwnd, a number from 1 to 1000000; \
                 gain, a number from -1 to inf",
            ),
            ("cubic:beta=1", "cubic: unknown parameter beta; it has no parameters"),
            ("fixed:cwnd=0", "fixed: cwnd = 0: must be a number from 1 to 1000000"),
            ("fixed:cwnd=nan", "fixed: cwnd = nan: must be a number from 1 to 1000000"),
            ("fixed:cwnd=lots", "fixed: cwnd = lots: must be a number from 1 to 1000000"),
            ("fixed:cwnd=1,cwnd=2", "fixed: cwnd is given twice"),
            ("fixed:", "fixed: \"\" is not a parameter; write NAME=VALUE, such as gain=2.5"),
            ("fixed:cwnd", "fixed: \"cwnd\" is not a parameter; write NAME=VALUE, such as gain=2.5"),
        ] {
            assert_eq!(registry.algorithm(text).unwrap_err().to_string(), error);
        }
    }

    #[test]
    fn definitions_are_checked_when_they_are_added() {
        let named = |name: &'static str| Definition::new(name, |_| Fixed(1));
        let param = |name: &'static str, default| named("x").param(name, default, 0.0..=1.0, "");
        for (definition, why) in [
            (named("cubic"), "the name is taken; it must differ from reno, cubic, bbr, dctcp, prague, fixed"),
            (named(""), "its name must be made of letters, digits, - and _"),
            (named("a:b"), "its name must be made of letters, digits, - and _"),
            (param("a=", 0.0), "the name of its parameter \"a=\" must be made of letters, digits, - and _"),
            (param("a", 2.0), "the default of a, 2, is not a number from 0 to 1"),
            (param("a", f64::NAN), "the default of a, NaN, is not a number from 0 to 1"),
            (param("a", 0.0).param("a", 0.0, 0.0..=1.0, ""), "it has two parameters called a"),
        ] {
            let name = definition.name().to_string();
            let error = registry().add(definition).unwrap_err();
            assert_eq!(error, AlgorithmError::Definition { name, why: why.into() });
        }
    }

    #[test]
    #[should_panic = "the definition has no .param(\"gian\", …)"]
    fn a_maker_that_asks_for_what_was_not_defined_is_told() {
        let typo = Definition::new("typo", |params| Fixed(params.get("gian") as u32));
        let _ = Algorithm::new(typo.param("gain", 1.0, 0.0..=2.0, "")).unwrap().make();
    }

    #[test]
    fn a_maker_may_be_made_while_the_program_runs() {
        let made = Arc::new(AtomicU32::new(0));
        let (count, name) = (Arc::clone(&made), std::format!("own{}", 1));
        let definition = Definition::new(name, move |_| Fixed(count.fetch_add(1, Ordering::Relaxed) + 20));
        let mut registry = Registry::default();
        registry.add(definition).unwrap();
        let algorithm = registry.algorithm("own1").unwrap();
        assert_eq!([cwnd_of(algorithm.clone()), cwnd_of(algorithm)], [20, 21]);
        drop(registry);
        assert_eq!(Arc::strong_count(&made), 1, "nothing is kept when the last one is gone");
    }

    #[test]
    fn settings_take_it() {
        let mut config = StackConfig::default();
        config.congestion.registry.add(fixed()).unwrap();
        config.set_sysctl("tcp_congestion_control", "fixed:cwnd=9").unwrap();
        assert_eq!(config.sysctl("tcp_congestion_control").as_deref(), Ok("fixed:cwnd=9"));
        assert_eq!(
            config.sysctl("tcp_available_congestion_control").as_deref(),
            Ok("reno cubic bbr dctcp prague fixed")
        );
        let error = config.set_sysctl("tcp_congestion_control", "fixed:cwnd=0").unwrap_err();
        assert_eq!(
            error.to_string(),
            "net.ipv4.tcp_congestion_control = fixed:cwnd=0: fixed: cwnd = 0: must be a number from 1 to 1000000"
        );
        assert_eq!(cwnd_of(config.congestion.control.clone()), 9);
    }
}
