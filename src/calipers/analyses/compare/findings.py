"""Findings from measured differences: adjusted, decided, and checked against the missing rollouts.

::

    each pair of runs:   primary question ──decided──► slices and further metrics: claims
                                          └─undecided► the same numbers: hints, not claims

The primary question keeps its full level, and only when it is decided are the others claims: so the whole page
makes a false claim with a chance of at most 5 %. Among each other the others are adjusted in one step (Sidak
1967), because then a line's interval can be adjusted like its p, and both say the same.

A rollout is missing when it was planned and has no number: its client failed, it never ran, its record is not
there. A task that has too few samples for a metric is undefined, not missing.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from calipers.analyses.compare import (
    HOLM,
    SIDAK,
    STRICT_ALLOWS,
    Finding,
    Question,
    Tipping,
    one_more,
    step_order,
)
from calipers.analyses.compare.measure import (
    MEANS,
    Measured,
    MetricPair,
    measure,
    reduced_of,
    resampled_difference,
    tested,
)
from calipers.errors import InputError, UnknownName
from calipers.metrics import UNIT, Metric
from calipers.request import Plan, RequestedMetric
from calipers.rollouts.column import Bools, Column, Floats, Ints
from calipers.rollouts.ledger import contributed
from calipers.rollouts.record import FIRST_GAP, SCORED
from calipers.rollouts.table import Rollouts
from calipers.stats.margins import equivalence, margin_method, non_inferiority, too_few
from calipers.stats.missing import MOST_MISSING, Fillings, tipping_point
from calipers.stats.paired import FLOORED_T, STRICT, Difference, by_draws, judged, undone_by_one
from calipers.stats.ranks import benjamini_hochberg, holm, sidak
from calipers.stats.verdict import ComparisonVerdict, verdict
from calipers.tally import DEFINITIONS

DIGITS = 12  # of a test that must agree for two to be one: a rate and a mean round differently
TestKey = tuple[object, ...]


def adjusted(families: Sequence[Sequence[Measured]], question: Question) -> tuple[list[list[Measured]], int]:
    """The differences of each pair of runs with what p they have among all, and how many different tests there are.

    The same test under two names is one test: mean_reward and pass_rate where every reward is 0 or 1 and every
    task has the same number of samples, or the only slice there is.
    """
    keys = [
        [_key(number, measured, None if question.steps else family[0]) for measured in family]
        for number, family in enumerate(families)
    ]
    index = {key: test for test, key in enumerate(dict.fromkeys(key for some in keys for key in some if key))}
    raw = np.zeros(len(index))
    for family, its_keys in zip(families, keys, strict=True):
        for measured, key in zip(family, its_keys, strict=True):
            if key is not None:
                raw[index[key]] = measured.difference.p
    stepped, rated = holm(raw), benjamini_hochberg(raw)
    adjusted_families = []
    for family, its_keys in zip(families, keys, strict=True):
        first = _primary(family, question)
        below = {key for key in its_keys if key is not None} - {its_keys[first]}
        gated = dict(zip(below, holm(np.array([raw[index[key]] for key in below])), strict=True))
        adjusted_family = []
        for number, (measured, key) in enumerate(zip(family, its_keys, strict=True)):
            leads = number == first or (key is not None and key == its_keys[first])
            # questions whose errors add up with its own, itself included; 1: it is judged by itself
            tests = len(families) * (1 if leads else len(below)) if question.adjust == SIDAK else 1
            p = measured.difference.p
            by_holm = None if key is None else float(stepped[index[key]])
            by_bh = None if key is None else float(rated[index[key]])
            alone = None if p is None else sidak(p, tests)
            if question.gated and p is not None:
                alone = sidak(p, len(families)) if leads or key is None else min(len(families) * float(gated[key]), 1.0)
            adjusted_family.append(
                replace(
                    measured,
                    primary=leads,
                    confidence=question.plan.confidence ** (1 / max(tests, 1)),
                    p_adjusted=alone if question.gated else {HOLM: by_holm, "bh": by_bh}.get(question.adjust, alone),
                    p_holm=by_holm,
                    p_bh=by_bh,
                )
            )
        adjusted_families.append(adjusted_family)
    return adjusted_families, len(index)


def at_confidence(difference: Difference, confidence: float) -> Difference:
    """The same difference with its interval at another confidence; where that cannot be had, with none."""
    if difference.interval is None:
        return difference
    if difference.evidence is not None:
        limits = None if difference.width is None else (0.0, difference.width)
        test = STRICT if difference.method == STRICT else FLOORED_T
        again = judged(difference.evidence, limits, confidence, test)
        return replace(again, p=difference.p, method=difference.method)
    if difference.sequence is not None and difference.width is not None and difference.value is not None:
        ends = difference.sequence.ends(difference.value / difference.width, confidence)
        interval = None if ends is None else (difference.width * ends[0], difference.width * ends[1])
        return replace(difference, interval=interval)
    if difference.draws is not None and difference.value is not None:
        again = resampled_difference(by_draws(difference.value, difference.draws, confidence, difference.units))
        return replace(again, p=difference.p, method=difference.method)
    return replace(difference, interval=None, why=f"no interval at {100 * confidence:.4g} %")


def _primary(family: Sequence[Measured], question: Question) -> int:
    """The index of a pair's primary question: the first metric, on all tasks or at the last step; or the named one."""
    pairs, wanted = [measured.metric_pair for measured in family], question.primary
    if wanted is None:
        steps = [index for index, pair in enumerate(pairs) if question.steps and pair.by == question.steps]
        last = max((step_order(pairs[index].slice or "") for index in steps), default=None)
        return next((index for index in steps if step_order(pairs[index].slice or "") == last), 0)
    for index, pair in enumerate(pairs):
        if wanted.means(pair.text, pair.by, pair.slice):
            return index
    raise UnknownName.of("question in this comparison", wanted.text, [pair.question_text for pair in pairs])


