//! The sandbox around a gateway and a proxy: what a running one of them does not need, it gives up
//! (`taut-gateway`'s `sandbox/`). Called by `gateway.rs` and `proxy.rs` before there is a second thread.

use std::os::unix::net::UnixStream;
use std::sync::Arc;

use anyhow::Context as _;
use taut_gateway::sandbox::{self, Caller, CapabilitySet, Needs, Outside, Tasks};

use crate::args::control::ControlArgs;
use crate::shared::interrupt;
use crate::shared::log::{self, Level};

/// The ways to the process outside.
#[derive(Debug)]
pub(crate) struct Inside {
    /// From it: [`Orders`](sandbox::Orders).
    pub orders: UnixStream,
    /// To it.
    pub caller: Arc<Caller>,
}

/// Closes the sandbox: this process becomes the one outside, and its child, which returns, is confined.
///
/// # Errors
/// The kernel refuses what it claims to have.
pub(crate) fn close(control: &ControlArgs, tasks: Tasks, needs: Needs) -> anyhow::Result<Inside> {
    const ADVICE: &str = "the sandbox; --no-sandbox runs without it";
    let keep = needs.keep & sandbox::own_capabilities().context(ADVICE)?;
    let tasks = Tasks {
        control: control.place(),
        ignores_hangup: interrupt::ignores_hangup(),
        has_rights: keep != CapabilitySet::empty(),
        ..tasks
    };
    let (outside, has_number) = Outside::split(tasks).context(ADVICE)?;
    let confined = sandbox::confine(Needs { keep, ..needs }).context(ADVICE)?;
    let warn = |name, why| log::event(Level::Warn, name, why, serde_json::Map::new());
    if !confined.files {
        warn("no-landlock", "this kernel has no landlock: the sandbox relies on its other limits");
    }
    if !confined.namespaces || !has_number {
        let why = "this kernel gives this user no namespaces: the sandbox relies on landlock and seccomp";
        warn("no-namespaces", why);
    }
    #[cfg(feature = "hostile")]
    attack();
    let (orders, caller) = outside.into_parts();
    Ok(Inside { orders, caller: Arc::new(caller) })
}

/// A flow takes a descriptor: as many as this user may have.
pub(crate) fn raise_descriptors() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    // If it is refused, fewer flows are possible.
    _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
}

/// Attacks the sandbox from within, if the test has named a process, and reports.
#[cfg(feature = "hostile")]
fn attack() {
    use taut_gateway::sandbox::hostile;
    if let Some(outside) = std::env::var("TAUT_HOSTILE").ok().and_then(|pid| pid.parse().ok()) {
        eprint!("{}", hostile::report(&hostile::attack(taut_device::sys::raw, outside)));
    }
}
