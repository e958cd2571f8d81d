//! `--dhcp`, `--slaac`: a command's stack gets its addresses from the link.
//!
//! Called by `link.rs`, and by each command before it uses the stack.

use std::net::IpAddr;
use std::time::Duration;

use anyhow::bail;
use clap::Args;

/// How long a command waits for an address: DHCP's first four messages, and the check of the address.
const PATIENCE: Duration = Duration::from_secs(40);
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Changes that the link has learnt.
#[derive(Args, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct AutoArgs {
    /// Get an IPv4 address, routers and MTU by DHCP (Ethernet)
    #[arg(long)]
    pub dhcp: bool,
    /// Get IPv6 addresses and routers by SLAAC (Ethernet)
    #[arg(long)]
    pub slaac: bool,
}

impl AutoArgs {
    /// Whether anything is learnt.
    pub(crate) const fn is_on(self) -> bool {
        self.dhcp || self.slaac
    }

    /// Refuses the options with a device that cannot have them.
    ///
    /// # Errors
    /// The option, and what it is for.
    pub(crate) fn refuse(self, device: &str) -> anyhow::Result<()> {
        let option = match self {
            Self { dhcp: true, .. } => "--dhcp",
            Self { slaac: true, .. } => "--slaac",
            _ => return Ok(()),
        };
        bail!(
            "{option} is for a device that carries Ethernet frames (packet:, xdp:, tap:, a socket), not for {device}; \
             choose one with --device"
        )
    }

    /// Waits until the stack has an address of each family that is learnt.
    ///
    /// # Errors
    /// When nobody gives one.
    pub(crate) async fn wait(self, stack: &taut::Stack) -> anyhow::Result<()> {
        let families = [(self.dhcp, true, "DHCP server"), (self.slaac, false, "router with a prefix")];
        for (_, is_v4, from) in families.into_iter().filter(|(wanted, ..)| *wanted) {
            let is_everywhere = |own: &IpAddr| stack.wait_for_address(Some(*own), Duration::ZERO).is_some();
            let has = || learnt(stack).iter().any(|own| own.is_ipv4() == is_v4 && is_everywhere(own));
            let waited = tokio::time::timeout(PATIENCE, async {
                while !has() {
                    tokio::time::sleep(LOOK_EVERY).await;
                }
            });
            if waited.await.is_err() {
                bail!(
                    "no {from} answered on this link within {} s; give an address with --address",
                    PATIENCE.as_secs()
                );
            }
        }
        Ok(())
    }
}

/// The stack's addresses that peers beyond the link can use.
pub(crate) fn learnt(stack: &taut::Stack) -> Vec<IpAddr> {
    let is_local = |ip: &IpAddr| matches!(ip, IpAddr::V6(v6) if v6.is_unicast_link_local());
    stack.networks().into_iter().map(|own| own.address).filter(|ip| !is_local(ip)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_without_frames_learn_nothing() {
        AutoArgs::default().refuse("a TUN").unwrap();
        let error = AutoArgs { dhcp: true, slaac: false }.refuse("a TUN").unwrap_err().to_string();
        assert!(error.starts_with("--dhcp is for") && error.contains("not for a TUN; choose"), "{error}");
        assert!(
            AutoArgs { dhcp: false, slaac: true }
                .refuse("a TUN")
                .unwrap_err()
                .to_string()
                .contains("--slaac")
        );
    }
}
