"""When calls begin: how many are in flight at once, how fast they follow each other, and whose turn it is."""

from __future__ import annotations

import asyncio
import heapq
import random
from collections.abc import Callable
from math import inf
from time import monotonic

from calipers.run.rate import Rate

BREATH = 1.0  # seconds; calls that were under way when the limit fell say nothing new
FIRST_PAUSE, LONGEST_PAUSE = 0.25, 8.0  # seconds after a "too many" that names none
PATIENCE = 3  # pauses in a row without an answer, after which it is not the rate alone that is too much


class Shut(Exception):
    """No call may begin any more."""


class Pace:
    """A limit on calls in flight, between 1 and ``most``; a rate, once the server minds; and turns.

    A server's "too many" (HTTP 429) holds every call back: for as long as it asks, else for a random pause that doubles
    until a call succeeds, but no longer than until the calls it accepted in the last second are a second old. Then
    `Rate` says how fast calls follow each other. When several pauses in a row did not help, the limit is halved, at
    most once in a breath; it grows by one when as many calls as the limit have succeeded since it last changed. No
    other failure changes anything: a broken server is not mended by fewer calls, and a slow one has not complained.

    Whoever waits has a turn, and the lowest is next. A call that is tried again keeps its turn, and so goes before all
    that came after it: else a server at its limit answers new calls, and the first wait until there are no more.

    ``ramp``: the first calls go out at a rate that rises quickly, so that a server with a rate limit rejects one or two
    of them rather than all but a few.
    """

    def __init__(
        self,
        most: int,
        now: Callable[[], float] = monotonic,
        dice: random.Random | None = None,
        *,
        ramp: bool = False,
    ) -> None:
        self.most = self.limit = most
        self.in_flight = 0
        self._now, self._dice = now, dice or random.Random()
        self._rate = Rate(ramp)
        self._held_until = self._shrunk_at = float("-inf")
        self._good = 0  # calls that succeeded since the limit last changed
        self._pauses = 0  # since a call last succeeded
        self._shut = False
        self._turns = 0
        self._waiting: list[tuple[int, asyncio.Future[None]]] = []  # a heap, the lowest turn first
        self._timer: asyncio.TimerHandle | None = None

    @property
    def held(self) -> float:
        """Seconds for which the server still wants to be left alone."""
        return max(0.0, self._held_until - self._now())

    def turn(self) -> int:
        """The next turn, for a call and all its tries."""
        self._turns += 1
        return self._turns

    def entered(self) -> bool:
        """Whether there was a place at once, which is then taken."""
        if self._waiting or self._shut or self.in_flight >= self.limit or self._early():
            return False
        self._begin()
        return True

    async def enter(self, turn: int | None = None) -> None:
        """Wait for a place among the calls in flight; `Shut` when there will be none."""
        if self._shut:
            raise Shut
        if self.entered():
            return
        place = asyncio.get_running_loop().create_future()
        heapq.heappush(self._waiting, (self.turn() if turn is None else turn, place))
        self._wake()
        try:
            await place
        except asyncio.CancelledError:
            if place.done() and not place.cancelled() and not self._shut:
                self.leave()  # it had its place already
            raise
        if self._shut:
            raise Shut

    def leave(self) -> None:
        """Give the place back."""
        self.in_flight -= 1
        if self._waiting:
            self._wake()

    def succeeded(self) -> None:
        """A call was answered."""
        self._pauses = 0
        self._rate.answered()
        if self.limit < self.most:
            self._good += 1
            if self._good >= self.limit:
                self.limit, self._good = self.limit + 1, 0
                self._wake()

    def too_many(self, wait: float | None) -> None:
        """The server asked for fewer calls, and perhaps to be left alone for some seconds."""
        now = self._now()
        self._good = 0
        self._rate.refused(now)
        window = self._rate.window(now)
        if self._rate.resumed:
            self._pauses = 0
        if not self.held:  # while it is held no call begins: who is refused now was under way before
            if wait is None:
                longest = min(LONGEST_PAUSE, FIRST_PAUSE * 2**self._pauses)
                wait = min(self._dice.uniform(longest / 2, longest), window)
            self._pauses += 1
        if wait and now + wait > self._held_until:
            self._held_until = now + wait
        if self._pauses > PATIENCE and window == inf and now - self._shrunk_at >= BREATH:
            self.limit, self._shrunk_at = max(1, self.limit // 2), now

    def shut(self) -> None:
        """Let no more calls begin; whoever waits for a place is told."""
        self._shut = True
        self._wake()

    def _wake(self) -> None:
        """Give what places there are to those whose turn it is; now, or as soon as a call may begin."""
        while self._waiting and (self._shut or self.in_flight < self.limit):
            if not self._shut and (early := self._early()):
                if self._timer is None:
                    self._timer = asyncio.get_running_loop().call_later(early, self._wake_later)
                return
            place = heapq.heappop(self._waiting)[1]
            if not place.done():  # whoever waited here was cancelled
                if not self._shut:
                    self._begin()
                place.set_result(None)

    def _wake_later(self) -> None:
        self._timer = None
        self._wake()

    def _early(self) -> float:
        """Seconds until the next call may begin."""
        if self._rate.free and self._held_until < 0:
            return 0.0
        return max(0.0, max(self._held_until, self._rate.next) - self._now())

    def _begin(self) -> None:
        self.in_flight += 1
        self._rate.begin(self._now())
