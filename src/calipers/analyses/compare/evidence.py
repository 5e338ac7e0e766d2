"""The evidence on one metric of two runs: the difference as observed, on comparable samples, and in the worst cases.

::

    MetricPair ──► measured on all samples ──────────────────────────────────► observed
        │
        └─► cut to the first sample of each task, if counts follow results ──► compared, and its unseen losses
                └─► every missing rollout against the new run, and for it ───► worst
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from calipers.analyses.compare.align import Common
from calipers.analyses.compare.measure import Measured, MetricPair, clusters_of, limits_of, measure, reduced_of
from calipers.errors import InputError
from calipers.metrics import PASS_THRESHOLD, Metric, passed
from calipers.metrics.rewards import ANY_OF_FIRST_K, PASS_AT_K, UNDEFINED
from calipers.request import RequestedMetric
from calipers.rollouts.checks import Check, failed_checks
from calipers.rollouts.column import Bools, Column
from calipers.rollouts.filling import UNIT, Ends, ends_of, filled, to_fill
from calipers.rollouts.ledger import RANDOM, contributed
from calipers.rollouts.record import NOT_RUN
from calipers.rollouts.table import Rollouts
from calipers.stats.claims import Evidence, Unseen, unseen
from calipers.stats.counts import Follows, common_weights, follows
from calipers.stats.paired import FLOORED_T, Difference, judged

ALL_SAMPLES: Final = "all_samples"
FIRST_SAMPLES: Final = "first_samples"
NO_FIRST: Final = "the number of samples follows the results, and this metric has no value for first samples"
TOO_FEW_SEEN: Final = "some rewards are outside 0 to 1, fewer than 20 are known, and no --range is given"
NO_TABLE: Final = "no bounds are known for a number of another system's table"

Sides = tuple[Follows | None, Follows | None]
NEITHER: Final[Sides] = (None, None)


@dataclass(frozen=True, slots=True)
class Filling:
    """The missing rollouts of both runs that a conclusion must survive, and the numbers that stand for them."""

    rows: tuple[Bools, Bools]  # [R] each
    ends: Ends | None  # the lowest and the highest number; None if the effect of the rollouts is unknown
    seen: bool = False  # whether the ends are the lowest and the highest number seen
    why: str | None = None  # why their effect is unknown

    @property
    def counts(self) -> tuple[int, int]:
        """How many rollouts of each run are filled."""
        return int(self.rows[0].sum()), int(self.rows[1].sum())

    @property
    def known_ends(self) -> Ends:
        """The ends, where they are known."""
        if self.ends is None:
            raise ValueError("the ends of these missing rollouts are unknown")
        return self.ends


@dataclass(frozen=True, slots=True)
class Worst:
    """The differences with every missing rollout against the second run, and in its favour."""

    against: Difference
    in_favour: Difference
    as_asked: bool  # whether the requested test can be used on the filled runs; else the default one is


@dataclass(frozen=True, slots=True)
class Background:
    """What a verdict on a measured difference must know beside the difference."""

    evidence: Evidence
    pair: MetricPair  # the samples that are compared, with their gaps
    filling: Filling | None = None  # None: nothing is missing that a conclusion must survive
    worst: Worst | None = None  # None: their effect is unknown, or nothing is missing
    followed: Sides = NEITHER
    compared_on: str = ALL_SAMPLES


def doubts_about_pair(pair: MetricPair) -> list[Check]:
    """The numbers of the own systems of two runs that differ from ours; none if the user trusts the readers."""
    if pair.question.trust_reader:
        return []
    first, second = pair.common.sides
    return [*failed_checks(first.checks), *failed_checks(second.checks)]


def followed(common: Common, keys: tuple[str | None, str | None]) -> Sides:
    """Whether the number of samples of each run follows its results, by a reward of each run."""
    first, second = (followed_run(side, key) for side, key in zip(common.sides, keys, strict=True))
    return first, second


def followed_run(run: Rollouts, key: str | None) -> Follows | None:
    """Whether the number of samples of one run follows its results, by a reward; None if nothing shows it.

    A rollout that was not run does not count as planned: a run that stops at a result leaves the rest of the task so.
    """
    key = key or run.usual_reward or next(iter(run.rewards), "")
    if key not in run.rewards:
        return None
    rewards = contributed(run, key)
    asked = run.outcome != NOT_RUN
    passes = passed(rewards, PASS_THRESHOLD)[asked]
    return follows(passes, rewards.given[asked], run.task[asked], rewards=rewards.values[asked])


def examine(pair: MetricPair, sides: Sides = NEITHER, zero: MetricPair | None = None) -> Measured:
    """Measure a metric of two runs on the samples that can be compared, with the evidence for a verdict.

    ``zero`` is the pair with missing rewards counted as 0, if the user asked for that.
    """
    question, counted = pair.question, zero or pair
    observed = measure(counted)
    compared_pair, measured, compared_on = pair, observed, ALL_SAMPLES
    if any(sides):
        compared_pair, compared_on = first_samples(pair)
        if compared_on == NO_FIRST:
            measured = replace(observed, difference=_without_test(observed.difference))
            compared_on = ALL_SAMPLES
        elif compared_pair is not pair:
            measured = measure(first_samples(counted)[0])
    filling = filling_of(compared_pair)
    worst = _worst(compared_pair, filling)
    assumed = question.plan.missing in ("zero", RANDOM)  # the user says what missing rollouts are
    evidence = Evidence(
        observed=observed.difference,
        compared=measured.difference,
        worst=None if worst is None or assumed else (worst.against, worst.in_favour),
        unknown=filling is not None and filling.ends is None and not assumed,
        counts=any(sides),
        weighted=_on_common_weights(compared_pair, measured),
        unseen=None if question.anytime else unseen_of(compared_pair, measured),
        reader=bool(doubts_about_pair(pair)),
    )
    background = Background(evidence, compared_pair, filling, worst, sides, compared_on)
    return replace(measured, metric_pair=pair, background=background)


def of_table(measured: Measured) -> Measured:
    """A number of another system's table with its evidence: nobody knows what missing rollouts would do to it."""
    pair = measured.metric_pair
    filling = filling_of(pair)
    assumed = pair.question.plan.missing in ("zero", RANDOM)
    evidence = Evidence(
        measured.difference,
        measured.difference,
        unknown=filling is not None and not assumed,
        reader=bool(doubts_about_pair(pair)),
    )
    return replace(measured, background=Background(evidence, pair, filling))


