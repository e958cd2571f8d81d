"""What comes out of a scenario's runs."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

from ._native import Results, Table

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Run:
    """A run: one case, variant and seed."""

    case: str
    variant: str
    seed: int
    #: Length of the run, and of the part at its beginning that metrics leave out, in seconds of the run.
    duration_s: float
    warm_up_s: float
    #: Length of an interval of :attr:`Result.intervals`, seconds.
    interval_s: float
    #: Digest of everything that happened: equal for equal runs.
    digest: str
    #: Events of the simulator.
    simulated_events: int
    #: Every value of the scenario by path, such as ``link.rate``.
    parameters: dict[str, str]
    #: Figures by name; their units are in :func:`taut_lab.metrics`.
    metrics: dict[str, float]
    #: SNMP counters of the senders' stacks, by Linux's names, without zeros.
    counters: dict[str, int]
    #: Values that did not fit, by list; a run keeps a bounded number of rows.
    left_out: dict[str, int]


class Result:
    """The runs of a scenario. Tables begin with the columns ``case``, ``variant`` and ``seed``, and have a row's unit in a column's
    name: ``_s`` seconds since the run began, ``_bytes``, ``_bps`` bits per second.

    ``str(result)`` is the table as the command prints it.
    """

    def __init__(self, native: Results) -> None:
        self._native = native

    @property
    def scenario(self) -> str:
        """Name of the scenario."""
        return self._native.scenario

    @property
    def title(self) -> str:
        """One line."""
        return self._native.title

    @property
    def about(self) -> str:
        """What it shows, and how."""
        return self._native.about

    @property
    def source(self) -> str | None:
        """Where the published figures come from, if there are any."""
        return self._native.source

    @cached_property
    def runs(self) -> list[Run]:
        """The runs, by case, variant and seed."""
        return [Run(**one) for one in self._native.runs()]

    @cached_property
    def table(self) -> Table:
        """What the scenario measures: case, metric, label, unit, variant, runs, mean over seeds, ci95 (half the width of the 95 %
        confidence interval), and the published figure, a text."""
        return self._native.table()

    @cached_property
    def metrics(self) -> Table:
        """Every figure of every run: metric, unit, value."""
        return self._native.metrics()

    @cached_property
    def intervals(self) -> Table:
        """Flows over time: a row at the end of each interval with the bytes in each queue, window, rates, and the seconds for which
        each gate of the send path was the closed one (``blocked_..._s``)."""
        return self._native.intervals()

    @cached_property
    def flows(self) -> Table:
        """Connections: name, which ``[[flows]]`` (group), whether beside, ends, times, bytes, goodput, round-trip times."""
        return self._native.flows()

    @cached_property
    def goodput(self) -> Table:
        """Goodput of every flow over time: t_s (the end of an interval), flow, goodput_bps. Its intervals are those of
        :attr:`fairness`; in long runs they are longer than those of :attr:`intervals`."""
        return self._native.goodput()

    @cached_property
    def fairness(self) -> Table:
        """How flows shared each interval: t_s, flows (open all the time), goodput_bps (of all), Jain's index of all and of each
        ``[[flows]]`` (fairness, ``fairness_of_0`` to ``_7``)."""
        return self._native.fairness()

    @cached_property
    def losses(self) -> Table:
        """The time around losses in which :attr:`packets` has all packets of a flow: flow, t_s (of the loss), from_s, to_s, losses
        (packets that were dropped or retransmitted in it)."""
        return self._native.losses()

    @cached_property
    def blocked(self) -> Table:
        """Seconds for which each gate of each flow's send path was the closed one: flow, gate, seconds."""
        return self._native.blocked()

    @cached_property
    def acks(self) -> Table:
        """The sender's state after each ACK, of the runs that were kept."""
        return self._native.acks()

    @cached_property
    def packets(self) -> Table:
        """Packets of the first flows at the sender's NIC, of the runs that were kept: t_s, flow, seq and len (bytes), kind
        (data, retransmit, ack, sack, window, drop)."""
        return self._native.packets()

    @cached_property
    def histograms(self) -> Table:
        """Buckets of distributions: name, unit, from (inclusive), to (exclusive), count; and least and largest value of the whole
        distribution, min and max. ``flow`` is null for those over all flows; the first eight flows have some of their own."""
        return self._native.histograms()

    @cached_property
    def events(self) -> Table:
        """Events of the runs that were kept, as in ``events.jsonl``: t_ns (nanoseconds since the run began), ev, and a column
        for each member that an event has."""
        return self._native.events()

    def capture(self, variant: str | None = None, case: str | None = None, seed: int | None = None) -> bytes:
        """The packets of a kept run as a pcapng file's bytes, for Wireshark; of the first that fits."""
        for number, run in enumerate(self.runs):
            if variant in (None, run.variant) and case in (None, run.case) and seed in (None, run.seed):
                return self._native.capture(number)
        raise ValueError("no run has this variant, case and seed")

    def plot(
        self,
        name: str = "queues",
        *,
        case: str | None = None,
        variants: list[str] | None = None,
        theme: Literal["light", "dark"] = "light",
    ) -> Figure:
        """A picture, with matplotlib, in the colours of ``taut plot``.

        Args:
            name: ``goodput`` and ``fairness`` (over time), ``queues`` (where bytes wait), ``sequence`` (packets over time), ``losses``
                (the same around each loss), ``window`` (window, in flight and rates), ``flows`` (window and round-trip time of
                each flow), ``rtt`` and ``latency`` (distributions), ``bursts``, ``blocked`` (what held the sender), or the name of a
                metric: its mean over seeds by variant, and each seed's value as a dot. ``metric:goodput`` is a metric whose name
                is also a picture's.
            case: The case to show; the first if not given.
            variants: The variants to show, in this order; all, but at most eight, if not given.
            theme: The background.

        Raises:
            ValueError: The runs have nothing to show by that name.
        """
        from . import _plot

        return _plot.plot(self, name, case, variants, theme)

    def __str__(self) -> str:
        return self._native.text()

    def __repr__(self) -> str:
        return f"<taut_lab.Result {self.scenario}: {len(self.runs)} runs>"

    def _repr_html_(self) -> str:
        """For notebooks."""
        from html import escape

        return f"<pre>{escape(str(self))}</pre>"

    def _rows(self, table: Table, columns: list[str], run: Run) -> dict[str, list[Any]]:
        """The columns of a table, of one run."""
        cases, variants, seeds = table["case"], table["variant"], table["seed"]
        keep = [
            at
            for at in range(len(table))
            if seeds[at] == run.seed and variants[at] == run.variant and cases[at] == run.case
        ]
        return {name: [values[at] for at in keep] for name, values in ((name, table[name]) for name in columns)}
