"""A checked judge laid out for people: the score in a sentence, how the judge errs, who agrees with whom."""

from __future__ import annotations

from collections.abc import Iterator

from calipers.reports.figures import NONE, counted, figure, percent
from calipers.reports.judge_check import Checked, JudgeCheck
from calipers.reports.sheet import Block, Said, Table, Title
from calipers.stats.judges import Corrected, Rate

PLACES = 4
METHODS = {
    "ppi++": ("PPI++", "labels, and the judge as far as it is worth it"),
    "labels": ("labels alone", "the judge is left out"),
    "ppi": ("PPI", "the judge's mean and its mean error"),
    "rogan_gladen": ("Rogan-Gladen", "the judge's share, by its sensitivity and specificity"),
    "judge": ("judge alone", "not corrected"),
}
RANDOM = "All this holds if the labelled rollouts were drawn at random, not picked."


def sheet(found: JudgeCheck) -> list[Block]:
    """Everything that a check has to say."""
    blocks = [block for group in found.groups for block in _group(group, found)]
    return [*blocks, Said(RANDOM, note=True)]


def _group(group: Checked, found: JudgeCheck) -> Iterator[Block]:
    if group.title or len(found.groups) > 1:
        yield Title(group.title or "(unnamed)", foreign=True)
    yield Said(verdict(group))
    raters = f" by {counted(len(group.raters), 'rater')}" if len(group.raters) > 1 else ""
    yield Said(
        f"judge: {group.judge}, {counted(group.rollouts, 'rollout')} of {counted(group.tasks, 'task')}; "
        f"labels{raters}: {counted(group.labelled, 'rollout')} of {counted(group.labelled_tasks, 'task')}"
    )
    for note in group.notes:
        yield Said(note if note.startswith("warning: ") else f"note: {note}")
    interval = f"{percent(found.confidence)} interval"
    yield Table(
        ["score", "value", "± stderr", interval, "weight", "what it is"],
        [_score(one) for one in (*group.corrected, group.uncorrected)],
        numbers=frozenset({1, 2, 4}),
        strong=frozenset({1}),
    )
    yield Title("how the judge errs")
    told = group.confusion
    yield Table(
        ["", "judge: good", "judge: bad"],
        [
            ["label: good", f"{told.true_positives:,}", f"{told.false_negatives:,}"],
            ["label: bad", f"{told.false_positives:,}", f"{told.true_negatives:,}"],
        ],
        numbers=frozenset({1, 2}),
    )
    yield Table(
        ["rate", "value", interval, "of", "what it is"],
        [
            _rate("sensitivity", told.sensitivity, "of what is good, called good"),
            _rate("specificity", told.specificity, "of what is bad, called bad"),
            _rate("accuracy", told.accuracy, "called what it is"),
        ],
        numbers=frozenset({1, 3}),
        strong=frozenset({1}),
    )
    yield Title("who agrees with whom")
    yield Table(
        ["Krippendorff's alpha", "value", "rollouts", ""],
        [
            [one.among, figure(one.alpha, PLACES), f"{one.rollouts:,}", one.why or _strength(one.alpha)]
            for one in group.agreement
        ],
        numbers=frozenset({1, 2}),
        strong=frozenset({1}),
    )
    if len(group.pairs) > 1:
        yield Table(
            ["rater", "and", "same", "rollouts"],
            [[one.first, one.second, percent(round(one.share, 3)), f"{one.rollouts:,}"] for one in group.pairs],
            numbers=frozenset({2, 3}),
            names=frozenset({0, 1}),
        )


def verdict(group: Checked) -> str:
    """The score in a sentence: what it is, and how far off the judge is."""
    score, bias = group.score, group.bias
    if score.value is None or score.interval is None:
        return f"No corrected score: {score.why or 'the labels do not vary'}."
    low, high = (figure(end, PLACES) for end in score.interval)
    said = f"The score is {figure(score.value, PLACES)}, between {low} and {high}."
    word = f"The judge alone says {figure(group.uncorrected.value, PLACES)}"
    if bias.value is None or bias.interval is None:
        return f"{said} {word}."
    if bias.interval[0] <= 0 <= bias.interval[1]:
        low, high = (figure(end, PLACES) for end in bias.interval)
        return f"{said} {word}; that it rates too high or too low is not shown ({low} to {high})."
    way = "high" if bias.value > 0 else "low"
    low, high = (figure(end, PLACES) for end in sorted(map(abs, bias.interval)))
    return f"{said} {word}; it rates {figure(abs(bias.value), PLACES)} too {way} (between {low} and {high})."


def _score(one: Corrected) -> list[str]:
    name, what = METHODS[one.method]
    ends = NONE if one.interval is None else f"[{figure(one.interval[0], PLACES)}, {figure(one.interval[1], PLACES)}]"
    weight = figure(one.trust, 3) if one.method in ("ppi++", "ppi", "labels") else ""
    return [name, figure(one.value, PLACES), figure(one.stderr, PLACES), ends, weight, one.why or what]


def _rate(name: str, rate: Rate, what: str) -> list[str]:
    ends = (
        NONE if rate.interval is None else f"[{figure(rate.interval[0], PLACES)}, {figure(rate.interval[1], PLACES)}]"
    )
    return [name, figure(rate.value, PLACES), ends, f"{rate.of:,}", rate.why or what]


def _strength(alpha: float | None) -> str:
    """Krippendorff's own lines: reliable from .8, tentative from .667."""
    if alpha is None:
        return ""
    return "reliable" if alpha >= 0.8 else "tentative" if alpha >= 0.667 else "not reliable"
