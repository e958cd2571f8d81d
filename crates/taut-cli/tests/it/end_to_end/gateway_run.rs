//! The command of `taut gateway --run`, and its own namespaces besides its network: GW-210 to 217 of
//! `docs/spec/gateway.md`, CONF-40 of `docs/spec/confinement.md`.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
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
        // A shell cannot trap what was ignored when it began, as in the background of another.
        let command = ["--", "env", "--default-signal=INT,QUIT", "sh", "-c", script];
        let mut gateway =
            Gateway::by(&lab, "log", &mut taut(&[&["gateway", "--run"], options, &command].concat()));
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

/// A command that counts each of them. Python may begin to wait when a signal has just come, and handles it
/// only after that.
const COUNTER: &str = "import os,select,signal,sys\n\
    signal.signal(signal.SIGINT, lambda *_: os.write(1, b'interrupted\\n'))\n\
    os.write(1, b'ready\\n')\n\
    while not select.select([0],[],[],0.05)[0]: pass\n\
    sys.exit(5)\n";

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

/// Everybody may open a TUN here, and a user has further ids, in a mount namespace of root's.
const TESTER: &str = "set -e
    mount -t tmpfs -o mode=0777 none /dev/net && mknod -m 666 /dev/net/tun c 10 200 && cp \"$0\" /dev/net/taut
    cp -a /etc /dev/net/etc && mount --bind /dev/net/etc /etc && chmod 755 /dev/net/taut
    echo tester:x:1234:1234::/:/bin/sh >> /etc/passwd && echo tester:x:1234: >> /etc/group
    echo tester:100000:65536 > /etc/subuid && cat /etc/subuid > /etc/subgid && cd / && umask 077
    user=\"$(command -v setpriv) --reuid 1234 --regid 1234 --clear-groups\"
    taut=\"/dev/net/taut gateway --run --control none\"\n";

/// The command line of a script with these words.
fn as_tester(script: &str) -> Command {
    let mut command = Command::new("unshare");
    command.args(["-m", "sh", "-c", &format!("{TESTER}{script}"), env!("CARGO_BIN_EXE_taut")]);
    command.env("XDG_CONFIG_HOME", "/nonexistent").stdin(Stdio::null());
    command
}

const PROGRAMS: [&str; 8] = ["unshare", "mount", "mknod", "setpriv", "newuidmap", "newgidmap", "id", "stat"];

/// Words of the output, and the errors.
fn words(lab: &Lab, script: &str) -> (String, String) {
    let (out, log, code) = said(&lab.output(&mut as_tester(script)));
    assert_eq!(code, Some(0), "{log}");
    (out.split_whitespace().collect::<Vec<_>>().join(" "), log)
}

#[test]
fn gw_215_a_command_keeps_its_user_and_has_no_capability() {
    let Some(lab) = lab("run-keep", &PROGRAMS) else { return };
    let show = "id -u; id -g; cat /proc/self/uid_map /proc/self/gid_map; grep CapEff /proc/self/status; ls /sys/class/net";
    for options in ["--keep-user", "--keep-user --isolate"] {
        let script = format!(": > /etc/subuid; $user $taut {options} -- sh -c '{show}' | head -c 1000");
        let (seen, log) = words(&lab, &script);
        let expected = "1234 1234 1234 1234 1 1234 1234 1 CapEff: 0000000000000000";
        assert!(seen.starts_with(expected), "{seen}{log}");
        assert!(!options.contains("isolate") || seen.ends_with(" lo taut0"), "{seen}{log}");
    }
    // With further users, and as root: its number stays in any case.
    let (seen, log) = words(&lab, "$user $taut --keep-user -- sh -c 'id -u; cat /proc/self/uid_map'");
    assert_eq!(seen, "1234 1234 1234 1 0 100000 1234 1235 101234 64302", "{log}");
    assert_eq!(inside(&lab, &["--keep-user"], "id -u").0, "0\n");
}

