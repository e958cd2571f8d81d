//! Each example runs, and prints what the library got over the stack.

use std::process::Command;

fn run(program: &str) -> String {
    let output = Command::new(program).output().unwrap();
    assert!(output.status.success(), "{program}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn grpc_checks_the_health_of_a_server() {
    assert_eq!(run(env!("CARGO_BIN_EXE_grpc")), "Serving\n");
}

#[test]
fn postgres_returns_a_row() {
    assert_eq!(run(env!("CARGO_BIN_EXE_postgres")), "[\"hello\"]\n");
}

#[test]
fn ssh_runs_a_command() {
    assert_eq!(run(env!("CARGO_BIN_EXE_ssh")), "hello\n");
}
