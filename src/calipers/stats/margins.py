"""No worse than a margin: one-sided tests that allow for losses not in the data.

A test that learns its spread from the data does not know losses it has not seen. A version that breaks one
task in twenty, on fifty tasks, breaks none in one evaluation of thirteen, and the spread is then 0. So the
spread is that of the likeliest law whose mean is the margin itself, and for one pass or fail a task the chance
is worked out, not approximated.

Losses are on the scale of the range, which is 1 wide. The upper side of a margin is the same question of the
differences with their signs changed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from calipers.rollouts.column import Floats, total
from calipers.stats.intervals import t_quantile, upper_tail
from calipers.stats.paired import STRICT, Difference, Units

EXACT, SCORE = "tango", "margin_score"
MOST_EXACT = 2000  # tasks; beyond, the plain score keeps its level to a tenth of a point
CHANCES = 200  # steps over the chance of a fix, the nuisance; with 60 the level reaches 2.53 % at 1,000 tasks
NEGLIGIBLE = 1e-14  # chances of counts that are left out of the sum
TIE = 1e-9  # scores that differ by less are one score: tables that are equally far from the margin
HALVINGS = 60  # of a bisection: to the last digits that matter


def tango_score(tasks: int, fixed: Floats, broken: Floats, margin: float) -> Floats:
    """Tango's score of tables with so many tasks fixed and broken, against a true loss of ``margin``.

    ``Z = (b - c + T m) / sqrt(T (2 q - m (1 + m)))``, q the likeliest chance of a break at the margin: the
    root of ``2T q² + B q + c m (1 + m)`` with ``B = -b - c - (2T - b + c) m`` (Tango 1998). It rises with every
    fix and falls with every break.

    >>> round(float(tango_score(100, np.array(3.0), np.array(5.0), 0.1)), 6)
    2.260581
    """
    linear = -fixed - broken - (2 * tasks - fixed + broken) * margin
    constant = broken * margin * (1 + margin)
    root = (np.sqrt(np.maximum(linear * linear - 8 * tasks * constant, 0.0)) - linear) / (4 * tasks)
    variance = tasks * np.maximum(2 * root - margin * (1 + margin), 0.0)
    above = fixed - broken + tasks * margin
    with np.errstate(divide="ignore", invalid="ignore"):
        score = above / np.sqrt(variance)
    return np.where(variance > 0, score, np.where(above > 0, np.inf, -np.inf))


@lru_cache(maxsize=4096)  # a page asks for the same p several times: for its verdict, its sentence and its table
def tango_p(tasks: int, fixed: int, broken: int, margin: float) -> float:
    """The exact one-sided p of "the true loss is the margin or more", for one pass or fail a task.

    The largest chance, over the chance pi of a fix, of a table whose score is as high as the one seen:
    counts are trinomial with chances pi and pi + m, and pi takes the values ``(1 - m)/2 (i/200)²``. 1 where
    the loss seen is the margin or more. Above 2,000 tasks the normal tail of the score.

    >>> round(tango_p(100, 0, 0, 0.05), 6), round(tango_p(100, 0, 1, 0.05), 6)
    (0.013783, 0.037081)
    """
    if fixed - broken + tasks * margin <= 0:
        return 1.0
    score = float(tango_score(tasks, np.array(float(fixed)), np.array(float(broken)), margin))
    if tasks > MOST_EXACT:
        return upper_tail(score, math.inf)
    from scipy.special import betainc, gammaln, xlog1py, xlogy

    fixes = np.arange(tasks + 1, dtype=np.float64)
    most = _most_broken(tasks, fixes, score, margin)
    chance = (1 - margin) / 2 * (np.arange(CHANCES + 1) / CHANCES)[:, None] ** 2
    ways = gammaln(tasks + 1) - gammaln(fixes + 1) - gammaln(tasks - fixes + 1)
    weight = np.exp(ways + xlogy(fixes, chance) + xlog1py(tasks - fixes, -chance))  # [chances, fixes]
    row, column = np.nonzero((weight > NEGLIGIBLE) & (most >= 0))
    rest, allowed = tasks - fixes[column], most[column]
    breaks = np.minimum((chance[row, 0] + margin) / (1 - chance[row, 0]), 1.0)
    inside = allowed < rest  # elsewhere every number of breaks passes
    below = np.ones(len(row))
    below[inside] = betainc(rest[inside] - allowed[inside], allowed[inside] + 1, 1 - breaks[inside])
    return min(1.0, float(np.bincount(row, weight[row, column] * below, CHANCES + 1).max()))


def _most_broken(tasks: int, fixes: Floats, score: float, margin: float) -> Floats:
    """The most breaks beside each number of fixes with which a table's score is as high, [b]; -1 for none."""
    least = score - TIE * max(1.0, abs(score))
    low, high = np.full(len(fixes), -1.0), tasks - fixes
    for _ in range(tasks.bit_length() + 1):
        middle = np.ceil((low + high) / 2)
        passes = tango_score(tasks, fixes, np.maximum(middle, 0.0), margin) >= least
        low, high = np.where(passes, middle, low), np.where(passes, high, middle - 1)
    return low


