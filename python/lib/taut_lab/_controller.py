"""The class that a congestion controller in Python inherits from."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal

if TYPE_CHECKING:
    from ._native import Ack, LostPacket, Window

#: Why a reduction begins: a loss, a congestion mark, a full queue of this host, the retransmission timer.
Signal = Literal["loss", "mark", "local-queue", "timeout"]


class Controller:
    """A congestion control of one connection, in Python.

    A subclass implements :meth:`on_ack` and :meth:`on_loss`; the rest does nothing unless it is overridden, and then costs nothing.
    One object is made for each connection, with the parameters as keyword arguments. Windows are in segments, times in seconds of
    the run, rates in bytes per second. Loss detection, retransmission, the spread of a reduction over a round trip, pacing and
    the sizes of super-packets are the stack's, as for the controllers in Rust.

    Nothing in it may depend on a clock or on randomness other than ``ack.now_s`` and ``ack.seed``: a run is then repeated by its seed.
    Runs go on in several threads; objects do not share anything unless the class does.
    """

    #: Parameters that scenarios may set, as in ``mine:gain=2.5``: name to (default, least, most, help).
    params: ClassVar[dict[str, tuple[float, float, float, str]]] = {}
    #: Packets are paced even if the scenario does not ask for it.
    paced: ClassVar[bool] = False
    #: The pacing rate before the first ACK, in percent of cwnd/SRTT; the sysctl ``tcp_pacing_ss_ratio`` if None.
    first_pacing_percent: ClassVar[int | None] = None
    #: How marks are used: by RFC 3168; each one reported; or ECT(1) and accurate ECN.
    ecn: ClassVar[Literal["classic", "precise", "l4s"]] = "classic"
    #: The controller sets cwnd itself, also in recovery; ``on_ack`` is then called for every ACK.
    owns_cwnd: ClassVar[bool] = False
    #: Congestion windows that the send buffer grows to hold.
    send_buffer_windows: ClassVar[int] = 2

    def on_ack(self, window: Window, ack: Ack) -> None:
        """Sets ``window.cwnd`` after an ACK that may raise it: one that advanced, outside recovery, while cwnd was the limit."""
        raise NotImplementedError

    def on_loss(self, window: Window, why: Signal, now_s: float) -> int:
        """A reduction begins, at most one per round trip. Returns the new ssthresh in segments.

        cwnd gets there within the round trip, or by slow start after a timeout; changes to ``window`` are not kept. The stack
        keeps at least two segments. In Rust, this is ``reduce``.
        """
        raise NotImplementedError

    def observe(self, ack: Ack) -> None:
        """Any ACK that delivered something or found something lost, before anything is decided."""

    def on_packet_lost(self, packet: LostPacket) -> None:
        """A packet was found lost; before the ACK's ``observe``. In Rust, this is ``on_lost``."""

    def on_timeout(self, window: Window) -> None:
        """A retransmission timeout, after ``on_loss``."""

    def on_recovery_end(self, window: Window) -> None:
        """Everything in flight when the reduction began is acknowledged."""

    def undo(self, window: Window, now_s: float) -> None:
        """The last reduction was unnecessary; cwnd and ssthresh are already restored."""

    def on_idle_end(self, window: Window, now_s: float, idle_s: float) -> None:
        """Sending is about to resume after ``idle_s`` seconds without anything in flight."""

    def pacing_rate(self) -> int | None:
        """A pacing rate in bytes per second; None for the usual one, 120 % of cwnd/SRTT, or 200 % in slow start."""
        return None

    def send_quantum(self) -> int | None:
        """Payload bytes of a super-packet; None to leave that to TSO autosizing."""
        return None
