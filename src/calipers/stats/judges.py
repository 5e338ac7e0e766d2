"""Judges and labels: agreement beyond chance, the errors of a judge, and scores corrected by labels.

A score can be corrected if a judge has scored many rows and a few of them have labels too. The judge alone is biased,
the labels alone are few. Prediction-powered inference adds the judge's mean over the rows without a label and the
judge's mean error on the labelled rows; its tuned form, PPI++, weights the judge by how well it predicts the labels.

`labelled_sample` tests whether the labelled rollouts were drawn at random: then the judge scores them like the others.
`pick_tests` does the same for every other reward, and for the disagreement of two.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from calipers.errors import UnknownName
from calipers.rollouts.column import Bools, Column, Floats, Ints
from calipers.stats.intervals import NOISE, ONE_TASK, Spread, interval, t_quantile, wilson_ends

NOMINAL, INTERVAL = "nominal", "interval"
NOBODY = "no labelled rollouts for it"


def krippendorff_alpha(ratings: Floats, given: Bools, level: str = NOMINAL) -> float | None:
    """Agreement among any number of raters beyond chance: 1 is perfect, 0 is chance, [units, raters].

    ``1 - D_o / D_e``: the observed disagreement within units over the disagreement expected if all ratings were
    shuffled (Krippendorff 2004). Nominal ratings agree or do not; interval ratings disagree by the square of their
    distance. A unit with one rating is left out. None if no unit has two ratings, or if all ratings are the same, which
    leaves no disagreement to expect.
    """
    if level not in LEVELS:
        raise UnknownName.of("level of measurement", level, LEVELS)
    pairable = given & (given.sum(axis=1, keepdims=True) >= 2)
    values = ratings[pairable]
    unit = np.nonzero(pairable)[0]
    if not len(values):
        return None
    count = len(values)
    if bool((values == values[0]).all()):
        return None
    within, expected = LEVELS[level](values, unit)
    return None if expected == 0 else 1 - (within / count) / (expected / (count * (count - 1)))


def pairwise_agreement(ratings: Floats, given: Bools) -> Column:
    """The share of common units on which each pair of raters agrees, [raters, raters] row by row.

    A gap for a pair without a common unit. Judges that make the same errors agree more than their accuracy explains,
    and a vote among them gains little.
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
    of: int  # the number of rows that it is a share of
    why: str | None = None


@dataclass(frozen=True, slots=True)
class Confusion:
    """A judge's verdicts compared with labels, which are taken as the truth."""

    true_positives: int
    false_negatives: int
    false_positives: int
    true_negatives: int
    sensitivity: Rate  # the share of good rows that the judge calls good
    specificity: Rate  # the share of bad rows that the judge calls bad
    accuracy: Rate


def confusion(labels: Bools, judged: Bools, clusters: Ints | None = None, *, confidence: float = 0.95) -> Confusion:
    """The confusion table of a judge on labelled rows, [n] each; rows of one task share a number in ``clusters``."""
    correct = labels == judged
    return Confusion(
        int(np.count_nonzero(labels & judged)),
        int(np.count_nonzero(labels & ~judged)),
        int(np.count_nonzero(~labels & judged)),
        int(np.count_nonzero(~labels & ~judged)),
        _rate(correct, labels, clusters, confidence),
        _rate(correct, ~labels, clusters, confidence),
        _rate(correct, np.ones(len(labels), dtype=bool), clusters, confidence),
    )


def _rate(correct: Bools, rows: Bools, clusters: Ints | None, confidence: float) -> Rate:
    """The share of ``rows`` on which the judge is correct."""
    count = int(np.count_nonzero(rows))
    if not count:
        return Rate(None, None, 0, NOBODY)
    values = correct[rows].astype(np.float64)
    units = None if clusters is None else np.unique(clusters[rows], return_inverse=True)[1]
    estimate = interval(values, np.ones(count), confidence, (0.0, 1.0), units)
    return Rate(float(values.mean()), estimate.ends, count, estimate.why)


def _nominal(values: Floats, unit: Ints) -> tuple[float, float]:
    """Disagreement within units, and among all ratings: the number of unequal pairs."""
    categories, code = np.unique(values, return_inverse=True)
    width = len(categories)
    table = np.bincount(unit * width + code, minlength=(int(unit.max()) + 1) * width).astype(np.float64)
    table = table.reshape(-1, width)
    count = table.sum(axis=1)
    pairs = count**2 - (table**2).sum(axis=1)
    totals = table.sum(axis=0)
    return float((pairs / np.maximum(count - 1, 1)).sum()), float(len(values) ** 2 - (totals**2).sum())


