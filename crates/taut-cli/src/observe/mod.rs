//! Commands that read a running stack, or a recording of one.

pub(crate) mod explain;
pub(crate) mod metrics;
pub(crate) mod nstat;
pub(crate) mod replay;
pub(crate) mod rooms;
pub(crate) mod ss;
pub(crate) mod ss_filter;
pub(crate) mod ss_format;
#[cfg(feature = "top")]
pub(crate) mod top;
#[cfg(feature = "top")]
pub(crate) mod top_view;
