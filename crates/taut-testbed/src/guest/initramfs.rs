//! The files that a guest begins with: an archive in the format `newc` of cpio, as the kernel unpacks it
//! (Documentation/driver-api/early-userspace/buffer-format.rst). Called by `guest.rs`.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

const FOLDER: u32 = 0o040_755;
const FILE: u32 = 0o100_644;
const PROGRAM: u32 = 0o100_755;

/// The archive.
#[derive(Debug, Default)]
pub(super) struct Initramfs {
    bytes: Vec<u8>,
    names: BTreeSet<String>,
}

impl Initramfs {
    /// Adds a program of this machine under that name, and the libraries that it needs in their places.
    pub(super) fn program(&mut self, name: &str, path: &Path) -> io::Result<()> {
        self.file(name, &fs::read(path)?, true);
        for library in libraries(path)? {
            let name = library.to_string_lossy().trim_start_matches('/').to_owned();
            if !self.names.contains(&name) {
                self.file(&name, &fs::read(&library)?, true);
            }
        }
        Ok(())
    }

    /// Adds a file, and the folders that it is in.
    pub(super) fn file(&mut self, name: &str, content: &[u8], is_program: bool) {
        for (at, _) in name.match_indices('/') {
            if !self.names.contains(&name[..at]) {
                self.entry(&name[..at], FOLDER, &[]);
            }
        }
        self.entry(name, if is_program { PROGRAM } else { FILE }, content);
    }

    pub(super) fn finish(mut self) -> Vec<u8> {
        self.entry("TRAILER!!!", 0, &[]);
        self.bytes
    }

    fn entry(&mut self, name: &str, mode: u32, content: &[u8]) {
        let (inode, size, name_size) =
            (self.names.len() as u32 + 1, content.len() as u32, name.len() as u32 + 1);
        // inode, mode, user, group, links, time, size, four numbers of devices, bytes of the name, no
        // checksum
        let fields = [inode, mode, 0, 0, 1, 0, size, 0, 0, 0, 0, name_size, 0];
        self.bytes.extend_from_slice(b"070701");
        for field in fields {
            self.bytes.extend_from_slice(format!("{field:08x}").as_bytes());
        }
        self.bytes.extend_from_slice(name.as_bytes());
        self.bytes.push(0);
        self.pad();
        self.bytes.extend_from_slice(content);
        self.pad();
        self.names.insert(name.to_owned());
    }

    fn pad(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }
}

/// The libraries of a program, the one that loads it included; none for one that is static.
fn libraries(program: &Path) -> io::Result<Vec<PathBuf>> {
    let output = Command::new("ldd").arg(program).output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    let path = |word: &str| word.starts_with('/').then(|| PathBuf::from(word));
    Ok(text.lines().filter_map(|line| line.split_whitespace().find_map(path)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The expected bytes follow the format's description: a header of 110 characters, everything padded to
    /// four bytes.
    #[test]
    fn an_archive_has_headers_names_and_contents_in_their_places() {
        let mut image = Initramfs::default();
        image.file("a/b", b"12345", true);
        let bytes = image.finish();
        assert_eq!(&bytes[..14], b"07070100000001");
        assert_eq!(&bytes[14..22], b"000041ed", "a folder");
        assert_eq!(&bytes[110..112], b"a\0");
        assert_eq!(&bytes[112..118], b"070701");
        let file = &bytes[112..];
        assert_eq!(&file[14..22], b"000081ed", "a program");
        assert_eq!((&file[54..62], &file[94..102]), (&b"00000005"[..], &b"00000004"[..]), "sizes");
        assert_eq!((&file[110..114], &file[116..121]), (&b"a/b\0"[..], &b"12345"[..]));
        assert_eq!(&file[124..130], b"070701");
        assert!(bytes.len().is_multiple_of(4) && bytes.windows(10).any(|name| name == b"TRAILER!!!"));
    }
}
