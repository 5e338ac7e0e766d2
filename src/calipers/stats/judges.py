"""Judges and labels: agreement beyond chance, and the errors of a judge.

A judge's score put right by labels: many rows that only a judge has seen, few that have labels too.

The judge alone is biased, the labels alone are few. Prediction-powered inference adds the judge's mean over all
rows and his mean error on the labelled ones; tuned (PPI++), it leans on him only as far as he is worth it.

Were the labelled rollouts drawn at random? Then the judge scores them like the others.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from calipers.errors import UnknownName
from calipers.rollouts.column import Bools, Column, Floats, Ints
from calipers.stats.intervals import NOISE, ONE_TASK, Spread, interval, t_quantile, wilson_ends

NOMINAL, INTERVAL = "nominal", "interval"
NOBODY = "no labelled rollouts for it"


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
    if bool((values == values[0]).all()):
        return None
    within, expected = LEVELS[level](values, unit)
    return None if expected == 0 else 1 - (within / whole) / (expected / (whole * (whole - 1)))


def pairwise_agreement(ratings: Floats, given: Bools) -> Column:
    """The share of units on which each two raters agree, [raters, raters] row by row; a gap without a common unit.

    Judges that err together agree more than their accuracy explains; a jury of them gains little.
    """
    raters = ratings.shape[1]
    rated = given[:, :, None] & given[:, None, :]
    same = rated & (ratings[:, :, None] == ratings[:, None, :])
    common = rated.sum(axis=0)
    share = same.sum(axis=0) / np.maximum(common, 1)
    return Column(share.reshape(raters * raters), (common > 0).reshape(raters * raters))


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
    estimate = interval(values, np.ones(count), confidence, (0.0, 1.0), units)
    return Rate(float(values.mean()), estimate.ends, count, estimate.why)


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


DRAWS = 999
AT_ONCE = 1 << 18  # numbers of some draws that are in memory together
SUSPECT = 0.01  # a p below this warns, so that labels drawn at random are suspected in less than 1 % of checks
ALIKE = 1e-9  # differences that are closer than this part of the largest are a tie


@dataclass(frozen=True, slots=True)
class LabelledSample:
    """The judge's own means over rollouts with a label and without one, and how likely so large a difference is."""

    labelled: float
    others: float
    p: float  # of labels drawn at random; two-sided

    @property
    def suspect(self) -> bool:
        """Whether the labels were hardly drawn at random."""
        return self.p < SUSPECT


