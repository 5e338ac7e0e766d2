"""One metric of two runs on their common tasks: its columns, the difference, its interval and its test.

What `stats.paired` calls the first run is our second: delta is second less first. What no value per task carries
(percentiles over rollouts, somebody's own function) is drawn again: tasks, or whole clusters, with all their samples,
the same for both runs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from calipers.analyses.compare import Question
from calipers.analyses.compare.align import Common
from calipers.errors import InputError, PluginError, UnknownName
from calipers.metrics import Metric, Opaque, largest, mean, passed, smallest, task_mean
from calipers.metrics.columns import COST_PER_SOLVED
from calipers.metrics.rewards import passes
from calipers.request import RequestedMetric, column_of, is_reward, per_column
from calipers.rollouts.column import Bools, Column, Floats, Groups, Ints, total
from calipers.rollouts.table import Rollouts
from calipers.stats.anytime import BETTING, NO_MEAN, UNEVEN, anytime
from calipers.stats.intervals import ONE_CLUSTER, ONE_TASK
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

METHOD = "paired_bootstrap"
DRAWS = 1_000  # a call of Python each
FEWEST_DRAWS = 200
MOST_VALUES = 20_000_000

Compute = Callable[[Sequence[Any]], float]
"""A metric from what each task holds."""


@dataclass(frozen=True, slots=True)
class MetricPair:
    """One metric of two runs: the columns it reads of them, gaps and all."""

    metrics: tuple[RequestedMetric, RequestedMetric]  # as it is asked of the first run and of the second
    common: Common
    columns: tuple[list[Column], list[Column]]
    clusters: Ints | None  # [T]
    question: Question
    by: str | None = None  # the key of a slice; None for all tasks
    slice: str | None = None

    @property
    def text(self) -> str:
        """What the metric is called in the findings."""
        return self.metrics[0].text

    @property
    def question_text(self) -> str:
        """The question as ``--primary`` names it."""
        return self.text + ("" if self.by is None else f"[{self.by}={self.slice}]")

    @property
    def sides(self) -> tuple[Rollouts, Rollouts]:
        """The rollouts of the first run and of the second."""
        return self.common.sides

    @property
    def confidence(self) -> float:
        """Of intervals, and 1 less the level of tests."""
        return self.question.plan.confidence

    @property
    def seed(self) -> int:
        """The seed of resampling."""
        return self.question.plan.seed

    @property
    def higher_is_better(self) -> bool | None:
        """Which way is better; None where neither is known to be."""
        metric = self.metrics[0].metric
        return metric.higher_is_better if isinstance(metric, Metric) else None

    @property
    def counted(self) -> Bools:
        """The tasks that are compared, [T]: all, or for an anytime test the finished ones."""
        if self.question.anytime:
            return self.common.settled
        return np.ones(len(self.common.own_ids), dtype=bool)

    def samples(self, there: Bools) -> tuple[int, int]:
        """How many samples of the marked tasks each run has, [T] given."""
        entered = [
            int(side.by_task.count(columns[0].given)[there].sum())
            for side, columns in zip(self.sides, self.columns, strict=True)
        ]
        return entered[0], entered[1]


@dataclass(frozen=True, slots=True)
class Measured:
    """A difference, second run minus first, with its parts, and its p adjusted for the others on its page."""

    metric_pair: MetricPair  # gaps and all; without columns for a number of a table
    higher_is_better: bool | None  # None where neither way is known to be better
    difference: Difference
    first: float | None
    second: float | None
    there: Bools  # [T] common tasks with a value in both
    samples: tuple[int, int]
    values: tuple[Floats, Floats] | None = None  # [T] each, where a task has a value of its own
    weights: tuple[Floats, Floats] | None = None  # [T] each, by which a pooled rate counts them
    mcnemar: McNemar | None = None
    variance: PairVariance | None = None
    repeats: float | None = None  # samples per task, of the run that has fewer
    primary: bool = False  # as `findings.adjusted` sets these
    confidence: float = math.nan  # of its interval, among the others
    p_adjusted: float | None = None  # by which its verdict goes
    p_holm: float | None = None
    p_bh: float | None = None


def metrics_of(
    metrics: Sequence[RequestedMetric], runs: tuple[Rollouts, Rollouts], names: tuple[str, str], reward: str | None
) -> tuple[list[tuple[RequestedMetric, RequestedMetric]], list[str]]:
    """What can be compared of all that is asked, and what must be said about the rest.

    A reward that both runs have is compared under its name. Where one run has a single reward, that is
    the one meant, whatever it is called. InputError for a metric that only one run can answer.
    """
    pairs: list[tuple[RequestedMetric, RequestedMetric]] = []
    notes: dict[str, None] = {}
    for metric in metrics:
        wanted = metric.params.get("reward") or reward
        if wanted and "reward" in metric.metric.reads and not any(wanted in run.rewards for run in runs):
            raise UnknownName.of("reward", wanted, sorted({key for run in runs for key in run.rewards}))
        first, second = (_variants(metric, run, reward, name) for run, name in zip(runs, names, strict=True))
        if len(first) == len(second) == 1:
            (a,), (b,) = first.values(), second.values()
            keys = a.params.get("reward"), b.params.get("reward")
            if keys[0] != keys[1] and all(keys):  # a run without any reward has no name for it
                notes[f"the reward is {keys[0]!r} in {names[0]} and {keys[1]!r} in {names[1]}"] = None
            pairs.append((a, b))
            continue
        first, second = _under_one_name(first, second)
        shared = [text for text in first if text in second]
        if not shared:
            rewards = "; ".join(f"{name} has {_listed(run)}" for run, name in zip(runs, names, strict=True))
            why = f"the runs have no reward in common ({rewards})"
            raise InputError(f"metric {metric.text!r}: {why}; pick one with --reward KEY")
        pairs += [(first[text], second[text]) for text in shared]
        for alone, name in ((first.keys() - second.keys(), names[0]), (second.keys() - first.keys(), names[1])):
            notes |= {f"{text} is excluded, because only {name} has it": None for text in sorted(alone)}
    return pairs, list(notes)


def _under_one_name(
    first: dict[str, RequestedMetric], second: dict[str, RequestedMetric]
) -> tuple[dict[str, RequestedMetric], dict[str, RequestedMetric]]:
    """The only reward of one run, called as the other run calls it among several."""
    sides = [first, second]
    for run, (variants, others) in enumerate(((first, second), (second, first))):
        if len(variants) == 1:
            (metric,) = variants.values()
            for text, other in others.items():
                if metric.params.get("reward") is not None and metric.params["reward"] == other.params.get("reward"):
                    sides[run] = {text: replace(metric, text=text)}
    return sides[0], sides[1]


def columns_of(metric: RequestedMetric, run: Rollouts, name: str, *, zero: bool) -> list[Column]:
    """The columns a metric reads of a run, in their order; gaps in rewards are 0 where ``zero`` says so."""
    columns = []
    for what in metric.metric.reads:
        try:
            column = column_of(run, what, metric.params)
        except InputError as error:
            raise InputError(f"metric {metric.text!r}: {name} has no data for it: {error}") from None
        columns.append(column.filled(0.0) if zero and (what == "reward" or is_reward(run, metric)) else column)
    return columns


def _variants(metric: RequestedMetric, run: Rollouts, chosen: str | None, name: str) -> dict[str, RequestedMetric]:
    """The metric once for each reward or column that it may be asked of, by what it is called then."""
    if "reward" not in metric.metric.reads:
        return {each.text: each for each in per_column(metric, run)}
    keys = rewards_of(run)
    wanted = metric.params.get("reward") or chosen
    if wanted and wanted not in keys and len(keys) > 1:
        raise UnknownName.of(f"reward in {name}", wanted, keys)
    if wanted in keys:
        return {metric.text: _with(metric, wanted)}
    if run.usual_reward in keys or len(keys) < 2:
        return {metric.text: _with(metric, keys[0] if len(keys) == 1 else run.usual_reward)}
    head, opened, rest = metric.text.partition("(")
    inner = f"{rest.removesuffix(')')}, " if opened else ""
    return {text: _with(metric, key, text) for key in keys for text in [f"{head}({inner}reward={key})"]}


def _with(metric: RequestedMetric, key: str | None, text: str | None = None) -> RequestedMetric:
    return replace(metric, text=text or metric.text, params={**metric.params, "reward": key})


def rewards_of(run: Rollouts) -> list[str]:
    """The rewards that some rollout of a run has: others may stand there for another dataset's sake."""
    return sorted(key for key, column in run.rewards.items() if column.given.any()) or sorted(run.rewards)