#[test]
fn gw_216_a_user_with_further_ids_has_them_inside() {
    let Some(lab) = lab("run-ids", &PROGRAMS) else { return };
    // A file of another user's, who also reads the name server; and the owner outside.
    let own = "cat /proc/self/uid_map /proc/self/gid_map; : > /dev/net/file; chown 33:33 /dev/net/file
               setpriv --reuid 33 --regid 33 --clear-groups cat /etc/resolv.conf | head -n 1; stat -c %u:%g /dev/net/file";
    let (seen, log) = words(&lab, &format!("$user $taut -- sh -c '{own}'; stat -c %u:%g /dev/net/file"));
    let ids = "0 1234 1 1 100000 65536";
    assert_eq!(seen, format!("{ids} {ids} nameserver 10.0.2.2 33:33 100032:100032"), "{log}");
    // A command that becomes another user gets no signal of the gateway's, which ends.
    let script = "$user $taut -- setpriv --reuid 33 --regid 33 --clear-groups sh -c 'echo $$; exec sleep 1000' > /dev/net/out &
                  until [ -s /dev/net/out ]; do sleep 0.05; done; kill -TERM $!; wait $!; echo $?; kill $(cat /dev/net/out)";
    assert_eq!(words(&lab, script).0, "0");
    // Without ranges, programs or the right to use them, and where they fail: one's own alone.
    let fails = "printf '#!/bin/sh\\necho newuidmap: no >&2; exit 1\\n' > /dev/net/newuidmap
                 chmod 755 /dev/net/newuidmap; PATH=/dev/net:$PATH";
    for (before, why) in [
        (": > /etc/subgid", ""),
        ("PATH=/nowhere", ""),
        ("user=\"$user --no-new-privs\"", ""),
        (fails, "the guest has no other users: newuidmap: no\n"),
    ] {
        let (seen, log) =
            words(&lab, &format!("{before}; $user $taut -- /bin/cat /proc/self/uid_map /proc/self/gid_map"));
        assert_eq!(seen, "0 1234 1 0 1234 1", "{before}: {log}");
        assert!(
            log.ends_with(why) && (!why.is_empty() || !log.contains("no other users")),
            "{before}: {log}"
        );
    }
}

#[test]
fn gw_217_nginx_serves_through_a_port_with_workers_of_another_user() {
    let Some(lab) = lab("run-nginx", &[&PROGRAMS[..], &["nginx"]].concat()) else { return };
    let script = "mkdir -m 755 /dev/net/www && printf page > /dev/net/www/index.html
        cat > /dev/net/nginx.conf <<'END'
daemon off; user www-data; worker_processes 2; pid /dev/net/www/pid; error_log stderr; events {}
http { access_log off; client_body_temp_path /dev/net/www/body; proxy_temp_path /dev/net/www/proxy;
fastcgi_temp_path /dev/net/www/fcgi; uwsgi_temp_path /dev/net/www/uwsgi; scgi_temp_path /dev/net/www/scgi;
server { listen 80; root /dev/net/www; } }
END
        chown -R 1234:1234 /dev/net/www /dev/net/nginx.conf
        exec $user $taut --isolate -t 8080:80 -- sh -c 'chown -R www-data /dev/net/www
            chmod 400 /dev/net/www/index.html; exec /usr/sbin/nginx -e stderr -c /dev/net/nginx.conf'";
    let log = lab.dir.join("log");
    let mut command = as_tester(script);
    let mut running = lab.spawn(command.stdout(Stdio::null()).stderr(std::fs::File::create(&log).unwrap()));
    let mut page = String::new();
    eventually(&format!("a page; {}", log.display()), || {
        let Ok(mut client) = lab.kernel.enter(|| TcpStream::connect("127.0.0.1:8080")).unwrap() else {
            return false;
        };
        page.clear();
        let asked = client.write_all(b"GET / HTTP/1.0\r\n\r\n");
        asked.and_then(|()| client.read_to_string(&mut page)).is_ok_and(|len| len > 0)
    });
    assert!(page.starts_with("HTTP/1.1 200 OK") && page.ends_with("\r\n\r\npage"), "{page}");
    // A worker has read it, by the number of www-data inside, which is 33 on Debian: the 33rd of the range.
    let status = |pid: &str| std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let is_worker = |pid: &String| {
        let status = status(pid);
        status.contains("Name:\tnginx\n") && status.contains("Uid:\t100032\t100032\t100032\t100032\n")
    };
    let all = || {
        std::fs::read_dir("/proc").unwrap().flatten().filter_map(|entry| entry.file_name().into_string().ok())
    };
    eventually("two workers", || all().filter(is_worker).count() == 2);
    running.signal("TERM");
    assert_eq!(running.wait(), Some(0), "{}", std::fs::read_to_string(&log).unwrap());
    eventually("its workers have ended", || !all().any(|pid| is_worker(&pid)));
}
