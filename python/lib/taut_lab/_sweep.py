"""Sweeps: a scenario with every combination of changes, many seeds, on this machine or on a cluster.

```
grid ─▶ _native.Grid: series ─▶ batches of seeds ─▶ _places.py ─▶ figures ─▶ _store.py: Parquet ─▶ Sweep
                                    └─ without those whose rows are there
```
"""

from __future__ import annotations

import base64
import json
import os
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from . import _carry, _native
from ._batch import VERSION, Batch, note, scenario_hash
from ._places import Failed, place
from ._run import _plain
from ._store import KEY, Store

if TYPE_CHECKING:
    import pandas
    import pyarrow

#: Most seeds of a batch: a worker that dies costs no more, and figures stay small enough for Ray to send them with the task's end.
BATCH_MAX = 10


@dataclass(frozen=True)
class Progress:
    """How far a sweep is."""

    #: Runs whose rows are written, those that were there before included.
    done: int
    #: All runs of the grid.
    runs: int
    #: Runs that were there before.
    found: int
    #: Seconds since the sweep began.
    seconds: float

    @property
    def seconds_left(self) -> float | None:
        """The time that the other runs take if they go on like those of this sweep; None before the first."""
        new = self.done - self.found
        return self.seconds / new * (self.runs - self.done) if new else None

    def __str__(self) -> str:
        left = self.seconds_left
        ends = "" if left is None or self.done == self.runs else f", {_time(left)} left"
        return f"{self.done:,} of {self.runs:,} runs{ends}"


class SweepError(RuntimeError):
    """Some batches have no figures. What the others gave is written, and the same sweep goes on with what is missing.

    Attributes:
        failures: Each batch in words, with its seeds, and why.
    """

    failures: list[tuple[str, str]]

    def __init__(self, failures: list[tuple[str, str]]) -> None:
        lines = [f"{label}: {why}" for label, why in failures[:3]]
        more = [f"and {len(failures) - 3} more"] if len(failures) > 3 else []
        super().__init__("\n".join([f"{len(failures)} batches have no figures:", *lines, *more]))
        self.failures = failures

    def __reduce__(self) -> tuple[type[SweepError], tuple[list[tuple[str, str]]]]:
        return type(self), (self.failures,)


@dataclass(frozen=True)
class Sweep:
    """The figures of a sweep. ``str(sweep)`` is the table that ``taut lab sweep`` prints."""

    #: The directory with the data set.
    out: Path
    #: A row for each run, by point, case, variant and seed: the key (scenario_hash, seed, version), the changed values by path, and
    #: every metric, with its unit in the field's metadata.
    rows: pyarrow.Table
    #: The table as CSV, byte for byte that of ``taut lab sweep --csv``.
    csv: str
    text: str
    #: Runs that this call made, and those that were there.
    ran: int
    found: int

    def to_pandas(self) -> pandas.DataFrame:
        """The rows as a pandas.DataFrame."""
        frame: pandas.DataFrame = self.rows.to_pandas()
        return frame

    def __str__(self) -> str:
        return self.text


