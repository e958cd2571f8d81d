//! `passt` by name, as libvirt and others start it for a virtual machine: its command line in the words of
//! `taut gateway`. passt(1) is pasta's page, too, so most rows are those of `pasta.rs`. Called by `mod.rs`.

use anyhow::bail;

use super::pasta::{COMMON, addresses, row};
use super::words::{Row, To, Translated, help, translate};

const USAGE: &str = "Usage: passt [OPTION]...\n\nThe options of passt(1) that taut has. It also reads the \
                     configuration file of taut gateway,\nwhich may have rules.\n\n\
                     Example: passt --socket /tmp/vm.sock --tcp-ports 127.0.0.1/2022:22";

const OWN: &[Row] = &[
    row('s', "socket", To::Value(socket), "serve the machine that connects to this socket"),
    row(
        'F',
        "fd",
        To::Value(|to, number| socket(to, &format!("fd:{number}"))),
        "serve the machine at this inherited, connected socket",
    ),
    row('1', "one-off", To::Flag(|to| to.manner.one_off = true), "end when the first machine disconnects"),
    row('S', "search", To::Value(search), "DNS search domain for the machine, or none"),
    row('i', "interface", To::NothingWithValue, "nothing: the gateway assigns the guest's address"),
    row('M', "mac-addr", To::NothingWithValue, "nothing: the gateway keeps its own MAC address"),
];

/// Translates passt's words.
///
/// # Errors
/// The first one that has no equivalent.
pub(super) fn read(args: &[String]) -> anyhow::Result<Translated> {
    let mut to = translate("passt", &[COMMON, OWN], args)?;
    if let Some(word) = to.rest.first() {
        bail!("passt takes options only, not {word}; a command has its network by taut pasta");
    }
    let Some(place) = to.socket.clone() else { bail!("which socket? Add --socket PATH or --fd N") };
    addresses(&mut to)?;
    to.manner.background = !to.foreground;
    if to.quiet || to.manner.background && to.manner.log_file.is_none() {
        to.add(&["--quiet"]);
    }
    to.add(&["--passt", &place]);
    Ok(to)
}

/// The table.
pub(super) fn usage() -> String {
    help(USAGE, &[COMMON, OWN])
}

fn socket(to: &mut Translated, place: &str) -> anyhow::Result<()> {
    to.socket = Some(place.to_owned());
    Ok(())
}

fn search(to: &mut Translated, domain: &str) -> anyhow::Result<()> {
    if domain != "none" {
        to.add(&["--search", domain]);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::words::split;
    use super::*;

    fn words(line: &str) -> anyhow::Result<Translated> {
        read(&split(line))
    }

    #[test]
    fn gw_276_the_line_of_libvirt() {
        let to = words(
            "--one-off --socket /run/user/0/libvirt/qemu/run/passt/1-vm-net0.socket --pid /run/1.pid --log-file \
             /tmp/passt.log --address 172.17.2.0 --netmask 255.255.255.0 --tcp-ports 127.0.0.1/2022:22 --udp-ports \
             5353:53",
        );
        let to = to.unwrap();
        assert_eq!(
            to.words.join(" "),
            "-t 127.0.0.1:2022:22 -u 0.0.0.0:5353:53 --guest 172.17.2.0/24 --host-loopback --passt \
             /run/user/0/libvirt/qemu/run/passt/1-vm-net0.socket"
        );
        assert!(to.manner.background && to.manner.one_off && to.manner.log_file.is_some());
        let fd = words("-f -1 -F 7 --no-map-gw -i eth0 -S example.org -S none").unwrap();
        assert_eq!(
            (fd.words.join(" "), fd.manner.background),
            ("--search example.org --passt fd:7".to_owned(), false)
        );
    }

    #[test]
    fn gw_276_what_is_not_mapped_is_named() {
        for (line, named) in [
            ("-f", "--socket PATH"),
            ("-s /x --vhost-user", "--vhost-user"),
            ("-s /x --netns y", "--netns has no equivalent"),
            ("-s /x sh", "not sh"),
        ] {
            let error = format!("{:#}", words(line).unwrap_err());
            assert!(error.contains(named), "{line}: {error}");
        }
    }
}