def _key(number: int, measured: Measured, first: Measured | None) -> TestKey | None:
    """What tells a test from others; None where there is no test. ``first``, if there is one, is of all tasks."""
    p = measured.difference.p
    if p is None:
        return None
    whole = first is not None and len(measured.there) == len(first.there)
    cut = measured.metric_pair.by, measured.metric_pair.slice
    return number, None if whole else cut, _what(measured), f"{p:.{DIGITS}g}"


def _what(measured: Measured) -> object:
    """What a test uses: the differences of the tasks, if there are any; else the metric, independent of its name."""
    if measured.values is None:
        metric = measured.metric_pair.metrics[0]
        return metric.metric.name, str(sorted(metric.params.items()))
    moved = np.where(measured.there, measured.values[1] - measured.values[0], np.nan)
    return np.round(moved, DIGITS).tobytes()


DECIDED = ("better", "worse", "higher", "lower", "equivalent")


def finding_of(measured: Measured, question: Question, tests: int, *, claims: bool = True) -> Finding:
    """An adjusted difference with its verdict, one of ``tests`` tests; a hint, where it may not claim anything."""
    stepwise = question.adjust in (HOLM, "bh")
    metric_pair, confidence, difference = measured.metric_pair, measured.confidence, measured.difference
    if confidence != question.plan.confidence:
        difference = at_confidence(difference, confidence)
    better, margin = measured.higher_is_better, question.margin
    judgement = verdict(
        difference,
        higher_is_better=better is not False,
        margin=margin,
        confidence=confidence,
        p=measured.p_adjusted if stepwise else None,
        pair=measured.variance,
        samples=measured.repeats,
        clustered=question.plan.cluster is not None,
        tests=tests if stepwise else 1,
        anytime=_even(measured),
    )
    word, sentence = _worded(judgement, measured, question, tests)
    shaky = word in DECIDED[:4] and undone_by_one(difference, confidence)
    if shaky:
        sentence += f"; {one_more(difference.value, question.plan.cluster)} would undo this verdict; {STRICT_ALLOWS}"
    hint = word if not claims and word in DECIDED else None
    if hint is not None:
        word = "undecided"
        sentence = f"undecided, because the primary question is: on its own, {sentence}; a hint, not a claim"
    able = margin is not None and difference.p is not None
    return Finding(
        metric=metric_pair.text,
        by=metric_pair.by,
        slice=metric_pair.slice,
        first=measured.first,
        second=measured.second,
        delta=difference.value,
        stderr=difference.stderr if difference.plain_stderr is None else difference.plain_stderr,
        interval=difference.interval,
        p=difference.p,
        p_holm=measured.p_holm,
        p_bh=measured.p_bh,
        method=difference.method,
        tasks=int(measured.there.sum()),
        undefined_tasks=int((~measured.there).sum()),
        units=difference.units,
        samples=measured.samples,
        higher_is_better=better,
        verdict=word,
        sentence=sentence,
        more_tasks=judgement.more_tasks,
        more_samples=judgement.more_samples,
        new_tasks=judgement.new_tasks,
        p_equivalent=equivalence(difference, margin, confidence=confidence).p if able and margin else None,
        p_not_worse=non_inferiority(difference, margin, higher_is_better=better is not False, confidence=confidence).p
        if able and margin and better is not None
        else None,
        mcnemar=measured.mcnemar,
        why=difference.why,
        signature=_signature(measured, question),
        floored_stderr=difference.stderr if difference.method == FLOORED_T else None,
        role="primary" if measured.primary else "secondary",
        p_adjusted=measured.p_adjusted,
        confidence=confidence,
        hint=hint,
        undone_by_one=shaky,
        margin_method=margin_method(difference) if able else None,
        tasks_for_margin=too_few(difference, margin, confidence) if able and margin else None,
    )


