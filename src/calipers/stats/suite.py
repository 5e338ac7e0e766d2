"""Suites: the means of a metric over several datasets, and over all tasks of the datasets.

The datasets are independent of each other, so that the squared standard errors add up, each times the square of its
weight. A mean with equal weights is therefore dominated by the error of the smallest dataset.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from operator import attrgetter

import numpy as np

from calipers.errors import InputError
from calipers.names import OF_RANGE
from calipers.remarks import Remark
from calipers.stats.claims import Evidence, Unseen
from calipers.stats.estimate import Estimate, without_interval
from calipers.stats.intervals import Spread, default_of, t_quantile, upper_tail
from calipers.stats.paired import Difference, Units
from calipers.stats.scales import UNIT, Scale, joined_scale, ways_to_a_mean, why_no_mean
from calipers.stats.sequence import Ends

NO_MEAN = "a run was stopped by what it showed, and no confidence sequence is known for a mean over datasets"
METHOD = "mover"
"""The name of the interval of a mean over datasets: the method of variance estimates recovery."""
MEAN_DIFFERENCE = "satterthwaite_t"
"""The name of the test of a mean difference over datasets."""


@dataclass(frozen=True, slots=True)
class Means:
    """The means of one metric over the datasets of a suite."""

    macro: Estimate  # with the same weight for every dataset
    micro: Estimate  # with the same weight for every task
    remarks: Sequence[Remark] = ()  # why datasets of unlike scales have no mean, and how they could get one

    @property
    def no_mean(self) -> Remark | None:
        """Why datasets of unlike scales have no mean; None if they share one."""
        return next((remark for remark in self.remarks if remark.severity == "no_answer"), None)


@dataclass(frozen=True, slots=True)
class SuiteMeans:
    """The datasets that one agent and model were scored on, and the means over them by metric."""

    agent: str | None
    model: str | None
    datasets: Sequence[str]
    metrics: Mapping[str, Means]


@dataclass(frozen=True, slots=True)
class Member:
    """The estimates of one agent and model on one dataset."""

    agent: str | None
    model: str | None
    dataset: str | None
    metrics: Mapping[str, Estimate]


def suites(
    members: Sequence[Member],
    names: Sequence[str],
    confidence: float = 0.95,
    *,
    of_range: bool = False,
    text_of: Callable[[Remark], str] = attrgetter("code"),
) -> list[SuiteMeans]:
    """The suite of every (agent, model) that was scored on two named datasets or more.

    ``names`` are the metrics that are means over tasks; other metrics have no mean over datasets. The scale of a
    dataset is that of all its members, so that a run with low values does not get a mean that the others do not have.
    ``text_of`` makes the text of a remark, and ``of_range`` is that of `means`.
    """
    by_runner: dict[tuple[str | None, str | None], dict[str, Mapping[str, Estimate]]] = {}
    for member in members:
        if member.dataset is not None:
            by_runner.setdefault((member.agent, member.model), {})[member.dataset] = member.metrics
    scales = {name: _scales(members, name) for name in names}
    found = []
    for runner, datasets in by_runner.items():
        if len(datasets) < 2:
            continue
        metrics = {}
        for name in names:
            estimates = {dataset: metrics_of.get(name) for dataset, metrics_of in datasets.items()}
            if any(estimates.values()):
                of_suite = {dataset: scale for dataset, scale in scales[name].items() if dataset in datasets}
                metrics[name] = means(estimates, confidence, of_suite, of_range=of_range, text_of=text_of)
        found.append(SuiteMeans(*runner, list(datasets), metrics))
    return found


def _scales(members: Sequence[Member], name: str) -> dict[str, Scale]:
    """The scale of a metric on each dataset, over all members that have it."""
    by_dataset: dict[str, list[Scale]] = {}
    for member in members:
        estimate = member.metrics.get(name)
        if member.dataset is not None and estimate is not None:
            by_dataset.setdefault(member.dataset, []).append(scale_of(estimate))
    return {dataset: joined_scale(scales) for dataset, scales in by_dataset.items()}


def scale_of(estimate: Estimate, confidence: float = 0.95) -> Scale:
    """The scale of an estimate. Of one from a finished result it is inferred from its interval and its settings."""
    if estimate.scale is not None:
        return estimate.scale
    value, spread = _value(estimate), estimate.spread or _inferred_spread(estimate, confidence)
    seen = None if value is None else (value, value)
    limits = None if spread is None else spread.limits
    if limits is None:
        given = [ends for ends in _ranges(estimate) if ends != UNIT]
        ends = seen if estimate.interval is None else (seen or UNIT) + estimate.interval
        inside = ends is None or (min(ends) >= UNIT[0] and max(ends) <= UNIT[1])
        limits = given[0] if given else UNIT if inside and estimate.method != "t" else None
    return Scale(limits, seen, estimate.higher_is_better)


def means(
    datasets: Mapping[str, Estimate | None],
    confidence: float = 0.95,
    scales: Mapping[str, Scale] | None = None,
    *,
    of_range: bool = False,
    text_of: Callable[[Remark], str] = attrgetter("code"),
) -> Means:
    """One metric's means over datasets and over their tasks, from its estimate on each dataset.

    ``macro = sum(v_i) / G`` with the standard error ``sqrt(sum(SE_i^2)) / G`` over G datasets, and ``micro = sum(n_i
    v_i) / N`` with ``sqrt(sum((n_i SE_i)^2)) / N`` for n_i tasks in each dataset, N in all. If a dataset has no value,
    no standard error or no interval, the means do not have it either; `why` names the dataset. Datasets of unlike
    ``scales``, by default those of the estimates, have no mean; with ``of_range`` each value is first divided by the
    range of its dataset.
    """
    if scales is None:
        scales = {dataset: scale_of(estimate) for dataset, estimate in datasets.items() if estimate}
    if of_range:
        datasets = {
            dataset: None if estimate is None else share_of_range(estimate, dataset, scales[dataset])
            for dataset, estimate in datasets.items()
        }
    no_mean = None if of_range else why_no_mean(scales)
    tasks = {dataset: estimate.tasks if estimate else 0 for dataset, estimate in datasets.items()}
    both: list[Estimate] = []
    for kind, weights in (("macro", dict.fromkeys(datasets, 1)), ("micro", tasks)):
        mean = _mean(kind, datasets, weights, confidence)
        if of_range:
            over = (*mean.made.over, f"mean:{OF_RANGE}")
            # the ranges of the datasets differ, and each stands in the signature of its own estimate
            settings = [setting for setting in mean.made.settings if not setting.startswith("range:")]
            mean = replace(mean, made=replace(mean.made, over=over, settings=(*settings, "range:0,1")))
        if no_mean is not None:
            mean = without_value(mean, text_of(no_mean))
        both.append(mean)
    macro, micro = both
    return Means(macro, micro, [] if no_mean is None else [no_mean, *ways_to_a_mean(scales)])


def without_value(estimate: Estimate, why: str) -> Estimate:
    """The estimate of a mean that does not exist."""
    return replace(
        estimate, value=None, stderr=None, interval=None, method=None, why=why, made=replace(estimate.made, method=None)
    )


def share_of_range(estimate: Estimate, benchmark: str, scale: Scale) -> Estimate:
    """The estimate with every value y replaced by ``(y - low) / (high - low)``, a share of the benchmark's range.

    InputError without a range.
    """
    low, high = demanded_range(benchmark, scale)
    width = high - low

    def ends(pair: Ends | None) -> Ends | None:
        return None if pair is None else ((pair[0] - low) / width, (pair[1] - low) / width)

    spread = estimate.spread
    return replace(
        estimate,
        value=None if estimate.value is None else (estimate.value - low) / width,
        stderr=None if estimate.stderr is None else estimate.stderr / width,
        interval=ends(estimate.interval),
        bounds=ends(estimate.bounds),
        # the spread of a known range is in shares of it already
        spread=None if spread is None else replace(spread, limits=UNIT),
        scale=replace(scale, limits=UNIT, seen=ends(scale.seen)),
    )


def demanded_range(benchmark: str, scale: Scale) -> Ends:
    """The range of a benchmark; InputError if it is not known."""
    if scale.limits is not None:
        return scale.limits
    low, high = scale.seen or UNIT
    problem = f"{benchmark} has no range: its values go from {low:.4g} to {high:.4g}"
    raise InputError.at(f"--mean {OF_RANGE}", problem, f"expected --range {benchmark}=LOW,HIGH")


def _mean(
    kind: str, datasets: Mapping[str, Estimate | None], weights: Mapping[str, int], confidence: float
) -> Estimate:
    parts = [(weights[dataset], estimate) for dataset, estimate in datasets.items() if estimate]
    weight_sum = sum(weights.values())
    values = [(weight, value) for weight, estimate in parts if (value := _value(estimate)) is not None]
    errors = [(weight, estimate.stderr) for weight, estimate in parts if estimate.stderr is not None]
    has_value = len(values) == len(datasets) and weight_sum > 0
    has_error = has_value and len(errors) == len(datasets)
    ends = _interval(parts, weight_sum, confidence) if has_error else None
    first = parts[0][1]
    return Estimate(
        value=sum(weight * value for weight, value in values) / weight_sum if has_value else None,
        stderr=math.hypot(*(weight * error for weight, error in errors)) / weight_sum if has_error else None,
        interval=ends,
        method=METHOD if ends else None,
        tasks=sum(estimate.tasks for _, estimate in parts),
        samples=sum(estimate.samples for _, estimate in parts),
        undefined_tasks=sum(estimate.undefined_tasks for _, estimate in parts),
        bounds=None,
        higher_is_better=first.higher_is_better,
        why=_why_absent(datasets),
        made=replace(first.made, over=(kind, f"datasets:{len(datasets)}"), method=METHOD if ends else None),
    )


def _interval(parts: Sequence[tuple[int, Estimate]], weight_sum: int, confidence: float) -> Ends | None:
    """The interval of a weighted mean from the intervals of its parts, by the recovery of their variances.

    The lower end is ``value - sqrt(sum((w_i (v_i - low_i))^2))``, the upper end likewise (Zou and Donner 2008). The
    result inherits the properties of the parts' intervals: it is wide on the side on which they are wide, its width is
    not zero merely because values agree, and it stays in their range. Each end is at least as far out as the end of the
    default interval of the weighted mean, because the recovery alone covers in 78 to 90 % among many small datasets
    with few passes or failures; the default interval alone covers in 82 % if one of two datasets has hardly any spread.
    """
    known = []
    for weight, estimate in parts:
        value = _value(estimate)
        if value is None or estimate.interval is None:
            return None
        known.append((weight, value, *estimate.interval))
    middle = sum(weight * value for weight, value, _, _ in known)
    below = math.hypot(*(weight * (value - low) for weight, value, low, _ in known))
    above = math.hypot(*(weight * (high - value) for weight, value, _, high in known))
    # exact numbers never lie outside the weighted ends of the parts; max and min correct rounding errors
    lower = max(middle - below, sum(weight * low for weight, _, low, _ in known))
    upper = min(middle + above, sum(weight * high for weight, _, _, high in known))
    recovered = lower / weight_sum, upper / weight_sum
    pooled = _pooled(parts, weight_sum, confidence) or recovered
    return min(recovered[0], pooled[0]), max(recovered[1], pooled[1])


def _pooled(parts: Sequence[tuple[int, Estimate]], weight_sum: int, confidence: float) -> Ends | None:
    """The default interval of the weighted mean; None if a part has another interval.

    ``se^2 = sum (w_i se_i)^2`` ignores how the datasets differ, because the datasets are fixed; the effective units are
    ``U = 1 / sum (w_i^2 / U_i)``.
    """
    spreads = [estimate.spread or _inferred_spread(estimate, confidence) for _, estimate in parts]
    known = [(weight / weight_sum, spread) for (weight, _), spread in zip(parts, spreads, strict=True) if spread]
    if len(known) < len(parts) or len({spread.limits for _, spread in known}) > 1:
        return None
    effective = 1 / math.fsum(w * w / spread.effective_units for w, spread in known)
    tasks = 1 / math.fsum(w * w * (2 * spread.doubt - 1) / spread.effective_units for w, spread in known)
    weighted_means = (weight * spread.mean for (weight, _), spread in zip(parts, spreads, strict=True) if spread)
    pooled = Spread(
        math.fsum(weighted_means) / weight_sum,
        math.fsum(w * w * spread.variance for w, spread in known),
        sum(spread.units for _, spread in known),
        effective,
        (1 + effective / tasks) / 2,
        known[0][1].limits,
    )
    return default_of(pooled, confidence).ends


def _inferred_spread(estimate: Estimate, confidence: float) -> Spread | None:
    """The spread inferred from an estimate that was read from a file; None unless it gives exactly its interval."""
    if estimate.value is None or estimate.stderr is None or estimate.interval is None or not estimate.tasks:
        return None
    for low, high in _ranges(estimate):
        mean, variance = (estimate.value - low) / (high - low), (estimate.stderr / (high - low)) ** 2
        spread = Spread(mean, variance, estimate.tasks, float(estimate.tasks), 1.0, (low, high))
        ends = default_of(spread, confidence).ends
        if ends and np.allclose(ends, estimate.interval, rtol=0, atol=1e-9 * (high - low)):
            return spread
    return None


def _ranges(estimate: Estimate) -> Iterator[Ends]:
    """The ranges that the values of an estimate may have: that of its signature, if it has one, and 0 to 1."""
    for setting in estimate.made.settings:
        ends = re.fullmatch(r"range:([^,]+),([^,]+)", setting)
        with suppress(ValueError):  # a column of a user's may be called so
            if ends and (low := float(ends[1])) < (high := float(ends[2])):
                yield low, high
    yield 0.0, 1.0


def _why_absent(datasets: Mapping[str, Estimate | None]) -> str | None:
    """Why the mean has no value, or no interval: the first dataset without it, and its reason."""
    for dataset, estimate in datasets.items():
        if not estimate or _value(estimate) is None:
            return f"no value on {dataset!r}{_because(estimate)}"
    for dataset, estimate in datasets.items():
        if estimate and not estimate.interval:
            return f"no interval on {dataset!r}{_because(estimate)}"
    return None


def _because(estimate: Estimate | None) -> str:
    return f": {estimate.why}" if estimate and estimate.why else ""


def _value(estimate: Estimate) -> float | None:
    return estimate.value if estimate.value is not None and math.isfinite(estimate.value) else None


def without_means(suites: Sequence[SuiteMeans], stopped: Collection[tuple[str | None, str | None]]) -> list[SuiteMeans]:
    """Suites without the intervals of means over datasets if a run of the suite's agent and model was stopped."""

    def bare(estimate: Estimate) -> Estimate:
        return estimate if estimate.interval is None else without_interval(estimate, NO_MEAN)

    return [
        replace(
            suite,
            metrics={
                name: replace(of, macro=bare(of.macro), micro=bare(of.micro)) for name, of in suite.metrics.items()
            },
        )
        if (suite.agent, suite.model) in stopped
        else suite
        for suite in suites
    ]


