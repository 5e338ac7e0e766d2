"""An interval as a small picture: where it lies between 0 and 1."""

from __future__ import annotations

from calipers.stats.estimate import Estimate

WIDTH = 21  # one character for each 0.05
AXIS = f"0{' ' * (WIDTH - 2)}1"


def bar(estimate: Estimate) -> str:
    """The interval and the value of an estimate on the line from 0 to 1; nothing when they leave it.

    A picture says where things lie to half a character, 0.025; the figures beside it say the rest.
    """
    if estimate.value is None or estimate.interval is None:
        return ""
    low, high = estimate.interval
    if not (0 <= low <= high <= 1 and 0 <= estimate.value <= 1):
        return ""
    return drawn(estimate.value, low, high)


def drawn(value: float, low: float, high: float) -> str:
    """A value and its interval on a line of WIDTH characters.

    >>> drawn(0.5, 0.25, 0.75)
    '·····├────●────┤·····'
    >>> drawn(1.0, 0.8, 1.0)
    '················├───●'
    """
    first, last, middle = (round(place * (WIDTH - 1)) for place in (low, high, value))
    line = ["·"] * WIDTH
    line[first : last + 1] = "─" * (last + 1 - first)
    line[first], line[last] = "├", "┤"
    line[middle] = "●"
    return "".join(line)