def _even(measured: Measured) -> bool:
    """Whether every task has the same weight, so that tasks can be judged one after another."""
    return measured.weights is None or all(len(np.unique(side[measured.there])) < 2 for side in measured.weights)


def _worded(judgement: ComparisonVerdict, measured: Measured, question: Question, tests: int) -> tuple[str, str]:
    """The word and the sentence of a verdict, in the direction the metric has, with the p it goes by."""
    word, sentence, p = str(judgement.word), judgement.sentence, measured.p_adjusted
    if measured.higher_is_better is None and word in ("better", "worse"):  # nobody says which way is better
        word = "higher" if word == "better" else "lower"
        sentence = word + sentence.removeprefix(judgement.word)
    several = measured.confidence != question.plan.confidence
    if question.adjust != SIDAK:
        several = tests > 1 and question.adjust != "none"
    if several and judgement.p is not None and p is not None:
        sentence = sentence.replace(f"p {judgement.p:.2g})", f"adjusted p {p:.2g})")
    return word, sentence


def _signature(measured: Measured, question: Question) -> str:
    """Everything that made the difference, on one line."""
    metric, plan = measured.metric_pair.metrics[0], question.plan
    params = [f"{key}:{value}" for key, value in sorted(metric.params.items()) if value != ""]
    policy = [f"dialect:{plan.dialect.name}", f"missing:{plan.missing}", f"confidence:{plan.confidence}"]
    policy += plan.excluded
    made = [f"test:{measured.difference.method}", f"cluster:{plan.cluster or 'none'}", f"seed:{plan.seed}"]
    return "|".join([f"delta({metric.metric.name})", *params, *policy, *made, f"definitions:{DEFINITIONS}"])


NO_RANGE: Final = "no bounds are known: some rewards are outside 0 to 1, and no --range is given"
_DECIDED: Final = {"better": "worse", "worse": "better", "higher": "lower", "lower": "higher"}
"""Verdicts that missing rollouts could change, and the opposite of each."""


def no_filling(request: RequestedMetric) -> str | None:
    """Why the effect of missing rollouts on a metric is not known; None where a lower reward never raises it."""
    metric = request.metric
    if request.foreign or not isinstance(metric, Metric):
        return "no bounds are known for a metric of a plugin or another system"
    if metric.reads != ("reward",):
        return "no bounds are known for a metric that reads more than the reward"
    return None


def lost(side: Rollouts, column: Column | None) -> Bools:
    """The rollouts of a run that are missing, [R]: without a reward, or of no number at all."""
    return np.asarray(side.outcome >= FIRST_GAP) if column is None else ~column.given


def filled(side: Rollouts, column: Column, value: float) -> Column:
    """The rewards of a run with every missing rollout at this value."""
    missing = lost(side, column)
    return Column(np.where(missing, value, column.values), column.given | missing)


def filled_rollouts(rollouts: Rollouts, value: float) -> Rollouts:
    """A run in which every missing rollout has this reward, whichever of its rewards is asked for."""
    rewards = {key: filled(rollouts, contributed(rollouts, key), value) for key in rollouts.rewards}
    outcome = np.where(lost(rollouts, None), SCORED, rollouts.outcome).astype(np.uint8)
    return replace(rollouts, rewards=rewards, outcome=outcome)


