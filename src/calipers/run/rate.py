"""How fast calls follow each other: a quick start, and a rate that a server's rejections set.

::

    start: 8 at once, then 64 a second, doubled every 0.25 s ──► no rejection: not limited
       └──► rejected (429): 5 % below what was accepted ──► slowly back to it ──► faster ──► rejected ...
"""

from __future__ import annotations

from collections import deque
from typing import Final

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


class Rate:
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
        """A call begins."""
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
        """A call was answered."""
        self._answers += 1

    def refused(self, now: float) -> None:
        """A call was rejected, as there were too many."""
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
