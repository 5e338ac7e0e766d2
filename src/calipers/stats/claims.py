"""The one rule for every conclusion about two runs: what it must survive, and why it is not drawn.

::

    Evidence: the difference as observed,     ┐
              on comparable samples,          ├──► claim: is it beyond a bound? ──► decide: better, worse, equivalent
              under the worst outcomes of     │                                             or undecided, and by what
              missing rollouts, unseen losses ┘

Every difference is the new run less the old one. A claim holds only if each test that applies shows it:

- the difference on comparable samples, which are all samples, or the first of each task if the number of samples of a
  run follows its results;
- the same with every missing rollout at the end of the range that contradicts the claim (Manski 1990);
- for pooled rates of runs with different counts of samples, the difference on the same weights of tasks;
- for a lopsided pair, one run nearly all or nothing and the other graded, or rewards without a range with a long tail
  against the claim, the score that allows for losses that have not occurred. A margin has its own such score, so this
  one is for claims of "better" and "worse" only.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

import numpy as np

from calipers.rollouts.column import Floats, total
from calipers.stats.intervals import t_quantile, upper_tail
from calipers.stats.margins import margin_score, p_at_margin
from calipers.stats.paired import Difference, Units

Word = Literal["better", "worse", "equivalent", "undecided"]
Reason = Literal["reader", "scales", "missing", "counts", "unseen_loss", "data", "family"]
"""Why a comparison is undecided, in the order in which the first one that applies is named.

``reader``: the reader of a run disagrees with the system's own number. ``scales``: a mean over unlike scales.
``missing``: the missing rollouts decide. ``counts``: the number of samples follows the results, or the runs weigh the
tasks of a pooled rate differently. ``unseen_loss``: losses not yet seen could explain the difference. ``data``: the
tasks do not show it. ``family``: decided alone, but not among the other comparisons of a leaderboard or matrix.
"""

AT_AN_END: Final = 0.1
"""The largest share of task values inside the range of a run that counts as all or nothing."""
TIMES_AS_MANY: Final = 3
"""How many times that share of the other run's task values must lie inside the range."""
STEADY: Final = 0.1
"""Without a range, a pair is lopsided if one standard deviation is below this share of the other."""
UNDERSTATED: Final = 3
"""What the skewness of the differences is multiplied by, because a sample without its largest losses understates it."""


@dataclass(frozen=True, slots=True)
class Unseen:
    """The score of a lopsided pair against a true difference of 0, in the direction of the observed difference.

    It allows for losses that the all-or-nothing run could have and has not shown yet.
    """

    score: float  # D / s_0; minus infinity against a steady run without a range: nothing bounds what was not seen
    largest: float | None  # the largest loss that was not seen, in units of the values; None without a range
    new: bool | None = None  # whether the all-or-nothing run is the new one; None without a range
    units: Units | None = field(default=None, compare=False, repr=False)  # of the difference

    def beyond(self, bound: float) -> float:
        """The score against a true difference of ``bound`` or less in that direction; 0 or more, in units of values."""
        if bound == 0 or self.units is None or self.score == -math.inf:
            return self.score
        toward = math.copysign(1.0, float(total(self.units.pulls)))
        if self.largest is None:
            return _skew_score(self.units, toward, bound)
        return _bounded_score(self.units, toward, self.largest, bound)


@dataclass(frozen=True, slots=True)
class Evidence:
    """What is known about the difference of two runs, new less old."""

    observed: Difference  # on all samples that have a value
    compared: Difference  # on comparable samples; the same as observed unless a number of samples follows the results
    # with every missing rollout against the new run, and in its favour; None: nothing is missing, or it is assumed away
    worst: tuple[Difference, Difference] | None = None
    unknown: bool = False  # rollouts are missing, and their effect on the difference is not known
    counts: bool = False  # the number of samples of a run follows its results
    weighted: Difference | None = None  # of pooled rates whose counts differ: with the same weights in both runs
    unseen: Unseen | None = None  # None: the pair is not lopsided
    reader: bool = False  # a number that the own system of a run reports differs from ours


@dataclass(frozen=True, slots=True)
class Claim:
    """Whether a claim about a difference is shown, and what speaks against it."""

    shown: bool
    by: Reason | None  # None if it is shown
    as_observed: bool  # whether the observed difference alone shows it


@dataclass(frozen=True, slots=True)
class Decision:
    """The conclusion about the new run compared with the old one."""

    word: Word
    undecided_by: Reason | None
    as_observed: Word  # the word for the observed difference alone


