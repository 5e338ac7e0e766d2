"""Turn measured differences into findings: adjust p, decide the verdict, and check it against missing rollouts.

::

    each pair of runs:   primary question ──decided──► slices and further metrics: claims
                                          └─undecided► the same numbers: hints, not claims

The primary question keeps its full level, and the others are claims only if it is decided. So the probability that
the page makes any false claim is at most 5 %. The others are adjusted among themselves in one step (Sidak 1967),
because the intervals can then be adjusted like the p values, and both agree.

A rollout is missing if it was planned and has no number: its client failed, it never ran, or it has no record. A task
with too few samples for a metric is undefined, not missing.
"""

from __future__ import annotations

from collections.abc import Sequence
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
from calipers.analyses.compare.evidence import Background, Filling, fill
from calipers.analyses.compare.measure import (
    MEAN_KINDS,
    Measured,
    MetricPair,
    reduced_of,
    resampled_difference,
    tested,
)
from calipers.analyses.compare.remarks import of_decision
from calipers.errors import UnknownName
from calipers.metrics import Metric
from calipers.reports.remark_texts import text_of
from calipers.reports.result import finite
from calipers.request import RequestedMetric
from calipers.rollouts.column import Column, Floats, Ints
from calipers.rollouts.filling import missing
from calipers.stats.claims import decide
from calipers.stats.margins import equivalence, margin_method, non_inferiority, too_few
from calipers.stats.missing import Fillings, tipping_point
from calipers.stats.paired import FLOORED_T, STRICT, Difference, by_draws, judged, undone_by_one
from calipers.stats.ranks import benjamini_hochberg, holm, sidak
from calipers.stats.verdict import ComparisonVerdict, verdict
from calipers.tally import DEFINITIONS

DIGITS = 12  # digits in which two tests must agree to count as the same test; sums of rates and means round differently
TestKey = tuple[object, ...]


def adjusted(families: Sequence[Sequence[Measured]], question: Question) -> tuple[list[list[Measured]], int]:
    """The differences of each pair of runs with adjusted p values, and the number of different tests.

    The same test under two names counts once: mean_reward and pass_rate if every reward is 0 or 1 and every task has
    the same number of samples, or a slice that has all tasks.
    """
    keys_of = [
        [_test_key(number, measured, None if question.steps else family[0]) for measured in family]
        for number, family in enumerate(families)
    ]
    p_of = {
        key: measured.difference.p
        for family, keys in zip(families, keys_of, strict=True)
        for measured, key in zip(family, keys, strict=True)
        if key is not None
    }
    raw = np.array(list(p_of.values()), dtype=float)
    holm_of_all = dict(zip(p_of, holm(raw).tolist(), strict=True))
    bh_of_all = dict(zip(p_of, benjamini_hochberg(raw).tolist(), strict=True))
    adjusted_families = []
    for family, keys in zip(families, keys_of, strict=True):
        first = _primary(family, question)
        secondary = {key for key in keys if key is not None} - {keys[first]}
        secondary_p = np.array([p_of[key] for key in secondary], dtype=float)
        holm_of_secondary = dict(zip(secondary, holm(secondary_p).tolist(), strict=True))
        adjusted_family = []
        for number, (measured, key) in enumerate(zip(family, keys, strict=True)):
            primary = number == first or (key is not None and key == keys[first])
            # the number of questions, itself included, for which Sidak's method adjusts it; 1: not adjusted
            tests = len(families) * (1 if primary else len(secondary)) if question.adjust == SIDAK else 1
            p = measured.difference.p
            by_holm, by_bh = (None, None) if key is None else (holm_of_all[key], bh_of_all[key])
            if p is None:
                p_adjusted = None
            elif not question.gated:
                p_adjusted = sidak(p, tests)
            elif primary or key is None:
                p_adjusted = sidak(p, len(families))
            else:
                p_adjusted = min(len(families) * holm_of_secondary[key], 1.0)
            if not question.gated:
                p_adjusted = {HOLM: by_holm, "bh": by_bh}.get(question.adjust, p_adjusted)
            adjusted_family.append(
                replace(
                    measured,
                    primary=primary,
                    confidence=question.plan.confidence ** (1 / max(tests, 1)),
                    p_adjusted=p_adjusted,
                    p_holm=by_holm,
                    p_bh=by_bh,
                )
            )
        adjusted_families.append(adjusted_family)
    return adjusted_families, len(p_of)