def filled_pair(metric_pair: MetricPair, first: float, second: float) -> MetricPair:
    """The same question with the missing rollouts of the runs at these values; as it is where no filling is known."""
    if not fillable(metric_pair):
        return metric_pair
    first_columns, second_columns = (
        [filled(side, columns[0], value)]
        for side, columns, value in zip(metric_pair.sides, metric_pair.columns, (first, second), strict=True)
    )
    return replace(metric_pair, columns=(first_columns, second_columns))


def fillable(metric_pair: MetricPair) -> bool:
    """Whether the difference is known for every filling: a metric of rewards with a known range."""
    if no_filling(metric_pair.metrics[0]) is not None:
        return False
    return all(
        bool(columns) and within_range(columns[0], ends_of(metric_pair.question.plan))
        for columns in metric_pair.columns
    )


def ends_of(plan: Plan) -> tuple[float, float]:
    """The ends of the range of rewards: a missing rollout that failed, and one that passed."""
    return plan.range or UNIT


def within_range(rewards: Column, ends: tuple[float, float]) -> bool:
    """Whether all rewards lie in the range, so that a missing one does, too."""
    kept = rewards.kept()
    return bool(((kept >= ends[0]) & (kept <= ends[1])).all())


def with_missing(finding: Finding, metric_pair: MetricPair, tests: int) -> Finding:
    """A finding with what the missing rollouts of its tasks could make of it; as it is where there are none.

    ``metric_pair`` holds the columns as they are, gaps and all, and none for a number of a table; ``tests`` is how many
    p is adjusted for.
    """
    gaps = _lost_of(metric_pair)
    counts = int(gaps[0].sum()), int(gaps[1].sum())
    if not any(counts):
        return finding
    finding = replace(finding, missing=counts)
    if finding.delta is None or not fillable(metric_pair):
        return finding
    bottom, top = ends_of(metric_pair.question.plan)
    ends = [filled_pair(metric_pair, top, bottom), filled_pair(metric_pair, bottom, top)]
    able = isinstance(metric_pair.metrics[0].metric, Metric) and metric_pair.metrics[0].metric.interval in MEANS
    try:
        low, high = (measure(end).difference for end in ends)
    except InputError:  # McNemar's test of what filled rollouts make more than one pass or fail a task
        by_default = replace(metric_pair.question, test=FLOORED_T)
        low, high = (measure(replace(end, question=by_default)).difference for end in ends)
        able = False
    if low.value is None or high.value is None:
        return finding
    finding = replace(finding, bounds=(low.value, high.value))
    if finding.verdict not in _DECIDED or finding.delta is None or not able:
        return finding
    sign = math.copysign(1.0, finding.delta)
    worst, level = low if sign > 0 else high, _level(finding, metric_pair.question, tests)
    word = "undecided"
    if worst.p is not None and worst.p <= level and worst.value:
        word = finding.verdict if worst.value * sign > 0 else _DECIDED[finding.verdict]
    return replace(finding, worst_verdict=word, tipping=_tipping(metric_pair, gaps, sign, level))


def _lost_of(metric_pair: MetricPair) -> tuple[Bools, Bools]:
    """The missing rollouts of both runs: those without the reward that the metric reads, else those of no number."""
    reads = metric_pair.metrics[0].metric.reads
    index = reads.index("reward") if "reward" in reads and all(metric_pair.columns) else None
    first_lost, second_lost = (
        lost(side, None if index is None else columns[index]) & metric_pair.counted[side.task]
        for side, columns in zip(metric_pair.sides, metric_pair.columns, strict=True)
    )
    return first_lost, second_lost


def _level(finding: Finding, question: Question, tests: int) -> float:
    """The p, for itself, up to which this test among others is decided: what adjusting made of its own p."""
    if question.adjust not in ("holm", "bh"):
        return 1 - finding.confidence
    alpha = 1 - question.plan.confidence
    by = finding.p_holm if question.adjust == "holm" else finding.p_bh
    return alpha / max(tests, 1) if not finding.p or not by else alpha * finding.p / by


