"""A difference among others: the verdict in words, and everything that is written down of it."""

from __future__ import annotations

import numpy as np

from calipers.comparison.families import Cut, Standing, at_confidence
from calipers.comparison.matter import Measured
from calipers.comparison.question import SIDAK, Question
from calipers.pipeline import DEFINITIONS
from calipers.reports.compare import Finding
from calipers.stats.equivalence import equivalence, margin_method, non_inferiority, too_few
from calipers.stats.paired import FLOORED_T, undone_by_one
from calipers.stats.verdict import Verdict, verdict

DECIDED = ("better", "worse", "higher", "lower", "equivalent")


def finding(cut: Cut, standing: Standing, question: Question, tests: int, *, claims: bool = True) -> Finding:
    """A difference with its verdict, one of so many tests; a hint, where it may make no claim."""
    measured = cut.measured
    stepwise = question.adjust in ("holm", "bh")
    confidence = question.plan.confidence if stepwise else standing.confidence
    difference = measured.difference
    if confidence != question.plan.confidence:
        difference = at_confidence(difference, confidence)
    better, margin = measured.higher_is_better, question.margin
    said = verdict(
        difference,
        higher_is_better=better is not False,
        margin=margin,
        confidence=confidence,
        p=standing.p if stepwise else None,
        pair=measured.pair,
        samples=measured.repeats,
        clustered=question.plan.cluster is not None,
        tests=tests if stepwise else 1,
        anytime=_even(measured),
    )
    word, sentence = _worded(said, better, standing, question, tests)
    shaky = word in DECIDED[:4] and undone_by_one(difference, confidence)
    if shaky:
        unit = "cluster" if question.plan.cluster else "task"
        lost = "lost" if (difference.value or 0.0) > 0 else "won"
        sentence += f"; one more {unit} {lost} outright would undo this, and --test strict allows for that"
    hint = word if not claims and word in DECIDED else None
    if hint is not None:
        word, sentence = "undecided", _hint(sentence)
    able = margin is not None and difference.p is not None
    return Finding(
        metric=measured.both.text,
        by=cut.by,
        slice=cut.slice,
        first=measured.first,
        second=measured.second,
        delta=difference.value,
        stderr=difference.stderr if difference.plain_stderr is None else difference.plain_stderr,
        interval=difference.interval,
        p=difference.p,
        p_holm=standing.holm,
        p_bh=standing.bh,
        method=difference.method,
        tasks=int(measured.there.sum()),
        undefined_tasks=int((~measured.there).sum()),
        units=difference.units,
        samples=measured.samples,
        higher_is_better=better,
        verdict=word,
        sentence=sentence,
        more_tasks=said.more_tasks,
        more_samples=said.more_samples,
        new_tasks=said.new_tasks,
        p_equivalent=equivalence(difference, margin, confidence=confidence).p if able and margin else None,
        p_not_worse=non_inferiority(difference, margin, higher_is_better=better is not False, confidence=confidence).p
        if able and margin and better is not None
        else None,
        mcnemar=measured.mcnemar,
        why=difference.why,
        signature=_signature(measured, question),
        floored_stderr=difference.stderr if difference.method == FLOORED_T else None,
        role="primary" if standing.primary else "secondary",
        p_adjusted=standing.p,
        confidence=confidence,
        hint=hint,
        undone_by_one=shaky,
        margin_method=margin_method(difference) if able else None,
        tasks_for_margin=too_few(difference, margin, confidence) if able and margin else None,
    )


def _even(measured: Measured) -> bool:
    """Whether every task has the same weight, so that tasks can be judged one after another."""
    return measured.weights is None or all(len(np.unique(side[measured.there])) < 2 for side in measured.weights)


def _worded(said: Verdict, better: bool | None, standing: Standing, question: Question, tests: int) -> tuple[str, str]:
    """The word and the sentence of a verdict, in the direction the metric has, with the p it goes by."""
    word, sentence = str(said.word), said.sentence
    if better is None and word in ("better", "worse"):  # nobody says which way is better
        word = "higher" if word == "better" else "lower"
        sentence = word + sentence.removeprefix(said.word)
    adjusted = standing.tests > 1 if question.adjust == SIDAK else tests > 1 and question.adjust != "none"
    if adjusted and said.p is not None and standing.p is not None:
        sentence = sentence.replace(f"p {said.p:.2g})", f"adjusted p {standing.p:.2g})")
    return word, sentence


def _hint(sentence: str) -> str:
    return f"undecided, as the primary question is: that alone would be called {sentence}; a hint, not a claim"


def _signature(measured: Measured, question: Question) -> str:
    """Everything that made the difference, on one line."""
    asked, plan = measured.both.first, question.plan
    params = [f"{key}:{value}" for key, value in sorted(asked.params.items()) if value != ""]
    policy = [f"dialect:{plan.dialect.name}", f"missing:{plan.missing}", f"confidence:{plan.confidence}"]
    made = [f"test:{measured.difference.method}", f"cluster:{plan.cluster or 'none'}", f"seed:{plan.seed}"]
    return "|".join([f"delta({asked.metric.name})", *params, *policy, *made, f"definitions:{DEFINITIONS}"])