def at_confidence(difference: Difference, confidence: float) -> Difference:
    """The same difference with its interval at another confidence, or without one if it cannot be recomputed."""
    if difference.interval is None:
        return difference
    if difference.evidence is not None:
        limits = None if difference.width is None else (0.0, difference.width)
        test = STRICT if difference.method == STRICT else FLOORED_T
        at_level = judged(difference.evidence, limits, confidence, test)
        return replace(at_level, p=difference.p, method=difference.method)
    if difference.sequence is not None and difference.width is not None and difference.value is not None:
        ends = difference.sequence.ends(difference.value / difference.width, confidence)
        interval = None if ends is None else (difference.width * ends[0], difference.width * ends[1])
        return replace(difference, interval=interval)
    if difference.draws is not None and difference.value is not None:
        at_level = resampled_difference(by_draws(difference.value, difference.draws, confidence, difference.units))
        return replace(at_level, p=difference.p, method=difference.method)
    return replace(difference, interval=None, why=f"no interval at {100 * confidence:.4g} %")


def _primary(family: Sequence[Measured], question: Question) -> int:
    """The index of the primary question: the named one, else the first metric on all tasks or at the last step."""
    pairs, wanted = [measured.metric_pair for measured in family], question.primary
    if wanted is None:
        steps = [index for index, pair in enumerate(pairs) if question.steps and pair.by == question.steps]
        last = max((step_order(pairs[index].slice or "") for index in steps), default=None)
        return next((index for index in steps if step_order(pairs[index].slice or "") == last), 0)
    for index, pair in enumerate(pairs):
        if wanted.means(pair.text, pair.by, pair.slice):
            return index
    raise UnknownName.of("question in this comparison", wanted.text, [pair.question_text for pair in pairs])


def _test_key(number: int, measured: Measured, first: Measured | None) -> TestKey | None:
    """The key that identifies a test; None if there is no test. ``first``, if given, is measured on all tasks."""
    p = measured.difference.p
    if p is None:
        return None
    on_all_tasks = first is not None and len(measured.compared) == len(first.compared)
    cut = measured.metric_pair.by, measured.metric_pair.slice
    return number, None if on_all_tasks else cut, _test_content(measured), f"{p:.{DIGITS}g}"


def _test_content(measured: Measured) -> object:
    """The data of a test: the differences of the tasks or, if tasks have no values, the metric and its parameters."""
    if measured.values is None:
        metric = measured.metric_pair.metrics[0]
        return metric.metric.name, str(sorted(metric.params.items()))
    differences = np.where(measured.compared, measured.values[1] - measured.values[0], np.nan)
    return np.round(differences, DIGITS).tobytes()


DECIDED = ("better", "worse", "higher", "lower", "equivalent")


