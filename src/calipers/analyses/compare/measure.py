"""Measure the difference of one metric between two runs on their common tasks, with its interval and test.

The difference is second less first, so the second run here is the first argument of functions in `stats.paired`.
Metrics without a value per task (percentiles over rollouts, a user's own function) are bootstrapped: each draw takes
the same tasks, or whole clusters, with all their samples, from both runs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from calipers.analyses.compare import Question
from calipers.analyses.compare.align import Common
from calipers.errors import InputError, PluginError, UnknownName
from calipers.metrics import UNIT, Metric, Opaque, largest, mean, passed, smallest, task_mean
from calipers.metrics.columns import COST_PER_SOLVED
from calipers.metrics.rewards import passes
from calipers.request import RequestedMetric, column_of, demand_threshold, is_reward, per_column
from calipers.rollouts.column import Bools, Column, Floats, Groups, Ints, total
from calipers.rollouts.ledger import contributed
from calipers.rollouts.table import Rollouts
from calipers.stats.anytime import BETTING, NO_MEAN, UNEVEN, anytime
from calipers.stats.estimate import ValueEnds
from calipers.stats.intervals import EXTREME, ONE_CLUSTER, ONE_SIDED, ONE_TASK, one_sided
from calipers.stats.paired import (
    FLOORED_T,
    NO_COMMON,
    STRICT,
    UNDEFINED,
    Difference,
    McNemar,
    Resampled,
    apart,
    by_draws,
    flips,
    judged,
    paired_bootstrap,
    paired_bootstrap_of_values,
    rate_units,
    ratio,
    sign_flip,
    units_of,
)
from calipers.stats.power import PairVariance, pair_variance
from calipers.tally import demand_range

if TYPE_CHECKING:
    from calipers.analyses.compare.evidence import Background

METHOD = "paired_bootstrap"
EXTREMES = (largest, smallest, np.max, np.min, max, min)  # aggregates of which a bootstrap says nothing
DRAWS = 1_000  # fewer than in `stats.paired`, because each draw calls a Python function
FEWEST_DRAWS = 200
MOST_VALUES = 20_000_000  # samples that all draws together may handle

Compute = Callable[[Sequence[Any]], float]
"""A metric as a function of the values of each task."""


@dataclass(frozen=True, slots=True)
class MetricPair:
    """One metric of two runs on their common tasks or a slice of them, with the columns that it reads."""

    metrics: tuple[RequestedMetric, RequestedMetric]  # as requested of the first run and of the second
    common: Common
    columns: tuple[list[Column], list[Column]]
    clusters: Ints | None  # [T]
    question: Question
    by: str | None = None  # the key of a slice; None for all tasks
    slice: str | None = None

    @property
    def text(self) -> str:
        """The metric's name in the findings."""
        return self.metrics[0].text

    @property
    def question_text(self) -> str:
        """The question in the syntax of ``--primary``."""
        return self.text + ("" if self.by is None else f"[{self.by}={self.slice}]")

    @property
    def sides(self) -> tuple[Rollouts, Rollouts]:
        """The rollouts of the first run and of the second."""
        return self.common.sides

    @property
    def confidence(self) -> float:
        """The confidence of intervals; the level of tests is 1 less this."""
        return self.question.plan.confidence

    @property
    def seed(self) -> int:
        """The seed of resampling."""
        return self.question.plan.seed

    @property
    def higher_is_better(self) -> bool | None:
        """Whether higher values are better; None if no direction is known to be better."""
        metric = self.metrics[0].metric
        return metric.higher_is_better if isinstance(metric, Metric) else None

    @property
    def eligible(self) -> Bools:
        """The tasks that may be compared, [T]: all tasks, or in an anytime test the settled ones."""
        if self.question.anytime:
            return self.common.settled
        return np.ones(len(self.common.second_ids), dtype=bool)

    def samples(self, compared: Bools) -> tuple[int, int]:
        """The number of given samples of the compared tasks in each run; ``compared`` is a mask, [T]."""
        first, second = (
            int(side.by_task.count(columns[0].given)[compared].sum())
            for side, columns in zip(self.sides, self.columns, strict=True)
        )
        return first, second