def _interval(values: Floats, unit: Ints) -> tuple[float, float]:
    """Disagreement within units, and among all ratings: the sum of squared distances."""
    count = np.bincount(unit)
    centre = np.bincount(unit, values) / np.maximum(count, 1)
    squares = np.bincount(unit, (values - centre[unit]) ** 2)
    total_squares = float(((values - values.mean()) ** 2).sum())
    return float((2 * count * squares / np.maximum(count - 1, 1)).sum()), 2 * len(values) * total_squares


LEVELS = {NOMINAL: _nominal, INTERVAL: _interval}
"""Levels of measurement, each with its disagreement within units and among all ratings."""


DRAWS = 999
AT_ONCE = 1 << 18  # random numbers that are in memory together
SUSPECT = 0.01  # a p below this warns, so that labels drawn at random are suspected in less than 1 % of checks
ALIKE = 1e-9  # sums that differ by less than this share of all scores are a tie


@dataclass(frozen=True, slots=True)
class LabelledSample:
    """The judge's mean scores over rollouts with a label and without one, with a test of their difference."""

    labelled: float
    others: float
    p: float  # two-sided, of labels drawn at random

    @property
    def suspect(self) -> bool:
        """Whether the labels were probably not drawn at random."""
        return self.p < SUSPECT


