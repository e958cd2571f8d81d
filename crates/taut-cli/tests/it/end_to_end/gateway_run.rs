//! The command of `taut gateway --run`, and its own namespaces besides its network: GW-210 to 214 of
//! `docs/spec/gateway.md`, CONF-40 of `docs/spec/confinement.md`.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use taut_testbed::eventually;

use super::gateway_operations::{Gateway, lab};
use super::support::{Lab, taut};

/// The output of a command, its errors, and its exit code.
fn said(output: &Output) -> (String, String, Option<i32>) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (text(&output.stdout), text(&output.stderr), output.status.code())
}

/// The same of a script inside.
fn inside(lab: &Lab, options: &[&str], script: &str) -> (String, String, Option<i32>) {
    let args = [&["gateway", "--run"], options, &["--", "sh", "-c", script]].concat();
    said(&lab.output(taut(&args).stdin(Stdio::null())))
}

fn namespace(process: &str, kind: &str) -> Option<PathBuf> {
    std::fs::read_link(format!("/proc/{process}/ns/{kind}")).ok()
}

/// The numbers of the processes in a PID namespace.
fn members(own: &Path) -> Vec<String> {
    let all = std::fs::read_dir("/proc").unwrap().flatten();
    let all = all.map(|entry| entry.file_name().into_string().unwrap_or_default());
    all.filter(|name| namespace(name, "pid").as_deref() == Some(own)).collect()
}

#[test]
fn gw_210_an_isolated_command_has_its_own_processes_and_interfaces() {
    let Some(lab) = lab("run-isolate", &["ls", "readlink"]) else { return };
    // Numbers that only shells print: there is no other process.
    let script = "for p in /proc/[0-9]*; do echo ${p#/proc/}; done; echo $$; ls /sys/class/net
                  for kind in pid ipc uts; do readlink /proc/self/ns/$kind; done";
    let (seen, log, code) = inside(&lab, &["--isolate", "-t", "8080:80"], script);
    let lines: Vec<&str> = seen.lines().collect();
    assert_eq!((&lines[..5], code), (&["1", "2", "2", "lo", "taut0"][..], Some(0)), "{seen}{log}");
    for (kind, own) in ["pid", "ipc", "uts"].into_iter().zip(&lines[5..]) {
        assert_ne!(namespace("self", kind).unwrap().to_str(), Some(*own), "{kind}");
    }
    // Without it, these are the host's.
    let (seen, log, _) = inside(&lab, &[], "for kind in pid ipc uts; do readlink /proc/self/ns/$kind; done");
    for (kind, own) in ["pid", "ipc", "uts"].into_iter().zip(seen.lines()) {
        assert_eq!(namespace("self", kind).unwrap().to_str(), Some(own), "{kind} {log}");
    }
    let output = lab.output(taut(&["gateway", "--tun", "run0", "--isolate"]).stdin(Stdio::null()));
    assert!(said(&output).1.contains("--run"), "{output:?}");
}