def _listed(run: Rollouts) -> str:
    return ", ".join(map(repr, rewards_of(run))) or "none"


def drawn(metric_pair: MetricPair) -> Measured:
    """The difference of a metric that only all samples together have."""
    by_task = [
        _by_task(columns[0], side.by_task) for side, columns in zip(metric_pair.sides, metric_pair.columns, strict=True)
    ]
    there = np.array([bool(len(a)) and bool(len(b)) for a, b in zip(*by_task, strict=True)], dtype=bool)
    there &= metric_pair.counted
    first, second = (
        [values for values, filled in zip(tasks, there.tolist(), strict=True) if filled] for tasks in by_task
    )
    computes = _compute(metric_pair.metrics[0]), _compute(metric_pair.metrics[1])
    samples = metric_pair.samples(there)
    if not first:
        none = Difference(None, None, None, None, METHOD, 0, why=NO_COMMON)
        return Measured(metric_pair, metric_pair.higher_is_better, none, None, None, there, samples)
    ends = computes[0](first), computes[1](second)
    units = None if metric_pair.clusters is None else metric_pair.clusters[there]
    code = np.arange(len(first)) if units is None else np.unique(units, return_inverse=True)[1]

    def draw(tasks: Sequence[int]) -> float:
        old, new = computes[0]([first[task] for task in tasks]), computes[1]([second[task] for task in tasks])
        return _apart(new, old)

    difference = _judged(_apart(ends[1], ends[0]), draw, code, sum(samples), metric_pair)
    shown = [end if math.isfinite(end) else None for end in ends]
    return Measured(metric_pair, metric_pair.higher_is_better, difference, shown[0], shown[1], there, samples)