def labelled_sample(
    judged: Floats, labelled: Bools, task: Ints, *, seed: int = 0, draws: int = DRAWS
) -> LabelledSample | None:
    """A permutation test of whether the judge scores labelled rollouts like the others, [R] each.

    Under random drawing it does not matter which tasks the labels fell on, nor which samples of them. So the numbers
    of labels change places among tasks with as many samples, and within a task the labels fall on any samples: this
    is exact where rollouts, or whole tasks, or some samples of each task were drawn. The statistic is the sum of the
    judge's scores of labelled rollouts; ``p = (hits + 1)/(draws + 1)``.

    None where there is nothing to compare: no label, no rollout without one, or no other place for any label.
    """
    if not labelled.any() or labelled.all():
        return None
    parts = [part for part in _parts(judged, labelled, task) if part.moves]
    if not parts:
        return None
    expected = sum(part.expected for part in parts)
    seen = abs(sum(part.seen for part in parts) - expected)
    source = np.random.PCG64(seed)
    slack = ALIKE * sum(float(np.abs(part.scores).sum()) for part in parts)
    size = sum(part.words for part in parts)
    step = max(1, AT_ONCE // size)
    hits = 0
    for first in range(0, draws, step):
        raw = _raw(source, min(step, draws - first) * size).reshape(-1, size)
        ends = np.cumsum([part.words for part in parts])[:-1]
        sums = sum(part.drawn(some) for part, some in zip(parts, np.split(raw, ends, axis=1), strict=True))
        hits += int(np.count_nonzero(np.abs(sums - expected) >= seen - slack))
    return LabelledSample(float(judged[labelled].mean()), float(judged[~labelled].mean()), (hits + 1) / (draws + 1))


@dataclass(frozen=True, slots=True)
class _Part:
    """Tasks with as many samples, in an order that the rows do not decide."""

    scores: Floats  # [T, s] the judge's
    counts: Ints  # [n] labels of each task that has any, the most first
    seen: float  # sum of the scores with a label

    @property
    def moves(self) -> bool:
        """Whether labels could have fallen elsewhere, on other scores."""
        everywhere = len(self.counts) == len(self.scores) and bool((self.counts == self.scores.shape[1]).all())
        return not everywhere and bool(self.scores.min() != self.scores.max())

    @property
    def expected(self) -> float:
        return float(self.scores.mean()) * int(self.counts.sum())

    @property
    def whole(self) -> bool:
        """Whether a task has all of its samples labelled, or none."""
        return bool((self.counts == self.scores.shape[1]).all())

    @property
    def words(self) -> int:
        """How many numbers a draw takes."""
        return len(self.scores) + (0 if self.whole else len(self.counts) * self.scores.shape[1])

    def drawn(self, raw: NDArray[np.uint64]) -> Floats:
        """The sum of the scores on which the labels fall when they are drawn again, [draws, words] -> [draws]."""
        tasks, samples = self.scores.shape
        some = len(self.counts)
        keys = raw[:, :tasks]
        first = np.argpartition(keys, some - 1, axis=1)[:, :some]
        order = np.argsort(np.take_along_axis(keys, first, axis=1), axis=1, kind="stable")
        chosen = self.scores[np.take_along_axis(first, order, axis=1)]  # [draws, n, s], in random order
        if self.whole:
            return np.asarray(chosen.reshape(len(raw), -1).sum(axis=1))
        order = np.argsort(raw[:, tasks:].reshape(-1, some, samples), axis=2, kind="stable")
        here = np.arange(samples) < self.counts[:, None]
        return np.asarray(np.take_along_axis(chosen, order, axis=2)[:, here].sum(axis=1))


def _raw(source: np.random.PCG64, size: int) -> NDArray[np.uint64]:
    """Raw 64-bit output: numpy may change how it makes numbers of it, but not the output itself."""
    return np.asarray(source.random_raw(size), dtype=np.uint64)


def _parts(judged: Floats, labelled: Bools, task: Ints) -> Iterator[_Part]:
    order = np.lexsort((judged, task))
    judged, labelled, task = judged[order], labelled[order], task[order]
    _, start, size = np.unique(task, return_index=True, return_counts=True)
    for samples in np.unique(size).tolist():
        rows = start[size == samples][:, None] + np.arange(samples)
        scores, marks = judged[rows], labelled[rows]
        counts = np.sort(marks.sum(axis=1))[::-1]
        if counts[0]:
            yield _Part(scores[np.lexsort(scores.T)], counts[counts > 0], float(scores[marks].sum()))


NO_JUDGED = "the judge scored no rollout without a label"
NO_LABELS = "no rollout has a label"
BLIND = "the judge's sensitivity and specificity add up to 1 or less, so its score cannot be corrected"
ONE_KIND = "all labels are the same, so sensitivity or specificity is unknown"
TOO_WIDE = "these labels do not determine it: the standard error would be more than half of the range"
UNIT = (0.0, 1.0)


@dataclass(frozen=True, slots=True)
class Corrected:
    """A score put right by labels, or why it cannot be."""

    value: float | None
    stderr: float | None
    interval: tuple[float, float] | None
    method: str  # ppi++, ppi, labels, rogan_gladen
    trust: float  # lambda: 0 leaves the judge out, 1 takes his word plus his mean error
    labelled: int
    judged: int  # rows without a label
    why: str | None = None


def ppi(
    labels: Floats,
    judged_labelled: Floats,
    judged: Floats,
    *,
    trust: float | None = None,
    limits: tuple[float, float] | None = UNIT,
    confidence: float = 0.95,
) -> Corrected:
    """The mean score, from n labels with the judge's scores of the same rows, and his scores of N others.

    ``l mean(f) + mean(y - l f)`` with the variance ``l^2 Var(f)/N + Var(y - l f)/n`` (Angelopoulos et al.
    2023). Without ``trust`` it is tuned, ``l = Cov(y, f) / ((1 + n/N) Var(f))`` over all rows judged:
    PPI++, in the long run never worse than the labels alone, as plain PPI (``trust=1``) can be; 0 is the
    labels alone. Rows are independent: give task means where tasks have several samples.

    The interval is the default rule with n units, so that it has a width where all labels agree.
    """
    n, many = len(labels), len(judged)
    method = {None: "ppi++", 1.0: "ppi", 0.0: "labels"}.get(trust, "ppi")
    if n < 2:
        return Corrected(None, None, None, method, trust or 0.0, n, many, ONE_TASK if n else NO_LABELS)
    if trust is None:
        trust = _tuned(labels, judged_labelled, judged)
    if trust and many < 2:
        return Corrected(None, None, None, method, trust, n, many, NO_JUDGED)
    away = labels - trust * judged_labelled
    value, variance = float(away.mean()), _variance(away) / n
    if trust:
        value += trust * float(judged.mean())
        variance += trust**2 * _variance(judged) / many
    return with_interval(value, variance, method, trust, n, many, limits, confidence)


def rogan_gladen(labels: Floats, judged_labelled: Floats, judged: Floats, *, confidence: float = 0.95) -> Corrected:
    """The share of passes, from the judge's share q of N rows and his errors on n labelled ones; all of 0 and 1.

    ``(q + specificity - 1) / (sensitivity + specificity - 1)`` (Rogan and Gladen 1978), with the error of
    all three by the delta method. It needs a judge that errs on the other rows as he does on the labelled.
    """
    n, many = len(labels), len(judged)
    positive = labels >= 1
    goods, bads = int(np.count_nonzero(positive)), int(np.count_nonzero(~positive))

    def none(why: str) -> Corrected:
        return Corrected(None, None, None, "rogan_gladen", 1.0, n, many, why)

    if not n:
        return none(NO_LABELS)
    if not many:
        return none(NO_JUDGED)
    if not goods or not bads:
        return none(ONE_KIND)
    sensitivity = float(judged_labelled[positive].mean())
    specificity = 1 - float(judged_labelled[~positive].mean())
    informed = sensitivity + specificity - 1
    if informed <= 0:
        return none(BLIND)
    share = float(judged.mean())
    value = (share + specificity - 1) / informed
    variance = (
        share * (1 - share) / many
        + value**2 * sensitivity * (1 - sensitivity) / goods
        + (1 - value) ** 2 * specificity * (1 - specificity) / bads
    ) / informed**2
    return with_interval(value, variance, "rogan_gladen", 1.0, n, many, UNIT, confidence)


def _tuned(labels: Floats, judged_labelled: Floats, judged: Floats) -> float:
    """How far to lean on the judge; not at all where there is nothing to lean on."""
    n, many = len(labels), len(judged)
    scores = np.concatenate([judged_labelled, judged])
    spread = _variance(scores)
    if many < 2 or math.sqrt(spread) <= NOISE * float(np.abs(scores).max()):
        return 0.0
    together = float(((labels - labels.mean()) * (judged_labelled - judged_labelled.mean())).sum()) / (n - 1)
    return together / ((1 + n / many) * spread)


def with_interval(
    value: float,
    variance: float,
    method: str,
    trust: float,
    labelled: int,
    judged: int,
    limits: tuple[float, float] | None,
    confidence: float,
) -> Corrected:
    """A score and its variance with the default rule, with as many units as rows or tasks have a label.

    Nothing on a range has a standard error of more than half of it. Where the labels are so few, or the judge so
    close to blind, that the formula gives more, there is neither a standard error nor an interval.
    """
    stderr = math.sqrt(variance)
    if limits is None:
        half = t_quantile((1 + confidence) / 2, labelled - 1.0) * stderr
        ends = (value - half, value + half) if half else None
    else:
        low, high = limits
        value = min(max(value, low), high)  # a correction may overshoot; the truth cannot
        if stderr > (high - low) / 2:
            return Corrected(value, None, None, method, trust, labelled, judged, TOO_WIDE)
        spread = Spread((value - low) / (high - low), variance / (high - low) ** 2, labelled, labelled, 1.0)
        lower, upper = wilson_ends(spread, confidence)
        ends = (low + (high - low) * lower, low + (high - low) * upper)
    return Corrected(value, stderr, ends, method, trust, labelled, judged)


def _variance(values: Floats) -> float:
    return float(np.var(values, ddof=1)) if len(values) > 1 else 0.0


UNSTEADY = "one task alone decides whether the judge can separate good from bad"


def ppi_by_task(
    labels: Floats,
    labelled: Bools,
    judged: Floats,
    task: Ints,
    *,
    trust: float | None = None,
    limits: tuple[float, float] | None = UNIT,
    confidence: float = 0.95,
) -> Corrected:
    """The mean over tasks, from the judge's scores of R samples and labels of some of them, [R] each.

    ``l mean_t(G) + mean_t(y - l f)``: G is a task's mean judgement without a label, y and f the mean label and
    judgement of its labelled samples. Its variance is ``l^2 Var(G)/N + Var(y - l f)/n + 2 l c Cov(G, y - l f)``
    with c = (tasks that have both) / (n N); without ``trust``, l makes it smallest. 0 is the labels alone.
    """
    y, f, some = _means(labels, labelled, task), _means(judged, labelled, task), _counts(labelled, task) > 0
    g, rest = _means(judged, ~labelled, task), _counts(~labelled, task) > 0
    mixed = some & rest
    if trust == 0.0 or not mixed.any():
        return ppi(y[some], f[some], g[rest], trust=trust, limits=limits, confidence=confidence)
    n, many = int(some.sum()), int(rest.sum())
    method = "ppi++" if trust is None else "ppi"
    if n < 2 or many < 2:
        why = NO_LABELS if not n else ONE_TASK if n < 2 else NO_JUDGED
        return Corrected(None, None, None, method, trust or 0.0, n, many, why)
    shared = int(mixed.sum()) / (n * many)
    if trust is None:
        above = _covariance(y[some], f[some]) / n - shared * _covariance(g[mixed], y[mixed])
        below = _variance(g[rest]) / many + _variance(f[some]) / n - 2 * shared * _covariance(g[mixed], f[mixed])
        trust = above / below if below > 1e-12 else 0.0
    away = y - trust * f
    variance = trust**2 * _variance(g[rest]) / many + _variance(away[some]) / n
    variance += 2 * trust * shared * _covariance(g[mixed], away[mixed])
    value = trust * float(g[rest].mean()) + float(away[some].mean())
    return with_interval(value, max(variance, 0.0), method, trust, n, many, limits, confidence)


def rogan_gladen_by_task(
    labels: Floats, labelled: Bools, judged: Floats, task: Ints, *, confidence: float = 0.95
) -> Corrected:
    """The share of passes by the judge's share and his errors on the labelled samples; all of 0 and 1, [R] each.

    As `rogan_gladen`; where a task has several samples, the error is a jackknife over tasks.
    """
    plain = rogan_gladen(labels[labelled], judged[labelled], judged[~labelled], confidence=confidence)
    if plain.value is None or int(np.bincount(task).max(initial=0)) < 2:
        return plain
    good = labels >= 1
    marks = (
        np.where(labelled, 0.0, judged),
        (~labelled).astype(float),
        np.where(labelled & good, judged, 0.0),
        (labelled & good).astype(float),
        np.where(labelled & ~good, judged, 0.0),
        (labelled & ~good).astype(float),
    )
    by_task = np.stack([np.bincount(task, mark) for mark in marks], axis=1)  # [T, 6]
    by_task = by_task[np.bincount(task) > 0]
    rest = by_task.sum(axis=0) - by_task
    with np.errstate(divide="ignore", invalid="ignore"):
        share, hits, alarms = (rest[:, i] / rest[:, i + 1] for i in (0, 2, 4))
        values = (share - alarms) / (hits - alarms)
    units = int((np.bincount(task, labelled.astype(float)) > 0).sum())
    if not np.isfinite(values).all() or bool((hits <= alarms).any()):
        return Corrected(plain.value, None, None, plain.method, 1.0, plain.labelled, plain.judged, UNSTEADY)
    tasks = len(values)
    variance = (tasks - 1) / tasks * float(((values - values.mean()) ** 2).sum())
    corrected = with_interval(plain.value, variance, plain.method, 1.0, units, tasks, UNIT, confidence)
    return replace(corrected, labelled=plain.labelled, judged=plain.judged)


def _counts(which: Bools, task: Ints) -> Floats:
    return np.asarray(np.bincount(task, which.astype(float)), dtype=np.float64)


def _means(values: Floats, which: Bools, task: Ints) -> Floats:
    """The mean of each task's marked values, [T]; 0 without any."""
    return np.bincount(task, np.where(which, values, 0.0)) / np.maximum(_counts(which, task), 1.0)


def _covariance(x: Floats, y: Floats) -> float:
    return float(((x - x.mean()) * (y - y.mean())).sum()) / (len(x) - 1) if len(x) > 1 else 0.0
