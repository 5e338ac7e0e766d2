"""Tests against a margin ("no worse than"): one-sided tests that allow for losses not in the data.

A test that estimates its spread from the data does not know about losses that have not occurred. A version that breaks
one task in twenty breaks none of fifty tasks in one evaluation of thirteen, and the spread is then 0. Therefore the
spread is computed under the likeliest distribution whose mean is the margin itself, and for a single pass or fail per
task the p value is exact.

Losses are in units of the width of the range. The upper side of a margin is the lower side of the negated differences.
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
MOST_EXACT = 2000  # tasks; for more, the plain score keeps its level to a tenth of a point
CHANCES = 200  # steps over the chance of a fix, the nuisance parameter; with 60 the level is 2.53 % at 1,000 tasks
NEGLIGIBLE = 1e-14  # counts with a smaller chance are left out of the sum
TIE = 1e-9  # scores that differ by less are equal: their tables are equally far from the margin
HALVINGS = 60  # of the bisection, enough for every digit that matters


def tango_score(tasks: int, fixed: Floats, broken: Floats, margin: float) -> Floats:
    """Tango's score of tables with b tasks ``fixed`` and c tasks ``broken``, against a true loss of ``margin``.

    ``Z = (b - c + T m) / sqrt(T (2 q - m (1 + m)))``, where q is the likeliest chance of a break at the margin: the
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


@lru_cache(maxsize=4096)  # a page needs the same p several times: for its verdict, its sentence and its table
def tango_p(tasks: int, fixed: int, broken: int, margin: float) -> float:
    """The exact one-sided p of "the true loss is the margin or more", for a single pass or fail per task.

    It is the largest chance, over the chance pi of a fix, of a table whose score is at least the observed score. Counts
    are trinomial with chances pi and pi + m, and pi takes the values ``(1 - m)/2 (i/200)²``. 1 if the observed loss is
    the margin or more. Above 2,000 tasks p is the normal tail of the score.

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
    unfixed, allowed = tasks - fixes[column], most[column]
    break_chance = np.minimum((chance[row, 0] + margin) / (1 - chance[row, 0]), 1.0)
    limited = allowed < unfixed  # elsewhere every number of breaks is allowed
    at_most = np.ones(len(row))
    at_most[limited] = betainc(unfixed[limited] - allowed[limited], allowed[limited] + 1, 1 - break_chance[limited])
    return min(1.0, float(np.bincount(row, weight[row, column] * at_most, CHANCES + 1).max()))


def _most_broken(tasks: int, fixes: Floats, score: float, margin: float) -> Floats:
    """For each number of fixes, the most breaks with which a table still reaches ``score``, [b]; -1 for none."""
    least = score - TIE * max(1.0, abs(score))
    low, high = np.full(len(fixes), -1.0), tasks - fixes
    for _ in range(tasks.bit_length() + 1):
        middle = np.ceil((low + high) / 2)
        passes = tango_score(tasks, fixes, np.maximum(middle, 0.0), margin) >= least
        low, high = np.where(passes, middle, low), np.where(passes, high, middle - 1)
    return low


def likeliest_variance(means: Floats, shares: Floats, margin: float, largest: float) -> float:
    """The variance of a unit's difference under the likeliest distribution on [-largest, ...] with mean ``-margin``.

    ``means`` are the units' mean differences, [G], ``shares`` their weights, which add up to 1. If losses of full size
    that have not occurred make the margin likelier, the distribution includes them, and the variance is
    ``(L - m)(D + m)``. Otherwise it is supported on the observed values with weights ``1/(1 + lambda (x + m))``, the
    empirical likelihood at the margin (Owen 1988). For 0/1 differences of equal weight it is the variance in Tango's
    score.
    """
    excess = means + margin
    if _unseen_gain(means, shares, margin, largest) > 0:
        return (largest - margin) * float(total(shares * excess))
    low, high = 0.0, 1 / (largest - margin)
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        if float(total(shares * excess / (1 + middle * excess))) > 0:
            low = middle
        else:
            high = middle
    return float(total(shares * means * means / (1 + low * excess))) - margin * margin


def _unseen_gain(means: Floats, shares: Floats, margin: float, largest: float) -> float:
    """A number above 0 if an additional loss of full size makes the margin likelier."""
    if float(means.min()) <= -largest:
        return -math.inf
    return float(total(shares * (means + margin) * (largest - margin) / (largest + means)))


def margin_score(means: Floats, shares: Floats, margin: float) -> float:
    """The score of units against a true loss of ``margin``: ``(D + m)/s_0``; minus infinity if D + m <= 0.

    ``s_0² = sum W² (x - D)² + max(0, V_0 - V)/U``, where V_0 is `likeliest_variance`, V the variance of the data and
    U the effective units. The largest loss is 1, or more if a unit of a pooled rate lies below -1.

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
    observed = float(total(shares * means * means)) - value * value
    unseen = max(0.0, likeliest_variance(means, shares, margin, largest) - observed)
    deviations = means - value
    variance = float(total(shares * shares * deviations * deviations)) + unseen * float(total(shares * shares))
    return (value + margin) / math.sqrt(variance) if variance > 0 else math.inf


def unseen_loss(units: float, margin: float, level: float) -> int | None:
    """The number of units without any difference that rules out a loss of ``margin``; None if ``units`` is enough.

    ``z²(1 - m)/m`` for a one-sided test at 1 - ``level``; with fewer units only observed gains can rule the loss out.
    `MOST_UNITS` if the margin needs more than that.

    >>> unseen_loss(50, 0.05, 0.975)
    73
    """
    needed = t_quantile(level, math.inf) ** 2 * (1 - margin) / margin if margin else math.inf
    return None if units >= needed else math.ceil(min(needed, MOST_UNITS))