def _judged(
    value: float, draw: Callable[[Sequence[int]], float], code: Ints, size: int, metric_pair: MetricPair
) -> Difference:
    """A difference by its draws; ``code`` is the unit of each task, [T], and ``size`` how much a draw handles."""
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
    drawn_values = np.array(
        [draw(np.concatenate([members[u] for u in _units(rng, units)]).tolist()) for _ in range(draws)]
    )
    return resampled_difference(by_draws(value, drawn_values, metric_pair.confidence, units))


def resampled_difference(drawn: Resampled) -> Difference:
    """What the bootstrap found; for what is asked beyond that, the normal distribution with its spread."""
    return Difference(
        drawn.value, drawn.stderr, drawn.interval, drawn.p, METHOD, drawn.units, float(drawn.units),
        why=drawn.why, draws=drawn.found,
    )  # fmt: skip


def _units(rng: np.random.Generator, units: int) -> list[int]:
    """Units drawn with replacement, from raw bits: numpy may change how it makes numbers of them."""
    bits: Any = rng.bit_generator
    raw = bits.random_raw(units) >> np.uint64(32)
    return [int(number) for number in (raw * np.uint64(units)) >> np.uint64(32)]


def _apart(first: float, second: float) -> float:
    """First less second, rounding left out."""
    return float(apart(np.asarray(first), np.asarray(second)))


