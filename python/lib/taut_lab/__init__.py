"""The lab of taut, a userspace TCP stack: experiments in a simulator, with tables as Arrow.

    import taut_lab
    result = taut_lab.run("tsq")
    print(result)                    # the table, beside the published figures
    result.intervals.to_pandas()     # flows over time
    result.plot("queues")            # a picture

Names carry their unit: ``_s`` seconds, ``_bytes``, ``_bps`` bits per second. Figures are those of the command ``taut lab run`` for the
same scenario and seed, bit for bit.
"""

from ._controller import Controller, Signal
from ._errors import RunError, ScenarioError
from ._native import Ack, LostPacket, RateSample, Table, Window, __version__
from ._result import Result, Run
from ._run import Metric, Scenario, congestion_controls, metrics, run, scenarios
from ._sweep import Progress, Sweep, SweepError, sweep

__all__ = [
    "Ack",
    "Controller",
    "LostPacket",
    "Metric",
    "Progress",
    "RateSample",
    "Result",
    "Run",
    "RunError",
    "Scenario",
    "ScenarioError",
    "Signal",
    "Sweep",
    "SweepError",
    "Table",
    "Window",
    "__version__",
    "congestion_controls",
    "metrics",
    "run",
    "scenarios",
    "sweep",
]