def sweep(
    grid: str | os.PathLike[str] | Mapping[str, Any],
    on: str = "local",
    out: str | os.PathLike[str] | None = None,
    *,
    set: Mapping[str, Any] | Iterable[str] | None = None,  # noqa: A002 - the command's word
    case: str | None = None,
    seeds: int | None = None,
    batch: int | None = None,
    workers: int | None = None,
    retries: int = 3,
    progress: Callable[[Progress], object] | Literal[False] | None = None,
    attempts: str | os.PathLike[str] | None = None,
    controllers: Mapping[str, type] | None = None,
) -> Sweep:
    """Runs a scenario at every point of a grid, in the simulator, and keeps the figures of each run in a Parquet data set.

    A sweep that was stopped or killed goes on when it is called again: a run whose row is there is never made again. Key of a row are
    the scenario with all changes, the seed, and the version of the code, so that a grid may also get further points or seeds.

    Args:
        grid: A path (a ``PathLike``, or text that ends in ``.toml`` or contains a slash), TOML (text with a newline), or a dict with the
            same keys.
        on: ``"local"``, the processors of this machine, or the address of a Ray cluster: ``"auto"``, ``"host:6379"`` or
            ``"ray://host:10001"``. Its nodes need this package; Ray is asked for one processor a batch.
        out: The directory of the data set; ``lab-results/NAME`` for a grid in a file.
        set: Changes by path, as ``--set`` has them, before those of the grid.
        case: Only this case.
        seeds: Runs of each point and variant; the grid's or the scenario's own number if not given.
        batch: Seeds that one worker runs in a row, 10 at most: what is lost when it dies.
        workers: Processes on this machine; the number of processors if not given. A cluster has its own number.
        retries: How often a batch is given to another worker because one died.
        progress: Called with a :class:`Progress` when a batch ends, and about every second. What it raises stops the sweep and is raised
            here. Without it, a line on standard error shows it if that is a terminal; False shows nothing.
        attempts: A file that gets a line of JSON whenever a run begins and ends, and when its row is written; workers on other machines
            write it there.
        controllers: Congestion controllers in Python by name, as for :func:`run`. They go to the workers by value (``pip install
            cloudpickle``), so that nodes need no file with them; a module that they import must be there. Runs whose scenario names one
            have its code in their key, so that they are made again when it changes.

    Raises:
        ScenarioError: The grid, its scenario or a change is invalid; with ``key`` and ``line``.
        SweepError: Some batches have no figures; the others do.
        BlockingIOError: Another sweep writes into the directory.
    """
    file, text, directory = _grid(grid)
    if out is None:
        if text is None:
            out = Path("lab-results") / Path(file).stem
        else:
            raise TypeError("a grid that is no file needs `out`, the directory of its results")
    if text is None:
        text = Path(file).read_text(encoding="utf-8")
    if seeds is not None and seeds < 1:
        raise ValueError("seeds must be at least 1")
    if workers is not None and workers < 1:
        raise ValueError("workers must be at least 1")
    if batch is not None and not 1 <= batch <= BATCH_MAX:
        raise ValueError(f"batch must be from 1 to {BATCH_MAX}")
    native = _native.Grid(file, text, directory, _changes(set), case, seeds, None if controllers is None else dict(controllers))
    show = progress if callable(progress) else _line() if progress is None and sys.stderr.isatty() else None
    packed = _carry.pack(controllers) if controllers else None
    codes = {name: _carry.code(of) for name, of in (controllers or {}).items()}
    store = Store(Path(out))
    try:
        one = _Run(native, store, Path(out), None if attempts is None else os.path.abspath(attempts), packed, codes)
        return one.run(on, workers, retries, batch, show)
    finally:
        store.close()