def mean_difference(parts: Mapping[str, Difference], confidence: float = 0.95) -> Difference:
    """The mean over datasets of the paired differences between two runs, with the same weight for every dataset.

    ``D = sum(d_i) / G`` with the standard error ``sqrt(sum(s_i^2)) / G``, where s_i is the error that each dataset is
    tested with, and t with Satterthwaite's degrees of freedom, ``(sum(s_i^2))^2 / sum(s_i^4 / nu_i)`` (Satterthwaite
    1946). A dataset in which no pair differs adds nothing to either sum; if no pair differs in any dataset, the
    interval is recovered from the datasets' intervals. If a dataset has no value or no test, the mean does not have it
    either; `why` names the dataset.

    >>> part = Difference(0.02, 0.01, (0.0, 0.04), 0.05, "floored_t", 100, 100.0, 99.0, 1.0)
    >>> mean = mean_difference({"a": part, "b": part})
    >>> mean.value, round(mean.stderr, 6), mean.freedom
    (0.02, 0.007071, 198.0)
    """
    units = sum(part.units for part in parts.values())
    count = len(parts)
    for dataset, part in parts.items():
        if part.value is None:
            why = f"no difference on {dataset!r}: {part.why}"
            return Difference(None, None, None, None, MEAN_DIFFERENCE, units, why=why)
    value = math.fsum(part.value or 0.0 for part in parts.values()) / count
    for dataset, part in parts.items():
        if part.p is None or part.stderr is None:
            why = f"no test on {dataset!r}: {part.why}"
            return Difference(value, None, None, None, MEAN_DIFFERENCE, units, why=why)
    squares = {dataset: (part.stderr or 0.0) ** 2 for dataset, part in parts.items()}
    square_sum = math.fsum(squares.values())
    widths = [part.width for part in parts.values()]
    width = None if None in widths else math.fsum(width or 0.0 for width in widths) / count
    evidence = _joined_units([part.evidence for part in parts.values()])
    if square_sum == 0:
        ends = [part.interval[1] for part in parts.values() if part.interval]
        half = math.hypot(*ends) / count if len(ends) == count else None
        # by Jensen's inequality this many units detect a loss at most as often, however it is spread over the datasets
        effective = count * min(part.effective_units for part in parts.values())
        return Difference(
            0.0, 0.0, None if half is None else (-half, half), 1.0, MEAN_DIFFERENCE, units, effective, width=width,
            why=None if half is not None else next(part.why for part in parts.values() if not part.interval),
            plain_stderr=0.0, evidence=evidence,
        )  # fmt: skip
    freedom = square_sum**2 / math.fsum(squares[dataset] ** 2 / part.freedom for dataset, part in parts.items())
    stderr = math.sqrt(square_sum) / count
    p = min(1.0, 2 * upper_tail(abs(value) / stderr, freedom))
    half = t_quantile((1 + confidence) / 2, freedom) * stderr
    low, high = value - half, value + half
    if width is not None:
        low, high = max(low, -width), min(high, width)
    plain = [part.plain_stderr for part in parts.values()]
    return Difference(
        value, stderr, (low, high), p, MEAN_DIFFERENCE, units, float(units), freedom, width,
        plain_stderr=None if None in plain else math.hypot(*(error or 0.0 for error in plain)) / count,
        evidence=evidence,
    )  # fmt: skip


