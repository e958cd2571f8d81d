//! The configuration files of `taut gateway` and `taut proxy`: their places, and which option counts.

use std::path::Path;
use std::process::{Command, Output};

use taut_testbed::{Scratch, live};

use crate::end_to_end::support::taut;

/// A directory for `XDG_CONFIG_HOME`, with this file of a command.
fn home(test: &str, command: &str, text: &str) -> Scratch {
    let scratch = Scratch::new(test);
    std::fs::create_dir_all(scratch.0.join("taut")).unwrap();
    std::fs::write(scratch.0.join(format!("taut/{command}.toml")), text).unwrap();
    scratch
}

fn run(home: &Path, args: &[&str]) -> Output {
    taut(args).env("XDG_CONFIG_HOME", home).output().unwrap()
}

fn says(home: &Path, args: &[&str]) -> (Option<i32>, String) {
    let output = run(home, args);
    (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
}

#[test]
fn the_rules_of_a_gateways_file_stand_behind_those_of_the_command_line() {
    let text = "rule = ['deny 198.51.100.0/24']\nquiet = true\n[limits]\nbytes = 1000000\n";
    let home = home("config-rules", "gateway", text);
    let rules = |args: &[&str]| {
        let output = run(&home.0, &[&["gateway", "--show-rules"], args].concat());
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    assert!(rules(&[]).starts_with("deny 198.51.100.0/24\n"), "{}", rules(&[]));
    assert!(rules(&["--rule", "allow any"]).starts_with("allow any\ndeny 198.51.100.0/24\n"));
    assert!(!rules(&["--no-config"]).contains("198.51.100.0"));
    // Another file, instead of the usual one.
    let other = home.0.join("other.toml");
    std::fs::write(&other, "rules = ['deny 203.0.113.0/24']\n").unwrap();
    let said = rules(&["--config", other.to_str().unwrap()]);
    assert!(said.starts_with("deny 203.0.113.0/24\n") && !said.contains("198.51.100.0"), "{said}");
}

#[test]
fn an_option_of_the_command_line_replaces_that_of_the_file() {
    // A pattern, which is refused, and a descriptor that is not there: nothing is opened.
    let text = "tun = 'file%d'\nmtu = 1_400\nno-sandbox = true\nrule = ['allow any']";
    let home_of_proxy = home("config-proxy", "proxy", text);
    let proxy = |args: &[&str]| {
        let (code, said) = says(&home_of_proxy.0, &[&["proxy", "--device", "fd:99"], args].concat());
        assert_eq!(code, Some(1), "{said}");
        said
    };
    assert!(proxy(&[]).contains("--tun file%d is a pattern"), "{}", proxy(&[]));
    for line in [&["--tun", "line%d"][..], &["--no-config", "--tun", "line%d"]] {
        assert!(proxy(line).contains("--tun line%d is a pattern"), "{}", proxy(line));
    }
    // One guest of several that exclude each other.
    let gateway = home("config-gateway", "gateway", "tun = 'in/file'");
    let (code, said) = says(&gateway.0, &["gateway", "--qemu", "/no/such/directory/socket"]);
    assert!(code == Some(1) && said.contains("/no/such/directory/socket"), "{said}");
}

#[test]
fn a_mistake_in_a_file_is_named_with_its_line() {
    for (text, code, said) in [
        (
            "# one\nlisten = '127.0.0.1:1080'\nlisen = '127.0.0.1:1080'\n",
            1,
            "proxy.toml: line 3: lisen is not an option",
        ),
        ("mtu = {}\n", 1, "proxy.toml: line 1: mtu: must be a text"),
        ("\nno-sandbox = 'yes'\n", 1, "proxy.toml: line 2: no-sandbox is true or false, not yes"),
        ("config = 'x'\n", 1, "proxy.toml: line 1: config is not an option"),
        ("mtu = \n", 1, "line 1"),
        ("mtu = 67\n", 2, "taut/proxy.toml:\nerror: invalid value '67' for '--mtu"),
    ] {
        let home = home("config-mistakes", "proxy", text);
        let (got, error) = says(&home.0, &["proxy", "--device", "fd:99"]);
        assert!(got == Some(code) && error.contains(said), "{text}: {got:?} {error}");
        // Help needs no file.
        assert_eq!(says(&home.0, &["proxy", "--help"]).0, Some(0));
    }
    let (code, said) = says(Path::new("/nonexistent"), &["proxy", "--config", "/no/such/file"]);
    assert!(code == Some(1) && said.contains("cannot read /no/such/file"), "{said}");
}

#[test]
fn without_a_file_of_the_user_there_is_that_of_the_system() {
    if !live::ready(&["unshare"]) {
        return;
    }
    let script = "mount -t tmpfs tmpfs /etc && mkdir /etc/taut && echo \"rule = ['deny 198.51.100.0/24']\" > \
                  /etc/taut/gateway.toml && exec \"$0\" gateway --show-rules";
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", script, env!("CARGO_BIN_EXE_taut")]);
    let output = command.env("XDG_CONFIG_HOME", "/nonexistent").output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(said.starts_with("deny 198.51.100.0/24\n"), "{output:?}");
}