@dataclass(frozen=True, slots=True)
class Measured:
    """A measured difference, second run minus first. `findings.adjusted` sets the fields from ``primary`` on."""

    metric_pair: MetricPair  # with gaps as they are; without columns for a number of a table
    higher_is_better: bool | None  # None if no direction is known to be better
    difference: Difference
    first: float | None
    second: float | None
    compared: Bools  # [T] the common tasks that have a value in both runs
    samples: tuple[int, int]
    values: tuple[Floats, Floats] | None = None  # [T] each; None if tasks have no values of their own
    weights: tuple[Floats, Floats] | None = None  # [T] each, the weight of each task in a pooled rate
    mcnemar: McNemar | None = None
    variance: PairVariance | None = None
    repeats: float | None = None  # samples per task in the run that has fewer
    primary: bool = False
    confidence: float = math.nan  # of its interval, adjusted for the other questions
    p_adjusted: float | None = None  # decides its verdict
    p_holm: float | None = None
    p_bh: float | None = None
    background: Background | None = None  # the evidence for its verdict


def metrics_of(
    metrics: Sequence[RequestedMetric], runs: tuple[Rollouts, Rollouts], names: tuple[str, str], reward: str | None
) -> tuple[list[tuple[RequestedMetric, RequestedMetric]], list[str]]:
    """The metrics that both runs have, as requested of each run, and notes on the others.

    A reward that both runs have is compared under its name. If a run has a single reward, it is compared whatever its
    name. InputError for a metric without a reward in common.
    """
    pairs: list[tuple[RequestedMetric, RequestedMetric]] = []
    notes: dict[str, None] = {}
    for metric in metrics:
        requested = metric.params.get("reward") or reward
        if requested and "reward" in metric.metric.reads and not any(requested in run.rewards for run in runs):
            raise UnknownName.of("reward", requested, sorted({key for run in runs for key in run.rewards}))
        first, second = (_variants_of(metric, run, reward, name) for run, name in zip(runs, names, strict=True))
        if len(first) == len(second) == 1:
            (only_first,), (only_second,) = first.values(), second.values()
            keys = only_first.params.get("reward"), only_second.params.get("reward")
            if keys[0] != keys[1] and all(keys):  # the key is None in a run without rewards
                notes[f"the reward is {keys[0]!r} in {names[0]} and {keys[1]!r} in {names[1]}"] = None
            pairs.append((only_first, only_second))
            continue
        first, second = _under_one_name(first, second)
        shared = [text for text in first if text in second]
        if not shared:
            rewards = "; ".join(f"{name} has {_list_rewards(run)}" for run, name in zip(runs, names, strict=True))
            why = f"the runs have no reward in common ({rewards})"
            raise InputError(f"metric {metric.text!r}: {why}; pick one with --reward KEY")
        pairs += [(first[text], second[text]) for text in shared]
        for unshared, name in ((first.keys() - second.keys(), names[0]), (second.keys() - first.keys(), names[1])):
            notes |= {f"{text} is excluded, because only {name} has it": None for text in sorted(unshared)}
    return [pair for pair in pairs if demand_threshold(pair[:1], partial(_highest, runs, pair))], list(notes)


def _highest(
    runs: tuple[Rollouts, Rollouts], pair: tuple[RequestedMetric, RequestedMetric], asked: RequestedMetric
) -> float:
    """The highest reward of both runs that a metric reads; ``asked`` is one of the pair."""
    rewards = [contributed(run, request.params["reward"]) for run, request in zip(runs, pair, strict=True)]
    return max(ValueEnds.of(column.kept()).high for column in rewards)


