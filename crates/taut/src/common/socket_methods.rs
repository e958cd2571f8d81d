//! The methods that do not wait, the same on both kinds of stream: addresses, options, attempts. Called by
//! `tokio/stream.rs` and `blocking/stream.rs`; what they do is in `socket.rs`.

macro_rules! socket_methods {
    () => {
        /// This end's address.
        ///
        /// # Errors
        /// None; the result is there to match `std`.
        pub fn local_addr(&self) -> std::io::Result<std::net::SocketAddr> {
            Ok(self.socket.local)
        }

        /// The other end's address.
        ///
        /// # Errors
        /// None; the result is there to match `std`.
        pub fn peer_addr(&self) -> std::io::Result<std::net::SocketAddr> {
            Ok(self.socket.peer)
        }

        /// A snapshot of the connection. Linux: `TCP_INFO`.
        ///
        /// # Errors
        /// The stack was shut down.
        pub fn info(&self) -> std::io::Result<taut_core::ConnInfo> {
            self.socket.info()
        }

        /// A report on the time since the first write: how long each limit held the connection back, and how
        /// long bytes waited in each queue.
        ///
        /// # Errors
        /// The stack was shut down.
        pub fn report(&self) -> std::io::Result<taut_core::Report> {
            self.socket.report()
        }

        /// Writes as much as there is room for, without waiting, like `send(2)` with `MSG_MORE` or `MSG_EOR`.
        ///
        /// # Errors
        /// [`WouldBlock`](std::io::ErrorKind::WouldBlock) when there is no room, or why the connection ended.
        pub fn try_write_with(&self, data: &[u8], flags: taut_core::WriteFlags) -> std::io::Result<usize> {
            if data.is_empty() {
                return Ok(0);
            }
            crate::wait::now_or_would_block(
                self.socket.shard.attempt(|access| self.socket.write_with(access, data, flags)),
            )
        }

        /// Hands over as much of `data` as there is room for, without a copy and without waiting. See
        /// [`write_bytes`](Self::write_bytes).
        ///
        /// # Errors
        /// [`WouldBlock`](std::io::ErrorKind::WouldBlock) when there is no room, or why the connection ended.
        pub fn try_write_bytes(&self, data: &mut bytes::Bytes) -> std::io::Result<Option<u32>> {
            crate::wait::now_or_would_block(
                self.socket.shard.attempt(|access| self.socket.write_bytes(access, data)),
            )
        }

        /// The next received bytes, at most `max`, without a copy and without waiting. See
        /// [`read_chunk`](Self::read_chunk).
        ///
        /// # Errors
        /// [`WouldBlock`](std::io::ErrorKind::WouldBlock) when there is no data, or why the connection ended.
        pub fn try_read_chunk(&self, max: usize) -> std::io::Result<bytes::Bytes> {
            crate::wait::now_or_would_block(
                self.socket.shard.attempt(|access| self.socket.read_chunk(access, max)),
            )
        }

        /// The next lent writes whose memory is free, without waiting; `None` if every one was reported.
        ///
        /// # Errors
        /// [`WouldBlock`](std::io::ErrorKind::WouldBlock) when none is free yet; the stack was shut down.
        pub fn try_next_completion(&self) -> std::io::Result<Option<taut_core::Completion>> {
            crate::wait::now_or_would_block(
                self.socket.shard.attempt(|access| self.socket.next_completion(access)),
            )
        }

        /// Sets any option.
        ///
        /// # Errors
        /// [`InvalidInput`](std::io::ErrorKind::InvalidInput) for a value out of range.
        pub fn set_option(&self, option: taut_core::SetOption) -> std::io::Result<()> {
            self.socket.set(option)
        }

        /// The error that ended the connection, if there is one that was not taken yet. Linux: `SO_ERROR`.
        ///
        /// # Errors
        /// The stack was shut down.
        pub fn take_error(&self) -> std::io::Result<Option<std::io::Error>> {
            self.socket.take_error()
        }

        /// `TCP_NODELAY`, as last set.
        ///
        /// # Errors
        /// None; the result is there to match `std`.
        pub fn nodelay(&self) -> std::io::Result<bool> {
            Ok(self.socket.nodelay())
        }

        /// `TCP_NODELAY`: small packets do not wait for the ACK of an earlier small one.
        ///
        /// # Errors
        /// The stack was shut down.
        pub fn set_nodelay(&self, nodelay: bool) -> std::io::Result<()> {
            self.socket.set(taut_core::SetOption::Nodelay(nodelay))
        }

        /// `TCP_CORK`: holds back partial segments until it is cleared, or for 200 ms.
        ///
        /// # Errors
        /// The stack was shut down.
        pub fn set_cork(&self, cork: bool) -> std::io::Result<()> {
            self.socket.set(taut_core::SetOption::Cork(cork))
        }

        /// `TCP_QUICKACK`: ACKs are not delayed.
        ///
        /// # Errors
        /// The stack was shut down.
        pub fn set_quickack(&self, quickack: bool) -> std::io::Result<()> {
            self.socket.set(taut_core::SetOption::Quickack(quickack))
        }

        /// `TCP_NOTSENT_LOWAT`: the socket takes more data while fewer bytes than this are unsent; 0 follows
        /// the stack's value.
        ///
        /// # Errors
        /// The stack was shut down.
        pub fn set_notsent_lowat(&self, bytes: u32) -> std::io::Result<()> {
            self.socket.set(taut_core::SetOption::NotsentLowat(bytes))
        }

        /// `SO_SNDBUF` in bytes; doubled as in Linux, and no longer tuned.
        ///
        /// # Errors
        /// The stack was shut down.
        pub fn set_sndbuf(&self, bytes: u32) -> std::io::Result<()> {
            self.socket.set(taut_core::SetOption::Sndbuf(bytes))
        }

        /// `SO_RCVBUF` in bytes; doubled as in Linux, and no longer tuned.
        ///
        /// # Errors
        /// The stack was shut down.
        pub fn set_rcvbuf(&self, bytes: u32) -> std::io::Result<()> {
            self.socket.set(taut_core::SetOption::Rcvbuf(bytes))
        }

        /// `SO_MAX_PACING_RATE` in bytes per second; `u64::MAX` is no limit. Switches pacing on.
        ///
        /// # Errors
        /// The stack was shut down.
        pub fn set_max_pacing_rate(&self, bytes_per_second: u64) -> std::io::Result<()> {
            self.socket.set(taut_core::SetOption::MaxPacingRate(bytes_per_second))
        }

        /// `TCP_TX_DELAY`: packets depart this much later, on a link that paces.
        ///
        /// # Errors
        /// [`InvalidInput`](std::io::ErrorKind::InvalidInput) above 2³¹ − 1 µs.
        pub fn set_tx_delay(&self, delay: std::time::Duration) -> std::io::Result<()> {
            self.socket.set(taut_core::SetOption::TxDelay(delay.into()))
        }

        /// `TCP_CONGESTION`: one of the stack's algorithms by name, such as `bbr`, or with parameters
        /// `mine:gain=2.5`. To set an [`Algorithm`](taut_core::Algorithm) value, use
        /// [`set_option`](Self::set_option).
        ///
        /// # Errors
        /// [`InvalidInput`](std::io::ErrorKind::InvalidInput) when the stack has no algorithm with that name,
        /// or the algorithm has no such parameter; the error lists the known ones.
        pub fn set_congestion(&self, name: &str) -> std::io::Result<()> {
            self.socket.set_congestion(name)
        }

        /// `SO_KEEPALIVE` with its parameters; `None` switches it off.
        ///
        /// # Errors
        /// [`InvalidInput`](std::io::ErrorKind::InvalidInput) for a parameter out of range.
        pub fn set_keepalive(&self, keepalive: Option<taut_core::Keepalive>) -> std::io::Result<()> {
            self.socket.set(taut_core::SetOption::Keepalive(keepalive))
        }

        /// `TCP_USER_TIMEOUT`: how long written data may stay unacknowledged.
        ///
        /// # Errors
        /// [`InvalidInput`](std::io::ErrorKind::InvalidInput) for a value out of range.
        pub fn set_user_timeout(&self, timeout: Option<std::time::Duration>) -> std::io::Result<()> {
            self.socket.set(taut_core::SetOption::UserTimeout(timeout.map(Into::into)))
        }

        /// `IP_TOS` or `IPV6_TCLASS` of the packets from now on: its upper six bits (DSCP). The lower two are
        /// ECN's, and ignored.
        ///
        /// # Errors
        /// The stack was shut down.
        pub fn set_tos(&self, tos: u8) -> std::io::Result<()> {
            self.socket.set(taut_core::SetOption::Tos(tos))
        }

        /// `IP_TOS`, as last set, without the two bits of ECN.
        ///
        /// # Errors
        /// The stack was shut down.
        pub fn tos(&self) -> std::io::Result<u8> {
            self.info().map(|info| info.tos)
        }

        /// The bytes received and not read, or 1 for the end of the stream. Linux: `TCP_INQ`, `SIOCINQ`.
        ///
        /// # Errors
        /// The stack was shut down.
        pub fn inq(&self) -> std::io::Result<u64> {
            self.info().map(|info| info.inq)
        }

        /// `SO_LINGER`. With zero, dropping the stream resets the connection. With any other value, or
        /// `None`, it closes in the background once everything written is delivered: dropping never blocks.
        ///
        /// # Errors
        /// None; the result is there to match `std`.
        pub fn set_linger(&self, linger: Option<std::time::Duration>) -> std::io::Result<()> {
            self.socket.set_linger(linger);
            Ok(())
        }

        /// `SO_LINGER`, as last set.
        ///
        /// # Errors
        /// None; the result is there to match `std`.
        pub fn linger(&self) -> std::io::Result<Option<std::time::Duration>> {
            Ok(self.socket.linger())
        }

        /// `SO_KEEPALIVE` and its parameters; `None` if it is off.
        ///
        /// # Errors
        /// The stack was shut down.
        pub fn keepalive(&self) -> std::io::Result<Option<taut_core::Keepalive>> {
            self.socket.keepalive()
        }

        /// `SO_SNDBUF`: the send buffer as it is now, in bytes.
        ///
        /// # Errors
        /// The stack was shut down.
        pub fn sndbuf(&self) -> std::io::Result<u32> {
            self.info().map(|info| info.sndbuf)
        }

        /// `SO_RCVBUF`: the receive buffer as it is now, in bytes.
        ///
        /// # Errors
        /// The stack was shut down.
        pub fn rcvbuf(&self) -> std::io::Result<u32> {
            self.info().map(|info| info.rcvbuf)
        }

        /// `IP_TTL`, or the hop limit: that of the stack, `ip_default_ttl`.
        ///
        /// # Errors
        /// The stack was shut down.
        pub fn ttl(&self) -> std::io::Result<u32> {
            self.socket.ttl().map(u32::from)
        }

        /// Resets the connection now: the peer sees a reset, and later uses of this stream fail with
        /// [`NotConnected`](std::io::ErrorKind::NotConnected). Written data that has not arrived is lost.
        pub fn abort(&self) {
            self.socket.abort();
        }
    };
}
pub(crate) use socket_methods;
