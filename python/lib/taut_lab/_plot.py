"""Pictures of a result with matplotlib, in the colours of ``taut plot``: those of Okabe and Ito's palette, lightened on dark
backgrounds, and three of Paul Tol's. What a picture shows is described in docs/reference/lab.md; ``crates/taut-lab/src/report`` has the
originals, and a test compares the colours.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from . import _native

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from ._native import Table
    from ._result import Result, Run

#: Colours on light and dark backgrounds.
PALETTE: dict[str, tuple[str, str]] = {
    "blue": ("#0072b2", "#4da6e0"),
    "orange": ("#e69f00", "#f0b83a"),
    "green": ("#009e73", "#2cbf95"),
    "vermillion": ("#d55e00", "#f0803c"),
    "sky": ("#56b4e9", "#9ad2f4"),
    "pink": ("#cc79a7", "#e09cc2"),
    "yellow": ("#e3d53a", "#f0e75e"),
    "wine": ("#882255", "#c4608f"),
    "indigo": ("#332288", "#8f84e0"),
    "olive": ("#8a8420", "#b5ae45"),
    "grey": ("#7c828b", "#8d949e"),
    "pale": ("#c6cad1", "#4d535d"),
}
#: Colours of variants, in their order.
SERIES = ("vermillion", "blue", "green", "orange", "pink", "sky", "indigo", "grey")
#: Colours of lines in one panel.
LINES = (*SERIES[:-1], "wine", "olive", "grey")
#: Most lines in a panel: the flows whose goodput is farthest from the mean of all.
MOST_LINES = 10
#: Most pictures of losses.
MOST_LOSSES = 48
#: Background, text, quieter text, grid.
NEUTRALS: dict[str, tuple[str, str]] = {
    "bg": ("#ffffff", "#15181d"),
    "fg": ("#1c1f24", "#e6e8eb"),
    "mu": ("#5a616b", "#a2a9b3"),
    "gr": ("#e3e6ea", "#30353d"),
}
#: Where bytes wait, from bottom to top.
QUEUES = (
    ("on the way: wires, receiver, ACKs", "blue"),
    ("at the bottleneck", "orange"),
    ("in the sender's device queue", "vermillion"),
    ("unsent in the socket", "sky"),
)
#: What held the sender, by gate.
GATES = {
    "no-data": "pale",
    "send-buffer": "grey",
    "pacing": "green",
    "cwnd": "blue",
    "peer-window": "pink",
    "nagle": "yellow",
    "cork": "olive",
    "autocork": "wine",
    "tso-defer": "sky",
    "small-queue": "orange",
    "device": "vermillion",
}
#: Most variants in one picture.
MOST_VARIANTS = 8

NAMES = ("goodput", "fairness", "queues", "sequence", "losses", "window", "flows", "rtt", "latency", "bursts", "blocked")


class _Style:
    def __init__(self, theme: str) -> None:
        if theme not in ("light", "dark"):
            raise ValueError(f"theme must be light or dark, not {theme}")
        self._at = 0 if theme == "light" else 1

    def ink(self, name: str) -> str:
        return PALETTE[name][self._at]

    def neutral(self, name: str) -> str:
        return NEUTRALS[name][self._at]

    def series(self, index: int) -> str:
        return self.ink(SERIES[index % len(SERIES)])


def plot(result: Result, name: str, case: str | None, variants: list[str] | None, theme: str) -> Figure:
    """The picture of that name: see :meth:`taut_lab.Result.plot`."""
    style = _Style(theme)
    case = (result.runs[0].case if result.runs else "") if case is None else case
    first: dict[str, Run] = {}
    for run in result.runs:
        if run.case == case:
            first.setdefault(run.variant, run)
    names = list(first) if variants is None else variants
    for variant in names:
        if variant not in first:
            raise ValueError(f"no run has case {case!r} and variant {variant!r}; there are {', '.join(first)}")
    runs = [first[variant] for variant in names[:MOST_VARIANTS]]
    if not runs:
        raise ValueError(f"no run has case {case!r}")
    pictures = {
        "goodput": _goodput,
        "fairness": _fairness,
        "queues": _queues,
        "sequence": _sequence,
        "losses": _losses,
        "window": _window,
        "flows": _flows,
        "rtt": lambda *of: _distribution("rtt", "round-trip time", *of),
        "latency": lambda *of: _distribution("latency", "latency", *of),
        "bursts": _bursts,
        "blocked": _blocked,
    }
    if name in pictures:
        return pictures[name](result, runs, style)
    metric = name.removeprefix("metric:")
    if metric in dict.fromkeys(result.table["metric"]) or any(metric in run.metrics for run in runs):
        return _metric(metric, result, runs, style)
    raise ValueError(f"no picture and no metric of this scenario is called {name}; pictures are {', '.join(NAMES)}")


def _nothing(name: str) -> ValueError:
    return ValueError(f"the runs have nothing for {name}; keep='first' or 'all' keeps packets and ACKs")


def _figure(
    result: Result, title: str, panels: int, rows: int, style: _Style, columns: int | None = None
) -> tuple[Figure, list[list[Axes]]]:
    try:
        from matplotlib.figure import Figure as NewFigure
    except ImportError as error:
        raise ImportError("plot() needs matplotlib: pip install matplotlib") from error
    columns = min(panels, columns or (panels if panels <= 3 else 2))
    lines = -(-panels // columns) * rows

    class Picture(NewFigure):
        """A figure that notebooks show whether or not they use pyplot."""

        def _repr_png_(self) -> bytes:
            file = io.BytesIO()
            self.savefig(file, format="png", facecolor=self.get_facecolor())
            return file.getvalue()

    figure = Picture(figsize=(max(5.0, 3.6 * columns), 0.8 + 2.7 * lines), layout="constrained")
    figure.patch.set_facecolor(style.neutral("bg"))
    grid = figure.subplots(lines, columns, squeeze=False)
    figure.suptitle(title, fontsize=11, fontweight="bold", color=style.neutral("fg"))
    flat = [axes for line in grid for axes in line]
    for axes in flat:
        axes.set_facecolor(style.neutral("bg"))
        axes.grid(visible=True, color=style.neutral("gr"), linewidth=1)
        axes.set_axisbelow(True)
        axes.tick_params(colors=style.neutral("mu"), labelcolor=style.neutral("fg"), labelsize=8)
        for side, spine in axes.spines.items():
            spine.set_color(style.neutral("mu"))
            spine.set_visible(side in ("left", "bottom"))
        for label in (axes.title, axes.xaxis.label, axes.yaxis.label):
            label.set_color(style.neutral("fg"))
            label.set_fontsize(9)
    # By kind and then by variant: kind r of variant i is in line r + rows * (i // columns).
    by_kind = [
        [flat[(rows * (panel // columns) + row) * columns + panel % columns] for panel in range(panels)] for row in range(rows)
    ]
    used = [axes for kind in by_kind for axes in kind]
    for axes in flat:
        if axes not in used:
            axes.set_visible(False)
    figure.set_label(result.scenario)
    return figure, by_kind


def _legend(figure: Figure, style: _Style, handles: Sequence[Any], columns: int = 3) -> None:
    if handles:
        legend = figure.legend(handles=handles, loc="outside lower center", ncols=columns, fontsize=8, frameon=False)
        for text in legend.get_texts():
            text.set_color(style.neutral("fg"))


def _scale(most: float, units: Sequence[tuple[float, str]]) -> tuple[float, str]:
    """The largest unit of which there is at least one, and its name."""
    fits = [unit for unit in units if most >= unit[0]]
    return fits[-1] if fits else units[0]


def _bytes(most: float) -> tuple[float, str]:
    return _scale(most, [(1, "B"), (1e3, "kB"), (1e6, "MB"), (1e9, "GB")])


def _times(most_s: float) -> tuple[float, str]:
    return _scale(most_s, [(1e-6, "µs"), (1e-3, "ms"), (1, "s")])


def _most(values: Iterable[float]) -> float:
    return max((value for value in values if value == value), default=0.0)


@dataclass(frozen=True)
class Chosen:
    """The flows that have lines, with their names and colours, and the number of the others."""

    lines: list[tuple[int, str, str]]
    others: int

    def band(self) -> str:
        return "the other flow" if self.others == 1 else f"the other {self.others:,} flows, least to greatest"


def chosen(result: Result, runs: list[Run], have: Iterable[set[int]], taken: Iterable[str] = ()) -> Chosen:
    """Of the flows that each run has, those whose goodput is farthest from the mean of all; in colours other than those taken, as
    far as there are others."""
    far: dict[int, tuple[str, float]] = {}
    for run, its in zip(runs, have):
        flows = result._rows(result.flows, ["flow", "name", "beside", "goodput_bps"], run)
        rates = flows["goodput_bps"]
        mean = sum(rates) / max(1, len(rates))
        for flow, name, beside, rate in zip(*flows.values()):
            if flow in its:
                name = f"{name} (beside)" if beside else name
                known = far.get(flow, (name, 0.0))
                far[flow] = (known[0], max(known[1], abs(rate - mean) / mean if mean > 0 else 0.0))
    # A stable sort: of flows that are equally far, the first.
    first = sorted(sorted(far), key=lambda flow: -far[flow][1])[:MOST_LINES]
    taken = set(taken)
    inks = [ink for ink in LINES if ink not in taken] + [ink for ink in LINES if ink in taken]
    lines = [(flow, far[flow][0], ink) for flow, ink in zip(sorted(first), inks)]
    return Chosen(lines, len(far) - len(lines))


def over_time(result: Result, table: Table, columns: list[str], run: Run) -> tuple[list[float], dict[int, list[list[float]]]]:
    """Times in seconds, and of each flow the columns at these times; NaN where it has no row, or no value."""
    rows = result._rows(table, ["t_s", "flow", *columns], run)
    times = sorted(set(rows["t_s"]))
    at = {t_s: index for index, t_s in enumerate(times)}
    flows: dict[int, list[list[float]]] = {}
    for t_s, flow, *values in zip(*rows.values()):
        line = flows.setdefault(flow, [[float("nan")] * len(times) for _ in columns])
        for to, value in zip(line, values):
            to[at[t_s]] = float("nan") if value is None else value
    return times, flows


def _draw(axes: Axes, style: _Style, choice: Chosen, times: list[float], flows: dict[int, list[float]]) -> None:
    """A line for each chosen flow, and the band of the others."""
    lines = {flow for flow, *_ in choice.lines}
    rest = [values for flow, values in flows.items() if flow not in lines]
    if rest:
        nan = float("nan")
        known = [[value for value in at if value == value] for at in zip(*rest)]
        low = [min(values, default=nan) for values in known]
        high = [max(values, default=nan) for values in known]
        axes.fill_between(times, low, high, color=style.ink("pale"), linewidth=0)
    for flow, name, ink in choice.lines:
        if flow in flows:
            axes.plot(times, flows[flow], color=style.ink(ink), linewidth=1.3, label=name)


def _flow_keys(choice: Chosen, style: _Style) -> list[Any]:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    keys: list[Any] = [Line2D([], [], color=style.ink(ink), label=name) for _, name, ink in choice.lines]
    return keys + ([Patch(color=style.ink("pale"), label=choice.band())] if choice.others else [])


def _goodput(result: Result, runs: list[Run], style: _Style) -> Figure:
    found = [over_time(result, result.goodput, ["goodput_bps"], run) for run in runs]
    choice = chosen(result, runs, [set(flows) for _, flows in found])
    if not choice.lines:
        raise _nothing("goodput")
    figure, (panels,) = _figure(result, "Goodput of each flow", len(runs), 1, style)
    most = _most(value for _, flows in found for (line,) in flows.values() for value in line)
    unit, word = _scale(most, [(1, "bit/s"), (1e3, "kbit/s"), (1e6, "Mbit/s"), (1e9, "Gbit/s")])
    for axes, run, (times, flows) in zip(panels, runs, found):
        _draw(axes, style, choice, times, {flow: [value / unit for value in line] for flow, (line,) in flows.items()})
        axes.set(title=run.variant, xlabel="time, s", ylabel=f"goodput of a flow, {word}", ylim=(0, 1.05 * most / unit or 1))
    _legend(figure, style, _flow_keys(choice, style))
    return figure


def _fairness(result: Result, runs: list[Run], style: _Style) -> Figure:
    sizes: dict[int, int] = {}
    for run in runs:
        flows = result._rows(result.flows, ["group", "beside"], run)
        own = [group for group, beside in zip(*flows.values()) if not beside]
        for group in own:
            sizes[group] = max(sizes.get(group, 0), own.count(group))
    kinds = [("fairness", "all flows")]
    if len(sizes) > 1:
        kinds += [(f"fairness_of_{group}", f"flows.{group}") for group in sorted(sizes) if sizes[group] > 1 and group < 8]
    rows = [result._rows(result.fairness, ["t_s", "flows", *(column for column, _ in kinds)], run) for run in runs]
    if not any(count > 1 for of in rows for count in of["flows"]):
        raise _nothing("fairness")
    figure, (panels,) = _figure(result, "Fairness over time", len(kinds), 1, style)
    handles: list[Any] = []
    for axes, (column, title) in zip(panels, kinds):
        lines = []
        for at, (run, of) in enumerate(zip(runs, rows)):
            values = [float("nan") if value is None else value for value in of[column]]
            lines += axes.plot(of["t_s"], values, color=style.series(at), linewidth=1.3, label=run.variant)
        handles = handles or lines
        axes.set(title=title, xlabel="time, s", ylabel="Jain's index", ylim=(0, 1.02))
    _legend(figure, style, handles)
    return figure


def _flows(result: Result, runs: list[Run], style: _Style) -> Figure:
    columns = ["cwnd_bytes", "in_flight_bytes", "srtt_s"]
    found = [over_time(result, result.intervals, columns, run) for run in runs]
    choice = chosen(result, runs, [set(flows) for _, flows in found])
    if len(choice.lines) < 2:
        raise _nothing("flows")
    figure, kinds = _figure(result, "Window and round-trip time of each flow", len(runs), len(columns), style)
    for kind, (panels, label) in enumerate(zip(kinds, ("congestion window", "bytes in flight", "smoothed round-trip time"))):
        most = _most(value for _, flows in found for line in flows.values() for value in line[kind])
        unit, word = _times(most) if kind == 2 else _bytes(most)
        for axes, run, (times, flows) in zip(panels, runs, found):
            _draw(axes, style, choice, times, {flow: [value / unit for value in line[kind]] for flow, line in flows.items()})
            title = run.variant if kind == 0 else ""
            axes.set(title=title, xlabel="time, s", ylabel=f"{label}, {word}", ylim=(0, 1.05 * most / unit or 1))
    _legend(figure, style, _flow_keys(choice, style))
    return figure


def stack(result: Result, run: Run) -> tuple[list[float], list[list[float]]]:
    """Times in seconds, and at each the bytes in each of :data:`QUEUES`, summed over the flows."""
    columns = ["t_s", "flow", "unsent_bytes", "in_flight_bytes", "device_bytes", "bottleneck_bytes"]
    rows = result._rows(result.intervals, columns, run)
    flows = result._rows(result.flows, ["flow", "from"], run)
    host_of = dict(zip(flows["flow"], flows["from"]))
    samples: dict[int, dict[str, Any]] = {}
    for t_s, flow, unsent, in_flight, device, bottleneck in zip(*(rows[name] for name in columns)):
        empty: dict[str, Any] = {"t": t_s, "unsent": 0, "in_flight": 0, "device": {}, "bottleneck": 0}
        sample = samples.setdefault(round(t_s * 1e6), empty)
        sample["unsent"] += unsent
        sample["in_flight"] += in_flight
        # The flows of a host share its device queue.
        host = host_of.get(flow, "")
        sample["device"][host] = max(device, sample["device"].get(host, 0))
        sample["bottleneck"] = max(bottleneck or 0, sample["bottleneck"])
    times, parts = [], [[], [], [], []]  # type: tuple[list[float], list[list[float]]]
    for at in sorted(samples):
        sample = samples[at]
        device = sum(sample["device"].values())
        # Bytes in flight include those in the device and at the bottleneck, until they are acknowledged.
        elsewhere = max(0, sample["in_flight"] - device - sample["bottleneck"])
        times.append(sample["t"])
        for part, value in zip(parts, (elsewhere, sample["bottleneck"], device, sample["unsent"])):
            part.append(value)
    return times, parts


def _queues(result: Result, runs: list[Run], style: _Style) -> Figure:
    from matplotlib.patches import Patch

    stacks = [stack(result, run) for run in runs]
    if not any(times for times, _ in stacks):
        raise _nothing("queues")
    most = _most(sum(at) for _, parts in stacks for at in zip(*parts))
    unit, word = _bytes(most)
    found = [over_time(result, result.intervals, ["unsent_bytes", "in_flight_bytes"], run) for run in runs]
    choice = chosen(result, runs, [set(flows) for _, flows in found], (ink for _, ink in QUEUES))
    has_lines = len(choice.lines) > 1
    figure, (panels, *lines) = _figure(result, "Where the bytes wait", len(runs), 1 + has_lines, style)
    for axes, run, (times, parts) in zip(panels, runs, stacks):
        scaled = [[value / unit for value in part] for part in parts]
        axes.stackplot(times, scaled, colors=[style.ink(ink) for _, ink in QUEUES], linewidth=0)
        axes.set(title=run.variant, xlabel="time, s", ylabel=f"bytes waiting, {word}", ylim=(0, 1.05 * most / unit))
    used = [any(any(parts[part]) for _, parts in stacks) for part in range(len(QUEUES))]
    keys = [Patch(color=style.ink(ink), label=name) for (name, ink), is_used in zip(QUEUES, used) if is_used]
    handles: list[Any] = keys[::-1]
    if has_lines:
        held = [
            (times, {flow: [sum(at) for at in zip(*both)] for flow, both in flows.items()}) for times, flows in found
        ]
        most = _most(value for _, flows in held for line in flows.values() for value in line)
        unit, word = _bytes(most)
        for axes, (times, flows) in zip(lines[0], held):
            _draw(axes, style, choice, times, {flow: [value / unit for value in line] for flow, line in flows.items()})
            label = f"of a flow, unsent or in flight, {word}"
            axes.set(xlabel="time, s", ylabel=label, ylim=(0, 1.05 * most / unit or 1))
        handles += _flow_keys(choice, style)
    _legend(figure, style, handles, 2)
    return figure


def _window(result: Result, runs: list[Run], style: _Style) -> Figure:
    names = ["t_s", "flow", "cwnd_bytes", "in_flight_bytes", "ssthresh_bytes", "peer_window_bytes", "pacing_bps", "delivery_bps"]
    views = []
    for run in runs:
        # ACK by ACK if all of them were kept, else interval by interval.
        rows = result._rows(result.acks, names, run) if not run.left_out.get("acks") else {"t_s": []}
        if not rows["t_s"]:
            rows = result._rows(result.intervals, names, run)
        flow = min(rows["flow"], default=0)
        keep = [at for at, other in enumerate(rows["flow"]) if other == flow]
        nan = float("nan")
        views.append({name: [nan if rows[name][at] is None else rows[name][at] for at in keep] for name in names})
    if not any(view["t_s"] for view in views):
        raise _nothing("window")
    windows = [
        ("peer_window_bytes", "receiver's window", "grey", "--"),
        ("ssthresh_bytes", "slow-start threshold", "pink", "--"),
        ("cwnd_bytes", "congestion window", "vermillion", "-"),
        ("in_flight_bytes", "in flight", "blue", "-"),
    ]
    rates = [("pacing_bps", "pacing rate", "orange", "-"), ("delivery_bps", "delivery rate", "green", "-")]
    figure, kinds = _figure(result, "Window and rate", len(runs), 2, style)
    most = _most(value for view in views for name in ("cwnd_bytes", "in_flight_bytes") for value in view[name])
    unit, word = _bytes(most)
    delivered = _most(value for view in views for value in view["delivery_bps"])
    # Pacing rates far above what is delivered are cut off.
    paced = _most(value for view in views for value in view["pacing_bps"] if delivered <= 0 or value <= 2.5 * delivered)
    handles: dict[str, Any] = {}
    for run, view, upper, lower in zip(runs, views, *kinds):
        for axes, lines, factor in ((upper, windows, unit), (lower, rates, 1e6)):
            for name, label, ink, dash in lines:
                (line,) = axes.plot(
                    view["t_s"], [value / factor for value in view[name]], dash, color=style.ink(ink), linewidth=1.3, label=label
                )
                handles.setdefault(label, line)
        upper.set(title=run.variant, xlabel="time, s", ylabel=f"window and bytes in flight, {word}", ylim=(0, 1.05 * most / unit))
        lower.set(xlabel="time, s", ylabel="rate, Mbit/s", ylim=(0, 1.05 * max(delivered, paced) / 1e6))
    _legend(figure, style, list(handles.values()))
    return figure


def _sequence(result: Result, runs: list[Run], style: _Style) -> Figure:
    traces = [result._rows(result.packets, ["t_s", "flow", "seq", "len", "kind"], run) for run in runs]
    if not any(trace["t_s"] for trace in traces):
        raise _nothing("sequence")
    figure, (panels,) = _figure(result, "Time and sequence", len(runs), 1, style)
    handles: dict[str, Any] = {}
    for axes, run, trace in zip(panels, runs, traces):
        flow = min(trace["flow"], default=0)
        inside = [row[:1] + row[2:] for row in zip(*trace.values()) if row[1] == flow]
        _trace(axes, style, inside, handles)
        axes.set_title(run.variant)
        axes.set_ylim(bottom=0)
    _legend(figure, style, list(handles.values()))
    return figure


def _trace(axes: Axes, style: _Style, rows: list[tuple[Any, ...]], handles: dict[str, Any]) -> None:
    """Packets of a flow: time, position, length and kind."""
    kinds = [
        ("window", "end of the receiver's window", "grey"),
        ("ack", "acknowledged", "green"),
        ("data", "sent", "blue"),
        ("sack", "SACK: received out of order", "pink"),
        ("drop", "dropped on the way", "wine"),
        ("retransmit", "retransmitted", "vermillion"),
    ]
    unit, word = _bytes(_most(seq for _, seq, _, which in rows if which != "window"))
    lowest, highest = float("inf"), 0.0
    for kind, label, ink in kinds:
        points = [(t, seq / unit, (seq + length) / unit) for t, seq, length, which in rows if which == kind]
        if not points:
            continue
        times, low, high = zip(*points)
        colour = style.ink(ink)
        handle: Any
        if kind in ("window", "ack"):
            (handle,) = axes.step(times, low, where="post", color=colour, linewidth=1.3, label=label)
        elif kind == "drop":
            handle = axes.scatter(times, [(a + b) / 2 for a, b in zip(low, high)], s=12, color=colour, label=label, zorder=3)
        else:
            handle = axes.vlines(times, low, high, color=colour, linewidth=2.6 if kind == "retransmit" else 1.4, label=label)
        handles.setdefault(label, handle)
        if kind != "window":
            lowest, highest = min(lowest, *low), max(highest, *high)
    axes.set(xlabel="time, s", ylabel=f"position in the stream, {word}")
    if lowest < highest:
        room = 0.05 * (highest - lowest)
        axes.set_ylim(max(0.0, lowest - room), highest + room)


def spread(count: int, most: int) -> list[int]:
    """At most ``most`` of the numbers below ``count``, spread evenly, with the first and the last."""
    if count <= most or most < 2:
        return list(range(min(count, most)))
    return [at * (count - 1) // (most - 1) for at in range(most)]


def _losses(result: Result, runs: list[Run], style: _Style) -> Figure:
    windows = [result._rows(result.losses, ["flow", "t_s", "from_s", "to_s"], run) for run in runs]
    lossy = [(run, list(zip(*of.values()))) for run, of in zip(runs, windows) if of["flow"]]
    if not lossy:
        raise _nothing("losses")
    shown = [(run, of[at]) for run, of in lossy for at in spread(len(of), MOST_LOSSES // len(lossy))]
    figure, (panels,) = _figure(result, "Around each loss", len(shown), 1, style, 3)
    handles: dict[str, Any] = {}
    traces, names = {}, {}
    for run, _ in lossy:
        traces[run.variant] = list(zip(*result._rows(result.packets, ["t_s", "flow", "seq", "len", "kind"], run).values()))
        names[run.variant] = dict(zip(*result._rows(result.flows, ["flow", "name"], run).values()))
    for axes, (run, (flow, t_s, from_s, to_s)) in zip(panels, shown):
        rows = [row[:1] + row[2:] for row in traces[run.variant] if row[1] == flow and from_s <= row[0] <= to_s]
        _trace(axes, style, rows, handles)
        of = names[run.variant]
        axes.set(title=f"{of[flow]}, {run.variant}" if len(of) > 1 else run.variant, xlim=(from_s, to_s))
        axes.axvline(t_s, color=style.neutral("mu"), linewidth=0.8, linestyle=":")
    _legend(figure, style, list(handles.values()))
    return figure


def _buckets(result: Result, run: Run, name: str, flow: int | None = None) -> list[tuple[float, float, int]]:
    """The buckets of a distribution that are not empty, over all flows or of one; the outer ones end where the values do."""
    rows = result._rows(result.histograms, ["flow", "name", "from", "to", "count", "min", "max"], run)
    found = [row[2:] for row in zip(*rows.values()) if row[0] == flow and row[1] == name and row[4] > 0]
    return [(max(start, least), min(end, most) if most > start else end, n) for start, end, n, least, most in found]


def _distribution(name: str, label: str, result: Result, runs: list[Run], style: _Style) -> Figure:
    found = [(at, run, _buckets(result, run, name)) for at, run in enumerate(runs)]
    found = [one for one in found if one[2]]
    if not found:
        raise _nothing(name)
    choice = _with_own(result, name, runs, (SERIES[at % len(SERIES)] for at in range(len(runs))))
    has_lines = len(choice.lines) > 1
    figure, ((axes, *others),) = _figure(result, f"Distribution of {label}", 1 + has_lines * len(runs), 1, style)
    factor, word = _times(_most(to * 1e-6 for *_, buckets in found for _, to, _ in buckets))
    handles: list[Any] = []
    for at, run, buckets in found:
        handles += axes.plot(*_curve(buckets, factor), color=style.series(at), linewidth=1.7, label=run.variant)
    axes.set(xlabel=f"{label}, {word}", ylabel="share below", ylim=(0, 1.02))
    _logarithmic(axes, (1, 2, 5))
    if has_lines:
        axes.set_title("all flows")
        handles += _flow_keys(choice, style)
    for axes, run in zip(others, runs):
        _own_curves(axes, style, result, run, name, choice, factor)
        axes.set(title=f"{run.variant}, each flow", xlabel=f"{label}, {word}")
    _legend(figure, style, handles)
    return figure


def _curve(buckets: list[tuple[float, float, int]], factor: float) -> tuple[list[float], list[float]]:
    """The share of values below each, in microseconds over ``factor`` seconds."""
    total, below = sum(count for _, _, count in buckets), 0
    x: list[float] = []
    y: list[float] = []
    for start, end, count in buckets:
        x += [(start or end / 2) * 1e-6 / factor, end * 1e-6 / factor]
        y += [below / total, (below + count) / total]
        below += count
    return x, y


def _with_own(result: Result, name: str, runs: list[Run], taken: Iterable[str]) -> Chosen:
    """The flows that have a distribution of their own."""
    have = []
    for run in runs:
        rows = result._rows(result.histograms, ["flow", "name"], run)
        have.append({flow for flow, of in zip(*rows.values()) if of == name and flow is not None})
    return chosen(result, runs, have, taken)


def _own_curves(axes: Axes, style: _Style, result: Result, run: Run, name: str, choice: Chosen, factor: float) -> None:
    for flow, label, ink in choice.lines:
        if buckets := _buckets(result, run, name, flow):
            axes.plot(*_curve(buckets, factor), color=style.ink(ink), linewidth=1.3, label=label)
    axes.set(ylabel="share below", ylim=(0, 1.02))
    _logarithmic(axes, (1, 2, 5))


def _logarithmic(axes: Axes, subs: tuple[int, ...] = (1,)) -> None:
    """A logarithmic x axis with plain numbers."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    axes.set_xscale("log")
    axes.xaxis.set_major_locator(LogLocator(subs=subs))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.xaxis.set_minor_formatter(NullFormatter())


