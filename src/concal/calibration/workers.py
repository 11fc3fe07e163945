"""Threads: how many there may be, those that share the chunks of a sweep, and BLAS, which gets one."""

from __future__ import annotations

import functools
import itertools
import os
import threading
from collections.abc import Callable, Iterable, Sequence
from queue import SimpleQueue
from typing import Any, ParamSpec, Self, TypeVar

from threadpoolctl import threadpool_limits

P = ParamSpec("P")
R = TypeVar("R")


def available_cores() -> int:
    """Cores this process may use: those of its affinity where the system has such a thing."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else (os.cpu_count() or 1)


def one_blas_thread(function: Callable[P, R]) -> Callable[P, R]:
    """Run a function with BLAS on one thread.

    Products of small matrices and of a few thousand rows lose by more: on two busy cores a period's factors took five
    times as long. And sums that are split among threads come out differently with their number.
    """

    @functools.wraps(function)
    def alone(*args: P.args, **kwargs: P.kwargs) -> R:
        with threadpool_limits(1, "blas"):
            return function(*args, **kwargs)

    return alone


class Workers:
    """Runs chunks on threads; the order of results, and every result, is the same for any number of threads.

    A sweep hands out its chunks a dozen times, some of them for a fraction of a millisecond. The calling thread works
    too, and whoever is free takes the next chunk, so nobody waits for a thread to wake up (handing chunks to
    `concurrent.futures` took a fifth of the time of a small period).
    """

    def __init__(self, threads: int) -> None:
        self._queues: list[SimpleQueue[_Job | None]] = [SimpleQueue() for _ in range(threads - 1)]
        self._threads = [threading.Thread(target=_serve, args=(queue,), daemon=True) for queue in self._queues]
        for thread in self._threads:
            thread.start()

    def map(self, function: Callable[[Any], Any], tasks: Iterable[Any]) -> list[Any]:
        """Apply to every task; results in the tasks' order. Of several errors the first task's is raised."""
        if not self._queues:
            return [function(task) for task in tasks]
        job = _Job(function, list(tasks))
        for queue in self._queues[: len(job.tasks) - 1]:
            queue.put(job)
        job.work()
        return job.outcome()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Stop the threads; what their last chunks referred to is let go by then."""
        for queue in self._queues:
            queue.put(None)
        for thread in self._threads:
            thread.join()
        self._queues, self._threads = [], []


class _Job:
    """One call of `map`: tasks to take, results to fill in."""

    def __init__(self, function: Callable[[Any], Any], tasks: Sequence[Any]) -> None:
        self.function, self.tasks = function, tasks
        self._results: list[Any] = [None] * len(tasks)
        self._errors: dict[int, BaseException] = {}
        self._take = itertools.count().__next__  # one thread at a time: a single call into C
        self._lock, self._left = threading.Lock(), len(tasks)
        self._done = threading.Event()
        if not tasks:
            self._done.set()

    def work(self) -> None:
        """Take tasks until there are none; a thread that comes too late finds none and leaves."""
        while (k := self._take()) < len(self.tasks):
            try:
                self._results[k] = self.function(self.tasks[k])
            except BaseException as error:  # raised again where `map` was called
                self._errors[k] = error
            with self._lock:
                self._left -= 1
                if not self._left:
                    self._done.set()

    def outcome(self) -> list[Any]:
        """Wait for the tasks that others have taken."""
        self._done.wait()
        if self._errors:
            raise self._errors[min(self._errors)]
        return self._results


def _serve(queue: SimpleQueue[_Job | None]) -> None:
    while (job := queue.get()) is not None:
        job.work()
        del job  # an idle thread would keep what the chunks refer to: the whole state of the chains