def joined_evidence(parts: Mapping[str, Evidence], confidence: float = 0.95) -> Evidence:
    """The evidence on the mean over benchmarks: the mean of the fillings, of the first samples, and so on."""
    evidence = list(parts.values())
    observed = mean_difference({name: part.observed for name, part in parts.items()}, confidence)
    compared = observed
    if any(part.compared is not part.observed for part in evidence):
        compared = mean_difference({name: part.compared for name, part in parts.items()}, confidence)
    worst = None
    if any(part.worst is not None for part in evidence):
        against, favour = (
            mean_difference({name: _at_end(part, end) for name, part in parts.items()}, confidence) for end in (0, 1)
        )
        worst = against, favour
    weighted = None
    if any(part.weighted is not None for part in evidence):
        weighted = mean_difference({name: part.weighted or part.compared for name, part in parts.items()}, confidence)
    return Evidence(
        observed,
        compared,
        worst,
        unknown=any(part.unknown for part in evidence),
        counts=any(part.counts for part in evidence),
        weighted=weighted,
        unseen=_joined_unseen(evidence, compared),
        reader=any(part.reader for part in evidence),
    )


def _at_end(evidence: Evidence, end: int) -> Difference:
    """The difference with all missing rollouts at an end: 0 is against the new run, 1 in its favour."""
    return evidence.compared if evidence.worst is None else evidence.worst[end]


