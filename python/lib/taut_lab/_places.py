"""Where the batches of a sweep run: in processes of this machine, or on a Ray cluster. Called by `_sweep.py`.

A place gets all batches and gives each one's figures, or why there are none, in the order in which they end. A worker that dies
costs the batch that it had, which is given to another worker, `retries` times at most. On a cluster, Ray does all of that.
"""

from __future__ import annotations

import importlib
import json
import logging
import os
import queue
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any, Protocol

from ._batch import Batch, Figures, pack, run_batch, unpack

#: How often a place gives the turn back while nothing ends, seconds.
LOOK_EVERY_S = 0.5

#: Batches that wait in a cluster at the same time: enough for every node, few enough to look through each time.
AT_ONCE = 1000


class Failed(Exception):
    """A batch has no figures: it raised, or its workers died."""


class Place(Protocol):
    """Runs batches."""

    #: Batches that run at the same time.
    slots: int

    def run(self, batches: Sequence[Batch]) -> Iterator[tuple[Batch, Figures | Failed] | None]:
        """Runs them; None means that nothing ended for a while."""

    def close(self) -> None:
        """Ends what still runs."""


class Processes:
    """Processes of this machine."""

    def __init__(self, workers: int, retries: int) -> None:
        self.slots = workers
        self._retries = retries
        self._running: set[subprocess.Popen[str]] = set()
        self._lock = threading.Lock()
        self._stopped = False

    def run(self, batches: Sequence[Batch]) -> Iterator[tuple[Batch, Figures | Failed] | None]:
        waiting = deque(batches)
        ended: queue.SimpleQueue[tuple[Batch, Figures | Failed] | BaseException] = queue.SimpleQueue()
        threads = [
            threading.Thread(target=self._work, args=(waiting, ended), daemon=True)
            for _ in range(min(self.slots, len(batches)))
        ]
        for thread in threads:
            thread.start()
        for _ in batches:
            while True:
                try:
                    one = ended.get(timeout=LOOK_EVERY_S)
                    break
                except queue.Empty:
                    yield None
            if isinstance(one, BaseException):
                raise one
            yield one

    def close(self) -> None:
        with self._lock:
            self._stopped = True
            for process in self._running:
                process.kill()

    def _work(self, waiting: deque[Batch], ended: queue.SimpleQueue[Any]) -> None:
        """One worker after the other: the next begins when one has died."""
        try:
            process: subprocess.Popen[str] | None = None
            while not self._stopped:
                try:
                    batch = waiting.popleft()
                except IndexError:
                    break
                answer = ""
                for _ in range(1 + self._retries):
                    process = process or self._start()
                    answer = self._ask(process, batch)
                    if answer or self._stopped:
                        break
                    self._end(process)
                    process = None
                ended.put((batch, self._read(answer)))
            if process is not None:
                self._end(process)
        except BaseException as error:  # noqa: BLE001 - the thread that waits raises it
            ended.put(error)

    def _start(self) -> subprocess.Popen[str]:
        # The worker finds the package where this process found it.
        program = f"import sys; sys.path[:] = {sys.path!r}; from taut_lab._worker import main; main()"
        with self._lock:
            process = subprocess.Popen(
                [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, encoding="utf-8"
            )
            self._running.add(process)
            if self._stopped:
                process.kill()
        return process

    @staticmethod
    def _ask(process: subprocess.Popen[str], batch: Batch) -> str:
        """The worker's answer; empty if it died."""
        assert process.stdin is not None and process.stdout is not None
        try:
            process.stdin.write(json.dumps(pack(batch)) + "\n")
            process.stdin.flush()
        except BrokenPipeError:
            return ""
        line = process.stdout.readline()
        return line if line.endswith("\n") else ""

    def _read(self, answer: str) -> Figures | Failed:
        if not answer:
            return Failed(f"the worker died, {1 + self._retries} times: it may have had too little memory")
        said = json.loads(answer)
        return Failed(said["error"]) if "error" in said else unpack(said["figures"])

    def _end(self, process: subprocess.Popen[str]) -> None:
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                try:
                    pipe.close()
                except BrokenPipeError:
                    pass
        process.wait()
        with self._lock:
            self._running.discard(process)


class Ray:
    """A Ray cluster, which has the package on its nodes. Placement, retries and the way of results are Ray's."""

    def __init__(self, address: str, retries: int) -> None:
        try:
            ray: Any = importlib.import_module("ray")
        except ImportError as error:
            raise ImportError("a sweep on a cluster needs Ray: pip install 'taut-lab[ray]', or pip install ray") from error
        self._ray = ray
        self._running: dict[Any, Batch] = {}
        self._is_own = not ray.is_initialized()
        if self._is_own:
            ray.init(address=address, logging_level=logging.WARNING)
        elif address not in ("auto", ray.get_runtime_context().gcs_address):
            here = ray.get_runtime_context().gcs_address
            raise ValueError(f"this program is connected to the cluster at {here} already, and not to {address}")
        self._task = ray.remote(num_cpus=1, max_retries=retries)(run_batch)
        self.slots = max(1, int(ray.cluster_resources().get("CPU", 1)))

    def run(self, batches: Sequence[Batch]) -> Iterator[tuple[Batch, Figures | Failed] | None]:
        ray = self._ray
        left = iter(batches)
        running = self._running
        while True:
            for batch in left:
                running[self._task.remote(pack(batch))] = batch
                if len(running) >= AT_ONCE:
                    break
            if not running:
                return
            ready, _ = ray.wait(list(running), num_returns=1, timeout=LOOK_EVERY_S)
            if not ready:
                yield None
            for one in ready:
                batch = running.pop(one)
                try:
                    yield batch, unpack(ray.get(one))
                except ray.exceptions.RayTaskError as error:
                    yield batch, Failed(str(error.cause))
                except ray.exceptions.RayError as error:
                    yield batch, Failed(f"{type(error).__name__}: {error}")

    def close(self) -> None:
        for task in self._running:
            self._ray.cancel(task, force=True)
        if self._is_own:
            self._ray.shutdown()


def place(on: str, workers: int | None, retries: int) -> Place:
    """The place of that name: `local`, or a cluster's address."""
    if on == "local":
        return Processes(workers or os.cpu_count() or 1, retries)
    return Ray(on, retries)
