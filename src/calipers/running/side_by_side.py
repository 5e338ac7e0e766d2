"""Runs side by side: a thread for each model, in which its benchmarks follow each other.

::

    model a: benchmark 1 ──► benchmark 2 ──► ...     each run with its own event loop,
    model b: benchmark 1 ──► benchmark 2 ──► ...     its own concurrency and its own rate limits

Signals reach the main thread only, which waits here: it passes them on to the loops.
"""

from __future__ import annotations

import queue
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

from calipers.running.job import Job
from calipers.running.loop import interrupt_threads

T = TypeVar("T")

IN_THIS_PROCESS = "hf/"
"""Models that share the memory of this process and its devices: one after the other."""


def lanes(jobs: Sequence[Job]) -> list[list[Job]]:
    """The jobs that run one after the other, for each lane of those that run at the same time.

    A task of a library is loaded with the seeds of the whole process, so that such jobs are one lane.
    """
    if any(job.from_library for job in jobs):
        return [list(jobs)]
    by_model: dict[str, list[Job]] = {}
    for job in jobs:
        lane = IN_THIS_PROCESS if job.model.startswith(IN_THIS_PROCESS) else job.model
        by_model.setdefault(lane, []).append(job)
    return list(by_model.values())


def side_by_side(jobs: Sequence[Job], work: Callable[[Job], T]) -> Iterator[tuple[Job, T | BaseException]]:
    """Do the work of each job, lane by lane at the same time; what each comes to, as it ends.

    Ctrl-C, or a request to terminate, lets all that is in flight finish, and begins nothing more; a second one drops
    what is in flight. What a job raises is its outcome here, and the others go on.
    """
    every = lanes(jobs)
    ended: queue.SimpleQueue[tuple[Job, T | BaseException] | None] = queue.SimpleQueue()
    interrupted = threading.Event()

    def run_lane(some: Sequence[Job]) -> None:
        try:
            for job in some:
                if interrupted.is_set():
                    break
                try:
                    ended.put((job, work(job)))
                except BaseException as error:  # told to whoever waits, as from a call
                    ended.put((job, error))
        finally:
            ended.put(None)

    threads = [threading.Thread(target=run_lane, args=(some,), name="calipers-lane") for some in every]
    with _signals(interrupted):
        for thread in threads:
            thread.start()
        left = len(threads)
        while left:
            outcome = ended.get()
            if outcome is None:
                left -= 1
            else:
                yield outcome
        for thread in threads:
            thread.join()


@contextmanager
def _signals(interrupted: threading.Event) -> Iterator[None]:
    """SIGINT and SIGTERM go to the loops in the threads, where this is the main thread."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def passed_on(number: int, frame: object) -> None:
        interrupted.set()
        interrupt_threads()

    before = {number: signal.signal(number, passed_on) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
