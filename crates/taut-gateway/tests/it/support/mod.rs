//! A gateway on a thread of its own, in a namespace. Used by the live tests.

pub(crate) mod one_server;

use std::fmt::Debug;
use std::sync::mpsc;
use std::thread::JoinHandle;

use taut_gateway::Server;
use taut_testbed::Kernel;
use tokio::sync::oneshot;

/// It runs until this is dropped.
pub(crate) struct Running {
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Running {
    /// What `begin` returns is polled on its thread, and must not end by itself.
    pub(crate) fn start<F: Future<Output: Debug>>(
        kernel: &Kernel,
        begin: impl FnOnce() -> (Server, F) + Send + 'static,
    ) -> (Server, Self) {
        let ((stop, stopped), (ready, is_ready)) = (oneshot::channel::<()>(), mpsc::channel());
        let thread = kernel.thread("gateway", move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async move {
                let (server, serving) = begin();
                ready.send(server).unwrap();
                tokio::select! {
                    end = serving => panic!("{end:?}"),
                    _ = stopped => {}
                }
            });
        });
        let server = is_ready.recv().unwrap();
        (server, Self { stop: Some(stop), thread: Some(thread.unwrap()) })
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        _ = self.stop.take().map(|stop| stop.send(()));
        let ended = self.thread.take().map(JoinHandle::join);
        if !std::thread::panicking() {
            ended.unwrap().unwrap();
        }
    }
}
