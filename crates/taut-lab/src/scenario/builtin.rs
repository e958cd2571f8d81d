//! The built-in scenarios, from `scenarios/` in this crate. Called when a name is not a file.

/// Name and text of each scenario; those that reproduce published results come first.
pub const ALL: [(&str, &str); 22] = [
    ("tsq", include_str!("../../scenarios/tsq.toml")),
    ("tso-autosizing", include_str!("../../scenarios/tso-autosizing.toml")),
    ("autocork", include_str!("../../scenarios/autocork.toml")),
    ("notsent-lowat", include_str!("../../scenarios/notsent-lowat.toml")),
    ("pacing", include_str!("../../scenarios/pacing.toml")),
    ("small-writes", include_str!("../../scenarios/small-writes.toml")),
    ("tsq-wifi", include_str!("../../scenarios/tsq-wifi.toml")),
    ("tsq-tunnel", include_str!("../../scenarios/tsq-tunnel.toml")),
    ("bulk", include_str!("../../scenarios/bulk.toml")),
    ("single-flow", include_str!("../../scenarios/single-flow.toml")),
    ("dumbbell", include_str!("../../scenarios/dumbbell.toml")),
    ("congestion", include_str!("../../scenarios/congestion.toml")),
    ("fairness", include_str!("../../scenarios/fairness.toml")),
    ("matrix", include_str!("../../scenarios/matrix.toml")),
    ("cross-check", include_str!("../../scenarios/cross-check.toml")),
    ("parking-lot", include_str!("../../scenarios/parking-lot.toml")),
    ("lossy", include_str!("../../scenarios/lossy.toml")),
    ("slow-start", include_str!("../../scenarios/slow-start.toml")),
    ("rate-steps", include_str!("../../scenarios/rate-steps.toml")),
    ("paths", include_str!("../../scenarios/paths.toml")),
    ("uplink", include_str!("../../scenarios/uplink.toml")),
    ("playground", include_str!("../../scenarios/playground.toml")),
];

/// Number of scenarios that reproduce published results.
pub const PUBLISHED: usize = 5;

/// The text of the scenario of that name.
#[must_use]
pub fn find(name: &str) -> Option<&'static str> {
    ALL.iter().find(|(known, _)| *known == name).map(|(_, text)| *text)
}

/// In the place of a file's name, for errors.
#[must_use]
pub fn place(name: &str) -> String {
    format!("scenario {name}")
}

pub(super) fn is_place(file: &str) -> bool {
    ALL.iter().any(|(name, _)| file == place(name))
}
