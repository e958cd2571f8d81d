"""``python -m taut_lab sweep GRID``: a sweep from a shell. ``taut lab sweep --ray ADDRESS`` calls it."""

from __future__ import annotations

import argparse
import sys

from . import ScenarioError, SweepError, _carry, sweep


def main() -> int:
    """The command; returns its exit code: 0 success, 1 failure, 2 wrong usage, 130 interrupted."""
    parser = argparse.ArgumentParser(prog="python -m taut_lab", description="The lab of taut.")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    one = commands.add_parser(
        "sweep",
        help="run a scenario at every point of a grid",
        description="Runs a scenario at every point of a grid. Figures of each run are rows of a Parquet data set, and are never made twice.",
    )
    one.add_argument("grid", help="the grid's file")
    one.add_argument("--on", default="local", metavar="ADDRESS", help="a Ray cluster; without it, the processors of this machine")
    one.add_argument("--out", metavar="DIR", help="the directory of the data set (lab-results/NAME)")
    one.add_argument("--set", action="append", default=[], metavar="PATH=VALUE", help="change a value of the scenario")
    one.add_argument("--case", metavar="NAME", help="only this case of the scenario")
    one.add_argument("--seeds", type=int, metavar="N", help="runs of each point and variant")
    one.add_argument("--workers", type=int, metavar="N", help="processes on this machine (the number of processors)")
    one.add_argument("--controllers", metavar="FILE", help="a Python file whose dict `controllers` has congestion controllers by name")
    one.add_argument("--csv", action="store_true", help="print CSV rather than a table")
    args = parser.parse_args()
    try:
        done = sweep(
            args.grid,
            args.on,
            args.out,
            set=args.set,
            case=args.case,
            seeds=args.seeds,
            workers=args.workers,
            controllers=None if args.controllers is None else _carry.of_file(args.controllers),
        )
    except KeyboardInterrupt:
        print("taut_lab: interrupted", file=sys.stderr)
        return 130
    except (ScenarioError, SweepError, ImportError, OSError, ValueError) as error:
        print(f"taut_lab: {error}", file=sys.stderr)
        return 1
    sys.stdout.write(done.csv if args.csv else done.text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
