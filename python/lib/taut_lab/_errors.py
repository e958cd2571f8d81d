"""What can go wrong with a scenario and its runs."""

from __future__ import annotations


class ScenarioError(ValueError):
    """A scenario is invalid, or a change to it.

    Attributes:
        key: Path of the key at fault, such as ``link.rate`` or ``flows.0.app``; None if it is not known.
        line: Its line in the file or text, from 1; None for a dict and for a change by ``set``.
        why: What is wrong, without the place.
    """

    key: str | None
    line: int | None
    why: str

    def __init__(self, message: str, key: str | None = None, line: int | None = None, why: str = "") -> None:
        super().__init__(message)
        self.key = key
        self.line = line
        self.why = why or message

    def __reduce__(self) -> tuple[type[ScenarioError], tuple[str, str | None, int | None, str]]:
        return type(self), (str(self), self.key, self.line, self.why)


class RunError(RuntimeError):
    """A run failed: the simulator does not have what the scenario asks for, or one of its invariants does not hold."""