def first_samples(pair: MetricPair) -> tuple[MetricPair, str]:
    """The same metric on samples whose number does not follow the results, and their name; `NO_FIRST` if it has none.

    The columns of the pair are cut with its rollouts.
    """
    compared_on = comparable_on(pair.metrics[0])
    if compared_on == NO_FIRST:
        return pair, NO_FIRST
    sides = [
        first_of_run(request, side, columns)
        for request, side, columns in zip(pair.metrics, pair.sides, pair.columns, strict=True)
    ]
    (first_request, first, first_columns), (second_request, second, second_columns) = sides
    cut = replace(
        pair,
        metrics=(first_request, second_request),
        common=replace(pair.common, first=first, second=second),
        columns=(first_columns, second_columns),
    )
    return cut, compared_on


def comparable_on(request: RequestedMetric) -> str:
    """The samples on which a metric can be compared if the number of samples follows the results.

    A mean over samples is compared on the first sample of each task. pass@k becomes whether one of the first k samples
    passes, which a run that stops at its first pass knows, too. `NO_FIRST` if the metric has no such value.
    """
    metric = request.metric
    if not isinstance(metric, Metric) or metric.rows:
        return NO_FIRST
    if metric.name in (PASS_AT_K.name, ANY_OF_FIRST_K.name):
        return ANY_OF_FIRST_K.name.format(**request.params)
    return FIRST_SAMPLES if metric.interval in ("mean", "posterior") and "k" not in metric.params else NO_FIRST


def first_of_run(
    request: RequestedMetric, run: Rollouts, columns: list[Column]
) -> tuple[RequestedMetric, Rollouts, list[Column]]:
    """The metric, the rollouts and the columns of one run, as they can be compared; see `comparable_on`."""
    if request.metric.name == ANY_OF_FIRST_K.name:
        return request, run, columns
    if request.metric.name == PASS_AT_K.name:
        params = {**request.params, "short": UNDEFINED}
        return replace(request, metric=ANY_OF_FIRST_K, params=params), run, columns
    rows = np.zeros(len(run), dtype=bool)
    rows[run.by_task.starts[:-1]] = True  # the first planned sample of each task
    return request, run.where(rows), [column.take(rows) for column in columns]


