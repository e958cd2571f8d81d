//! Looks up the parts of a scenario that the stack must interpret: its congestion controls, such as `cubic`
//! or `mine:gain=2.5`, and its settings. A program that runs the lab may add congestion controls. Called by
//! `load.rs`, which reports a mistake with its line, and which writes `congestion.gain=2.5` into the
//! control's text.

use taut_core::congestion::Registry;
use taut_core::{Algorithm, StackConfig, SysctlError};

use super::{FlowSpec, Scenario, keys};

/// The key of a mistake, and what is wrong.
type Mistake = (String, String);

impl Scenario {
    /// Looks up the congestion controls and checks the settings. Flows that name no control get the
    /// scenario's.
    pub(super) fn look_up(&mut self, controllers: &Registry) -> Result<(), Mistake> {
        self.controllers = controllers.clone();
        let find = |path: &str, text: &Option<String>| {
            let found = text.as_deref().map(|text| controllers.algorithm(text)).transpose();
            found.map_err(|error| (path.to_owned(), error.to_string()))
        };
        let of_all: Option<Algorithm> = find("congestion", &self.congestion)?;
        for (index, flow) in self.flows.iter_mut().enumerate() {
            let options = &mut flow.options;
            let own = find(&format!("flows.{index}.options.congestion"), &options.congestion)?;
            options.algorithm = own.or_else(|| of_all.clone());
        }
        for (side, host) in [("sender", &self.hosts.sender), ("receiver", &self.hosts.receiver)] {
            let mut config = self.stack_config();
            for (name, value) in &host.sysctls.0 {
                config.set_sysctl(name, value).map_err(|error| {
                    let hint =
                        near_setting(&error, &config).map_or_else(String::new, |hint| format!("; {hint}"));
                    (format!("hosts.{side}.sysctls.{name}"), format!("{error}{hint}"))
                })?;
            }
        }
        Ok(())
    }

    /// The initial configuration of a stack: today's defaults, and all congestion controls.
    #[must_use]
    pub fn stack_config(&self) -> StackConfig {
        StackConfig::default().with(|config| config.congestion.registry = self.controllers.clone())
    }

    /// Congestion control of the sender's flows that do not ask for one.
    #[must_use]
    pub fn default_congestion(&self) -> String {
        let chosen = self.hosts.sender.sysctls.get("net.ipv4.tcp_congestion_control");
        chosen.map_or_else(|| self.stack_config().congestion.control.to_string(), str::to_owned)
    }

    /// The congestion controls that the kernel needs when it sends the flows that `is_its` chooses.
    pub fn congestion_texts(&self, is_its: impl Fn(&FlowSpec) -> bool) -> impl Iterator<Item = String> {
        let of_flow = |algorithm: &Option<Algorithm>| match algorithm {
            Some(algorithm) => algorithm.to_string(),
            None => self.default_congestion(),
        };
        self.flows.iter().filter(move |flow| is_its(flow)).map(move |flow| of_flow(&flow.options.algorithm))
    }
}

/// What may have been meant by a setting that does not exist.
fn near_setting(error: &SysctlError, config: &StackConfig) -> Option<String> {
    let SysctlError::Unknown(name) = error else { return None };
    let settings: Vec<&str> = config.sysctls().map(|(name, _)| bare(name)).collect();
    keys::near(bare(name), settings.into_iter())
}

/// A setting's name without what may be left out.
fn bare(name: &str) -> &str {
    name.strip_prefix("net.ipv4.").unwrap_or(name)
}

/// The text of a congestion control with one parameter changed.
pub(super) fn with_param(text: &str, param: &str, value: &str) -> String {
    let (name, given) = text.split_once(':').unwrap_or((text, ""));
    let is_other = |word: &&str| !word.is_empty() && word.split('=').next().map(str::trim) != Some(param);
    let mut params: Vec<String> = given.split(',').filter(is_other).map(str::to_owned).collect();
    params.push(format!("{param}={value}"));
    format!("{name}:{}", params.join(","))
}