def likeliest_variance(means: Floats, shares: Floats, margin: float, largest: float) -> float:
    """The variance of one unit's difference under the likeliest law on [-largest, ...] with mean ``-margin``.

    ``means`` are the units' mean differences, [G], ``shares`` their weights, which add up to 1. Where nothing
    seen rules it out the law has losses of full size that have not been seen: ``(L - m)(D + m)``. Else it
    weighs what was seen by ``1/(1 + lambda (x + m))``, the empirical likelihood at the margin (Owen 1988). On
    0/1 differences of equal weight it is the variance in Tango's score.
    """
    excess = means + margin
    if _pull(means, shares, margin, largest) > 0:
        return (largest - margin) * float(total(shares * excess))
    low, high = 0.0, 1 / (largest - margin)
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        if float(total(shares * excess / (1 + middle * excess))) > 0:
            low = middle
        else:
            high = middle
    return float(total(shares * means * means / (1 + low * excess))) - margin * margin


def _pull(means: Floats, shares: Floats, margin: float, largest: float) -> float:
    """The sign says whether a loss of full size beside those seen makes the margin likelier."""
    if float(means.min()) <= -largest:
        return -math.inf
    return float(total(shares * (means + margin) * (largest - margin) / (largest + means)))


def margin_score(means: Floats, shares: Floats, margin: float) -> float:
    """The score of units against a true loss of ``margin``: ``(D + m)/s_0``; minus infinity where D + m <= 0.

    ``s_0² = sum W² (x - D)² + max(0, V_0 - V)/U`` with V_0 as `likeliest_variance`, V that of the data and
    U the effective units. A pooled rate may have a unit below -1, and then the largest loss is that.

    >>> x = np.repeat([0.25, 0.0, -0.25], [20, 60, 20])
    >>> round(margin_score(x, np.full(100, 0.01), 0.02), 6)
    1.260225
    """
    value = float(total(shares * means))
    if value + margin <= 0:
        return -math.inf
    largest = max(1.0, -float(means.min()))
    if margin >= largest:
        return math.inf
    spread = float(total(shares * means * means)) - value * value
    unseen = max(0.0, likeliest_variance(means, shares, margin, largest) - spread)
    away = means - value
    variance = float(total(shares * shares * away * away)) + unseen * float(total(shares * shares))
    return (value + margin) / math.sqrt(variance) if variance > 0 else math.inf


def unseen_loss(units: float, margin: float, level: float) -> int | None:
    """How many units without any difference it takes to rule out a loss of the margin; None where these do.

    ``z²(1 - m)/m`` for a one-sided test at 1 - ``level``: with fewer only gains elsewhere make up for it.

    >>> unseen_loss(50, 0.05, 0.975)
    73
    """
    needed = t_quantile(level, math.inf) ** 2 * (1 - margin) / margin
    return None if units >= needed else math.ceil(needed)


PRINTED_HALVINGS = 20  # of the range, for an end that is printed: to a millionth of it
WHOLE = 1e-9  # how near to -1, 0 or 1 a difference must be to be one pass or fail


@dataclass(frozen=True, slots=True)
class ShownDifference:
    """Whether a claim about a difference and a margin has been shown, at which p."""

    margin: float
    p: float | None  # None where there is no test
    shown: bool


def equivalence(difference: Difference, margin: float, *, confidence: float = 0.95) -> ShownDifference:
    """Whether the true difference lies within the margin on both sides: two one-sided tests.

    The larger of the p of "at most -margin" and that of "at least +margin" (Schuirmann 1987), each as
    `p_at_margin` has it; at 95 % each side is tested at 5 %.
    """
    _check(margin)
    lower, upper = p_at_margin(difference, margin), p_at_margin(difference, margin, below=False)
    p = None if lower is None or upper is None else max(lower, upper)
    return ShownDifference(margin, p, p is not None and p <= 1 - confidence)


def non_inferiority(
    difference: Difference, margin: float, *, higher_is_better: bool = True, confidence: float = 0.95
) -> ShownDifference:
    """Whether the first run is worse than the second by less than the margin: one one-sided test.

    At 95 % it is tested at 2.5 %, as the lower end of the interval is. Whoever has been shown to be better
    has been shown to be no worse.
    """
    _check(margin)
    p = p_at_margin(difference, margin, below=higher_is_better)
    return ShownDifference(margin, p, p is not None and p <= (1 - confidence) / 2)


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
    p_of_test = (difference.p_at_most(-margin) if below else difference.p_at_least(margin)) or 0.0
    if units is None or width is None:
        return p_of_test
    if margin >= width:
        return 0.0
    flipped = _outright(units, width)
    if flipped is not None:
        fixed, broken = flipped if below else flipped[::-1]
        exact = tango_p(len(units.shares), fixed, broken, margin / width)
        return max(exact, p_of_test) if difference.method == STRICT else exact
    if difference.stderr == 0:
        p_of_test = 0.0  # no pair differs: the score alone allows for what was not seen
    means = units.means / width
    return max(p_of_test, upper_tail(margin_score(means if below else -means, units.shares, margin / width), math.inf))


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
    for _ in range(PRINTED_HALVINGS):
        middle = (low + high) / 2
        p = p_at_margin(difference, middle, below=below)
        low, high = (low, middle) if p is not None and p <= (1 - confidence) / 2 else (middle, high)
    return high


def _check(margin: float) -> None:
    if not margin > 0:
        raise ValueError(f"a margin of {margin}; expected a number above 0")