def claim(evidence: Evidence, *, above: bool, level: float, bound: float = 0.0) -> Claim:
    """Whether the true difference is shown to lie above ``bound`` (or below it), at a one-sided ``level``.

    A bound on the other side of 0, such as -0.05 for "above", is a margin, and is tested as one.
    """
    as_observed = _shows(evidence.observed, above, bound, level)
    if evidence.reader:
        return Claim(False, "reader", as_observed)
    if not _shows(evidence.compared, above, bound, level):
        follows = as_observed and evidence.counts
        return Claim(False, "counts" if follows else "data", as_observed)
    if evidence.unknown:
        return Claim(False, "missing", as_observed)
    if evidence.worst is not None:
        against = evidence.worst[0] if above else evidence.worst[1]
        if not _shows(against, above, bound, level):
            return Claim(False, "missing", as_observed)
    if evidence.weighted is not None and not _shows(evidence.weighted, above, bound, level):
        return Claim(False, "counts", as_observed)
    margin = bound < 0 if above else bound > 0
    least = t_quantile(1 - level, math.inf)
    if evidence.unseen is not None and not margin and evidence.unseen.beyond(abs(bound)) < least:
        return Claim(False, "unseen_loss", as_observed)
    return Claim(True, None, as_observed)


def decide(
    evidence: Evidence,
    *,
    higher_is_better: bool = True,
    margin: float | None = None,
    confidence: float = 0.95,
    level: float | None = None,
) -> Decision:
    """Better, worse, equivalent within the margin, or undecided and by what.

    ``level`` is the largest two-sided p that shows a difference, 1 - confidence unless p is adjusted for other tests;
    each side of the margin is tested at 1 - confidence. A difference within the margin is equivalent even if it is
    significant, because a margin defines which differences do not matter.
    """
    level = 1 - confidence if level is None else level
    reasons: list[Reason] = []
    as_observed: Word = "undecided"
    value = evidence.compared.value or 0.0
    up = claim(evidence, above=True, level=level / 2)
    down = claim(evidence, above=False, level=level / 2)
    if up.as_observed or down.as_observed:
        as_observed = "better" if up.as_observed == higher_is_better else "worse"
    if margin is not None:
        sides = [
            claim(evidence, above=True, level=1 - confidence, bound=-margin),
            claim(evidence, above=False, level=1 - confidence, bound=margin),
        ]
        if all(side.as_observed for side in sides):
            as_observed = "equivalent"
            reasons += [side.by for side in sides if side.by is not None]
        if all(side.shown for side in sides):
            return Decision("equivalent", None, as_observed)
    for direction, shown_up in ((up, True), (down, False)):
        if direction.shown:
            return Decision("better" if shown_up == higher_is_better else "worse", None, as_observed)
        if direction.as_observed or (value > 0) == shown_up:
            reasons += [direction.by] if direction.by is not None else []
    return Decision("undecided", _first(reasons), as_observed)


def _first(reasons: Sequence[Reason]) -> Reason:
    """The reason to name of those that apply."""
    return next((reason for reason in _ORDER if reason in reasons), "data")


_ORDER: Final[tuple[Reason, ...]] = ("reader", "scales", "missing", "counts", "unseen_loss", "data", "family")


def _shows(difference: Difference, above: bool, bound: float, level: float) -> bool:
    """Whether one difference shows that the true one lies beyond ``bound``, at a one-sided level."""
    value, p = difference.value, difference.p
    if value is None or p is None:
        return False
    if bound == 0:
        return (value > 0 if above else value < 0) and p <= 2 * level
    if bound < 0 if above else bound > 0:
        p_margin = p_at_margin(difference, abs(bound), below=above)
        return p_margin is not None and p_margin <= level
    beyond = difference.p_at_most(bound) if above else difference.p_at_least(bound)
    return beyond is not None and beyond <= level


def unseen(new: Floats, old: Floats, units: Units, limits: tuple[float, float] | None) -> Unseen | None:
    """The score of a lopsided pair at a difference of 0; None if the pair is not lopsided, or nothing differs.

    ``new`` and ``old`` are the values of the same tasks, [T], and ``units`` the units of their difference. A pair is
    lopsided if at most a tenth of one run's task values lie inside the range, and at least three times as many, and
    some, of the other's. The all-or-nothing run could still lose the other's mean less the low end if it wins, and the
    high end less the other's mean if it loses. Without a range a pair is lopsided if one standard deviation is below a
    tenth of the other, or if the differences have a longer tail against the claim.

    >>> from calipers.stats.paired import units_of
    >>> ones, steady = np.ones(30), np.full(30, 0.95)
    >>> round(unseen(ones, steady, units_of(ones - steady), (0.0, 1.0)).score, 6)
    1.256562
    """
    value = float(total(units.pulls))
    if not len(new) or value == 0 or not math.isfinite(value):
        return None
    toward = math.copysign(1.0, value)
    if limits is None:
        narrow, wide = sorted((float(np.std(new)), float(np.std(old))))
        if narrow < STEADY * wide:
            return Unseen(-math.inf, None)
        return Unseen(_skew_score(units, toward), None, None, units) if _skewness(units, toward) < 0 else None
    inside_new, inside_old = _share_inside(new, limits), _share_inside(old, limits)
    if _all_or_nothing(inside_new, inside_old):
        wins, other, is_new = value > 0, old, True
    elif _all_or_nothing(inside_old, inside_new):
        wins, other, is_new = value < 0, new, False
    else:
        return None
    other_mean = float(np.mean(other))
    largest = other_mean - limits[0] if wins else limits[1] - other_mean
    largest = max(largest, -float((toward * units.means).min()))
    if largest <= 0:
        return None  # no loss is possible that was not seen
    return Unseen(_bounded_score(units, toward, largest), largest, is_new, units)