def _by_task(column: Column, by: Groups) -> list[Floats]:
    """What each task holds, [T] arrays of its given values."""
    return np.split(column.kept(), np.cumsum(by.count(column.given))[:-1]) if by.size else []


def _compute(request: RequestedMetric) -> Compute:
    metric = request.metric
    if isinstance(metric, Metric):
        settled = {key: request.params[key] for key in metric.aggregated}
        return lambda tasks: float(metric.aggregate(np.concatenate(tasks), **settled))
    return lambda tasks: float(metric.compute([task.tolist() for task in tasks]))


MEANS = ("mean", "posterior", "pooled")  # kinds of intervals whose difference is a mean of task differences


def measure(metric_pair: MetricPair) -> Measured:
    """Compare two runs by one metric."""
    try:
        return _measure(metric_pair)
    except (Exception, SystemExit) as error:
        if not metric_pair.metrics[0].foreign or isinstance(error, InputError):
            raise
        raise PluginError(f"metric {metric_pair.text!r} failed: {type(error).__name__}: {error}") from error


def _measure(metric_pair: MetricPair) -> Measured:
    metric = metric_pair.metrics[0].metric
    if not isinstance(metric, Metric) or metric.rows:
        return _untested(drawn(metric_pair), metric)
    reduced = rounded_alike(*(reduced_of(metric_pair, run, metric_pair.columns[run]) for run in (0, 1)))
    there = reduced[0].given & reduced[1].given & metric_pair.counted
    pair = (reduced[0].values[there], reduced[1].values[there])
    outright = _outright(reduced, there)
    difference = _tested(metric, metric_pair, reduced, there)
    counted = metric_pair.clusters is None and difference.p is not None  # clusters are no tasks of their own
    first, second = (_value(metric, metric_pair, side) for side in pair)
    variance, repeats = _parts(metric, metric_pair, there) if counted else (None, None)
    measured = Measured(
        metric_pair=metric_pair,
        higher_is_better=metric_pair.higher_is_better,
        difference=difference,
        first=first,
        second=second,
        there=there,
        samples=metric_pair.samples(there),
        values=_task_values(metric, reduced),
        weights=(reduced[0].values[:, 1], reduced[1].values[:, 1]) if pair[0].ndim > 1 else None,
        # whose p holds for one look only
        mcnemar=flips(outright[0][there], outright[1][there])
        if outright and counted and not metric_pair.question.anytime
        else None,
        variance=variance,
        repeats=repeats,
    )
    return _untested(measured, metric)


def _untested(measured: Measured, metric: Metric | Opaque) -> Measured:
    """The same without a test, where drawing again says nothing: of an extreme, or of a sum."""
    if not isinstance(metric, Metric) or metric.aggregate not in (largest, smallest, total):
        return measured
    bare = Difference(
        measured.difference.value, None, None, None, METHOD, measured.difference.units, why=metric.no_interval
    )
    return replace(measured, difference=bare if measured.difference.value is not None else measured.difference)


def reduced_of(metric_pair: MetricPair, run: int, columns: list[Column]) -> Column:
    """What a metric makes of these columns of the first run or the second, task by task, [T] or [T, 2]."""
    return task_values(metric_pair.metrics[run], metric_pair.sides[run], columns)


def task_values(request: RequestedMetric, run: Rollouts, columns: Sequence[Column]) -> Column:
    """What a metric makes of these columns of a run, task by task, [T] or [T, 2]."""
    metric: Any = request.metric
    settled = {key: request.params[key] for key in metric.params if key not in (*metric.aggregated, "column")}
    values: Column = metric.reduce(*columns, by=run.by_task, **settled)
    metric.check_values(values, run.by_task)
    if metric.interval == "posterior":  # a mean over tasks, whose variance is not asked for here
        return Column(values.values[:, 0], values.given)
    return values


