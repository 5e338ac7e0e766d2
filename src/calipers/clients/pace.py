"""When requests start: how many run concurrently, at which rate, and in which order.

The request rate: a quick start, then a rate that the server's rejections determine.

::

    start: 8 at once, then 64 a second, doubled every 0.25 s ──► no rejection: not limited
       └──► rejected (429): 5 % below what was accepted ──► slowly back to it ──► faster ──► rejected ...
"""

from __future__ import annotations

import asyncio
import heapq
import random
from collections import deque
from collections.abc import Callable
from math import inf
from time import monotonic
from typing import Final

from calipers.errors import ClientError

SECOND: Final = 1.0  # the time over which a rate is measured, as most servers do
MOMENT: Final = 0.05  # seconds
FREE: Final = 1000.0  # calls a second from which on nothing is spaced

# So many calls begin at once; the next ones at a rate that doubles in so many seconds, and that every answer raises
# too. A server that answers within milliseconds is not limited after 30 answers, a slow one after a second.
BURST: Final = 8
START, DOUBLING, PER_ANSWER = 64.0, 0.25, 1.1

# After a rejection the rate follows the curve of CUBIC (RFC 9438): it begins this much below what was accepted, is back
# there after some seconds, stays near it, and then rises ever faster. The seconds double when the next rejection comes
# near that rate, as each costs the server's whole pause; one that comes before halves them, as it may be by no limit.
BELOW: Final = 0.05
LEAST_RETURN, FIRST_RETURN, LAST_RETURN = 0.25, 1.0, 16.0
SAME: Final = 1.25  # a rejection at less than this, times what was accepted before, is by the same limit
NEAR: Final = 0.9  # of the seconds until the rate is back: a rejection after these came near the limit
LEAST: Final = 0.1  # calls a second
SLOWER: Final = 0.9  # of the rate, at the second rejection in a row that came before a second could be measured


class CallRate:
    """The time at which the next call may begin, learned from calls that begin, are answered, or are rejected."""

    def __init__(self, ramp: bool) -> None:
        self.next = float("-inf")  # when the next call may begin
        self.free = not ramp  # nothing is spaced
        self._left = BURST if ramp else 0  # calls of the start that are not spaced yet
        self._answers = 0  # since the start
        self._limit = 0.0  # calls a second that the server accepted before it last rejected one; 0: it never did
        self._since = float("-inf")  # when the start began, or the curve after the last rejection
        self._calls = 0  # since then, but for those that were rejected
        self._back = FIRST_RETURN  # seconds after which the rate is back at the limit
        self._short = 0  # rejections in a row that came before a second could be measured
        self._begun: deque[float] = deque()  # when the calls of the last second began; rejected ones are taken out
        self._rejected = False  # a call was, and none has begun since
        self._at = 0.0  # the rate at which that was; 0: there was none

    def begin(self, now: float) -> None:
        """A request starts."""
        if self._rejected:
            self._rejected = False
            self._slow_down(now)
        self._forget(now)
        self._begun.append(now)
        self._calls += 1
        if self.free:
            return
        if self._left:
            self._left -= 1
            self._since = now
            return
        rate = self._now(now)
        self.free = rate >= FREE
        self.next = now + 1 / rate

    def answered(self) -> None:
        """A request was answered."""
        self._answers += 1

    def refused(self, now: float) -> None:
        """A request was rejected because there were too many."""
        if not self._rejected:
            self._rejected = True
            self._at = 0.0 if self.free or not self._limit else self._now(now)
            self._forget(self._begun[-1] if self._begun else now)
        if self._begun:
            self._begun.pop()
        self._calls -= 1

    @property
    def resumed(self) -> bool:
        """Whether the server accepted a call since the last pause."""
        return self._calls > 0

    def window(self, now: float) -> float:
        """Seconds until the server's second is over, if it counts from its oldest call; infinite if it accepted none.

        Where that moment is as good as here it is the newest call that counts: else a server that measures longer than
        a second would be asked again for each of them.
        """
        young = [time for time in self._begun if time > now - SECOND]
        if not young:
            return float("inf")
        left = young[0] + SECOND - now
        return left if left > MOMENT else young[-1] + SECOND - now

    def _now(self, now: float) -> float:
        past = now - self._since
        if self._limit:
            return self._limit * (1 + BELOW * (past / self._back - 1) ** 3)
        return START * 2 ** min(past / DOUBLING, 10) * PER_ANSWER ** min(self._answers, 100)

    def _slow_down(self, now: float) -> None:
        """Begin a curve at what the server accepted in the second before it complained."""
        accepted, rate = len(self._begun), self._at
        if not rate:
            self._limit, self._back = float(max(accepted, 1)), FIRST_RETURN
        elif self.resumed:  # else it is the same complaint, and says nothing new
            past = self._begun[-1] - self._since if self._begun else 0.0
            early = past < NEAR * self._back
            if rate >= SAME * self._limit:
                self._back = FIRST_RETURN
            elif early:
                self._back = max(self._back / 2, LEAST_RETURN)
            else:
                self._back = min(2 * self._back, LAST_RETURN)
            self._short = self._short + 1 if past < SECOND else 0
            if past >= SECOND and not early:
                self._limit = min(rate, max(accepted, rate / 2))
            elif self._short > 1:
                self._limit = max(SLOWER * rate, LEAST)
        self.free, self._left, self._since, self._calls = False, 0, now, 0

    def _forget(self, now: float) -> None:
        while self._begun and self._begun[0] <= now - SECOND:
            self._begun.popleft()


