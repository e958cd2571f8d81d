//! Networks for others: the gateway and the proxy.

pub(crate) mod confined;
pub(crate) mod drop_in;
pub(crate) mod gateway;
mod gateway_addresses;
mod gateway_capture;
pub(crate) mod gateway_config;
pub(crate) mod gateway_end;
pub(crate) mod gateway_guest;
pub(crate) mod gateway_log;
mod gateway_out;
mod gateway_rules;
pub(crate) mod live;
pub(crate) mod proxy;
pub(crate) mod rules_from;
pub(crate) mod wg;