def rounded_alike(first: Column, second: Column) -> tuple[Column, Column]:
    """The same values, equal where they differ by rounding: an error that all tasks share would be significant."""
    if first.values.ndim > 1:
        return first, second
    with np.errstate(invalid="ignore"):
        same = apart(second.values, first.values) == 0
    larger = np.maximum(first.values, second.values)  # whichever run comes first
    return Column(np.where(same, larger, first.values), first.given), Column(
        np.where(same, larger, second.values), second.given
    )


def tested(metric_pair: MetricPair, first: Column, second: Column) -> Difference:
    """The difference between task values of both runs, by the requested test."""
    metric = metric_pair.metrics[0].metric
    if not isinstance(metric, Metric):
        raise TypeError(f"{metric.name} has no task values")
    reduced = rounded_alike(first, second)
    return _tested(metric, metric_pair, reduced, reduced[0].given & reduced[1].given & metric_pair.counted)


def _tested(metric: Metric, metric_pair: MetricPair, reduced: tuple[Column, Column], there: Bools) -> Difference:
    """The difference by the requested test if the metric is a mean, else by the bootstrap."""
    pair = first, second = reduced[0].values[there], reduced[1].values[there]
    test = metric_pair.question.test
    units = None if metric_pair.clusters is None else metric_pair.clusters[there]
    if not len(first):
        return Difference(None, None, None, None, test, 0, why=NO_COMMON)
    if metric_pair.question.anytime:
        return _in_order(metric, metric_pair, pair, there, units)
    if test == METHOD or metric.interval not in MEANS:
        return _bootstrapped(metric, metric_pair, pair, units)
    with np.errstate(invalid="ignore"):
        pulls = rate_units(second, first, units) if first.ndim > 1 else units_of(second - first, None, units)
    difference = judged(
        pulls, _limits(metric, metric_pair), metric_pair.confidence, STRICT if test == STRICT else FLOORED_T
    )
    if difference.p is None or test in (FLOORED_T, STRICT):
        return difference
    if test == "sign_flip":
        return replace(difference, p=sign_flip(pulls.pulls, seed=metric_pair.seed).p, method=test)
    if (outright := _outright(reduced, there)) is None:
        right = "expected a metric of 0 and 1, such as solved_rate, or --test sign-flip"
        raise InputError(
            f"McNemar's test needs one pass or fail for each task, which {metric_pair.text} does not have; {right}"
        )
    counted = flips(outright[0][there], outright[1][there])
    return replace(difference, p=counted.exact if test == "mcnemar" else counted.mid_p, method=test)


def _in_order(
    metric: Metric, metric_pair: MetricPair, pair: tuple[Floats, Floats], there: Bools, units: Ints | None
) -> Difference:
    """The difference by the anytime test, if the metric is a mean of task values."""
    order = metric_pair.common.order
    order = (np.cumsum(there) - 1)[order[there[order]]]  # places among the tasks that are there
    first, second = (side[order] for side in pair)
    uneven = metric.interval == "pooled" and any(len(np.unique(side[:, 1])) > 1 for side in pair)
    if uneven or metric.interval not in MEANS:
        ends = _value(metric, metric_pair, first), _value(metric, metric_pair, second)
        value = None if ends[0] is None or ends[1] is None else ends[1] - ends[0]
        count = len(first) if units is None else len(np.unique(units))
        return Difference(value, None, None, None, BETTING, count, why=UNEVEN if uneven else NO_MEAN)
    if metric.interval == "pooled":
        first, second = (side[:, 0] / side[:, 1] for side in (first, second))
    return anytime(
        apart(second, first),
        None if units is None else units[order],
        limits=_limits(metric, metric_pair),
        confidence=metric_pair.confidence,
    )


