//! The parts of a simulated network: hosts with a processor, wires with faults, routers. The world has the
//! clock and lends the rest as a [`Fabric`](fabric::Fabric).

pub(crate) mod cpu;
pub(crate) mod fabric;
pub(crate) mod fault;
pub(crate) mod host;
pub(crate) mod router;
pub(crate) mod wire;
