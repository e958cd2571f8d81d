"""The results of a sweep on disk: one Parquet data set, partitioned by case, a file for each batch. Called by `_sweep.py`.

```
OUT/runs/case=NAME/HASH-VERSION-SEED.parquet     the rows of a batch, by its first seed; without cases, in OUT/runs itself
OUT/.lock                                        held by the sweep that writes
OUT/sweep.csv, sweep.txt                         the table, when the sweep has ended
```

A file gets its name when it is whole and on the disk, so that a reader sees all of a batch or nothing of it, also while the sweep
runs and after it was killed. A row's key is `scenario_hash`, `seed` and `version`; no key has two rows.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from . import _native
from ._batch import Batch, Figures

if TYPE_CHECKING:
    import pyarrow

#: The columns before the metrics and the changed values.
KEY = ("scenario_hash", "seed", "version", "point", "variant", "digest")


def _arrow() -> Any:
    try:
        import pyarrow.dataset
        import pyarrow.parquet
    except ImportError as error:
        raise ImportError("a sweep needs pyarrow for its files: pip install 'taut-lab[sweep]', or pip install pyarrow") from error
    return pyarrow


class Store:
    """The directory of a sweep. Only one may write at a time."""

    def __init__(self, out: Path) -> None:
        self._arrow = _arrow()
        self.runs = out / "runs"
        self.runs.mkdir(parents=True, exist_ok=True)
        self._lock = os.open(out / ".lock", os.O_RDWR | os.O_CREAT, 0o666)
        self._out = out
        try:
            import fcntl

            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except ImportError:
            # A system without file locks.
            pass
        except BlockingIOError as error:
            os.close(self._lock)
            raise BlockingIOError(f"another sweep writes into {out}: wait until it has ended, or name another directory") from error
        # What a sweep that was killed had not finished.
        for partial in [*self.runs.glob(".*.partial"), *self.runs.glob("case=*/.*.partial")]:
            partial.unlink(missing_ok=True)

    def close(self) -> None:
        """Lets another sweep write."""
        os.close(self._lock)

    def finished(self, version: str) -> set[tuple[str, int]]:
        """Scenario hash and seed of each row that this version has made."""
        rows = self._table(["scenario_hash", "seed", "version"])
        if rows is None:
            return set()
        columns = (rows[name].to_pylist() for name in ("scenario_hash", "seed", "version"))
        return {(of, seed) for of, seed, by in zip(*columns) if by == version}

    def write(self, batch: Batch, figures: Figures, changed: dict[str, str | None]) -> None:
        """Writes the rows of a batch."""
        arrow = self._arrow
        rows = figures.rows
        columns: dict[str, Any] = {
            "scenario_hash": arrow.array([batch.scenario_hash] * len(rows), arrow.string()),
            "seed": arrow.array([seed for seed, _, _ in rows], arrow.int64()),
            "version": arrow.array([batch.version] * len(rows), arrow.string()),
            "point": arrow.array([batch.point] * len(rows), arrow.string()),
            "variant": arrow.array([batch.variant] * len(rows), arrow.string()),
            "digest": arrow.array([digest for _, digest, _ in rows], arrow.string()),
        }
        for name, value in changed.items():
            columns[name] = arrow.array([value] * len(rows), arrow.string())
        places = {name: at for at, name in enumerate(figures.metrics)}
        fields = [arrow.field(name, column.type) for name, column in columns.items()]
        for name, _, unit in _native.metrics():
            at = places.get(name)
            columns[name] = arrow.array([None if at is None else values[at] for _, _, values in rows], arrow.float64())
            fields.append(arrow.field(name, arrow.float64(), metadata={"unit": unit}))
        table = arrow.table(list(columns.values()), schema=arrow.schema(fields))
        # A folder that means "no value" has no type by itself, so that readers which infer one refuse it.
        directory = self.runs / f"case={quote(batch.case, safe='')}" if batch.case else self.runs
        directory.mkdir(exist_ok=True)
        by = batch.version.rpartition("+")[2]
        path = directory / f"{batch.scenario_hash}-{by}-{batch.seeds[0]}.parquet"
        partial = directory / f".{path.name}.partial"
        with open(partial, "wb") as file:
            arrow.parquet.write_table(table, file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, path)

    def rows(self, version: str, wanted: set[tuple[str, int]]) -> pyarrow.Table:
        """The rows of these keys; case first, and in no order."""
        table = self._table(None)
        if table is None:
            return self._arrow.table({})
        keys = zip(table["scenario_hash"].to_pylist(), table["seed"].to_pylist(), table["version"].to_pylist())
        keep = [by == version and (of, seed) in wanted for of, seed, by in keys]
        table = table.filter(self._arrow.array(keep, self._arrow.bool_()))
        return table.select(["case", *(name for name in table.column_names if name != "case")])

    def with_texts(self, rows: pyarrow.Table, columns: dict[str, list[str | None]]) -> pyarrow.Table:
        """The rows with these columns, in the place of those that have their names."""
        for name, values in columns.items():
            column = self._arrow.array(values, self._arrow.string())
            at = rows.schema.get_field_index(name)
            rows = rows.append_column(name, column) if at < 0 else rows.set_column(at, name, column)
        return rows

    def put(self, name: str, text: str) -> None:
        """Writes a text beside the data set."""
        partial = self._out / f".{name}.partial"
        partial.write_text(text, encoding="utf-8")
        os.replace(partial, self._out / name)

    def _table(self, columns: Iterable[str] | None) -> Any:
        arrow = self._arrow
        # Another grid of the same directory may have changed other values: its files have other columns.
        files = sorted(str(path) for path in [*self.runs.glob("*.parquet"), *self.runs.glob("case=*/*.parquet")])
        if not files:
            return None
        cases = arrow.dataset.partitioning(arrow.schema([("case", arrow.string())]), flavor="hive")
        found = arrow.dataset.dataset(files, format="parquet", partitioning=cases, partition_base_dir=str(self.runs))
        schemas = [fragment.physical_schema for fragment in found.get_fragments()]
        schema = arrow.unify_schemas([*dict.fromkeys(schemas), arrow.schema([("case", arrow.string())])])
        return found.replace_schema(schema).to_table(columns=None if columns is None else list(columns))