def _bootstrapped(
    metric: Metric, metric_pair: MetricPair, pair: tuple[Floats, Floats], units: Ints | None
) -> Difference:
    first, second = pair
    sure: dict[str, Any] = {"confidence": metric_pair.confidence, "seed": metric_pair.seed}
    if metric.interval == "pooled":
        return resampled_difference(paired_bootstrap(second, first, ratio, units, **sure))
    if metric.interval in ("mean", "posterior"):
        old, new = (np.stack([side, np.ones(len(side))], axis=1) for side in pair)
        return resampled_difference(paired_bootstrap(new, old, ratio, units, **sure))
    aggregate = partial(metric.aggregate, **{key: metric_pair.metrics[0].params[key] for key in metric.aggregated})
    if (
        metric.aggregate is COST_PER_SOLVED.aggregate
    ):  # a ratio of totals: what it makes of one task it makes of their sum
        return resampled_difference(
            paired_bootstrap(second, first, lambda sums: aggregate(sums[..., None, :]), units, **sure)
        )
    return resampled_difference(paired_bootstrap_of_values(second, first, aggregate, units, **sure))


def _value(metric: Metric, metric_pair: MetricPair, values: Floats) -> float | None:
    if not len(values):
        return None
    if metric.interval == "posterior":
        value = float(mean(values))
    else:
        value = float(
            metric.aggregate(values, **{key: metric_pair.metrics[0].params[key] for key in metric.aggregated})
        )
    return value + 0.0 if np.isfinite(value) else None


def _limits(metric: Metric, metric_pair: MetricPair) -> tuple[float, float] | None:
    """The range of the values, where it is known."""
    known = metric_pair.question.plan.range
    if known is not None and metric.reads[0] == "reward":
        for side, columns in zip(metric_pair.sides, metric_pair.columns, strict=True):
            demand_range(side, columns[0], metric_pair.metrics[0].params.get("reward") or "reward", known)
    return value_limits(metric, [columns[0] for columns in metric_pair.columns], known)


def value_limits(
    metric: Metric, rewards: Sequence[Column], known: tuple[float, float] | None
) -> tuple[float, float] | None:
    """The range of a metric's values; where none is ``known`` of the rewards, they lie in [0, 1] if all of them do."""
    if metric.range is not None or not metric.of_rewards:
        return metric.range
    if known is not None:
        return metric.reach(known)
    kept = (column.kept() for column in rewards)
    return (0.0, 1.0) if all(bool(((some >= 0) & (some <= 1)).all()) for some in kept) else None


def _task_values(metric: Metric, reduced: tuple[Column, Column]) -> tuple[Floats, Floats] | None:
    """Each task's value in both runs, where it has one of its own, [T] each."""
    if metric.interval == "pooled":
        first, second = (side.values[:, 0] / np.maximum(side.values[:, 1], 1.0) for side in reduced)
        return first, second
    return None if reduced[0].values.ndim > 1 else (reduced[0].values, reduced[1].values)


def _outright(reduced: tuple[Column, Column], there: Bools) -> tuple[Bools, Bools] | None:
    """The passes of both runs, [T] each, where every task has one pass or fail in each; else None."""
    outright = []
    for side in reduced:
        values = side.values
        if values.ndim > 1:
            if values.shape[1] != 2 or bool((values[there, 1] != 1).any()):  # more than one sample
                return None
            values = values[:, 0]
        kept = values[there]
        if not len(kept) or bool(((kept != 0) & (kept != 1)).any()):
            return None
        outright.append(values == 1)
    return outright[0], outright[1]


def _parts(metric: Metric, metric_pair: MetricPair, there: Bools) -> tuple[PairVariance | None, float | None]:
    """What the variance of a task's difference is made of, for means over samples; samples per task of the
    run that has fewer.
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
    repeats = min(metric_pair.samples(there)) / max(int(there.sum()), 1)
    return (variance if isinstance(variance, PairVariance) else None), repeats