def _under_one_name(
    first: dict[str, RequestedMetric], second: dict[str, RequestedMetric]
) -> tuple[dict[str, RequestedMetric], dict[str, RequestedMetric]]:
    """Rename the single variant of a run to the text that the other run uses for the same reward."""
    sides = [first, second]
    for run, (variants, others) in enumerate(((first, second), (second, first))):
        if len(variants) == 1:
            (metric,) = variants.values()
            reward = metric.params.get("reward")
            for text, other in others.items():
                if reward is not None and reward == other.params.get("reward"):
                    sides[run] = {text: replace(metric, text=text)}
    return sides[0], sides[1]


def columns_of(metric: RequestedMetric, run: Rollouts, name: str, *, zero: bool) -> list[Column]:
    """The columns that a metric reads from a run, in order; with ``zero``, gaps in rewards are 0."""
    columns = []
    for key in metric.metric.reads:
        try:
            column = column_of(run, key, metric.params)
        except InputError as error:
            raise InputError(f"metric {metric.text!r}: {name} has no data for it: {error}") from None
        columns.append(column.filled(0.0) if zero and (key == "reward" or is_reward(run, metric)) else column)
    return columns


def _variants_of(metric: RequestedMetric, run: Rollouts, reward: str | None, name: str) -> dict[str, RequestedMetric]:
    """The metric for each reward or column of a run to which it may apply, by its text in the findings."""
    if "reward" not in metric.metric.reads:
        return {each.text: each for each in per_column(metric, run)}
    keys = rewards_of(run)
    requested = metric.params.get("reward") or reward
    if requested and requested not in keys and len(keys) > 1:
        raise UnknownName.of(f"reward in {name}", requested, keys)
    if requested in keys:
        return {metric.text: _for_reward(metric, requested)}
    if run.usual_reward in keys or len(keys) < 2:
        return {metric.text: _for_reward(metric, keys[0] if len(keys) == 1 else run.usual_reward)}
    head, parenthesis, params = metric.text.partition("(")
    params = f"{params.removesuffix(')')}, " if parenthesis else ""
    return {text: _for_reward(metric, key, text) for key in keys for text in [f"{head}({params}reward={key})"]}


def _for_reward(metric: RequestedMetric, key: str | None, text: str | None = None) -> RequestedMetric:
    return replace(metric, text=text or metric.text, params={**metric.params, "reward": key})


def rewards_of(run: Rollouts) -> list[str]:
    """The rewards that at least one rollout has, or all if none has any: a file may add those of other datasets."""
    return sorted(key for key, column in run.rewards.items() if column.given.any()) or sorted(run.rewards)


def _list_rewards(run: Rollouts) -> str:
    return ", ".join(map(repr, rewards_of(run))) or "none"


def _measure_resampled(metric_pair: MetricPair) -> Measured:
    """The difference of a metric that is computed from all samples together, by the bootstrap."""
    by_task = [
        _values_by_task(columns[0], side.by_task)
        for side, columns in zip(metric_pair.sides, metric_pair.columns, strict=True)
    ]
    compared = np.array([bool(len(a)) and bool(len(b)) for a, b in zip(*by_task, strict=True)], dtype=bool)
    compared &= metric_pair.eligible
    first, second = (
        [values for values, kept in zip(tasks, compared.tolist(), strict=True) if kept] for tasks in by_task
    )
    compute_first, compute_second = (_compute_function(metric) for metric in metric_pair.metrics)
    samples = metric_pair.samples(compared)
    if not first:
        no_difference = Difference(None, None, None, None, METHOD, 0, why=NO_COMMON)
        return Measured(metric_pair, metric_pair.higher_is_better, no_difference, None, None, compared, samples)
    old, new = compute_first(first), compute_second(second)
    units = None if metric_pair.clusters is None else metric_pair.clusters[compared]
    code = np.arange(len(first)) if units is None else np.unique(units, return_inverse=True)[1]

    drawn: list[tuple[float, float]] = []

    def draw(tasks: Sequence[int]) -> float:
        old, new = compute_first([first[task] for task in tasks]), compute_second([second[task] for task in tasks])
        drawn.append((old, new))
        return _difference(new, old)

    difference = _resample(_difference(new, old), draw, code, sum(samples), metric_pair)
    sides = np.array(drawn).reshape(-1, 2)
    if drawn and (one_sided(old, sides[:, 0]) or one_sided(new, sides[:, 1])):
        difference = Difference(difference.value, None, None, None, METHOD, difference.units, why=ONE_SIDED)
    shown = [value if math.isfinite(value) else None for value in (old, new)]
    return Measured(metric_pair, metric_pair.higher_is_better, difference, shown[0], shown[1], compared, samples)