def finding_of(measured: Measured, question: Question, tests: int, *, claims: bool = True) -> Finding:
    """An adjusted difference with its verdict, one of ``tests`` tests; without ``claims`` the verdict is a hint."""
    stepwise = question.adjust in (HOLM, "bh")
    metric_pair, confidence, difference = measured.metric_pair, measured.confidence, measured.difference
    if confidence != question.plan.confidence:
        difference = at_confidence(difference, confidence)
    better, margin = measured.higher_is_better, question.margin
    background = background_of(measured)
    decision = decide(
        background.evidence,
        higher_is_better=better is not False,
        margin=margin,
        confidence=confidence,
        level=level_of(difference.p, measured.p_adjusted, confidence, question, tests),
    )
    judgement = verdict(
        decision,
        difference,
        margin=margin,
        confidence=confidence,
        p=measured.p_adjusted if stepwise else None,
        pair=measured.variance,
        samples=measured.repeats,
        clustered=question.plan.cluster is not None,
        tests=tests if stepwise else 1,
        anytime=_equal_weights(measured),
    )
    word, sentence = _word_and_sentence(judgement, measured, question, tests)
    fragile = word in DECIDED[:4] and undone_by_one(difference, confidence)
    if fragile:
        sentence += f"; {one_more(difference.value, question.plan.cluster)} would undo this verdict; {STRICT_ALLOWS}"
    remarks = of_decision(decision, measured, background)
    if remarks:
        sentence += "".join(f": {text_of(remark)}" for remark in remarks)
    hint = word if not claims and word in DECIDED else None
    if hint is not None:
        word = "undecided"
        sentence = f"undecided, because the primary question is: on its own, {sentence}; a hint, not a claim"
    tested_margin = margin if difference.p is not None else None
    finding = Finding(
        metric=metric_pair.text,
        by=metric_pair.by,
        slice=metric_pair.slice,
        first=measured.first,
        second=measured.second,
        delta=difference.value,
        stderr=finite(difference.stderr if difference.plain_stderr is None else difference.plain_stderr),
        interval=difference.interval,
        p=difference.p,
        p_holm=measured.p_holm,
        p_bh=measured.p_bh,
        method=difference.method,
        tasks=int(measured.compared.sum()),
        undefined_tasks=int((~measured.compared).sum()),
        units=difference.units,
        samples=measured.samples,
        higher_is_better=better,
        verdict=word,
        sentence=sentence,
        more_tasks=judgement.more_tasks,
        more_samples=judgement.more_samples,
        new_tasks=judgement.new_tasks,
        p_equivalent=equivalence(difference, tested_margin, confidence=confidence).p if tested_margin else None,
        p_not_worse=non_inferiority(difference, tested_margin, higher_is_better=better, confidence=confidence).p
        if tested_margin and better is not None
        else None,
        mcnemar=measured.mcnemar,
        why=difference.why,
        signature=_signature(measured, question),
        floored_stderr=difference.stderr if difference.method == FLOORED_T else None,
        role="primary" if measured.primary else "secondary",
        p_adjusted=measured.p_adjusted,
        confidence=confidence,
        hint=hint,
        undone_by_one=fragile,
        margin_method=margin_method(difference) if tested_margin else None,
        tasks_for_margin=too_few(difference, tested_margin, confidence) if tested_margin else None,
        undecided_by="data" if hint is not None else decision.undecided_by,
        as_observed=_directed(decision.as_observed, better),
        score0=finite(background.evidence.unseen.score) if background.evidence.unseen else None,
        compared_on=background.compared_on,
        remarks=remarks,
    )
    return with_missing(finding, background, question, tests)


def background_of(measured: Measured) -> Background:
    """The evidence for a verdict on a measured difference."""
    if measured.background is None:
        raise ValueError(f"{measured.metric_pair.text} was measured without its evidence")
    return measured.background


def _directed(word: str, better: bool | None) -> str:
    """The word of a verdict; higher or lower for a metric without a better direction."""
    if better is not None:
        return word
    return {"better": "higher", "worse": "lower"}.get(word, word)


def _equal_weights(measured: Measured) -> bool:
    """Whether every task has the same weight, which an anytime test needs."""
    return measured.weights is None or all(len(np.unique(side[measured.compared])) < 2 for side in measured.weights)


def _word_and_sentence(
    judgement: ComparisonVerdict, measured: Measured, question: Question, tests: int
) -> tuple[str, str]:
    """The word and the sentence of a verdict, with the p that decides it.

    A metric without a better direction is higher or lower, not better or worse.
    """
    word, sentence, p = _directed(judgement.word, measured.higher_is_better), judgement.sentence, measured.p_adjusted
    if word != judgement.word:
        sentence = word + sentence.removeprefix(judgement.word)
    several = measured.confidence != question.plan.confidence
    if question.adjust != SIDAK:
        several = tests > 1 and question.adjust != "none"
    if several and judgement.p is not None and p is not None:
        sentence = sentence.replace(f"p {judgement.p:.2g})", f"adjusted p {p:.2g})")
    return word, sentence


