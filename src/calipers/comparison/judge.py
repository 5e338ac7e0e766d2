"""Differences judged among each other: p adjusted for their number, and the verdict in words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from calipers.comparison.matter import Measured
from calipers.comparison.question import Question
from calipers.pipeline import DEFINITIONS
from calipers.reports.compare import Finding
from calipers.stats.equivalence import equivalence, non_inferiority
from calipers.stats.multiplicity import benjamini_hochberg, holm
from calipers.stats.verdict import verdict

DIGITS = 12  # of a test that must agree for two to be one: a rate and a mean round differently


@dataclass(frozen=True, slots=True)
class Cut:
    """A difference and the tasks it is of: all of them, or one slice."""

    by: str | None
    slice: str | None
    measured: Measured


@dataclass(frozen=True, slots=True)
class Adjusted:
    """A p value among all others of a comparison."""

    holm: float | None
    bh: float | None


def adjusted(families: Sequence[Sequence[Cut]]) -> tuple[list[list[Adjusted]], int]:
    """The p of every difference, pair by pair, adjusted for all of them; and how many different tests there were.

    The same test under two names is one test: mean_reward and pass_rate where every reward is 0 or 1 and
    every task has the same number of samples, or the only slice there is.
    """
    place: dict[tuple[object, ...], int] = {}
    p: list[float] = []
    codes: list[list[int | None]] = []
    for number, cuts in enumerate(families):
        codes.append([])
        for cut in cuts:
            found = cut.measured.difference
            if found.p is None:
                codes[-1].append(None)
                continue
            whole = len(cut.measured.there) == len(cuts[0].measured.there)
            key = (number, None if whole else (cut.by, cut.slice), _what(cut.measured), f"{found.p:.{DIGITS}g}")
            if key not in place:
                place[key] = len(p)
                p.append(found.p)
            codes[-1].append(place[key])
    raw = np.array(p, dtype=np.float64)
    stepped, rated = holm(raw), benjamini_hochberg(raw)
    none = Adjusted(None, None)
    return [[none if c is None else Adjusted(float(stepped[c]), float(rated[c])) for c in some] for some in codes], len(
        p
    )


def _what(measured: Measured) -> object:
    """What a test looks at: the differences of the tasks, where they have one; else the metric, whatever its name."""
    if measured.values is None:
        asked = measured.both.first
        return asked.metric.name, str(sorted(asked.params.items()))
    moved = np.where(measured.there, measured.values[1] - measured.values[0], np.nan)
    return np.round(moved, DIGITS).tobytes()


def finding(cut: Cut, among: Adjusted, question: Question, tests: int) -> Finding:
    """A difference with its verdict, one of so many tests."""
    measured, difference = cut.measured, cut.measured.difference
    better = measured.higher_is_better
    confidence, margin = question.plan.confidence, question.margin
    by = {"holm": among.holm, "bh": among.bh, "none": difference.p}[question.adjust]
    said = verdict(
        difference,
        higher_is_better=better is not False,
        margin=margin,
        confidence=confidence,
        p=by,
        pair=measured.pair,
        samples=measured.repeats,
        clustered=question.plan.cluster is not None,
        tests=1 if question.adjust == "none" else tests,
        anytime=_even(measured),
    )
    word, sentence = str(said.word), said.sentence
    if better is None and word in ("better", "worse"):  # nobody says which way is better
        word = "higher" if word == "better" else "lower"
        sentence = word + sentence.removeprefix(said.word)
    if tests > 1 and question.adjust != "none" and said.p is not None:
        sentence = sentence.replace(f"p {said.p:.2g})", f"adjusted p {said.p:.2g})")
    able = margin is not None and difference.p is not None
    return Finding(
        metric=measured.both.text,
        by=cut.by,
        slice=cut.slice,
        first=measured.first,
        second=measured.second,
        delta=difference.value,
        stderr=difference.stderr,
        interval=difference.interval,
        p=difference.p,
        p_holm=among.holm,
        p_bh=among.bh,
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
    )


def _even(measured: Measured) -> bool:
    """Whether every task has the same weight, so that tasks can be judged one after another."""
    return measured.weights is None or all(len(np.unique(side[measured.there])) < 2 for side in measured.weights)


def _signature(measured: Measured, question: Question) -> str:
    """Everything that made the difference, on one line."""
    asked, plan = measured.both.first, question.plan
    params = [f"{key}:{value}" for key, value in sorted(asked.params.items()) if value != ""]
    policy = [f"dialect:{plan.dialect.name}", f"missing:{plan.missing}", f"confidence:{plan.confidence}"]
    made = [f"test:{measured.difference.method}", f"cluster:{plan.cluster or 'none'}", f"seed:{plan.seed}"]
    return "|".join([f"delta({asked.metric.name})", *params, *policy, *made, f"definitions:{DEFINITIONS}"])
