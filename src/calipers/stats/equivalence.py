"""Equal enough: a difference shown to be smaller than a margin, which is more than one not shown to exist.

A difference that is not significant has not been shown to be small. To show that takes a margin, chosen
before looking, and a test that allows for losses nobody has seen yet: the interval of the difference does not
do, as its spread is learnt from the losses that were seen.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from calipers.stats.margins import EXACT, SCORE, margin_score, tango_p, unseen_loss
from calipers.stats.paired import STRICT, Difference, Units
from calipers.stats.wilson import upper_tail

HALVINGS = 20  # of the range, for an end that is printed: to a millionth of it
WHOLE = 1e-9  # how near to -1, 0 or 1 a difference must be to be one pass or fail


@dataclass(frozen=True, slots=True)
class Shown:
    """Whether a claim about a difference and a margin has been shown, at which p."""

    margin: float
    p: float | None  # None where there is no test
    shown: bool


def equivalence(difference: Difference, margin: float, *, confidence: float = 0.95) -> Shown:
    """Whether the true difference lies within the margin on both sides: two one-sided tests.

    The larger of the p of "at most -margin" and that of "at least +margin" (Schuirmann 1987), each as
    `p_at_margin` has it; at 95 % each side is tested at 5 %.
    """
    _check(margin)
    lower, upper = p_at_margin(difference, margin), p_at_margin(difference, margin, below=False)
    p = None if lower is None or upper is None else max(lower, upper)
    return Shown(margin, p, p is not None and p <= 1 - confidence)


def non_inferiority(
    difference: Difference, margin: float, *, higher_is_better: bool = True, confidence: float = 0.95
) -> Shown:
    """Whether the first run is worse than the second by less than the margin: one one-sided test.

    At 95 % it is tested at 2.5 %, as the lower end of the interval is. Whoever has been shown to be better
    has been shown to be no worse.
    """
    _check(margin)
    p = p_at_margin(difference, margin, below=higher_is_better)
    return Shown(margin, p, p is not None and p <= (1 - confidence) / 2)


def p_at_margin(difference: Difference, margin: float, *, below: bool = True) -> float | None:
    """One-sided p of a true difference of ``-margin`` or less; if not below, of ``+margin`` or more.

    For one pass or fail a task Tango's exact p. Else the larger of two: that of the difference's own test,
    and of the score under the margin; both must be small. Without a known range only the first, which knows
    no losses but those seen. Never more than the p of no difference at all: better is no worse.
    """
    value = difference.value
    if value is None or difference.p is None:
        return None
    toward = value if below else -value  # the side that is claimed: away from the margin
    better = difference.p / 2 if toward > 0 else 1 - difference.p / 2
    return min(better, _beyond(difference, margin, below))


def margin_method(difference: Difference) -> str:
    """What tests a margin: Tango's exact p, the score under the margin, or the difference's own test alone."""
    units = difference.evidence
    if units is None or difference.width is None:
        return difference.method
    return EXACT if _outright(units, difference.width) is not None else SCORE


def margin_ends(difference: Difference, confidence: float = 0.95) -> tuple[float, float] | None:
    """The largest loss and the largest gain that are not ruled out, each at half of 1 - confidence.

    An end on the other side of 0 is that of the difference's own interval: no margin is asked there. Rounded
    outwards to a millionth of the range. None where there is no test, or no range.
    """
    if difference.interval is None or difference.p is None or difference.value is None or difference.width is None:
        return None
    low, high = difference.interval
    return (
        low if low >= 0 else -_largest(difference, confidence, below=True),
        high if high <= 0 else _largest(difference, confidence, below=False),
    )


def too_few(difference: Difference, margin: float, level: float) -> int | None:
    """How many units without any difference would rule out the margin at this one-sided level; None where these do."""
    units, width = difference.evidence, difference.width
    if units is None or width is None or not 0 < margin < width:
        return None
    share = margin / width
    needed = unseen_loss(units.effective_units, share, level)
    if margin_method(difference) != EXACT:
        return needed
    count = len(units.shares)
    if tango_p(count, 0, 0, share) <= 1 - level:
        return None
    count = max(count + 1, needed or 0)
    while tango_p(count, 0, 0, share) > 1 - level:  # a few more than the plain score asks for
        count += 1
    return count


def _beyond(difference: Difference, margin: float, below: bool) -> float:
    units, width = difference.evidence, difference.width
    own = (difference.p_at_most(-margin) if below else difference.p_at_least(margin)) or 0.0
    if units is None or width is None:
        return own
    if margin >= width:
        return 0.0
    flipped = _outright(units, width)
    if flipped is not None:
        fixed, broken = flipped if below else flipped[::-1]
        exact = tango_p(len(units.shares), fixed, broken, margin / width)
        return max(exact, own) if difference.method == STRICT else exact
    if difference.stderr == 0:
        own = 0.0  # no pair differs: the score alone allows for what was not seen
    means = units.means / width
    return max(own, upper_tail(margin_score(means if below else -means, units.shares, margin / width), math.inf))


def _outright(units: Units, width: float) -> tuple[int, int] | None:
    """How many tasks rose and fell by the whole range, where every difference is none or the whole; else None."""
    if not units.even:
        return None
    means = units.means / width
    whole = np.rint(means)
    if not bool((np.abs(means - whole) <= WHOLE).all()):
        return None
    return int(np.count_nonzero(whole > 0)), int(np.count_nonzero(whole < 0))


def _largest(difference: Difference, confidence: float, *, below: bool) -> float:
    low, high = 0.0, difference.width or 0.0
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        p = p_at_margin(difference, middle, below=below)
        low, high = (low, middle) if p is not None and p <= (1 - confidence) / 2 else (middle, high)
    return high


def _check(margin: float) -> None:
    if not margin > 0:
        raise ValueError(f"a margin of {margin}; expected a number above 0")
