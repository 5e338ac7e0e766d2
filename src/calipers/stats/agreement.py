"""Judges and labels: how often they agree, beyond chance, and in which way a judge errs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from calipers.errors import UnknownName
from calipers.rollouts.column import Bools, Column, Floats, Ints
from calipers.stats.interval import interval

NOMINAL, INTERVAL = "nominal", "interval"
NOBODY = "nothing to measure it on"


def krippendorff_alpha(ratings: Floats, given: Bools, level: str = NOMINAL) -> float | None:
    """Agreement among any number of raters beyond chance: 1 is perfect, 0 is chance, [units, raters].

    ``1 - D_o / D_e``: observed disagreement within units over that expected of all ratings shuffled
    (Krippendorff 2004). Nominal ratings agree or do not; interval ones disagree by the square of their
    distance. A unit with one rating says nothing. None without two ratings of a unit, or when all
    ratings are the same: there is no disagreement to expect.
    """
    if level not in LEVELS:
        raise UnknownName.of("level of measurement", level, LEVELS)
    pairable = given & (given.sum(axis=1, keepdims=True) >= 2)
    values = ratings[pairable]
    unit = np.nonzero(pairable)[0]
    if not len(values):
        return None
    whole = len(values)
    within, expected = LEVELS[level](values, unit)
    return None if expected == 0 else 1 - (within / whole) / (expected / (whole * (whole - 1)))


def pairwise_agreement(ratings: Floats, given: Bools) -> Column:
    """The share of units on which each two raters agree, [raters, raters] row by row; a gap without a common unit.

    Judges that err together agree more than their accuracy explains; a jury of them gains little.
    """
    raters = ratings.shape[1]
    both = given[:, :, None] & given[:, None, :]
    same = both & (ratings[:, :, None] == ratings[:, None, :])
    common = both.sum(axis=0)
    share = same.sum(axis=0) / np.maximum(common, 1)
    return Column(share.reshape(raters * raters), (common > 0).reshape(raters * raters))


def majority(accuracy: float, judges: int) -> float:
    """Chance that most of so many independent judges are right, each with this chance; an even split is half right.

    >>> round(majority(0.85, 3), 5)
    0.93925
    """
    from scipy.special import bdtrc

    if judges < 1 or not 0 <= accuracy <= 1:
        raise ValueError(f"{judges} judges, right with a chance of {accuracy}; expected one or more, and 0 to 1")
    half = judges // 2
    clear = float(bdtrc(half, judges, accuracy))
    if judges % 2:
        return clear
    return clear + (float(bdtrc(half - 1, judges, accuracy)) - clear) / 2


@dataclass(frozen=True, slots=True)
class Rate:
    """A share with its interval, or why there is none."""

    value: float | None
    interval: tuple[float, float] | None
    of: int  # how many it is a share of
    why: str | None = None


@dataclass(frozen=True, slots=True)
class Confusion:
    """A judge's verdicts against labels that are taken for the truth."""

    true_positives: int
    false_negatives: int
    false_positives: int
    true_negatives: int
    sensitivity: Rate  # of what is good, the share the judge calls good
    specificity: Rate  # of what is bad, the share the judge calls bad
    accuracy: Rate

    @property
    def informedness(self) -> float | None:
        """Sensitivity plus specificity less 1: 0 for a judge that does not look."""
        if self.sensitivity.value is None or self.specificity.value is None:
            return None
        return self.sensitivity.value + self.specificity.value - 1


def confusion(labels: Bools, judged: Bools, clusters: Ints | None = None, *, confidence: float = 0.95) -> Confusion:
    """How a judge errs on labelled rows, [n] each, with the default intervals; clusters are rows of one task."""
    right = labels == judged
    return Confusion(
        int(np.count_nonzero(labels & judged)),
        int(np.count_nonzero(labels & ~judged)),
        int(np.count_nonzero(~labels & judged)),
        int(np.count_nonzero(~labels & ~judged)),
        _rate(right, labels, clusters, confidence),
        _rate(right, ~labels, clusters, confidence),
        _rate(right, np.ones(len(labels), dtype=bool), clusters, confidence),
    )


def _rate(right: Bools, among: Bools, clusters: Ints | None, confidence: float) -> Rate:
    count = int(np.count_nonzero(among))
    if not count:
        return Rate(None, None, 0, NOBODY)
    values = right[among].astype(np.float64)
    units = None if clusters is None else np.unique(clusters[among], return_inverse=True)[1]
    found = interval(values, np.ones(count), confidence, (0.0, 1.0), units)
    return Rate(float(values.mean()), found.ends, count, found.why)


def _nominal(values: Floats, unit: Ints) -> tuple[float, float]:
    """Disagreement within units, and among all ratings: pairs that are not equal."""
    kinds, code = np.unique(values, return_inverse=True)
    table = np.bincount(unit * len(kinds) + code, minlength=(int(unit.max()) + 1) * len(kinds)).astype(np.float64)
    table = table.reshape(-1, len(kinds))
    count = table.sum(axis=1)
    pairs = count**2 - (table**2).sum(axis=1)
    everywhere = table.sum(axis=0)
    return float((pairs / np.maximum(count - 1, 1)).sum()), float(len(values) ** 2 - (everywhere**2).sum())


def _interval(values: Floats, unit: Ints) -> tuple[float, float]:
    """The same with the squares of distances."""
    count = np.bincount(unit)
    centre = np.bincount(unit, values) / np.maximum(count, 1)
    squares = np.bincount(unit, (values - centre[unit]) ** 2)
    apart = float(((values - values.mean()) ** 2).sum())
    return float((2 * count * squares / np.maximum(count - 1, 1)).sum()), 2 * len(values) * apart


LEVELS = {NOMINAL: _nominal, INTERVAL: _interval}
"""How far apart two ratings are: at all, or by how much."""
