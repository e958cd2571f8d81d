"""A worker of a sweep on this machine: a process that gets batches as lines of JSON and answers each with a line. `_places.py` starts it.

It ends when its input ends, in the middle of a batch, too: so none is left when the sweep was killed.
"""

from __future__ import annotations

import json
import os
import queue
import signal
import sys
import threading
from typing import Any

from ._batch import run_batch


def main() -> None:
    """Works until the input ends."""
    # Ctrl-C in a terminal reaches every process of the group: the sweep decides what becomes of its workers.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    # What a library prints must not become an answer.
    os.dup2(2, 1)
    lines: queue.SimpleQueue[str] = queue.SimpleQueue()

    def read() -> None:
        for line in sys.stdin:
            lines.put(line)
        os._exit(0)

    threading.Thread(target=read, daemon=True).start()
    while True:
        try:
            answer: dict[str, Any] = {"figures": run_batch(json.loads(lines.get()))}
        except Exception as error:  # noqa: BLE001 - what went wrong is the answer
            answer = {"error": f"{type(error).__name__}: {error}" if type(error).__module__ == "builtins" else str(error)}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
