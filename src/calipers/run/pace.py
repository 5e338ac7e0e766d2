"""How many calls are in flight at once: fewer when the server says it is too much, more as it bears them."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from time import monotonic

BREATH = 1.0  # seconds; calls that were under way when the limit fell say nothing new


class Shut(Exception):
    """No call may begin any more."""


class Pace:
    """A limit on calls in flight, between 1 and ``most``.

    It grows by one when as many calls as the limit have succeeded since it last changed. A server's
    "too many" halves it, at most once in a breath, and holds every new call back for as long as the
    server asks. No other failure changes it: a server that breaks is not mended by fewer calls, and
    a slow one has not complained.
    """

    def __init__(self, most: int, now: Callable[[], float] = monotonic) -> None:
        self.most = self.limit = most
        self.in_flight = 0
        self._now = now
        self._held_until = self._shrunk_at = float("-inf")
        self._good = 0
        self._shut = False
        self._waiting: deque[asyncio.Future[None]] = deque()

    @property
    def held(self) -> float:
        """Seconds for which the server still wants to be left alone."""
        return max(0.0, self._held_until - self._now())

    def entered(self) -> bool:
        """Whether there was a place at once, which is then taken."""
        if self._shut or self.in_flight >= self.limit or (self._held_until > 0 and self.held):
            return False
        self.in_flight += 1
        return True

    async def enter(self) -> None:
        """Wait for a place among the calls in flight; `Shut` when there will be none."""
        while not self.entered():
            if self._shut:
                raise Shut
            place = asyncio.get_running_loop().create_future()
            self._waiting.append(place)
            await place

    def leave(self) -> None:
        """Give the place back."""
        self.in_flight -= 1
        if self._waiting:
            self._wake()

    def succeeded(self) -> None:
        """A call was answered."""
        if self.limit < self.most:
            self._good += 1
            if self._good >= self.limit:
                self.limit, self._good = self.limit + 1, 0
                self._wake()

    def too_many(self, wait: float | None) -> None:
        """The server asked for fewer calls, and perhaps to be left alone for some seconds."""
        now = self._now()
        self._good = 0
        if wait and now + wait > self._held_until:
            self._held_until = now + wait
            asyncio.get_running_loop().call_later(wait, self._wake)
        if now - self._shrunk_at >= BREATH:
            self.limit, self._shrunk_at = max(1, self.limit // 2), now

    def shut(self) -> None:
        """Let no more calls begin; whoever waits for a place is told."""
        self._shut = True
        self._wake()

    def _wake(self) -> None:
        free = len(self._waiting) if self._shut else self.limit - self.in_flight
        while free > 0 and self._waiting:
            place = self._waiting.popleft()
            if not place.done():  # whoever waited here was cancelled
                place.set_result(None)
                free -= 1