def _resample(
    value: float, draw: Callable[[Sequence[int]], float], code: Ints, size: int, metric_pair: MetricPair
) -> Difference:
    """The bootstrap of a difference; ``code`` is the unit of each task, [T], and ``size`` the samples of a draw."""
    units = int(code.max()) + 1
    if not math.isfinite(value):
        return Difference(None, None, None, None, METHOD, units, why=UNDEFINED)
    if metric_pair.question.anytime:
        return Difference(value, None, None, None, BETTING, units, why=NO_MEAN)
    if units < 2:
        why = ONE_TASK if len(code) < 2 else ONE_CLUSTER
        return Difference(value, None, None, None, METHOD, units, why=why)
    draws = min(DRAWS, MOST_VALUES // max(size, 1))
    if draws < FEWEST_DRAWS:
        why = f"{size:,} samples are too many to draw them {FEWEST_DRAWS} times"
        return Difference(value, None, None, None, METHOD, units, why=why)
    members = np.split(np.argsort(code, kind="stable"), np.cumsum(np.bincount(code))[:-1])
    rng = np.random.Generator(np.random.PCG64(metric_pair.seed))
    draw_values = np.array(
        [draw(np.concatenate([members[u] for u in _draw_units(rng, units)]).tolist()) for _ in range(draws)]
    )
    return resampled_difference(by_draws(value, draw_values, metric_pair.confidence, units))


def resampled_difference(result: Resampled) -> Difference:
    """The result of a bootstrap as a Difference."""
    return Difference(
        result.value, result.stderr, result.interval, result.p, METHOD, result.units, float(result.units),
        why=result.why, draws=result.differences,
    )  # fmt: skip


def _draw_units(rng: np.random.Generator, units: int) -> list[int]:
    """Draw units with replacement from raw bits, because numpy may change how it turns bits into integers."""
    bits: Any = rng.bit_generator
    raw = bits.random_raw(units) >> np.uint64(32)
    return [int(number) for number in (raw * np.uint64(units)) >> np.uint64(32)]


def _difference(first: float, second: float) -> float:
    """First less second, or 0 if they differ only by rounding."""
    return float(apart(np.asarray(first), np.asarray(second)))


def _values_by_task(column: Column, by: Groups) -> list[Floats]:
    """The given values of each task, a list of T arrays."""
    return np.split(column.kept(), np.cumsum(by.count(column.given))[:-1]) if by.size else []


def _compute_function(request: RequestedMetric) -> Compute:
    metric = request.metric
    if isinstance(metric, Metric):
        params = {key: request.params[key] for key in metric.aggregated}
        return lambda tasks: float(metric.aggregate(np.concatenate(tasks), **params))
    return lambda tasks: float(metric.compute([task.tolist() for task in tasks]))


MEAN_KINDS = ("mean", "posterior", "pooled")  # kinds of intervals whose difference is a mean of task differences


@contextmanager
def failures_named(request: RequestedMetric) -> Iterator[None]:
    """Turn an exception in a user's metric into a PluginError with the metric's name."""
    try:
        yield
    except (Exception, SystemExit) as error:
        if not request.user_code or isinstance(error, InputError):
            raise
        raise PluginError(f"metric {request.text!r} failed: {type(error).__name__}: {error}") from error


def measure(metric_pair: MetricPair) -> Measured:
    """Compare two runs by one metric."""
    with failures_named(metric_pair.metrics[0]):
        return _measure(metric_pair)


def _measure(metric_pair: MetricPair) -> Measured:
    metric = metric_pair.metrics[0].metric
    if not isinstance(metric, Metric) or metric.rows:
        return _without_resampling(_measure_resampled(metric_pair), metric)
    reduced = rounded_alike(*(reduced_of(metric_pair, run, metric_pair.columns[run]) for run in (0, 1)))
    compared = reduced[0].given & reduced[1].given & metric_pair.eligible
    pair = (reduced[0].values[compared], reduced[1].values[compared])
    passes_of_runs = _passes(reduced, compared)
    difference = _tested(metric, metric_pair, reduced, compared)
    by_task = metric_pair.clusters is None and difference.p is not None  # not if the units are clusters
    first, second = (_value(metric, metric_pair, side) for side in pair)
    variance, repeats = _variance_and_repeats(metric, metric_pair, compared) if by_task else (None, None)
    measured = Measured(
        metric_pair=metric_pair,
        higher_is_better=metric_pair.higher_is_better,
        difference=difference,
        first=first,
        second=second,
        compared=compared,
        samples=metric_pair.samples(compared),
        values=_task_values(metric, reduced),
        weights=(reduced[0].values[:, 1], reduced[1].values[:, 1]) if pair[0].ndim > 1 else None,
        # not in an anytime test, because McNemar's p is valid only for a single look at the data
        mcnemar=flips(passes_of_runs[0][compared], passes_of_runs[1][compared])
        if passes_of_runs and by_task and not metric_pair.question.anytime
        else None,
        variance=variance,
        repeats=repeats,
    )
    return _without_resampling(measured, metric)


def _without_resampling(measured: Measured, metric: Metric | Opaque) -> Measured:
    """Remove the interval and test of a maximum, minimum or sum, for which the bootstrap is not valid."""
    if not isinstance(metric, Metric):
        return measured
    q = metric.quantile
    if isinstance(q, str):
        q = measured.metric_pair.metrics[0].params[q]
    if metric.aggregate not in EXTREMES and metric.aggregate is not total and q not in (0, 100):
        return measured
    value, units = measured.difference.value, measured.difference.units
    if value is None:
        return measured
    why = metric.no_interval or EXTREME
    return replace(measured, difference=Difference(value, None, None, None, METHOD, units, why=why))


def reduced_of(metric_pair: MetricPair, run: int, columns: list[Column]) -> Column:
    """The task values of the metric in the first (0) or second (1) run, from the given columns, [T] or [T, 2]."""
    return task_values(metric_pair.metrics[run], metric_pair.sides[run], columns)


def task_values(request: RequestedMetric, run: Rollouts, columns: Sequence[Column]) -> Column:
    """The task values of a metric in a run, from the given columns, [T] or [T, 2]."""
    metric: Any = request.metric
    params = {key: request.params[key] for key in metric.params if key not in (*metric.aggregated, "column")}
    values: Column = metric.reduce(*columns, by=run.by_task, **params)
    metric.check_values(values, run.by_task)
    if metric.interval == "posterior":  # column 0 is the mean; the variance in column 1 is not needed here
        return Column(values.values[:, 0], values.given)
    return values


def rounded_alike(first: Column, second: Column) -> tuple[Column, Column]:
    """Make values equal that differ only by rounding, because an error that all tasks share would be significant."""
    if first.values.ndim > 1:
        return first, second
    with np.errstate(invalid="ignore"):
        same = apart(second.values, first.values) == 0
    larger = np.maximum(first.values, second.values)  # independent of the order of the runs
    return Column(np.where(same, larger, first.values), first.given), Column(
        np.where(same, larger, second.values), second.given
    )


def tested(metric_pair: MetricPair, first: Column, second: Column) -> Difference:
    """The difference between the task values of both runs, by the requested test."""
    metric = metric_pair.metrics[0].metric
    if not isinstance(metric, Metric):
        raise TypeError(f"{metric.name} has no task values")
    reduced = rounded_alike(first, second)
    return _tested(metric, metric_pair, reduced, reduced[0].given & reduced[1].given & metric_pair.eligible)


def _tested(metric: Metric, metric_pair: MetricPair, reduced: tuple[Column, Column], compared: Bools) -> Difference:
    """The difference by the requested test if the metric is a mean, else by the bootstrap."""
    pair = first, second = reduced[0].values[compared], reduced[1].values[compared]
    test = metric_pair.question.test
    units = clusters_of(metric_pair, compared)
    if not len(first):
        return Difference(None, None, None, None, test, 0, why=NO_COMMON)
    if metric_pair.question.anytime:
        return _anytime(metric, metric_pair, pair, compared, units)
    if test == METHOD or metric.interval not in MEAN_KINDS:
        return _bootstrapped(metric, metric_pair, pair, units)
    with np.errstate(invalid="ignore"):
        pulls = rate_units(second, first, units) if first.ndim > 1 else units_of(second - first, None, units)
    difference = judged(pulls, limits_of(metric_pair), metric_pair.confidence, STRICT if test == STRICT else FLOORED_T)
    if difference.p is None or test in (FLOORED_T, STRICT):
        return difference
    if test == "sign_flip":
        return replace(difference, p=sign_flip(pulls.pulls, seed=metric_pair.seed).p, method=test)
    if (passes_of_runs := _passes(reduced, compared)) is None:
        problem = f"McNemar's test needs one pass or fail for each task, which {metric_pair.text} does not have"
        raise InputError(f"{problem}; expected a metric of 0 and 1, such as solved_rate, or --test sign-flip")
    mcnemar = flips(passes_of_runs[0][compared], passes_of_runs[1][compared])
    return replace(difference, p=mcnemar.exact if test == "mcnemar" else mcnemar.mid_p, method=test)


def clusters_of(metric_pair: MetricPair, compared: Bools) -> Ints | None:
    """The cluster of each compared task; None without clusters."""
    return None if metric_pair.clusters is None else metric_pair.clusters[compared]


def _anytime(
    metric: Metric, metric_pair: MetricPair, pair: tuple[Floats, Floats], compared: Bools, units: Ints | None
) -> Difference:
    """The difference by the anytime test, without a test if the metric is not a mean of task values."""
    order = metric_pair.common.order
    order = (np.cumsum(compared) - 1)[order[compared[order]]]  # indices among the compared tasks
    first, second = (side[order] for side in pair)
    uneven = metric.interval == "pooled" and any(len(np.unique(side[:, 1])) > 1 for side in pair)
    if uneven or metric.interval not in MEAN_KINDS:
        old, new = _value(metric, metric_pair, first), _value(metric, metric_pair, second)
        value = None if old is None or new is None else new - old
        count = len(first) if units is None else len(np.unique(units))
        return Difference(value, None, None, None, BETTING, count, why=UNEVEN if uneven else NO_MEAN)
    if metric.interval == "pooled":
        first, second = (side[:, 0] / side[:, 1] for side in (first, second))
    return anytime(
        apart(second, first),
        None if units is None else units[order],
        limits=limits_of(metric_pair),
        confidence=metric_pair.confidence,
    )


def _bootstrapped(
    metric: Metric, metric_pair: MetricPair, pair: tuple[Floats, Floats], units: Ints | None
) -> Difference:
    """The difference by the paired bootstrap over tasks or clusters."""
    first, second = pair
    options: dict[str, Any] = {"confidence": metric_pair.confidence, "seed": metric_pair.seed}
    if metric.interval == "pooled":
        return resampled_difference(paired_bootstrap(second, first, ratio, units, **options))
    if metric.interval in ("mean", "posterior"):
        old, new = (np.stack([side, np.ones(len(side))], axis=1) for side in pair)
        return resampled_difference(paired_bootstrap(new, old, ratio, units, **options))
    aggregate = partial(metric.aggregate, **{key: metric_pair.metrics[0].params[key] for key in metric.aggregated})
    if metric.aggregate is COST_PER_SOLVED.aggregate:  # a ratio of totals: it depends only on the sums over tasks
        return resampled_difference(
            paired_bootstrap(second, first, lambda sums: aggregate(sums[..., None, :]), units, **options)
        )
    return resampled_difference(paired_bootstrap_of_values(second, first, aggregate, units, **options))


def _value(metric: Metric, metric_pair: MetricPair, values: Floats) -> float | None:
    """The metric of the task values; None without tasks or if it is not finite."""
    if not len(values):
        return None
    if metric.interval == "posterior":
        value = float(mean(values))
    else:
        params = {key: metric_pair.metrics[0].params[key] for key in metric.aggregated}
        value = float(metric.aggregate(values, **params))
    return value + 0.0 if np.isfinite(value) else None  # + 0.0 turns -0.0 into 0.0


def limits_of(metric_pair: MetricPair) -> tuple[float, float] | None:
    """The range of the metric's values, if it is known; an error if a reward is outside the range of the plan."""
    metric = metric_pair.metrics[0].metric
    if not isinstance(metric, Metric):
        return None
    known = metric_pair.question.plan.range
    if known is not None and metric.reads[0] == "reward":
        for side, columns in zip(metric_pair.sides, metric_pair.columns, strict=True):
            demand_range(side, columns[0], metric_pair.metrics[0].params.get("reward") or "reward", known)
    return value_limits(metric, [columns[0] for columns in metric_pair.columns], known)


def value_limits(
    metric: Metric, rewards: Sequence[Column], known: tuple[float, float] | None
) -> tuple[float, float] | None:
    """The range of a metric's values; None if it is unknown.

    ``known`` is the range of the rewards, [0, 1] without it. It says nothing about a column with values outside of it.
    """
    if metric.range is not None or not metric.of_rewards:
        return metric.range
    low, high = known or UNIT
    kept = (column.kept() for column in rewards)
    inside = all(bool(((values >= low) & (values <= high)).all()) for values in kept)
    return metric.reach((low, high)) if inside else None


def _task_values(metric: Metric, reduced: tuple[Column, Column]) -> tuple[Floats, Floats] | None:
    """The value of each task in both runs, [T] each; None if tasks have no values of their own."""
    if metric.interval == "pooled":
        first, second = (side.values[:, 0] / np.maximum(side.values[:, 1], 1.0) for side in reduced)
        return first, second
    return None if reduced[0].values.ndim > 1 else (reduced[0].values, reduced[1].values)


def _passes(reduced: tuple[Column, Column], compared: Bools) -> tuple[Bools, Bools] | None:
    """Which tasks pass in each run, [T] each; None unless every compared task has one pass or fail in each run."""
    passes_of_runs = []
    for side in reduced:
        values = side.values
        if values.ndim > 1:
            if values.shape[1] != 2 or bool((values[compared, 1] != 1).any()):  # more than one sample
                return None
            values = values[:, 0]
        kept = values[compared]
        if not len(kept) or bool(((kept != 0) & (kept != 1)).any()):
            return None
        passes_of_runs.append(values == 1)
    return passes_of_runs[0], passes_of_runs[1]


def _variance_and_repeats(
    metric: Metric, metric_pair: MetricPair, compared: Bools
) -> tuple[PairVariance | None, float | None]:
    """The variance components of a task's difference, and the samples per task of the run that has fewer.

    None for a metric that is not a mean over samples.
    """
    if metric.reduce is not task_mean and metric.reduce is not passes:
        return None, None
    columns = []
    for request, read in zip(metric_pair.metrics, metric_pair.columns, strict=True):
        column = read[0]
        if metric.reduce is passes:
            column = Column(passed(column, request.params["threshold"]).astype(float), column.given)
        columns.append(column)
    first, second = metric_pair.sides
    variance = pair_variance(columns[1], columns[0], second.by_task, first.by_task)
    repeats = min(metric_pair.samples(compared)) / max(int(compared.sum()), 1)
    return (variance if isinstance(variance, PairVariance) else None), repeats