def _without_test(difference: Difference) -> Difference:
    return replace(difference, interval=None, p=None, why=NO_FIRST, evidence=None, draws=None)


def why_unfillable(request: RequestedMetric) -> str | None:
    """Why the effect of missing rollouts on a metric is unknown; None if a lower number never raises the metric."""
    metric = request.metric
    if request.user_code or not isinstance(metric, Metric):
        return "no bounds are known for a metric of a plugin or another system"
    if len(metric.reads) != 1 or metric.reads == ("answer",):
        return "no bounds are known for a metric that reads more than one column"
    return None


def filling_of(pair: MetricPair) -> Filling | None:
    """The missing rollouts that a conclusion must survive; None if there are none.

    Rollouts of tasks that an anytime test does not look at yet are not missing.
    """
    first, second = (
        rows_to_fill(request, side, columns) & pair.eligible[side.task]
        for request, side, columns in zip(pair.metrics, pair.sides, pair.columns, strict=True)
    )
    rows = first, second
    if not (rows[0].any() or rows[1].any()):
        return None
    if not all(pair.columns):
        return Filling(rows, None, why=NO_TABLE)
    if why := why_unfillable(pair.metrics[0]):
        return Filling(rows, None, why=why)
    declared = pair.question.plan.range if "reward" in pair.metrics[0].metric.reads else None
    both = [columns[0] for columns in pair.columns]
    ends = ends_of(both, declared)
    if ends is None:
        return Filling(rows, None, why=TOO_FEW_SEEN)
    return Filling(rows, ends, seen=declared is None and ends != UNIT)


def rows_to_fill(request: RequestedMetric, run: Rollouts, columns: list[Column]) -> Bools:
    """The missing rollouts of one run that a conclusion must survive, by what the metric reads, [R]."""
    reward = _reward_column(request, columns)
    rows = to_fill(run, reward)
    if reward is None and columns:
        rows = rows & ~columns[0].given
    return rows


def _reward_column(request: RequestedMetric, columns: list[Column]) -> Column | None:
    """The reward that the metric reads in one run; None if it reads none."""
    reads = request.metric.reads
    return columns[reads.index("reward")] if "reward" in reads and columns else None


def fill(pair: MetricPair, rows: tuple[Bools, Bools], first: float, second: float) -> MetricPair:
    """The same metric with these rollouts of each run set to a number."""
    (first_column, *_), (second_column, *_) = pair.columns
    columns = [filled(first_column, rows[0], first)], [filled(second_column, rows[1], second)]
    return replace(pair, columns=columns)


def _worst(pair: MetricPair, filling: Filling | None) -> Worst | None:
    """The differences in the worst and in the best case; None if nothing is missing, or its effect is unknown."""
    if filling is None or filling.ends is None:
        return None
    low, high = filling.ends
    against = fill(pair, filling.rows, high, low)
    in_favour = fill(pair, filling.rows, low, high)
    try:
        return Worst(measure(against).difference, measure(in_favour).difference, as_asked=True)
    except InputError:  # McNemar's test, if a task has more than one pass or fail once its missing rollouts are filled
        default = replace(pair.question, test=FLOORED_T)
        against, in_favour = replace(against, question=default), replace(in_favour, question=default)
        return Worst(measure(against).difference, measure(in_favour).difference, as_asked=False)


def _on_common_weights(pair: MetricPair, measured: Measured) -> Difference | None:
    """The difference of two pooled rates with the same weights of tasks in both; None if their counts are the same."""
    if measured.weights is None or measured.difference.p is None:
        return None
    kept = measured.compared
    if bool((measured.weights[0][kept] == measured.weights[1][kept]).all()):
        return None
    old, new = (reduced_of(pair, run, pair.columns[run]).values[kept] for run in (0, 1))
    units = common_weights(new, old, clusters_of(pair, kept))
    return judged(units, limits_of(pair), pair.confidence)


def unseen_of(pair: MetricPair, measured: Measured) -> Unseen | None:
    """The score against unseen losses, if one run is nearly all or nothing and the other is graded."""
    units = measured.difference.evidence
    if units is None or measured.values is None:
        return None
    old, new = (values[measured.compared] for values in measured.values)
    return unseen(new, old, units, limits_of(pair))
