//! Names of the parts of a world. Used by every file; they know none of the parts.

/// Identifies a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct HostId(pub(crate) u32);

impl HostId {
    /// Its number, from 0 in the order of creation.
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// Identifies one direction of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct WireId(pub(crate) u32);

/// Identifies a router.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RouterId(pub(crate) u32);

/// Identifies an end of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum NodeId {
    /// A host; it has one link.
    Host(HostId),
    /// A router; it has any number.
    Router(RouterId),
}

impl From<HostId> for NodeId {
    fn from(id: HostId) -> Self {
        Self::Host(id)
    }
}

impl From<RouterId> for NodeId {
    fn from(id: RouterId) -> Self {
        Self::Router(id)
    }
}

/// Identifies an application of a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct AppId(pub(crate) u32);

impl AppId {
    /// No application.
    pub(crate) const NONE: Self = Self(u32::MAX);

    /// The application's number at its host, from 0.
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}
