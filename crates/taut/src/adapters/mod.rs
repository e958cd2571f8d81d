//! Adapters for libraries that bring their own traits, a file and a feature each.

#[cfg(feature = "axum")]
mod axum;
#[cfg(feature = "hyper")]
pub(crate) mod hyper;