def _joined_unseen(parts: Sequence[Evidence], mean: Difference) -> Unseen | None:
    """The score of a mean of which a part is lopsided: ``D / s_0`` with ``s_0 = sqrt(sum(s_i^2)) / G``.

    s_i of a lopsided part that speaks for the claim is the error of its own score, which allows for losses that it has
    not shown; of any other part it is the error that the part is tested with.
    """
    value = mean.value
    if not value or all(part.unseen is None for part in parts):
        return None
    errors = []
    for part in parts:
        own = part.compared.value or 0.0
        if part.unseen is None or own * value <= 0:
            errors.append(part.compared.stderr or 0.0)
        elif part.unseen.score <= 0:
            return Unseen(-math.inf, None)
        else:
            errors.append(max(abs(own) / part.unseen.score, part.compared.stderr or 0.0))
    error = math.hypot(*errors) / len(parts)
    return Unseen(abs(value) / error if error else math.inf, None)


def share_of_width(evidence: Evidence, width: float) -> Evidence:
    """The evidence with every value as a share of the width of the benchmark's range."""

    def share(difference: Difference) -> Difference:
        def of(value: float | None) -> float | None:
            return None if value is None else value / width

        ends, units = difference.interval, difference.evidence
        return replace(
            difference,
            value=of(difference.value),
            stderr=of(difference.stderr),
            interval=None if ends is None else (ends[0] / width, ends[1] / width),
            width=of(difference.width),
            plain_stderr=of(difference.plain_stderr),
            evidence=None
            if units is None
            else replace(units, pulls=units.pulls / width, residuals=units.residuals / width),
            draws=None if difference.draws is None else difference.draws / width,
        )

    observed, unseen = share(evidence.observed), evidence.unseen
    return replace(
        evidence,
        observed=observed,
        compared=observed if evidence.compared is evidence.observed else share(evidence.compared),
        worst=None if evidence.worst is None else (share(evidence.worst[0]), share(evidence.worst[1])),
        weighted=None if evidence.weighted is None else share(evidence.weighted),
        unseen=None if unseen is None else replace(unseen, largest=unseen.largest and unseen.largest / width),
    )


def _joined_units(parts: Sequence[Units | None]) -> Units | None:
    """The units of all datasets, each dataset with the same share; None if a dataset has no units."""
    known = [part for part in parts if part is not None]
    if len(known) < len(parts):
        return None
    pulls, residuals, shares = (
        np.concatenate([getattr(part, name) for part in known]) / len(known)
        for name in ("pulls", "residuals", "shares")
    )
    effective = 1 / math.fsum(1 / part.effective_tasks for part in known) * len(known) ** 2
    return Units(pulls, residuals, shares, effective, any(part.clustered for part in known))