BREATH = 1.0  # seconds; calls that were under way when the limit fell say nothing new
FIRST_WAIT, LONGEST_WAIT = 0.25, 8.0  # seconds between two tries of one call, when the server does not say
FIRST_PAUSE, LONGEST_PAUSE = 0.25, 8.0  # seconds after a "too many" that names none
PATIENCE = 3  # pauses in a row without an answer, after which it is not the rate alone that is too much


def retry_wait(error: ClientError, tried: int, dice: random.Random) -> float:
    """Seconds before the next retry: as long as the server asks, else a growing random delay."""
    if error.wait is not None:
        return error.wait
    return dice.uniform(0, min(LONGEST_WAIT, FIRST_WAIT * 2**tried))


class Shut(Exception):
    """No more requests may start."""


class Pace:
    """A limit on calls in flight, between 1 and ``most``; a rate, once the server minds; and turns.

    A server's "too many" (HTTP 429) holds every call back: for as long as it asks, else for a random pause that doubles
    until a call succeeds, but no longer than until the calls it accepted in the last second are a second old. Then
    `CallRate` says how fast calls follow each other. When several pauses in a row did not help, the limit is halved, at
    most once in a breath; it grows by one when as many calls as the limit have succeeded since it last changed. No
    other failure changes anything: a broken server is not mended by fewer calls, and a slow one has not complained.

    Whoever waits has a turn, and the lowest is next. A call that is tried again keeps its turn, and so goes before all
    that came after it: else a server at its limit answers new calls, and the first wait until there are no more.

    ``ramp``: the first calls go out at a rate that rises quickly, so that a server with a rate limit rejects one or two
    of them rather than all but a few.
    """

    def __init__(
        self, most: int, now: Callable[[], float] = monotonic, dice: random.Random | None = None, *, ramp: bool = False
    ) -> None:
        self.most = self.limit = most
        self.in_flight = 0
        self._now, self._dice = now, dice or random.Random()
        self._rate = CallRate(ramp)
        self._held_until = self._shrunk_at = float("-inf")
        self._good = 0  # calls that succeeded since the limit last changed
        self._pauses = 0  # since a call last succeeded
        self._shut = False
        self._turns = 0
        self._waiting: list[tuple[int, asyncio.Future[None]]] = []  # a heap, the lowest turn first
        self._timer: asyncio.TimerHandle | None = None

    @property
    def held(self) -> float:
        """Remaining seconds of the pause that the server asked for."""
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
        slot = asyncio.get_running_loop().create_future()
        heapq.heappush(self._waiting, (self.turn() if turn is None else turn, slot))
        self._wake()
        try:
            await slot
        except asyncio.CancelledError:
            if slot.done() and not slot.cancelled() and not self._shut:
                self.leave()  # it had its place already
            raise
        if self._shut:
            raise Shut

    def leave(self) -> None:
        """Release the slot."""
        self.in_flight -= 1
        if self._waiting:
            self._wake()

    def succeeded(self) -> None:
        """A request was answered."""
        self._pauses = 0
        self._rate.answered()
        if self.limit < self.most:
            self._good += 1
            if self._good >= self.limit:
                self.limit, self._good = self.limit + 1, 0
                self._wake()

    def too_many(self, wait: float | None) -> None:
        """The server asked for fewer requests, and perhaps for a pause."""
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
        """Start no more requests; waiting ones get `Shut`."""
        self._shut = True
        self._wake()

    def _wake(self) -> None:
        """Give what places there are to those whose turn it is; now, or as soon as a call may begin."""
        while self._waiting and (self._shut or self.in_flight < self.limit):
            if not self._shut and (early := self._early()):
                if self._timer is None:
                    self._timer = asyncio.get_running_loop().call_later(early, self._wake_later)
                return
            slot = heapq.heappop(self._waiting)[1]
            if not slot.done():  # whoever waited here was cancelled
                if not self._shut:
                    self._begin()
                slot.set_result(None)

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