class _Run:
    """One call of `sweep`."""

    def __init__(
        self, native: _native.Grid, store: Store, out: Path, attempts: str | None, controllers: str | None, codes: dict[str, str]
    ) -> None:
        self.native, self.store, self.out, self.attempts = native, store, out, attempts
        self.controllers, self.codes = controllers, codes
        self.parts: list[dict[str, Any]] = native.parts()
        for part in self.parts:
            part["hash"] = scenario_hash(part["describes"], codes)
        #: The changed values of all points: every file of the sweep has the same columns.
        self.paths = sorted({path for part in self.parts for path in part["changed"]})
        self.wanted = {(part["hash"], seed) for part in self.parts for seed in range(1, part["seeds"] + 1)}

    def run(
        self,
        on: str,
        workers: int | None,
        retries: int,
        batch: int | None,
        show: Callable[[Progress], object] | None,
    ) -> Sweep:
        found = self.wanted & self.store.finished(VERSION)
        done = len(found)
        failures: list[tuple[str, str]] = []
        if found != self.wanted:
            at = place(on, workers, retries)
            try:
                batches = self._batches(found, batch or self._size(len(self.wanted) - done, at.slots))
                began = time.monotonic()
                said = began
                for one in at.run(batches):
                    if one is not None:
                        ended, figures = one
                        if isinstance(figures, Failed):
                            failures.append((ended.label(), str(figures)))
                        else:
                            self._write(ended, figures)
                            done += len(ended.seeds)
                    now = time.monotonic()
                    if show is not None and (one is not None or now >= said + 1.0):
                        said = now
                        show(Progress(done, len(self.wanted), len(found), now - began))
            finally:
                at.close()
        if failures:
            raise SweepError(failures)
        return self._result(len(found))

    @staticmethod
    def _size(missing: int, slots: int) -> int:
        """Seeds of a batch: several batches for each worker, so that all are busy to the end."""
        return max(1, min(BATCH_MAX, missing // (4 * slots)))

    def _batches(self, found: set[tuple[str, int]], size: int) -> list[Batch]:
        batches: list[Batch] = []
        given = set(found)
        for number, part in enumerate(self.parts):
            # Two points may be the same scenario, which has its figures once.
            seeds = [seed for seed in range(1, part["seeds"] + 1) if (part["hash"], seed) not in given]
            given.update((part["hash"], seed) for seed in seeds)
            for at in range(0, len(seeds), size):
                batches.append(
                    Batch(
                        part=number,
                        scenario_hash=part["hash"],
                        version=VERSION,
                        seeds=tuple(seeds[at : at + size]),
                        name=part["name"],
                        file=part["file"],
                        text=part["text"],
                        changes=tuple(part["changes"]),
                        case=part["case"],
                        variant=part["variant"],
                        point=part["point"],
                        files={name: base64.b64encode(content).decode() for name, content in part["files"].items()},
                        controllers=self.controllers,
                        codes=self.codes,
                        attempts=self.attempts,
                    )
                )
        return batches

    def _write(self, batch: Batch, figures: Any) -> None:
        changed = self.parts[batch.part]["changed"]
        self.store.write(batch, figures, {path: changed.get(path) for path in self.paths})
        note(self.attempts, "written", batch, batch.seeds)

    def _result(self, found: int) -> Sweep:
        rows = self.store.rows(VERSION, self.wanted)
        metrics = [name for name, _, _ in _native.metrics()]
        columns = {name: rows[name].to_pylist() for name in ("scenario_hash", "seed", *metrics)}
        by_key: dict[str, dict[int, dict[str, float]]] = {}
        for at, (of, seed) in enumerate(zip(columns["scenario_hash"], columns["seed"])):
            values = {name: columns[name][at] for name in metrics if columns[name][at] is not None}
            by_key.setdefault(of, {})[seed] = values
        text, csv = self.native.table(
            [{seed: by_key[part["hash"]][seed] for seed in range(1, part["seeds"] + 1)} for part in self.parts]
        )
        order = {part["hash"]: number for number, part in reversed(list(enumerate(self.parts)))}
        keys = [(order[of], seed) for of, seed in zip(columns["scenario_hash"], columns["seed"])]
        rows = rows.take(sorted(range(len(keys)), key=keys.__getitem__))
        # A row that was there may be of another grid, which called the point something else.
        parts = [self.parts[number] for number, _ in sorted(keys)]
        named = {"point": [part["point"] for part in parts]}
        named.update({path: [part["changed"].get(path) for part in parts] for path in self.paths})
        rows = self.store.with_texts(rows, named).select(["case", *KEY, *self.paths, *metrics])
        self.store.put("sweep.csv", csv)
        self.store.put("sweep.txt", text)
        return Sweep(self.out, rows, csv, text, len(self.wanted) - found, found)


def _grid(grid: str | os.PathLike[str] | Mapping[str, Any]) -> tuple[str, str | None, Path]:
    """Name of the grid's file, its text if it is no file, and where the files are that it names."""
    if isinstance(grid, Mapping):
        return "the grid's dict", "".join(f"{key} = {_toml(value)}\n" for key, value in _plain(grid).items()), Path()
    if isinstance(grid, str) and "\n" in grid:
        return "the grid's text", grid, Path()
    file = os.fspath(grid)
    return file, None, Path(file).parent


def _changes(of: Mapping[str, Any] | Iterable[str] | None) -> list[str]:
    if isinstance(of, Mapping):
        return [f"{path}={_toml(value)}" for path, value in _plain(of).items()]
    return [of] if isinstance(of, str) else list(of or [])


def _toml(value: Any) -> str:
    """A value as TOML has it, on one line."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float)):
        return repr(value)
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, list):
        return f"[{', '.join(_toml(one) for one in value)}]"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{json.dumps(key, ensure_ascii=False)} = {_toml(one)}' for key, one in value.items())}}}"
    raise TypeError(f"a grid has no values of type {type(value).__name__}")


def _time(seconds: float) -> str:
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


def _line() -> Callable[[Progress], object]:
    """Shows progress as one line of a terminal."""

    def show(progress: Progress) -> None:
        end = "\n" if progress.done == progress.runs else ""
        sys.stderr.write(f"\r\x1b[K{progress}{end}")
        sys.stderr.flush()

    return show
