"""Types of the native module."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, final

import pandas
import pyarrow

__version__: str
SOURCES: str

@final
class Table:
    """A table with named columns, in memory.

    It has the Arrow PyCapsule interface, so pyarrow, pandas (from 3.0), polars and duckdb take it as it is, without a copy.
    """

    @property
    def column_names(self) -> list[str]:
        """Names of the columns."""
    def column(self, name: str) -> list[Any]:
        """The values of a column as a list; None where there is no value. The same as ``table[name]``."""
    def to_pydict(self) -> dict[str, list[Any]]:
        """All columns as lists, by name."""
    def to_arrow(self) -> pyarrow.Table:
        """As a pyarrow.Table; needs pyarrow."""
    def to_pandas(self) -> pandas.DataFrame:
        """As a pandas.DataFrame; needs pandas and pyarrow."""
    def __len__(self) -> int: ...
    def __getitem__(self, name: str) -> list[Any]: ...
    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object: ...
    def __arrow_c_schema__(self) -> object: ...

@final
class Window:
    """The congestion window of a connection, in segments."""

    cwnd: int
    """Segments that may be in flight; what is set is kept between 1 and 2**24."""

    def __init__(self, cwnd: int) -> None:
        """A window in slow start, to try a controller without a run."""
    @property
    def ssthresh(self) -> int | None:
        """Where slow start ends, in segments; None until the first reduction."""
    @property
    def in_slow_start(self) -> bool:
        """Whether cwnd is below ssthresh."""
    def slow_start(self, acked: int) -> int:
        """Slow start by ``acked`` segments, up to ssthresh; returns the segments left over. RFC 5681, section 3.1."""
    def additive(self, every: int, acked: int) -> None:
        """One segment more for every ``every`` segments acknowledged; with ``every = cwnd``, one a round trip."""
    def leave_slow_start(self) -> None:
        """Ends slow start here: ssthresh = cwnd."""
    def mark_app_limited(self) -> None:
        """The rate samples until everything in flight is acknowledged do not show what the path can carry."""

@final
class RateSample:
    """How much the network delivered, and in what time. draft-ietf-ccwg-bbr, section 4.1."""

    @property
    def delivered(self) -> int:
        """Segments delivered over the interval."""
    @property
    def interval_s(self) -> float:
        """Seconds: the longer of the time to send them and the time to see them acknowledged."""
    @property
    def bytes_per_s(self) -> int:
        """The rate, bytes per second."""
    @property
    def is_app_limited(self) -> bool:
        """The rate may be the application's, not the network's."""
    @property
    def prior_in_flight(self) -> int:
        """Segments in flight before this ACK."""
    @property
    def tx_in_flight(self) -> int:
        """Segments in flight when the newest packet delivered was sent, itself included."""
    @property
    def prior_delivered(self) -> int:
        """Segments delivered since the beginning when that packet was sent; distinguishes rounds."""
    @property
    def lost(self) -> int:
        """Segments marked lost since that packet was sent."""
    @property
    def losses(self) -> int:
        """Segments marked lost by this ACK."""
    @property
    def acked_sacked(self) -> int:
        """Segments this ACK delivered."""

@final
class Ack:
    """An ACK's content and consequences."""

    @property
    def now_s(self) -> float:
        """When it arrived, seconds since the run began."""
    @property
    def mss(self) -> int:
        """Payload bytes of a full segment."""
    @property
    def acked(self) -> int:
        """Segments newly delivered, cumulatively or selectively."""
    @property
    def newly_lost(self) -> int:
        """Segments newly found lost."""
    @property
    def prior_in_flight(self) -> int:
        """Segments in flight before the ACK."""
    @property
    def in_flight(self) -> int:
        """Segments in flight after it."""
    @property
    def total_delivered(self) -> int:
        """Segments delivered since the beginning, this ACK's included."""
    @property
    def total_lost(self) -> int:
        """Segments found lost since the beginning, modulo 2**32."""
    @property
    def rtt_s(self) -> float | None:
        """Round-trip time of the newest packet acknowledged, seconds, if it gives one."""
    @property
    def srtt_s(self) -> float | None:
        """Smoothed round-trip time, seconds. RFC 6298."""
    @property
    def min_rtt_s(self) -> float | None:
        """Least round-trip time of the last five minutes, seconds."""
    @property
    def una(self) -> int:
        """Oldest position not acknowledged, bytes, after the ACK."""
    @property
    def nxt(self) -> int:
        """Next position never sent, bytes: when ``una`` reaches it, a round trip is over."""
    @property
    def rate(self) -> RateSample | None:
        """The rate at which the network delivered, if the ACK gives a sample."""
    @property
    def ece(self) -> bool:
        """The ACK carries ECE. RFC 3168."""
    @property
    def delivered_ce(self) -> int:
        """Segments newly reported as marked."""
    @property
    def cwnd_limited(self) -> bool:
        """cwnd was the limit when the data acknowledged was sent."""
    @property
    def recovering(self) -> bool:
        """Something lost is being repaired."""
    @property
    def seed(self) -> int:
        """Differs between connections and never changes."""

