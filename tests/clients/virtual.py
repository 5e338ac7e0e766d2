"""A scripted clock: an event loop in which waiting takes no time, and servers whose rate limits use that clock."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop whose time does not pass while there is work, and jumps to the next timer when there is none."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 1000.0

    def time(self) -> float:
        return self.now

    def _run_once(self) -> None:
        if not self._ready and self._scheduled:
            self.now = max(self.now, self._scheduled[0].when())
        super()._run_once()


def run(loop: VirtualLoop, work: Coroutine[Any, Any, Any]) -> Any:
    """The result of the work, which may wait only for timers."""
    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        return runner.run(work)


class Bucket:
    """A token bucket: a number of calls per second or other time, and as many saved up."""

    def __init__(self, rate: int, seconds: float = 1.0) -> None:
        self.rate, self.seconds, self.left, self.last = rate, seconds, float(rate), 0.0

    def take(self, now: float) -> bool:
        self.left, self.last = min(self.rate, self.left + (now - self.last) / self.seconds * self.rate), now
        taken = self.left >= 1 - 1e-9
        self.left -= taken
        return taken


class Sliding:
    """A sliding window: a number of calls in any second or other time."""

    def __init__(self, rate: int, seconds: float = 1.0) -> None:
        self.rate, self.seconds, self.times = rate, seconds, list[float]()

    def take(self, now: float) -> bool:
        self.times = [time for time in self.times if time > now - self.seconds]
        if len(self.times) < self.rate:
            self.times.append(now)
            return True
        return False


class Fixed:
    """A fixed window: a number of calls in each second or minute of the clock."""

    def __init__(self, rate: int, seconds: float = 1.0) -> None:
        self.rate, self.seconds, self.window, self.taken = rate, seconds, -1, 0

    def take(self, now: float) -> bool:
        if int(now / self.seconds) != self.window:
            self.window, self.taken = int(now / self.seconds), 0
        self.taken += 1
        return self.taken <= self.rate