def _tipping(metric_pair: MetricPair, gaps: tuple[Bools, Bools], sign: float, level: float) -> Tipping | None:
    """How many missing rollouts of the second run may be adverse, those of the first all being so.

    Where only the first run lacks some, it is theirs that are counted; None where all that are missing are of tasks
    that have no value even with them.
    """
    bottom, top = ends_of(metric_pair.question.plan)
    fill = (top, bottom) if sign > 0 else (bottom, top)  # what speaks against the verdict
    whole = filled_pair(metric_pair, *fill)
    reduced = [reduced_of(whole, which, whole.columns[which]) for which in (0, 1)]
    there = np.flatnonzero(reduced[0].given & reduced[1].given & metric_pair.counted)
    counts = [side.by_task.count(lacking) for side, lacking in zip(metric_pair.sides, gaps, strict=True)]
    run = 1 if counts[1][there].any() else 0
    if not counts[run][there].any():
        return None
    by_adverse, other = _by_adverse(metric_pair, run, gaps[run], fill[run]), reduced[1 - run]
    every = np.arange(len(other))

    def intact(placed: Ints) -> bool:
        adverse = np.zeros(len(every), dtype=np.int64)
        adverse[there] = placed
        filled_run = Column(by_adverse[adverse, every], reduced[run].given)
        difference = tested(whole, *((other, filled_run) if run else (filled_run, other)))
        return difference.p is not None and difference.p <= level and (difference.value or 0.0) * sign > 0

    metric, test = metric_pair.metrics[0].metric, metric_pair.question.test
    # the order of samples counts for metrics of the first k, and the statistic is that of tasks and of the default
    alike = isinstance(metric, Metric) and metric.uses is None and metric_pair.clusters is None and test == FLOORED_T
    kinds = _kinds(by_adverse[:, there], other.values[there]) if alike else None
    direction = sign if run else -sign
    run_parts, own_shares = _parts(by_adverse[:, there])
    other_parts, other_shares = _parts(other.values[there][None])
    filling = Fillings(
        direction * run_parts, direction * other_parts[0], (own_shares, other_shares), counts[run][there], kinds
    )
    point = tipping_point(filling, intact)
    return Tipping(
        run="second" if run else "first",
        outcome="failed" if fill[run] == bottom else "passed",
        most=point.most,
        missing=point.missing,
        exact=point.exact,
        tasks=len(there),
    )


def _parts(values: Floats) -> tuple[Floats, Floats]:
    """What each task adds to a mean, or to a pooled rate, [J, t], and its share of it, [t]."""
    if values.ndim > 2:
        counts = values[0, :, 1]
        return values[:, :, 0] / counts.sum(), counts / counts.sum()
    size = values.shape[1]
    return values / size, np.full(size, 1 / size)


def _by_adverse(metric_pair: MetricPair, run: int, missing: Bools, adverse: float) -> Floats:
    """What the metric makes of a run's tasks when 0, 1, ... of their missing rollouts are adverse, the others not.

    [J, T], or [J, T, 2] of a pooled rate. The first of a task's missing rollouts are adverse: of metrics of the first k
    samples they cost most.
    """
    column, by = metric_pair.columns[run][0], metric_pair.sides[run].by_task
    rank = by.rank(missing)
    values: list[Floats] = []
    for adverse_ones in range(int(by.count(missing).max()) + 1):
        fill = np.where(rank < adverse_ones, adverse, sum(ends_of(metric_pair.question.plan)) - adverse)
        rewards = Column(np.where(missing, fill, column.values), column.given | missing)
        values.append(reduced_of(metric_pair, run, [rewards]).values)
    return np.stack(values)


def _kinds(values: Floats, others: Floats) -> Ints:
    """Which tasks are alike in everything that a test sees, [T]."""
    columns = [np.moveaxis(values, 1, 0).reshape(values.shape[1], -1), others.reshape(len(others), -1)]
    code = np.unique(np.round(np.concatenate(columns, axis=1), 12), axis=0, return_inverse=True)[1]
    return np.asarray(code).reshape(-1)


def warnings_of(names: tuple[str, str], sides: tuple[Rollouts, Rollouts]) -> Iterator[str]:
    """A warning where many rollouts are missing, or many more in one run: the difference may come from that."""
    shares = [float(lost(side, None).mean()) if len(side) else 0.0 for side in sides]
    (low, few), (high, many) = sorted(zip(shares, names, strict=True), key=lambda pair: pair[0])
    why = "the difference may depend on which rollouts are missing"
    if high - low > MOST_MISSING:
        yield f"warning: {_per_cent(high)} of the rollouts of {many} are missing and {_per_cent(low)} of {few}: {why}"
        return
    for share, name in zip(shares, names, strict=True):
        if share > MOST_MISSING:
            yield f"warning: {_per_cent(share)} of the rollouts of {name} are missing: {why}"


def _per_cent(share: float) -> str:
    return f"{100 * share:.3g} %"
