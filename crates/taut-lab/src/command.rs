//! The command of the lab: arguments, progress, files, Ctrl-C. `taut lab` and `taut plot` are calls of this.

mod date;
pub mod interrupt;
pub mod output;
pub mod plot;
pub mod run;

use std::io;

use taut_device::{Namespace, netns};

/// As root, nothing; otherwise becomes root in a user namespace, where the kernel lets users have one.
pub fn allow_namespaces() -> io::Result<()> {
    match Namespace::new() {
        Ok(_) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            // The thread that tried is joined, but the kernel may need a moment to see it gone.
            let mut result = netns::become_root_in_user_namespace();
            for _ in 0..50 {
                if !result.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::InvalidInput) {
                    break;
                }
                std::thread::sleep(std::time::Duration::from_millis(1));
                result = netns::become_root_in_user_namespace();
            }
            result.map_err(|error| {
                let message =
                    format!("{error} (needed: root, or a kernel that lets users make user namespaces)");
                io::Error::new(error.kind(), message)
            })
        }
        Err(error) => Err(error),
    }
}