def _bursts(result: Result, runs: list[Run], style: _Style) -> Figure:
    import math

    choice = _with_own(result, "flow_gap", runs, ("blue", "green"))
    has_lines = len(choice.lines) > 1
    figure, kinds = _figure(result, "Bursts, and gaps between packets", len(runs), 2 + has_lines, style)
    is_there = False
    for line, (name, label, ink) in zip(
        kinds, (("burst", "segments back to back", "blue"), ("gap", "gap between packets, µs", "green"))
    ):
        for axes, run in zip(line, runs):
            buckets = _buckets(result, run, name)
            total = sum(count for _, _, count in buckets)
            shares: dict[int, float] = {}
            for start, end, count in buckets:
                octave = math.floor(math.log2(start or end / 2) + 1e-9)
                shares[octave] = shares.get(octave, 0.0) + count / total
            is_there |= bool(shares)
            axes.bar(
                [2.0**octave for octave in shares],
                list(shares.values()),
                width=[2.0**octave for octave in shares],
                align="edge",
                color=style.ink(ink),
                edgecolor=style.neutral("bg"),
                linewidth=0.8,
            )
            axes.set(title=run.variant, xlabel=label, ylabel="share")
            _logarithmic(axes)
    if not is_there:
        raise _nothing("bursts")
    if has_lines:
        for axes, run in zip(kinds[2], runs):
            _own_curves(axes, style, result, run, "flow_gap", choice, 1e-6)
            axes.set_xlabel("gap between packets of a flow, µs")
        _legend(figure, style, _flow_keys(choice, style))
    return figure