def _signature(measured: Measured, question: Question) -> str:
    """The signature of a difference: its metric, settings, test and seed on one line."""
    metric, plan = measured.metric_pair.metrics[0], question.plan
    params = [f"{key}:{value}" for key, value in sorted(metric.params.items()) if value != ""]
    policy = [f"dialect:{plan.dialect.name}", f"missing:{plan.missing}", f"confidence:{plan.confidence}"]
    policy += plan.excluded
    test = [f"test:{measured.difference.method}", f"cluster:{plan.cluster or 'none'}", f"seed:{plan.seed}"]
    return "|".join([f"delta({metric.metric.name})", *params, *policy, *test, f"definitions:{DEFINITIONS}"])


_OPPOSITE: Final = {"better": "worse", "worse": "better", "higher": "lower", "lower": "higher"}
"""The opposite of each verdict that has a direction. Missing rollouts can change only these verdicts."""


def why_not_fillable(request: RequestedMetric) -> str | None:
    """Why the effect of missing rollouts on a metric is unknown; None if a lower reward never raises the metric."""
    metric = request.metric
    if request.user_code or not isinstance(metric, Metric):
        return "no bounds are known for a metric of a plugin or another system"
    if metric.reads != ("reward",):
        return "no bounds are known for a metric that reads more than the reward"
    return None


def with_missing(finding: Finding, background: Background, question: Question, tests: int) -> Finding:
    """The finding with the counts, bounds and tipping point of its missing rollouts; unchanged if none is missing.

    ``tests`` is the number of tests for which p is adjusted.
    """
    counts = _missing_counts(background.pair)
    if not any(counts):
        return finding
    finding = replace(finding, missing=counts)
    worst_cases, filling = background.worst, background.filling
    if worst_cases is None or filling is None or finding.delta is None:
        return finding
    low, high = worst_cases.against, worst_cases.in_favour
    if low.value is None or high.value is None:
        return finding
    finding = replace(finding, bounds=(low.value, high.value))
    if low.interval is not None and high.interval is not None:
        finding = replace(finding, worst_interval=(low.interval[0], high.interval[1]))
    word = finding.as_observed
    if word not in _OPPOSITE:
        return finding
    sign = 1.0 if (word in ("better", "higher")) == (finding.higher_is_better is not False) else -1.0
    worst, level = (
        low if sign > 0 else high,
        level_of(finding.p, finding.p_adjusted, finding.confidence, question, tests),
    )
    worst_word = "undecided"
    if worst.p is not None and worst.p <= level and worst.value:
        worst_word = word if worst.value * sign > 0 else _OPPOSITE[word]
    finding = replace(finding, worst_verdict=worst_word)
    metric = background.pair.metrics[0].metric
    if not isinstance(metric, Metric) or metric.interval not in MEAN_KINDS or not worst_cases.as_asked:
        return finding  # a test that resamples is too slow to repeat for every number of adverse rollouts
    return replace(finding, tipping=_tipping(background.pair, filling, sign, level))


def _missing_counts(pair: MetricPair) -> tuple[int, int]:
    """The missing rollouts of each run: those without the reward that the metric reads, else without a number."""
    reads = pair.metrics[0].metric.reads
    index = reads.index("reward") if "reward" in reads and all(pair.columns) else None
    first, second = (
        int((missing(side, None if index is None else columns[index]) & pair.eligible[side.task]).sum())
        for side, columns in zip(pair.sides, pair.columns, strict=True)
    )
    return first, second


def level_of(p: float | None, p_adjusted: float | None, confidence: float, question: Question, tests: int) -> float:
    """The largest unadjusted p with which a finding is decided, if the adjustment scales p as it did here."""
    if question.adjust not in (HOLM, "bh"):
        return 1 - confidence
    alpha = 1 - question.plan.confidence
    return alpha / max(tests, 1) if not p or not p_adjusted else alpha * p / p_adjusted


