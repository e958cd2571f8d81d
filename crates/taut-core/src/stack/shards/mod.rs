//! Several stacks on one link: `steering.rs` has the rule, `shared_link.rs` a stack's part in it.

pub(crate) mod shared_link;
pub(crate) mod steering;