MOST_UNITS = 10**15  # number of units that is counted: nobody has as many, and more are not exact as floats
PRINTED_HALVINGS = 20  # of the bisection for an end that is printed: to a millionth of the range
WHOLE = 1e-9  # how near to -1, 0 or 1 a difference must be to count as that integer


@dataclass(frozen=True, slots=True)
class ShownDifference:
    """Whether a claim about a difference and a margin has been shown, and its p."""

    margin: float
    p: float | None  # None if there is no test
    shown: bool


def equivalence(difference: Difference, margin: float, *, confidence: float = 0.95) -> ShownDifference:
    """Test whether the true difference lies within the margin on both sides, by two one-sided tests.

    p is the larger of the p of "at most -margin" and of "at least +margin" (Schuirmann 1987), both by `p_at_margin`;
    at 95 % each side is tested at 5 %.
    """
    _check(margin)
    lower, upper = p_at_margin(difference, margin), p_at_margin(difference, margin, below=False)
    p = None if lower is None or upper is None else max(lower, upper)
    return ShownDifference(margin, p, p is not None and p <= 1 - confidence)


def non_inferiority(
    difference: Difference, margin: float, *, higher_is_better: bool = True, confidence: float = 0.95
) -> ShownDifference:
    """Test whether the first run is worse than the second by less than the margin, by a one-sided test.

    At 95 % it is tested at 2.5 %, the level of the lower end of the interval. A run that has been shown to be better
    has been shown to be no worse.
    """
    _check(margin)
    p = p_at_margin(difference, margin, below=higher_is_better)
    return ShownDifference(margin, p, p is not None and p <= (1 - confidence) / 2)


def p_at_margin(difference: Difference, margin: float, *, below: bool = True) -> float | None:
    """The one-sided p of a true difference of ``-margin`` or less; if ``below`` is false, of ``+margin`` or more.

    For a single pass or fail per task it is Tango's exact p. Otherwise it is the larger of two p values: from the
    difference's own test, and from the score under the margin. Without a known range it is the first alone, which
    knows only the losses that occurred. It is never larger than the p of no difference, because better implies no
    worse.
    """
    value = difference.value
    if value is None or difference.p is None:
        return None
    advantage = value if below else -value  # positive if the difference lies on the claimed side
    better = difference.p / 2 if advantage > 0 else 1 - difference.p / 2
    beyond = _p_beyond(difference, margin, below)
    return None if beyond is None else min(better, beyond)


def margin_method(difference: Difference) -> str:
    """The test of a margin: Tango's exact p, the score under the margin, or the difference's own test alone."""
    units = difference.evidence
    if units is None or difference.width is None:
        return difference.method
    return EXACT if _outright(units, difference.width) is not None else SCORE


def margin_ends(difference: Difference, confidence: float = 0.95) -> tuple[float, float] | None:
    """The largest loss and the largest gain that are not ruled out, each at half of 1 - confidence.

    If the interval of the difference lies on one side of 0, its end nearer to 0 is kept, because no margin applies
    there. Rounded outwards to a millionth of the range. None if there is no test, or no range.
    """
    if difference.interval is None or difference.p is None or difference.value is None or difference.width is None:
        return None
    low, high = difference.interval
    return (
        low if low >= 0 else -_largest(difference, confidence, below=True),
        high if high <= 0 else _largest(difference, confidence, below=False),
    )


def too_few(difference: Difference, margin: float, level: float) -> int | None:
    """The number of units without any difference that rules out the margin at a one-sided level.

    None if the units of the difference are enough.
    """
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
    while count < MOST_UNITS and tango_p(count, 0, 0, share) > 1 - level:  # a few more than the plain score needs
        count += 1
    return count


def _p_beyond(difference: Difference, margin: float, below: bool) -> float | None:
    """The one-sided p of a true difference beyond the margin, before the bound by the p of no difference.

    None if only the difference's own test could tell, and it has no standard error, as on the draws of few units.
    """
    units, width = difference.evidence, difference.width
    if width is not None and margin >= width:
        return 0.0
    p_of_test = difference.p_at_most(-margin) if below else difference.p_at_least(margin)
    if units is None or width is None:
        return p_of_test
    flips = _outright(units, width)
    if flips is not None:
        fixed, broken = flips if below else flips[::-1]
        exact = tango_p(len(units.shares), fixed, broken, margin / width)
        return max(exact, p_of_test) if difference.method == STRICT and p_of_test is not None else exact
    if p_of_test is None:
        return None
    if difference.stderr == 0:
        p_of_test = 0.0  # no pair differs, and only the score allows for losses that have not occurred
    means = units.means / width
    return max(p_of_test, upper_tail(margin_score(means if below else -means, units.shares, margin / width), math.inf))


def _outright(units: Units, width: float) -> tuple[int, int] | None:
    """The number of tasks that rose and fell by the width of the range; None if any difference is between the two."""
    if not units.even:
        return None
    means = units.means / width
    flips = np.rint(means)
    if not bool((np.abs(means - flips) <= WHOLE).all()):
        return None
    return int(np.count_nonzero(flips > 0)), int(np.count_nonzero(flips < 0))


def _largest(difference: Difference, confidence: float, *, below: bool) -> float:
    """The smallest margin that is ruled out on one side, by bisection, rounded outwards."""
    low, high = 0.0, difference.width or 0.0
    for _ in range(PRINTED_HALVINGS):
        middle = (low + high) / 2
        p = p_at_margin(difference, middle, below=below)
        low, high = (low, middle) if p is not None and p <= (1 - confidence) / 2 else (middle, high)
    return high


def _check(margin: float) -> None:
    if not margin > 0:
        raise ValueError(f"a margin of {margin}; expected a number above 0")