@final
class LostPacket:
    """A packet, or a part of one, that was found lost."""

    @property
    def segs(self) -> int:
        """Its segments."""
    @property
    def tx_in_flight(self) -> int:
        """Segments in flight when it was sent, itself included."""
    @property
    def lost(self) -> int:
        """Segments found lost since it was sent, itself included."""
    @property
    def total_delivered(self) -> int:
        """Segments delivered since the beginning."""
    @property
    def is_app_limited(self) -> bool:
        """The application had left the network short of data."""

@final
class Results:
    """Used by ``taut_lab.Result``."""

    @property
    def scenario(self) -> str: ...
    @property
    def title(self) -> str: ...
    @property
    def about(self) -> str: ...
    @property
    def source(self) -> str | None: ...
    def text(self) -> str: ...
    def runs(self) -> list[dict[str, Any]]: ...
    def table(self) -> Table: ...
    def metrics(self) -> Table: ...
    def intervals(self) -> Table: ...
    def flows(self) -> Table: ...
    def goodput(self) -> Table: ...
    def fairness(self) -> Table: ...
    def losses(self) -> Table: ...
    def blocked(self) -> Table: ...
    def acks(self) -> Table: ...
    def packets(self) -> Table: ...
    def histograms(self) -> Table: ...
    def events(self) -> Table: ...
    def capture(self, run: int) -> bytes: ...

@final
class Grid:
    """Used by ``taut_lab.sweep``."""

    def __init__(
        self,
        file: str,
        text: str,
        directory: Path,
        changes: list[str],
        case: str | None,
        seeds: int | None,
        controllers: dict[str, type] | None,
    ) -> None: ...
    def parts(self) -> list[dict[str, Any]]: ...
    def table(self, figures: list[dict[int, dict[str, float]]]) -> tuple[str, str]: ...

@final
class Series:
    """Used by ``taut_lab.sweep``."""

    def __init__(
        self,
        name: str,
        file: str,
        text: str,
        changes: list[str],
        case: str,
        variant: str,
        files: dict[str, bytes],
        controllers: dict[str, type] | None,
    ) -> None: ...
    @property
    def describes(self) -> str: ...
    def run(self, seed: int) -> tuple[str | None, dict[str, float]]: ...

def run(
    name: str,
    file: str,
    text: str | None,
    data: dict[str, Any] | None,
    changes: list[tuple[str, Any]],
    seeds: int | None,
    seed_from: int,
    variants: list[str],
    cases: list[str],
    keep: str,
    threads: int,
    controllers: dict[str, type] | None,
    progress: Callable[[float, int], object] | None,
) -> Results: ...
def builtin_text(name: str) -> str: ...
def scenarios() -> list[dict[str, Any]]: ...
def metrics() -> list[tuple[str, str, str]]: ...
def congestion_controls() -> list[str]: ...
def gates() -> list[tuple[str, str]]: ...