def _bounded_score(units: Units, toward: float, largest: float, bound: float = 0.0) -> float:
    """The score of a margin of 0 for differences in a direction less ``bound``, whose largest loss is known."""
    return margin_score((toward * units.means - bound) / (largest + bound), units.shares, 0.0)


def _skew_score(units: Units, toward: float, bound: float = 0.0) -> float:
    """The t of a difference in a direction less ``bound``, corrected for a long tail on the other side.

    The t of few values with a long tail is too large if none of them is far out: log-normal values of standard
    deviation 1.5 on the log scale seem to have a lower mean than steadier ones in 12 % of samples of 100 tasks, in
    place of 2.5. t is transformed so that its distribution is normal for the skewness kappa of the mean:
    ``t + a t² + a² t³/3 + kappa/6`` with a = kappa/3 (Hall 1992, On the removal of skewness by transformation).
    """
    skewness = UNDERSTATED * _skewness(units, toward)
    stderr = math.hypot(math.sqrt(units.variance), float(np.abs(units.pulls).max()) / 2)
    if stderr == 0:
        return -math.inf
    t = (toward * float(total(units.pulls)) - bound) / stderr
    a = skewness / 3
    return t + a * t**2 + a**2 * t**3 / 3 + skewness / 6


def _skewness(units: Units, toward: float) -> float:
    """The skewness of the mean difference in a direction; 0 if all units are equal."""
    largest = float(np.abs(units.residuals).max())
    if largest == 0:
        return 0.0
    residuals = toward * units.residuals / largest  # cubes of huge values would overflow
    return float(total(residuals**3)) / math.pow(float(total(residuals * residuals)), 1.5)


def _share_inside(values: Floats, limits: tuple[float, float]) -> float:
    """The share of task values inside the range, not at one of its ends."""
    slack = 1e-9 * (limits[1] - limits[0])
    return float(np.mean((values > limits[0] + slack) & (values < limits[1] - slack)))


def _all_or_nothing(inside: float, inside_other: float) -> bool:
    return inside <= AT_AN_END and inside_other > 0 and inside_other >= TIMES_AS_MANY * inside


def p_of_claim(evidence: Evidence) -> float | None:
    """The smallest two-sided level at which `decide` calls the new run better or worse; None without a test.

    It is the largest p of all that a claim must survive, so it can be adjusted for other claims like any p.
    """
    value, p = evidence.compared.value, evidence.compared.p
    if value is None or p is None:
        return None
    if value == 0 or evidence.unknown or evidence.reader:
        return 1.0
    needed = [p]
    further = [] if evidence.worst is None else [evidence.worst[0] if value > 0 else evidence.worst[1]]
    further += [] if evidence.weighted is None else [evidence.weighted]
    for each in further:
        same_sign = each.value is not None and each.value * value > 0
        needed.append(each.p if same_sign and each.p is not None else 1.0)
    if evidence.unseen is not None:
        needed.append(min(1.0, 2 * upper_tail(evidence.unseen.score, math.inf)))
    return max(needed)


def p_of_equivalence(evidence: Evidence, margin: float) -> float | None:
    """The smallest level of each side at which `decide` calls two runs equivalent within a margin; None without a test.

    The lower side must survive the worst filling of missing rollouts, the upper side the best one.
    """
    if evidence.compared.p is None:
        return None
    lower, upper = [evidence.compared], [evidence.compared]
    if evidence.worst is not None:
        lower.append(evidence.worst[0])
        upper.append(evidence.worst[1])
    if evidence.weighted is not None:
        lower.append(evidence.weighted)
        upper.append(evidence.weighted)
    sides = [p_at_margin(each, margin, below=True) for each in lower]
    sides += [p_at_margin(each, margin, below=False) for each in upper]
    known = [p for p in sides if p is not None]
    if evidence.unknown or evidence.reader or len(known) < len(sides):
        return 1.0
    return max(known)
