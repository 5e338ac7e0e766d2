"""Rate limiting: how many requests run concurrently, at which rate they start, and in which order.

The rate rises quickly at the start; after that, the server's rejections determine it.

::

    start: 8 at once, then 64 a second, doubled every 0.25 s ──► no rejection: not limited
       └──► rejected (429): 5 % below the accepted rate ──► slowly back to it ──► faster ──► rejected ...
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

SECOND: Final = 1.0  # the time window of a rate; most servers use one second
MOMENT: Final = 0.05  # seconds
FREE: Final = 1000.0  # calls per second; at this rate and above, calls are not spaced any more

# The first BURST calls begin at once. Then the rate is START calls per second; it doubles every DOUBLING seconds, and
# each answer raises it by the factor PER_ANSWER. So a server that answers within milliseconds is not limited any more
# after 30 answers, and a slow one after a second.
BURST: Final = 8
START, DOUBLING, PER_ANSWER = 64.0, 0.25, 1.1

# After a rejection the rate follows the curve of CUBIC (RFC 9438): it begins BELOW (a share) under the accepted rate,
# reaches that rate after some seconds (the return time), stays near it, and then rises faster and faster. The return
# time doubles if the next rejection comes near the accepted rate, because each rejection costs a whole pause. It halves
# if the rejection comes earlier, because then the limit may not be the cause.
BELOW: Final = 0.05
LEAST_RETURN, FIRST_RETURN, LAST_RETURN = 0.25, 1.0, 16.0  # seconds: minimum, initial value and maximum
SAME: Final = 1.25  # a rejection at less than this multiple of the accepted rate is due to the same limit
NEAR: Final = 0.9  # share of the return time after which a rejection counts as near the limit
LEAST: Final = 0.1  # minimum calls per second
SLOWER: Final = 0.9  # factor for the rate at the second rejection in a row within less than a second


class CallRate:
    """The time at which the next call may begin, learned from calls that begin, are answered, or are rejected."""

    def __init__(self, ramp: bool) -> None:
        self.next = float("-inf")  # the time at which the next call may begin
        self.free = not ramp  # whether calls are not spaced
        self._burst_left = BURST if ramp else 0  # remaining calls of the initial burst, which are not spaced
        self._answers = 0  # answers since the start
        self._limit = 0.0  # calls per second that the server accepted before its last rejection; 0: no rejection yet
        self._since = float("-inf")  # the beginning of the start, or of the curve after the last rejection
        self._calls = 0  # accepted calls since then
        self._return_time = FIRST_RETURN  # seconds after which the rate is back at the limit
        self._short = 0  # rejections in a row within less than a second
        self._begun: deque[float] = deque()  # the times at which the accepted calls of the last second began
        self._rejected = False  # a call was rejected, and no call has begun since
        self._rejected_rate = 0.0  # the rate at the rejection; 0 if calls were not spaced

    def begin(self, now: float) -> None:
        """Record that a request starts."""
        if self._rejected:
            self._rejected = False
            self._slow_down(now)
        self._forget(now)
        self._begun.append(now)
        self._calls += 1
        if self.free:
            return
        if self._burst_left:
            self._burst_left -= 1
            self._since = now
            return
        rate = self._rate(now)
        self.free = rate >= FREE
        self.next = now + 1 / rate

    def answered(self) -> None:
        """Record that a request was answered."""
        self._answers += 1

    def refused(self, now: float) -> None:
        """Record that a request was rejected because there were too many."""
        if not self._rejected:
            self._rejected = True
            self._rejected_rate = 0.0 if self.free or not self._limit else self._rate(now)
            self._forget(self._begun[-1] if self._begun else now)
        if self._begun:
            self._begun.pop()
        self._calls -= 1

    @property
    def resumed(self) -> bool:
        """Whether the server has accepted a call since the last pause."""
        return self._calls > 0

    def window(self, now: float) -> float:
        """Seconds until the oldest accepted call of the last second is a second old; infinite if there is none.

        That is the end of the server's window, if the window began with this call. If it ends within a moment, the
        newest call is used instead: otherwise a server with a longer window would be tried again for each of the calls.
        """
        recent = [time for time in self._begun if time > now - SECOND]
        if not recent:
            return float("inf")
        left = recent[0] + SECOND - now
        return left if left > MOMENT else recent[-1] + SECOND - now

    def _rate(self, now: float) -> float:
        """The current rate in calls per second."""
        elapsed = now - self._since
        if self._limit:
            return self._limit * (1 + BELOW * (elapsed / self._return_time - 1) ** 3)
        return START * 2 ** min(elapsed / DOUBLING, 10) * PER_ANSWER ** min(self._answers, 100)

    def _slow_down(self, now: float) -> None:
        """Begin a new curve at the rate that the server accepted in the second before the rejection."""
        accepted, rate = len(self._begun), self._rejected_rate
        if not rate:
            self._limit, self._return_time = float(max(accepted, 1)), FIRST_RETURN
        elif self.resumed:  # otherwise no call was accepted since the last rejection, and nothing new was learned
            elapsed = self._begun[-1] - self._since if self._begun else 0.0
            early = elapsed < NEAR * self._return_time
            if rate >= SAME * self._limit:
                self._return_time = FIRST_RETURN
            elif early:
                self._return_time = max(self._return_time / 2, LEAST_RETURN)
            else:
                self._return_time = min(2 * self._return_time, LAST_RETURN)
            self._short = self._short + 1 if elapsed < SECOND else 0
            if elapsed >= SECOND and not early:
                self._limit = min(rate, max(accepted, rate / 2))
            elif self._short > 1:
                self._limit = max(SLOWER * rate, LEAST)
        self.free, self._burst_left, self._since, self._calls = False, 0, now, 0

    def _forget(self, now: float) -> None:
        while self._begun and self._begun[0] <= now - SECOND:
            self._begun.popleft()


BREATH = 1.0  # minimum seconds between two cuts of the limit: calls in flight at a cut say nothing about the new limit
FIRST_WAIT, LONGEST_WAIT = 0.25, 8.0  # seconds before a retry, if the server names no time
FIRST_PAUSE, LONGEST_PAUSE = 0.25, 8.0  # seconds of a pause after HTTP 429, if the server names no time
PATIENCE = 3  # pauses in a row without an answer, after which the number of calls in flight is cut, too


def retry_wait(error: ClientError, tried: int, dice: random.Random) -> float:
    """Seconds before the next retry: as long as the server asks, else a growing random delay."""
    if error.wait is not None:
        return error.wait
    return dice.uniform(0, min(LONGEST_WAIT, FIRST_WAIT * 2**tried))


class Shut(Exception):
    """No more requests may start."""


class Pace:
    """Limits the calls in flight to at most ``most`` and their rate after a rejection, and orders waiting calls.

    HTTP 429 ("too many requests") pauses all calls: for as long as the server asks, else for a random time that doubles
    until a call succeeds, but only until the calls that the server accepted in the last second are a second old. After
    the pause, `CallRate` determines the rate. If several pauses in a row did not help, the limit on calls in flight is
    halved, at most once per second. It grows by one when as many calls as the limit have succeeded since it last
    changed. Other failures change nothing, because fewer calls do not repair a broken server, and a slow server has
    not rejected anything.

    Each waiting call has a turn, and the lowest turn is next. A retried call keeps its turn, so it goes before all
    later calls: otherwise a server at its limit would answer new calls first, and the oldest would wait until the end.

    With ``ramp``, the first calls begin at a rate that rises quickly, so that a server with a rate limit rejects only
    one or two of them.
    """

    def __init__(
        self, most: int, now: Callable[[], float] = monotonic, dice: random.Random | None = None, *, ramp: bool = False
    ) -> None:
        self.most = self.limit = most
        self.in_flight = 0
        self._now, self._dice = now, dice or random.Random()
        self._rate = CallRate(ramp)
        self._paused_until = self._shrunk_at = float("-inf")
        self._good = 0  # calls that succeeded since the limit last changed
        self._pauses = 0  # pauses since a call last succeeded
        self._shut = False
        self._turns = 0
        self._waiting: list[tuple[int, asyncio.Future[None]]] = []  # a heap, the lowest turn first
        self._timer: asyncio.TimerHandle | None = None

    @property
    def pause(self) -> float:
        """The remaining seconds of the current pause."""
        return max(0.0, self._paused_until - self._now())

    def turn(self) -> int:
        """The next turn, for a call and all its retries."""
        self._turns += 1
        return self._turns

    def entered(self) -> bool:
        """Take a slot if one is free at once; returns whether one was."""
        if self._waiting or self._shut or self.in_flight >= self.limit or self._early():
            return False
        self._begin()
        return True

    async def enter(self, turn: int | None = None) -> None:
        """Wait for a slot among the calls in flight; raises `Shut` if no more requests may start."""
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
                self.leave()  # it already had its slot
            raise
        if self._shut:
            raise Shut

    def leave(self) -> None:
        """Release the slot."""
        self.in_flight -= 1
        if self._waiting:
            self._wake()

    def succeeded(self) -> None:
        """Record that a request was answered."""
        self._pauses = 0
        self._rate.answered()
        if self.limit < self.most:
            self._good += 1
            if self._good >= self.limit:
                self.limit, self._good = self.limit + 1, 0
                self._wake()

    def too_many(self, wait: float | None) -> None:
        """Record an HTTP 429; ``wait`` is the pause in seconds that the server asks for."""
        now = self._now()
        self._good = 0
        self._rate.refused(now)
        window = self._rate.window(now)
        if self._rate.resumed:
            self._pauses = 0
        if not self.pause:  # no call begins during a pause, so a call that is rejected during one began before it
            if wait is None or self._pauses:  # a pause as long as the server asked did not help, or it asked for none
                longest = min(LONGEST_PAUSE, FIRST_PAUSE * 2**self._pauses)
                wait = max(wait or 0.0, min(self._dice.uniform(longest / 2, longest), window))
            self._pauses += 1
        if wait and now + wait > self._paused_until:
            self._paused_until = now + wait
        if self._pauses > PATIENCE and window == inf and now - self._shrunk_at >= BREATH:
            self.limit, self._shrunk_at = max(1, self.limit // 2), now

    def shut(self) -> None:
        """Start no more requests; waiting ones get `Shut`."""
        self._shut = True
        self._wake()

    def _wake(self) -> None:
        """Give free slots to the waiting calls with the lowest turns, now or as soon as a call may begin."""
        while self._waiting and (self._shut or self.in_flight < self.limit):
            if not self._shut and (early := self._early()):
                if self._timer is None:
                    self._timer = asyncio.get_running_loop().call_later(early, self._wake_later)
                return
            slot = heapq.heappop(self._waiting)[1]
            if not slot.done():  # otherwise the waiting call was cancelled
                if not self._shut:
                    self._begin()
                slot.set_result(None)

    def _wake_later(self) -> None:
        self._timer = None
        self._wake()

    def _early(self) -> float:
        """Seconds until the next call may begin."""
        if self._rate.free and self._paused_until < 0:
            return 0.0
        return max(0.0, max(self._paused_until, self._rate.next) - self._now())

    def _begin(self) -> None:
        self.in_flight += 1
        self._rate.begin(self._now())
