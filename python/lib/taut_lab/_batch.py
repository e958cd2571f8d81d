"""A batch of seeds: what a worker does, on this machine or on a cluster. `_places.py` gives batches to workers.

A batch carries all that it needs, so that a worker needs no file of the one who sent it, and running it a second time gives the same.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import time
import traceback
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from . import _carry, _native

#: The version of the code that makes the figures: of the package, and a number for its sources.
VERSION: str = f"{_native.__version__}+{_native.SOURCES}"


def scenario_hash(describes: str, codes: Mapping[str, str]) -> str:
    """A name for all that a run depends on beside its seed and the code: also the code of the controllers in Python that it uses, of
    those by name in `codes`.
    """
    texts = json.loads(describes)["parameters"].values() if codes else ()
    used = {name: codes[name] for text in texts if (name := text.partition(":")[0]) in codes}
    controllers = json.dumps(used, sort_keys=True) if used else ""
    return hashlib.sha256((describes + controllers).encode()).hexdigest()[:32]


class ControllerError(RuntimeError):
    """A congestion controller in Python raised."""


@dataclass(frozen=True)
class Batch:
    """Seeds of a point, a case and a variant of a grid."""

    #: The series' number in its grid.
    part: int
    scenario_hash: str
    version: str
    seeds: tuple[int, ...]
    name: str
    file: str
    text: str
    changes: tuple[str, ...]
    case: str
    variant: str
    point: str
    #: Files that the scenario names, in base64.
    files: dict[str, str]
    #: Congestion controllers in Python as `_carry.py` packs them, if there are any, and a name of each one's code.
    controllers: str | None
    codes: dict[str, str]
    #: A file in which each run of a key is noted, if there is to be one.
    attempts: str | None

    def label(self) -> str:
        """In words."""
        words = [word for word in (self.point, self.case, self.variant) if word]
        return f"{self.name}: {', '.join(words)}, seeds {self.seeds[0]} to {self.seeds[-1]}"


@dataclass(frozen=True)
class Figures:
    """What a batch gives: a row for each seed. Values are in the order of `metrics`; None where one does not apply."""

    metrics: tuple[str, ...]
    rows: list[tuple[int, str, list[float | None]]]


def note(attempts: str | None, what: str, batch: Batch, seeds: tuple[int, ...]) -> None:
    """Adds a line for each seed: `began`, `ended` or `written`. Lines of several processes keep their order in time."""
    if attempts is None:
        return
    lines = [
        json.dumps({"key": f"{batch.scenario_hash}-{seed}", "what": what, "pid": os.getpid(), "t_s": time.time()}) + "\n"
        for seed in seeds
    ]
    # One write to a file that is open for appending: it is not mixed with another's.
    descriptor = os.open(attempts, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
    try:
        os.write(descriptor, "".join(lines).encode())
    finally:
        os.close(descriptor)


def run_batch(given: dict[str, Any]) -> dict[str, Any]:
    """Runs the seeds of a batch, which is a dict as from :func:`pack`, one after the other."""
    batch = Batch(**{**given, "seeds": tuple(given["seeds"]), "changes": tuple(given["changes"])})
    if batch.version != VERSION:
        raise RuntimeError(f"this worker has taut_lab {VERSION}, the sweep has {batch.version}: install the same on all nodes")
    files = {name: base64.b64decode(content) for name, content in batch.files.items()}
    classes = None if batch.controllers is None else _carry.unpack(batch.controllers)
    series = _native.Series(batch.name, batch.file, batch.text, list(batch.changes), batch.case, batch.variant, files, classes)
    if scenario_hash(series.describes, batch.codes) != batch.scenario_hash:
        raise RuntimeError(f"{batch.label()}: the scenario is another one here than where the sweep was begun")
    found: list[tuple[int, str | None, dict[str, float]]] = []
    for seed in batch.seeds:
        note(batch.attempts, "began", batch, (seed,))
        try:
            digest, metrics = series.run(seed)
        except Exception as error:
            last = traceback.extract_tb(error.__traceback__)[-1]
            if last.filename == __file__:
                raise
            # Classes that were carried here have no file.
            raise ControllerError(f"{type(error).__name__}: {error} (in {last.name}, line {last.lineno})") from error
        found.append((seed, digest, metrics))
        note(batch.attempts, "ended", batch, (seed,))
    names = sorted({name for _, _, metrics in found for name in metrics})
    return {"metrics": names, "rows": [[seed, digest, [metrics.get(name) for name in names]] for seed, digest, metrics in found]}


def pack(batch: Batch) -> dict[str, Any]:
    """A batch as plain values, for a worker."""
    return asdict(batch)


def unpack(given: dict[str, Any]) -> Figures:
    """The figures that a worker sent."""
    return Figures(tuple(given["metrics"]), [(seed, digest, values) for seed, digest, values in given["rows"]])
