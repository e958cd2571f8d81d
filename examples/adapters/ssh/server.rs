//! A server for one connection: any user may enter, and each command is said back.

use russh::keys::{Algorithm, PrivateKey};
use russh::server::{Auth, ChannelOpenHandle, Config, Handler, Msg, Session, run_stream};
use russh::{Channel, ChannelId, Error};
use taut::TcpListener;

struct Server;

impl Handler for Server {
    type Error = Error;

    async fn auth_none(&mut self, _: &str) -> Result<Auth, Error> {
        Ok(Auth::Accept)
    }

    async fn channel_open_session(
        &mut self,
        _: Channel<Msg>,
        reply: ChannelOpenHandle,
        _: &mut Session,
    ) -> Result<(), Error> {
        reply.accept().await;
        Ok(())
    }

    async fn exec_request(&mut self, of: ChannelId, line: &[u8], to: &mut Session) -> Result<(), Error> {
        to.data(of, line.to_vec())?;
        to.close(of)
    }
}

pub async fn serve(listener: TcpListener) -> Result<(), Error> {
    let keys = vec![PrivateKey::random(&mut rand::rng(), Algorithm::Ed25519)?];
    let config = Config { keys, ..Config::default() };
    run_stream(config.into(), listener.accept().await?.0, Server).await?.await
}