#[test]
fn gw_211_exit_codes_and_signals_pass_process_1_which_reaps() {
    let Some(lab) = lab("run-first", &["sleep", "true"]) else { return };
    for (script, expected) in [("exit 0", 0), ("exit 7", 7), ("kill -9 $$", 128 + 9), ("kill -1 $$", 128 + 1)]
    {
        assert_eq!(inside(&lab, &["--isolate"], script).2, Some(expected), "{script}");
    }
    for (program, code) in [("/no/such/program", 127), ("/etc/passwd", 126)] {
        let (_, log, own) = said(&lab.output(&mut taut(&["gateway", "--run", "--isolate", "--", program])));
        assert!(own == Some(code) && log.contains(program), "{own:?} {log}");
    }
    // An orphan: its number is free again when process 1 has waited for it.
    let script =
        "orphan=$(sh -c 'true & echo $!'); until [ ! -e /proc/$orphan ]; do sleep 0.05; done; echo gone";
    assert_eq!(inside(&lab, &["--isolate"], script).0, "gone\n");
    for options in [&["--isolate"][..], &[]] {
        let script =
            "for s in TERM INT HUP QUIT USR1 USR2 WINCH; do trap \"echo got $s >&2; n=x\\$n\" $s; done
                      echo ready >&2; until [ \"$n\" = xxxxxxx ]; do sleep 0.05; done; exit 5";
        let mut gateway = Gateway::run(&lab, "log", options, script);
        gateway.says("ready");
        for signal in ["TERM", "INT", "HUP", "QUIT", "USR1", "USR2", "WINCH"] {
            gateway.running.signal(signal);
            gateway.says(&format!("got {signal}"));
        }
        assert_eq!(gateway.running.wait(), Some(5));
    }
}

/// Counts the interrupts that a command gets, at a terminal of its own.
const TERMINAL: &str = "import os,pty,sys\n\
    pid,terminal=pty.fork()\n\
    if pid==0: os.execvp(sys.argv[1],sys.argv[1:])\n\
    seen=b''\n\
    def until(text):\n\
    \x20global seen\n\
    \x20while seen.count(text[0])<text[1]: seen+=os.read(terminal,1000)\n\
    until((b'ready',1))\n\
    for count in (1,2,3):\n\
    \x20os.write(terminal,b'\\x03'); until((b'interrupted',count))\n\
    os.write(terminal,b'end\\n')\n\
    try:\n\
    \x20while 1: seen+=os.read(terminal,1000)\n\
    except OSError: pass\n\
    print(seen.count(b'interrupted'),os.waitstatus_to_exitcode(os.waitpid(pid,0)[1]))\n";

/// A command that counts each of them.
const COUNTER: &str = "import os,signal,sys\n\
    signal.signal(signal.SIGINT, lambda *_: os.write(1, b'interrupted\\n'))\n\
    os.write(1, b'ready\\n'); sys.stdin.readline(); sys.exit(5)\n";

#[test]
fn gw_212_a_terminals_interrupt_reaches_an_isolated_command_once() {
    let Some(lab) = lab("run-terminal", &["python3"]) else { return };
    let own = taut(&["gateway", "--run", "--isolate", "--", "python3", "-c", COUNTER]);
    let mut python = Command::new("python3");
    python.args(["-c", TERMINAL]).arg(own.get_program()).args(own.get_args());
    let output = lab.output(python.env("XDG_CONFIG_HOME", "/nonexistent").stdin(Stdio::null()));
    assert_eq!(said(&output).0, "3 5\n", "{output:?}");
}

#[test]
fn gw_213_all_of_an_isolated_guest_ends_with_the_command_and_with_the_gateway() {
    let Some(lab) = lab("run-end", &["sleep", "setsid"]) else { return };
    let script =
        "sleep 1000 & setsid sleep 1000 & trap 'exit 3' TERM; echo ready >&2; while :; do sleep 0.05; done";
    for (ending, code) in [("command", Some(3)), ("gateway", None), ("worker", Some(128 + 9))] {
        let mut gateway = Gateway::run(&lab, "log", &["--isolate"], script);
        gateway.says("ready");
        let pid = gateway.running.id();
        let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap();
        let worker = gateway.running.worker().to_string();
        let outer = children.split_whitespace().find(|child| *child != worker).unwrap();
        let first = std::fs::read_to_string(format!("/proc/{outer}/task/{outer}/children")).unwrap();
        let own = namespace(first.trim(), "pid").unwrap();
        assert!(members(&own).len() >= 4, "{first}");
        match ending {
            "command" => gateway.running.signal("TERM"),
            "gateway" => gateway.running.signal("KILL"),
            _ => gateway.running.signal_worker("KILL"),
        }
        assert_eq!(gateway.running.wait(), code, "{ending}");
        eventually("the namespace is empty", || members(&own).is_empty());
        eventually("its parent has ended", || namespace(outer, "pid").is_none());
    }
}

#[test]
fn gw_214_a_kernel_that_refuses_isolation_runs_no_command() {
    let Some(lab) = lab("run-masked", &["unshare", "mount"]) else { return };
    // As docker and podman mask it.
    let run = |options: &[&str]| {
        let own = taut(&[&["gateway", "--run"], options, &["--", "echo", "ran"]].concat());
        let mut shell = Command::new("unshare");
        shell.args(["-m", "sh", "-c", "mount --bind /dev/null /proc/interrupts && exec \"$@\"", "sh"]);
        shell.arg(own.get_program()).args(own.get_args()).env("XDG_CONFIG_HOME", "/nonexistent");
        said(&lab.output(shell.stdin(Stdio::null())))
    };
    let (out, log, code) = run(&["--isolate"]);
    assert_eq!((out.as_str(), code), ("", Some(1)), "{log}");
    assert!(log.contains("/proc: Operation not permitted") && log.contains("run without --isolate"), "{log}");
    let (out, log, code) = run(&[]);
    assert_eq!((out.as_str(), code), ("ran\n", Some(0)), "{log}");
}

#[test]
fn conf_40_an_isolated_guest_cannot_look_into_the_gateways_processes() {
    let Some(lab) = lab("run-closed", &["cat", "umount"]) else { return };
    let script = "for file in environ maps mem; do cat /proc/1/$file >/dev/null 2>&1 && echo $file; done
                  umount /proc && for p in /proc/[0-9]*; do
                    cat $p/environ >/dev/null 2>&1 && read name < $p/comm && echo $name; done; :";
    let (seen, log, _) = inside(&lab, &["--isolate", "-t", "8080:80"], script);
    // Its own shell alone, by the host's number, although the host's processes can be seen there.
    assert_eq!(seen, "sh\n", "{log}");
}