def _tipping(pair: MetricPair, filling: Filling, sign: float, level: float) -> Tipping | None:
    """How many missing rollouts of the second run may be adverse while all of the first run are.

    Counts the first run's missing rollouts if the second run has none. None if no task with missing rollouts has a
    value after they are filled.
    """
    bottom, top = filling.known_ends
    adverse = (top, bottom) if sign > 0 else (bottom, top)  # the rewards of each run that contradict the verdict
    worst = fill(pair, filling.rows, *adverse)
    reduced = [reduced_of(worst, run, worst.columns[run]) for run in (0, 1)]
    tasks = np.flatnonzero(reduced[0].given & reduced[1].given & pair.eligible)
    counts = [side.by_task.count(lost) for side, lost in zip(pair.sides, filling.rows, strict=True)]
    run = 1 if counts[1][tasks].any() else 0
    if not counts[run][tasks].any():
        return None
    by_adverse, other = _values_by_adverse(pair, run, filling, adverse[run]), reduced[1 - run]
    all_tasks = np.arange(len(other))

    def intact(adverse_counts: Ints) -> bool:
        """Whether the verdict holds with this number of adverse rollouts in each task of ``tasks``."""
        count = np.zeros(len(all_tasks), dtype=np.int64)
        count[tasks] = adverse_counts
        filled_run = Column(by_adverse[count, all_tasks], reduced[run].given)
        difference = tested(worst, *((other, filled_run) if run else (filled_run, other)))
        return difference.p is not None and difference.p <= level and (difference.value or 0.0) * sign > 0

    metric, test = pair.metrics[0].metric, pair.question.test
    # equal tasks are exchangeable unless the order of samples matters, tasks are clustered, or the test is another one
    exchangeable = isinstance(metric, Metric) and metric.uses is None and pair.clusters is None and test == FLOORED_T
    kinds = _task_kinds(by_adverse[:, tasks], other.values[tasks]) if exchangeable else None
    direction = sign if run else -sign
    run_parts, run_shares = _contributions(by_adverse[:, tasks])
    other_parts, other_shares = _contributions(other.values[tasks][None])
    fillings = Fillings(
        direction * run_parts, direction * other_parts[0], (run_shares, other_shares), counts[run][tasks], kinds
    )
    point = tipping_point(fillings, intact)
    return Tipping(
        run="second" if run else "first",
        outcome="failed" if adverse[run] == bottom else "passed",
        most=point.most,
        missing=point.missing,
        exact=point.exact,
        tasks=len(tasks),
    )


def _contributions(values: Floats) -> tuple[Floats, Floats]:
    """What each task contributes to a mean or to a pooled rate, [J, t], and its weight, [t]."""
    if values.ndim > 2:
        counts = values[0, :, 1]
        return values[:, :, 0] / counts.sum(), counts / counts.sum()
    size = values.shape[1]
    return values / size, np.full(size, 1 / size)


def _values_by_adverse(pair: MetricPair, run: int, filling: Filling, adverse: float) -> Floats:
    """The task values of a run when 0, 1, ... missing rollouts of each task are adverse and the others are not.

    [J, T], or [J, T, 2] for a pooled rate. The first missing rollouts of a task become adverse first, because they
    cost most in metrics of the first k samples.
    """
    column, by, lost = pair.columns[run][0], pair.sides[run].by_task, filling.rows[run]
    rank, other_end = by.rank(lost), sum(filling.known_ends) - adverse
    values: list[Floats] = []
    for adverse_count in range(int(by.count(lost).max()) + 1):
        numbers = np.where(rank < adverse_count, adverse, other_end)
        rewards = Column(np.where(lost, numbers, column.values), column.given | lost)
        values.append(reduced_of(pair, run, [rewards]).values)
    return np.stack(values)


def _task_kinds(values: Floats, others: Floats) -> Ints:
    """The kind of each task, [T]: tasks of one kind are equal in everything that a test uses."""
    columns = [np.moveaxis(values, 1, 0).reshape(values.shape[1], -1), others.reshape(len(others), -1)]
    code = np.unique(np.round(np.concatenate(columns, axis=1), 12), axis=0, return_inverse=True)[1]
    return np.asarray(code).reshape(-1)