def labelled_sample(
    judged: Floats, labelled: Bools, task: Ints, *, seed: int = 0, draws: int = DRAWS
) -> LabelledSample | None:
    """A permutation test of whether the judge scores labelled rollouts like the others, [R] each.

    Under random drawing, labels are equally likely on all tasks, and on all samples of a task. Therefore the numbers of
    labels are permuted among tasks with the same number of samples, and the labels among the samples of a task. The
    test is exact if rollouts, whole tasks, or some samples of each task were drawn. The statistic is the sum of the
    judge's scores of labelled rollouts; ``p = (hits + 1)/(draws + 1)``.

    None if there is nothing to compare: no label, no rollout without a label, or no permutation with another sum.
    """
    if not labelled.any() or labelled.all():
        return None
    strata = [stratum for stratum in _strata(judged, labelled, task) if stratum.permutable]
    if not strata:
        return None
    expected = sum(stratum.expected for stratum in strata)
    observed = abs(sum(stratum.observed for stratum in strata) - expected)
    source = np.random.PCG64(seed)
    slack = ALIKE * sum(float(np.abs(stratum.scores).sum()) for stratum in strata)
    words = [stratum.words for stratum in strata]
    size = sum(words)
    step = max(1, AT_ONCE // size)
    hits = 0
    for first in range(0, draws, step):
        # numpy may change how it makes numbers of the raw 64-bit output, but not the output itself
        raw = np.asarray(source.random_raw(min(step, draws - first) * size), dtype=np.uint64).reshape(-1, size)
        columns = np.split(raw, np.cumsum(words)[:-1], axis=1)
        sums = sum(stratum.permuted_sums(column) for stratum, column in zip(strata, columns, strict=True))
        hits += int(np.count_nonzero(np.abs(sums - expected) >= observed - slack))
    return LabelledSample(float(judged[labelled].mean()), float(judged[~labelled].mean()), (hits + 1) / (draws + 1))


MOST_TESTS = 10
"""The most tests of one labelled sample; more would each need a smaller p, and find less."""
DRAWS_PER_TEST = 200  # so that the smallest possible p is half of the level of one test


@dataclass(frozen=True, slots=True)
class PickTest:
    """A reward, or the disagreement of two, over rollouts with a label and without one, with a test of the difference.

    The disagreement is the mean distance of two rewards from 0 to 1; for other rewards, the share of rollouts on which
    only one of them passes.
    """

    first: str  # the name of a reward
    second: str | None  # the reward that it disagrees with; None for the mean of the first
    labelled: float
    others: float
    labelled_rollouts: int
    other_rollouts: int
    p: float
    suspect: bool  # whether p is below 1 %, divided by the number of tests


def pick_tests(rewards: Mapping[str, Column], labelled: Bools, task: Ints, threshold: float) -> list[PickTest]:
    """Permutation tests of whether the labels were picked by a reward, or by the disagreement of two, [R] each.

    The first reward is the judge's. The tests are, in this order, of its mean, of its disagreement with each other
    reward, of the means of the others, and of their disagreement; at most ten. A test is suspect if its p is below 1 %
    divided by the number of tests (Bonferroni), so labels drawn at random are suspected in less than 1 % of all checks.
    A quantity without a difference to test is left out.
    """
    judge, *others = rewards
    quantities: list[tuple[str, str | None]] = [(judge, None)]
    quantities += [(judge, other) for other in others]
    quantities += [(other, None) for other in others]
    quantities += list(combinations(others, 2))
    found: list[tuple[str, str | None, LabelledSample, Bools]] = []
    draws = max(DRAWS, DRAWS_PER_TEST * min(len(quantities), MOST_TESTS) - 1)
    for first, second in quantities[:MOST_TESTS]:
        column = rewards[first] if second is None else disagreement(rewards[first], rewards[second], threshold)
        given = column.given & np.isfinite(column.values)
        sample = labelled_sample(column.values[given], labelled[given], task[given], draws=draws)
        if sample is not None:
            found.append((first, second, sample, labelled[given]))
    return [
        PickTest(
            first,
            second,
            sample.labelled,
            sample.others,
            int(with_label.sum()),
            int((~with_label).sum()),
            sample.p,
            sample.p < SUSPECT / len(found),
        )
        for first, second, sample, with_label in found
    ]


def disagreement(first: Column, second: Column, threshold: float) -> Column:
    """The distance of two rewards, if all of both lie from 0 to 1; else 1 where only one of them passes, [R].

    A gap where one of them is missing.
    """
    given = first.given & second.given
    kept = np.concatenate([first.values[given], second.values[given]])
    if bool(((kept >= 0) & (kept <= 1)).all()):
        return Column(np.where(given, np.abs(first.values - second.values), 0.0), given)
    return Column(np.where(given, (first.values >= threshold) != (second.values >= threshold), 0.0), given)


@dataclass(frozen=True, slots=True)
class _Stratum:
    """Tasks with the same number of samples, in an order that does not depend on the order of rows."""

    scores: Floats  # [T, s] of the judge
    counts: Ints  # [n] labels of each task that has any, the most first
    observed: float  # sum of the scores with a label

    @property
    def permutable(self) -> bool:
        """Whether labels could have fallen elsewhere, on other scores."""
        all_labelled = len(self.counts) == len(self.scores) and self.whole_tasks
        return not all_labelled and bool(self.scores.min() != self.scores.max())

    @property
    def expected(self) -> float:
        """The mean of `permuted_sums`."""
        return float(self.scores.mean()) * int(self.counts.sum())

    @property
    def whole_tasks(self) -> bool:
        """Whether each task has all of its samples labelled, or none."""
        return bool((self.counts == self.scores.shape[1]).all())

    @property
    def words(self) -> int:
        """The number of random numbers per draw."""
        return len(self.scores) + (0 if self.whole_tasks else len(self.counts) * self.scores.shape[1])

    def permuted_sums(self, raw: NDArray[np.uint64]) -> Floats:
        """The sum of the labelled scores after a random permutation of the labels, [draws, words] -> [draws]."""
        tasks, samples = self.scores.shape
        size = len(self.counts)
        keys = raw[:, :tasks]
        smallest = np.argpartition(keys, size - 1, axis=1)[:, :size]
        order = np.argsort(np.take_along_axis(keys, smallest, axis=1), axis=1, kind="stable")
        chosen = self.scores[np.take_along_axis(smallest, order, axis=1)]  # [draws, n, s], in random order
        if self.whole_tasks:
            return np.asarray(chosen.reshape(len(raw), -1).sum(axis=1))
        order = np.argsort(raw[:, tasks:].reshape(-1, size, samples), axis=2, kind="stable")
        labelled = np.arange(samples) < self.counts[:, None]
        return np.asarray(np.take_along_axis(chosen, order, axis=2)[:, labelled].sum(axis=1))


def _strata(judged: Floats, labelled: Bools, task: Ints) -> Iterator[_Stratum]:
    order = np.lexsort((judged, task))
    judged, labelled, task = judged[order], labelled[order], task[order]
    _, start, size = np.unique(task, return_index=True, return_counts=True)
    for samples in np.unique(size).tolist():
        rows = start[size == samples][:, None] + np.arange(samples)
        scores, has_label = judged[rows], labelled[rows]
        counts = np.sort(has_label.sum(axis=1))[::-1]
        if counts[0]:
            yield _Stratum(scores[np.lexsort(scores.T)], counts[counts > 0], float(scores[has_label].sum()))


NO_JUDGED = "the judge scored no rollout without a label"
NO_LABELS = "no rollout has a label"
BLIND = "the judge's sensitivity and specificity add up to 1 or less, so its score cannot be corrected"
ONE_KIND = "all labels are the same, so sensitivity or specificity is unknown"
TOO_WIDE = "these labels do not determine it: the standard error would be more than half of the range"
UNIT = (0.0, 1.0)


@dataclass(frozen=True, slots=True)
class Corrected:
    """A judge's score corrected by labels, or why it cannot be corrected."""

    value: float | None
    stderr: float | None
    interval: tuple[float, float] | None
    method: str  # ppi++, ppi, labels, rogan_gladen
    trust: float  # lambda: 0 leaves the judge out, 1 is the judge's mean plus its mean error
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
    """The mean score, from n labels, the judge's scores of the same rows, and the judge's scores of N other rows.

    ``l mean(f) + mean(y - l f)`` with the variance ``l^2 Var(f)/N + Var(y - l f)/n`` (Angelopoulos et al. 2023) for
    labels y, scores f and ``trust`` l. Without ``trust`` it is tuned over all judged rows, ``l = Cov(y, f) / ((1 + n/N)
    Var(f))``: this is PPI++, which with many labels is never worse than the labels alone, as plain PPI (``trust=1``)
    can be; 0 is the labels alone. Rows must be independent: pass task means if tasks have several samples.

    The interval is the default rule with n units, so that it has a width even if all labels agree.
    """
    n, others = len(labels), len(judged)
    method = {None: "ppi++", 1.0: "ppi", 0.0: "labels"}.get(trust, "ppi")
    if n < 2:
        return Corrected(None, None, None, method, trust or 0.0, n, others, ONE_TASK if n else NO_LABELS)
    if trust is None:
        trust = _tuned_trust(labels, judged_labelled, judged)
    if trust and others < 2:
        return Corrected(None, None, None, method, trust, n, others, NO_JUDGED)
    residuals = labels - trust * judged_labelled
    value, variance = float(residuals.mean()), _variance(residuals) / n
    if trust:
        value += trust * float(judged.mean())
        variance += trust**2 * _variance(judged) / others
    return with_interval(value, variance, method, trust, n, others, limits, confidence)


def rogan_gladen(labels: Floats, judged_labelled: Floats, judged: Floats, *, confidence: float = 0.95) -> Corrected:
    """The share of passes, from the judge's share q of N rows and its errors on n labelled rows; all values 0 or 1.

    ``(q + specificity - 1) / (sensitivity + specificity - 1)`` (Rogan and Gladen 1978), with the error of all three by
    the delta method. The judge must err on the other rows as often as on the labelled rows.
    """
    n, others = len(labels), len(judged)
    positive = labels >= 1
    positives, negatives = int(np.count_nonzero(positive)), int(np.count_nonzero(~positive))

    def none(why: str) -> Corrected:
        return Corrected(None, None, None, "rogan_gladen", 1.0, n, others, why)

    if not n:
        return none(NO_LABELS)
    if not others:
        return none(NO_JUDGED)
    if not positives or not negatives:
        return none(ONE_KIND)
    sensitivity = float(judged_labelled[positive].mean())
    specificity = 1 - float(judged_labelled[~positive].mean())
    informed = sensitivity + specificity - 1
    if informed <= 0:
        return none(BLIND)
    share = float(judged.mean())
    value = (share + specificity - 1) / informed
    variance = (
        share * (1 - share) / others
        + value**2 * sensitivity * (1 - sensitivity) / positives
        + (1 - value) ** 2 * specificity * (1 - specificity) / negatives
    ) / informed**2
    return with_interval(value, variance, "rogan_gladen", 1.0, n, others, UNIT, confidence)


def _tuned_trust(labels: Floats, judged_labelled: Floats, judged: Floats) -> float:
    """The weight of the judge with the smallest variance; 0 if the judge's scores do not vary."""
    n, others = len(labels), len(judged)
    scores = np.concatenate([judged_labelled, judged])
    variance = _variance(scores)
    if others < 2 or math.sqrt(variance) <= NOISE * float(np.abs(scores).max()):
        return 0.0
    return _covariance(labels, judged_labelled) / ((1 + n / others) * variance)


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
    """A corrected score with the interval of the default rule, with ``labelled`` rows or tasks as units.

    A mean on a range cannot have a standard error of more than half of the range. If the labels are so few, or the
    judge so close to random, that the formula gives more, there is neither a standard error nor an interval.
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
        spread = Spread((value - low) / (high - low), variance / (high - low) ** 2, labelled, labelled, 1.0, limits)
        ends = spread.unscaled(wilson_ends(spread, confidence))
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

    ``l mean_t(G) + mean_t(y - l f)``: G is a task's mean score of samples without a label, y and f are the mean label
    and the mean score of its labelled samples, and l is ``trust``. The variance is ``l^2 Var(G)/N + Var(y - l f)/n +
    2 l c Cov(G, y - l f)`` with c = (tasks that have both) / (n N). Without ``trust``, l minimises the variance; 0 is
    the labels alone.
    """
    y, f, with_label = _means(labels, labelled, task), _means(judged, labelled, task), _counts(labelled, task) > 0
    g, without_label = _means(judged, ~labelled, task), _counts(~labelled, task) > 0
    mixed = with_label & without_label
    if trust == 0.0 or not mixed.any():
        return ppi(y[with_label], f[with_label], g[without_label], trust=trust, limits=limits, confidence=confidence)
    n, others = int(with_label.sum()), int(without_label.sum())
    method = "ppi++" if trust is None else "ppi"
    if n < 2 or others < 2:
        why = NO_LABELS if not n else ONE_TASK if n < 2 else NO_JUDGED
        return Corrected(None, None, None, method, trust or 0.0, n, others, why)
    shared = int(mixed.sum()) / (n * others)
    variance_of_others = _variance(g[without_label]) / others
    if trust is None:
        numerator = _covariance(y[with_label], f[with_label]) / n - shared * _covariance(g[mixed], y[mixed])
        denominator = variance_of_others + _variance(f[with_label]) / n - 2 * shared * _covariance(g[mixed], f[mixed])
        trust = numerator / denominator if denominator > 1e-12 else 0.0
    residuals = y - trust * f
    variance = trust**2 * _variance(g[without_label]) / others + _variance(residuals[with_label]) / n
    variance += 2 * trust * shared * _covariance(g[mixed], residuals[mixed])
    value = trust * float(g[without_label].mean()) + float(residuals[with_label].mean())
    return with_interval(value, max(variance, 0.0), method, trust, n, others, limits, confidence)


def rogan_gladen_by_task(
    labels: Floats, labelled: Bools, judged: Floats, task: Ints, *, confidence: float = 0.95
) -> Corrected:
    """The share of passes, from the judge's share and its errors on the labelled samples; all values 0 or 1, [R] each.

    The value is that of `rogan_gladen`; if a task has several samples, the standard error is a jackknife over tasks.
    """
    plain = rogan_gladen(labels[labelled], judged[labelled], judged[~labelled], confidence=confidence)
    if plain.value is None or int(np.bincount(task).max(initial=0)) < 2:
        return plain
    positive = labels >= 1
    columns = []
    for rows in (~labelled, labelled & positive, labelled & ~positive):
        columns += [np.bincount(task, np.where(rows, judged, 0.0)), _counts(rows, task)]
    by_task = np.stack(columns, axis=1)  # [T, 6]
    by_task = by_task[np.bincount(task) > 0]
    left = by_task.sum(axis=0) - by_task  # with each task left out once
    with np.errstate(divide="ignore", invalid="ignore"):
        share, hits, alarms = (left[:, i] / left[:, i + 1] for i in (0, 2, 4))
        values = (share - alarms) / (hits - alarms)
    units = int((_counts(labelled, task) > 0).sum())
    if not np.isfinite(values).all() or bool((hits <= alarms).any()):
        return Corrected(plain.value, None, None, plain.method, 1.0, plain.labelled, plain.judged, UNSTEADY)
    tasks = len(values)
    variance = (tasks - 1) / tasks * float(((values - values.mean()) ** 2).sum())
    corrected = with_interval(plain.value, variance, plain.method, 1.0, units, tasks, UNIT, confidence)
    return replace(corrected, labelled=plain.labelled, judged=plain.judged)


def _counts(rows: Bools, task: Ints) -> Floats:
    """The number of each task's ``rows``, [T]."""
    return np.asarray(np.bincount(task, rows.astype(float)), dtype=np.float64)


def _means(values: Floats, rows: Bools, task: Ints) -> Floats:
    """The mean of each task's values over ``rows``, [T]; 0 without any."""
    return np.bincount(task, np.where(rows, values, 0.0)) / np.maximum(_counts(rows, task), 1.0)


def _covariance(x: Floats, y: Floats) -> float:
    return float(((x - x.mean()) * (y - y.mean())).sum()) / (len(x) - 1) if len(x) > 1 else 0.0