def _blocked(result: Result, runs: list[Run], style: _Style) -> Figure:
    from matplotlib.patches import Patch

    words = dict(_native.gates())
    figure, ((axes,),) = _figure(result, "What held the sender back", 1, 1, style)
    seen: dict[str, None] = {}
    for row, run in enumerate(runs):
        of = result._rows(result.blocked, ["gate", "seconds"], run)
        total = sum(of["seconds"])
        left = 0.0
        for gate in words:
            share = sum(s for name, s in zip(of["gate"], of["seconds"]) if name == gate) / (total or 1)
            if share > 0:
                axes.barh(row, share, left=left, height=0.62, color=style.ink(GATES[gate]))
                left += share
            if share >= 0.005:
                seen[gate] = None
    if not seen:
        raise _nothing("blocked")
    axes.set(yticks=range(len(runs)), yticklabels=[run.variant for run in runs], xlim=(0, 1))
    axes.set_xlabel("share of the time since the first write")
    axes.invert_yaxis()
    _legend(figure, style, [Patch(color=style.ink(GATES[gate]), label=words[gate]) for gate in words if gate in seen])
    return figure


def _metric(name: str, result: Result, runs: list[Run], style: _Style) -> Figure:
    from ._run import metrics

    metric = metrics()[name]
    case = runs[0].case
    figure, ((axes,),) = _figure(result, metric.label, 1, 1, style)
    for at, run in enumerate(runs):
        values = [
            other.metrics[name]
            for other in result.runs
            if other.case == case and other.variant == run.variant and name in other.metrics
        ]
        if values:
            axes.bar(at, sum(values) / len(values), color=style.series(at), width=0.62)
            axes.scatter([at] * len(values), values, s=10, color=style.neutral("fg"), zorder=3)
    axes.set(xticks=range(len(runs)), xticklabels=[run.variant for run in runs])
    axes.set_ylabel(f"{metric.label}, {metric.unit}" if metric.unit else metric.label)
    return figure
