//! taut through its public sockets, as an application would use it: blocking ones with the stack on a thread
//! of its own, and tokio's shape with the stack as a task of a single-threaded runtime.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use taut::{ConnOptions, ListenOptions, Stack, TcpListener, TcpStream, blocking};
use taut_device::Tun;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::{Task, taut_loop};
use crate::net::{LOCAL, PEER, PORT};
use crate::peer::{self, BATCH, CHUNK};
use crate::probe::{Probe, histogram};

/// How often a thread checks whether to stop.
const TICK: Duration = Duration::from_millis(20);

fn builder(tun: Tun) -> taut::StackBuilder {
    Stack::builder().device(tun).address(&format!("{LOCAL}/24"))
}

fn listen_options() -> ListenOptions {
    ListenOptions { conn: taut_loop::nodelay(), ..ListenOptions::default() }
}

fn here() -> SocketAddr {
    (LOCAL, PORT).into()
}

fn there() -> SocketAddr {
    (PEER, PORT).into()
}

pub fn run_blocking(task: Task, tun: Tun, probe: &Arc<Probe>) -> Result<()> {
    let stack = builder(tun).build().context("build")?;
    // Dropping the last handle wakes all blocked threads, so this thread, which never blocks, holds it.
    let bystander = {
        let (stack, probe) = (stack.clone(), Arc::clone(probe));
        std::thread::Builder::new().name("bystander".into()).spawn(move || {
            probe.not_the_stack();
            while !probe.stopped() {
                std::thread::sleep(TICK);
            }
            drop(stack);
        })?
    };
    let connect = || -> Result<blocking::TcpStream> {
        let stream = blocking::TcpStream::connect(&stack, there()).context("connect")?;
        stream.set_nodelay(task == Task::Ping)?;
        if task == Task::Send {
            stream.set_notsent_lowat(taut_loop::bulk().notsent_lowat)?;
        }
        stream.set_read_timeout(Some(TICK * 10))?;
        stream.set_write_timeout(Some(TICK * 10))?;
        Ok(stream)
    };
    let listen = || blocking::TcpListener::bind_with(&stack, here(), listen_options()).context("listen");
    let done = match task {
        Task::Send => connect().and_then(|stream| peer::pour(stream, probe)),
        Task::Receive => connect().and_then(|stream| peer::drain(stream, probe)),
        Task::Ping => connect().and_then(|stream| peer::ping(stream, probe)),
        Task::Serve => listen().and_then(|listener| {
            drop(stack);
            serve_blocking(&listener)
        }),
        Task::Hold => listen().and_then(|listener| {
            drop(stack);
            let mut held = Vec::with_capacity(16 << 10);
            loop {
                held.push(listener.accept().context("accept")?);
            }
        }),
        Task::Dial => Err(anyhow::anyhow!("blocking sockets connect one at a time")),
    };
    if let Err(error) = done {
        // Report the error before joining the bystander, which waits for the stop.
        if !probe.stopped() {
            probe.fail(error);
        }
    }
    let _ = bystander.join();
    Ok(())
}

fn serve_blocking(listener: &blocking::TcpListener) -> Result<()> {
    use std::io::{Read, Write};
    let mut byte = [0];
    loop {
        let (mut stream, _) = listener.accept().context("accept")?;
        // An error means only that the client was stopped in the middle of a request.
        let _ = stream.read(&mut byte).and_then(|count| stream.write_all(&byte[..count]));
    }
}

pub fn run_tokio(task: Task, tun: Tun, probe: &Arc<Probe>) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let mut taken_ns = histogram();
    let stopped = async {
        while !probe.stopped() {
            tokio::time::sleep(TICK).await;
        }
        Ok(())
    };
    let work = async {
        let stack = builder(tun).build_tokio().context("build")?;
        match task {
            Task::Send => send(connect(&stack, &taut_loop::bulk()).await?).await,
            Task::Receive => receive(connect(&stack, &ConnOptions::default()).await?, probe).await,
            Task::Ping => {
                let mut stream = connect(&stack, &taut_loop::nodelay()).await?;
                let mut byte = [0];
                loop {
                    let begun = Instant::now();
                    stream.write_all(&byte).await.context("write")?;
                    stream.read_exact(&mut byte).await.context("read")?;
                    if probe.measuring() {
                        taken_ns.saturating_record(begun.elapsed().as_nanos() as u64);
                    }
                    probe.add(1);
                }
            }
            Task::Dial => {
                let mut tasks = tokio::task::JoinSet::new();
                for _ in 0..BATCH {
                    tasks.spawn(dial(stack.clone(), Arc::clone(probe)));
                }
                match tasks.join_next().await {
                    Some(ended) => ended.context("a task panicked")?,
                    None => bail!("no task ran"),
                }
            }
            Task::Serve => {
                let listener = TcpListener::bind_with(&stack, here(), listen_options()).context("listen")?;
                loop {
                    let (stream, _) = listener.accept().await.context("accept")?;
                    tokio::spawn(answer(stream));
                }
            }
            Task::Hold => {
                let listener = TcpListener::bind_with(&stack, here(), listen_options()).context("listen")?;
                let mut held = Vec::with_capacity(16 << 10);
                loop {
                    held.push(listener.accept().await.context("accept")?);
                }
            }
        }
    };
    let done = runtime.block_on(async {
        tokio::select! {
            done = work => done,
            done = stopped => done,
        }
    });
    if task == Task::Ping {
        probe.keep_latencies(taken_ns);
    }
    done
}

async fn connect(stack: &Stack, options: &ConnOptions) -> Result<TcpStream> {
    TcpStream::connect_with(stack, there(), options).await.context("connect")
}

async fn send(mut stream: TcpStream) -> Result<()> {
    let data = vec![0x5a; CHUNK];
    loop {
        stream.write_all(&data).await.context("write")?;
    }
}

async fn receive(mut stream: TcpStream, probe: &Probe) -> Result<()> {
    let mut data = vec![0; CHUNK];
    loop {
        match stream.read(&mut data).await.context("read")? {
            0 => bail!("the peer closed"),
            count => probe.add(count as u64),
        }
    }
}

async fn dial(stack: Stack, probe: Arc<Probe>) -> Result<()> {
    let mut byte = [0];
    loop {
        let mut stream = connect(&stack, &taut_loop::nodelay()).await?;
        stream.write_all(&byte).await.context("write")?;
        stream.read_exact(&mut byte).await.context("read")?;
        probe.add(1);
        // As in all stacks, the close is a RST.
        stream.set_linger(Some(Duration::ZERO))?;
    }
}

async fn answer(mut stream: TcpStream) {
    let mut byte = [0];
    if let Ok(count) = stream.read(&mut byte).await {
        let _ = stream.write_all(&byte[..count]).await;
    }
}
