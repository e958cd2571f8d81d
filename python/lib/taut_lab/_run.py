"""Running scenarios, and what there is to run and to measure."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from . import _native
from ._result import Result


@dataclass(frozen=True)
class Scenario:
    """A built-in scenario."""

    name: str
    title: str
    about: str
    #: Where the published figures come from, if there are any.
    source: str | None
    #: The running time of the command, in words.
    takes: str | None
    #: Runs of each case and variant unless ``seeds`` is given.
    seeds: int
    cases: tuple[str, ...]
    variants: tuple[str, ...]
    #: Names of the metrics in its table.
    measure: tuple[str, ...]

    @property
    def text(self) -> str:
        """The scenario's file, TOML with comments: a beginning for one of your own."""
        return _native.builtin_text(self.name)


@dataclass(frozen=True)
class Metric:
    """What can be measured."""

    name: str
    label: str
    #: Unit of the values, such as ``ms`` or ``Mbit/s``; empty for a count.
    unit: str


def scenarios() -> dict[str, Scenario]:
    """The built-in scenarios, by name."""
    found: dict[str, Scenario] = {}
    for one in _native.scenarios():
        lists: dict[str, Any] = {name: tuple(one.pop(name)) for name in ("cases", "variants", "measure")}
        found[one["name"]] = Scenario(**one, **lists)
    return found


def metrics() -> dict[str, Metric]:
    """The metrics that scenarios may measure, by name, with their units."""
    return {name: Metric(name, label, unit) for name, label, unit in _native.metrics()}


def congestion_controls() -> list[str]:
    """Names of the congestion controllers in Rust, which any scenario may use."""
    return _native.congestion_controls()


def run(
    scenario: str | os.PathLike[str] | Mapping[str, Any],
    set: Mapping[str, Any] | None = None,  # noqa: A002 - the command's word
    seeds: int | None = None,
    seed_from: int = 1,
    variants: str | Iterable[str] | None = None,
    cases: str | Iterable[str] | None = None,
    *,
    controllers: Mapping[str, type] | None = None,
    keep: Literal["none", "first", "all"] = "first",
    threads: int | None = None,
    progress: Callable[[float, int], object] | None = None,
) -> Result:
    """Runs a scenario in the simulator: every case and variant with every seed.

    Other Python threads go on meanwhile; Ctrl-C stops it.

    Args:
        scenario: Name of a built-in one (:func:`scenarios`), a path (a ``PathLike``, or text that ends in ``.toml`` or contains
            a slash), TOML (text with a newline), or a dict with the same keys.
        set: Changes by path, as ``--set`` has them: ``{"link.rate": "1gbit", "flows.0.count": 3}``.
        seeds: Runs of each case and variant; the scenario's own number if not given.
        seed_from: The first seed; the others count up from it.
        variants: Only these.
        cases: Only these.
        controllers: Congestion controllers in Python, classes such as those made from :class:`Controller`, by the names that the
            scenario may use, also with parameters: ``congestion = "mine:gain=2.5"``.
        keep: Which runs of each case and variant keep events, packets, captures and rows of ACKs: some tens of MB a run.
        threads: Runs at the same time; the number of processors if not given.
        progress: Called about 20 times a second with the runs done, a fraction for those under way, and their number.
            What it raises stops the run and is raised here.

    Raises:
        ScenarioError: The scenario or a change is invalid; with ``key`` and ``line``.
        RunError: A run failed.
        ValueError: There is no scenario, variant or case of this name.
    """
    text: str | None = None
    data: dict[str, Any] | None = None
    if isinstance(scenario, Mapping):
        name, file, data = "scenario", "the scenario's dict", _plain(scenario)
    elif isinstance(scenario, str) and "\n" in scenario:
        name, file, text = "scenario", "the scenario's text", scenario
    elif isinstance(scenario, str) and not scenario.endswith(".toml") and "/" not in scenario:
        name, file, text = scenario, scenario, _native.builtin_text(scenario)
    else:
        file = os.fspath(scenario)
        name = os.path.splitext(os.path.basename(file))[0]
        with open(file, encoding="utf-8") as opened:
            text = opened.read()
    changes = list(_plain(set or {}).items())
    native = _native.run(
        name,
        file,
        text,
        data,
        changes,
        seeds,
        seed_from,
        _names(variants),
        _names(cases),
        keep,
        threads or os.cpu_count() or 1,
        None if controllers is None else dict(controllers),
        progress,
    )
    return Result(native)


def _names(names: str | Iterable[str] | None) -> list[str]:
    if names is None:
        return []
    return [names] if isinstance(names, str) else list(names)


def _plain(of: Mapping[str, Any]) -> dict[str, Any]:
    """The same as dicts and lists all the way down, which is what the native half reads."""

    def value(item: Any) -> Any:
        if isinstance(item, Mapping):
            return _plain(item)
        if isinstance(item, (list, tuple)):
            return [value(one) for one in item]
        return item

    return {key: value(item) for key, item in of.items()}
