"""Is B better than A? Read both, find the tasks they share, measure every metric, judge, and say what flipped.

::

    sources ──► sides ──► meetings ──► pairs: common tasks ──► differences ──► adjusted ──► findings
                                          └─► what differs beside the answers, what flipped
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from calipers.analyses.compare.align import Common, by_content, by_id, cut, units
from calipers.analyses.compare.checks import (
    NamedMetrics,
    check_gaps,
    check_sources,
    check_tables,
    gaps_told,
    named,
    notes_of,
    waiting_told,
)
from calipers.analyses.compare.families import SlicePair, TestedPair, answered, at_confidence, flips, standings
from calipers.analyses.compare.measure import measure
from calipers.analyses.compare.metric_pair import Measured, MetricPair, columns_of, of_both
from calipers.analyses.compare.missing import filled_matter, warnings_of, with_missing
from calipers.analyses.compare.question import ORDER, SHOWN, SIDAK, Primary, Question, make_question
from calipers.analyses.compare.ranks import ranks
from calipers.analyses.compare.result import Comparison, Contest, Finding, Flips, Pair, Ranks, Run
from calipers.analyses.compare.runs import Meeting, chosen, meetings, runners
from calipers.analyses.compare.source import Key, ReadSource, Texts, prompts_differ, provenance_differences, read_source
from calipers.analyses.compare.values import DocumentTable, compared_tables
from calipers.errors import InputError
from calipers.pipeline import DEFINITIONS, Progress, Source, quietly
from calipers.request import make_plan
from calipers.rollouts.labels import has
from calipers.rollouts.stop import Stop, not_said
from calipers.stats.margins import equivalence, margin_method, non_inferiority, too_few
from calipers.stats.paired import FLOORED_T, undone_by_one
from calipers.stats.verdict import ComparisonVerdict, verdict


@dataclass(frozen=True, slots=True)
class MeasuredPair:
    """Two runs of a meeting, measured and not yet judged."""

    meeting: Meeting
    first: int
    second: int
    common: Common
    cuts: Sequence[SlicePair]
    flips: Flips | None
    notes: Sequence[str]
    refused: Mapping[str, str]  # numbers of tables that were asked for -> why they are not compared

    @property
    def places(self) -> tuple[int, int]:
        """Of both runs in their meeting."""
        return self.first, self.second


def drafted(
    meeting: Meeting, one: int, two: int, sides: Sequence[ReadSource], question: Question
) -> MeasuredPair | str:
    """Two runs measured on their common tasks; or a sentence why there is nothing to measure."""
    names = meeting.names[one], meeting.names[two]
    common, notes = _common(meeting, one, two, sides)
    if not common.alignment.common:
        first, second = (", ".join(map(repr, meeting.parts[at].tasks[:2])) for at in (one, two))
        why = "".join(f": {note}" for note in notes)
        return f"{names[0]} ({first}, ...) and {names[1]} ({second}, ...) have no task in common{why}"
    plan = question.plan
    clusters, said = units(common, plan.cluster) if plan.cluster else (None, None)
    asked, more = of_both(plan.asked, (common.first, common.second), names, plan.reward)
    notes += [*([said] if said else []), *more]
    absent = [key for key in plan.by if not (has(common.first, key) or has(common.second, key))]
    notes += [f"no rollout has {key!r}: all of them are in __missing__" for key in absent]
    parts = {None: {None: common}} | {key: cut(common, key, plan.dialect.label) for key in plan.by}
    tables = _tables(meeting, one, two, sides)
    cuts: list[SlicePair] = []
    refused: Mapping[str, str] = {}
    for key, slices in parts.items():
        for value, part in slices.items():
            own = clusters if key is None else units(part, plan.cluster)[0] if plan.cluster else None
            for both in asked:
                columns = [
                    [columns_of(run, side, name, zero=zero) for zero in (False, plan.missing == "zero")]
                    for run, side, name in zip((both.first, both.second), (part.first, part.second), names, strict=True)
                ]
                held, counted = (
                    MetricPair(both, part, (columns[0][zero], columns[1][zero]), own, question) for zero in (0, 1)
                )
                matter = counted if question.filled is None else filled_matter(held, *question.filled)
                cuts.append(SlicePair(key, value, measure(matter), held))
            if key is not None and question.tables is None:
                continue  # draws take their time: in slices only for what is named
            told = compared_tables(tables, names, part, own, question)
            cuts += [
                SlicePair(key, value, found, MetricPair(found.both, part, ([], []), own, question))
                for found in told.measured
            ]
            if key is None:
                notes, refused = [*notes, *told.notes], told.refused
    notes += [*gaps_told(names[0], common.first, plan.missing), *gaps_told(names[1], common.second, plan.missing)]
    notes += waiting_told(common.settled) if question.anytime else []
    notes += warnings_of(names, (common.first, common.second))
    counts = len(common.first), len(common.second)
    if counts[0] != counts[1]:
        notes.append(f"on the common tasks {names[0]} has {counts[0]:,} samples, {names[1]} {counts[1]:,}")
    return MeasuredPair(
        meeting, one, two, common, cuts, flips(cuts, common.first.tasks, question.flips), notes, refused
    )


def _tables(meeting: Meeting, one: int, two: int, sides: Sequence[ReadSource]) -> tuple[DocumentTable, DocumentTable]:
    first, second = (sides[meeting.runners[at].side].table(tuple(meeting.parts[at].keys[0])) for at in (one, two))
    return first, second


def _common(meeting: Meeting, one: int, two: int, sides: Sequence[ReadSource]) -> tuple[Common, list[str]]:
    """The common tasks: by id, and by content where no id is common, or none means the same document."""
    first, second = meeting.parts[one], meeting.parts[two]
    found = by_id(first, second)
    those = [sides[meeting.runners[place].side] for place in (one, two)]
    documented = found.alignment.common and all(side.documented for side in those)
    if found.alignment.common and not documented:
        return found, []
    said = [side.prompts(tuple(part.keys[0])) for side, part in zip(those, (first, second), strict=True)]
    held = [one.documents if documented else one.prompts for one in said]
    if not documented:
        return by_content(first, second, held[0], held[1]), []
    told = [task for task in found.first.tasks if task in held[0] and task in held[1]]
    apart = [task for task in told if held[0][task] != held[1][task]]
    if not apart:
        return found, []
    if len(apart) == found.alignment.common:
        return by_content(first, second, held[0], held[1]), ["no id means the same document in both runs"]
    some = ", ".join(apart[:3]) + (", …" if len(apart) > 3 else "")
    note = f"the same id, another document: {some} ({len(apart):,} in all), left out"
    return by_id(first, second, frozenset(apart)), [note]


DECIDED = ("better", "worse", "higher", "lower", "equivalent")


def finding(cut: SlicePair, standing: TestedPair, question: Question, tests: int, *, claims: bool = True) -> Finding:
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


def _worded(
    said: ComparisonVerdict, better: bool | None, standing: TestedPair, question: Question, tests: int
) -> tuple[str, str]:
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


SEQUENTIAL: Final = frozenset({"betting"})
"""Tests that hold after every task, and so after a stop."""

UNTESTED: Final = (
    "a run was stopped by what it showed, and a test for a fixed number of tasks does not hold then; "
    "compare --anytime does"
)
UNRANKED: Final = "a run was stopped by what it showed: ranks over a fixed number of tasks do not hold then"


def without_fixed_tests(draft: MeasuredPair | str) -> MeasuredPair | str:
    """Two runs measured, without the tests that a stopped run among them makes invalid; and what must be said of it."""
    if isinstance(draft, str):
        return draft
    names = (draft.meeting.names[place] for place in draft.places)
    stops = [(name, side.stop) for name, side in zip(names, draft.common.sides, strict=True)]
    stopped = [(name, stop) for name, stop in stops if stop is not None]
    if not stopped:
        return draft
    return replace(draft, cuts=[_untested(cut) for cut in draft.cuts], notes=[*draft.notes, *_notes(stopped)])


def without_ranks(found: Sequence[Ranks], meeting: Meeting) -> list[Ranks]:
    """The ranks of several runs; none where a stopping rule ended one of the runs."""
    if all(part.stop is None for part in meeting.parts):
        return list(found)
    return [replace(one, places=[], optimism=None, corrected=None, why=UNRANKED) for one in found]


def stop_notes(sides: Sequence[ReadSource]) -> list[str]:
    """What the readers say of stops, which the pairs say in their own words."""
    return [note for side in sides for stop in side.rollouts.stops.values() for note in stop.notes]


def _untested(cut: SlicePair) -> SlicePair:
    found = cut.measured.difference
    if found.method in SEQUENTIAL or found.value is None:
        return cut
    bare = replace(found, interval=None, p=None, why=UNTESTED, evidence=None, draws=None)
    return replace(cut, measured=replace(cut.measured, difference=bare, mcnemar=None, pair=None))


def _notes(stopped: Sequence[tuple[str, Stop]]) -> list[str]:
    said = []
    for name, stop in stopped:
        leans = {"lower": "too high", "upper": "too low"}.get(stop.side)
        biased = f"; its value is {leans} on average, and the difference is off by up to as much" if leans else ""
        said.append(f"{name}: {stop.fact}: how many tasks are compared depends on what it showed{biased}")
    return said


def compare(
    *sources: Source,
    metric: str | Sequence[str | Mapping[str, Any]] | None = None,
    by: str | Sequence[str] = (),
    cluster: str | None = None,
    dialect: str | None = None,
    missing: str | None = None,
    reward: str | None = None,
    range: tuple[float, float] | None = None,
    columns: Mapping[str, str] | None = None,
    confidence: float = 0.95,
    seed: int = 0,
    margin: float | None = None,
    test: str = "default",
    adjust: str = SIDAK,
    primary: str | None = None,
    baseline: str | None = None,
    flips: int = SHOWN,
    anytime: bool = False,
    filled: tuple[float, float] | None = None,
    progress: Progress | None = None,
) -> Comparison:
    """Compare runs on the tasks they share; every difference is the later run less the earlier one.

    A source is anything that `score` reads. One source is compared within itself, by agent and model;
    more than two in all pairs, or each against the ``baseline``. A metric may also be a number of
    lm-evaluation-harness' table, where sources have one: ``bleu``, or of one pipeline ``exact_match,strict``.
    The first metric on all tasks is the ``primary`` question, unless another is named, such as
    ``mean_reward[difficulty=hard]``: it keeps its full level, and the others are claims only when it is decided.
    ``filled`` takes the missing rollouts of the first and of the second run for rewards of these values.
    With ``anytime`` the verdict may be asked for after every batch of tasks that is added to the runs.

    >>> found = compare([[1], [0], [1], [0], [1], [0]], [[1], [1], [1], [1], [1], [1]])["mean_reward"]
    >>> found.delta, found.verdict
    (0.5, 'undecided')
    """
    asked = named(metric, dialect, sources)
    first = None if primary is None else Primary.of(primary)
    keys = [by] if isinstance(by, str) else list(by)
    plan = make_plan(
        asked.ours,
        by=keys if first is None or first.by is None or first.by in keys else [*keys, first.by],
        cluster=cluster,
        dialect=dialect,
        missing=missing,
        reward=reward,
        confidence=confidence,
        seed=seed,
        range=range,
    )
    question = make_question(
        plan if asked.ours is None else replace(plan, asked=plan.asked if asked.ours else ()),
        test=test,
        adjust=adjust,
        margin=margin,
        baseline=baseline,
        flips=flips,
        tables=asked.wanted,
        anytime=anytime,
        primary=first,
        filled=filled,
    )
    check_sources(sources)
    sides = [read_source(source, columns or {}, plan.labels, progress) for source in sources]
    with quietly():
        return _compared(sides, question, asked)


def _compared(sides: Sequence[ReadSource], question: Question, asked: NamedMetrics) -> Comparison:
    met = meetings([runners(place, side.path, side.rollouts) for place, side in enumerate(sides)])
    planned = [(meeting, chosen(meeting, question.baseline)) for meeting in met]
    for meeting, _ in planned:
        check_gaps(meeting, question)
    drafts: list[list[MeasuredPair]] = []
    apart: list[str] = []
    for meeting, pairs in planned:
        found = [without_fixed_tests(drafted(meeting, one, two, sides, question)) for one, two in pairs]
        drafts.append([draft for draft in found if isinstance(draft, MeasuredPair)])
        apart += [said for said in found if isinstance(said, str)]
    flat = [draft for some in drafts for draft in some]
    if not flat:
        raise InputError("; ".join(apart))
    measured = {cut.measured.both.text for draft in flat for cut in draft.cuts}
    more = check_tables(asked, measured, [draft.refused for draft in flat], sides)
    among, tests = standings([draft.cuts for draft in flat], question)
    said = _said(flat, sides)
    judged = {
        id(draft): _pair(draft, _findings(draft, its, question, tests), said, sides)
        for draft, its in zip(flat, among, strict=True)
    }
    contests = [
        Contest(
            meeting.dataset,
            _runs(meeting),
            [judged[id(draft)] for draft in some],
            without_ranks(ranks(meeting, question), meeting)
            if len(meeting.runners) > 2 and not question.anytime
            else (),
        )
        for (meeting, _), some in zip(planned, drafts, strict=True)
        if some
    ]
    plan = question.plan
    return Comparison(
        dialect=plan.dialect.name,
        missing=plan.missing,
        confidence=plan.confidence,
        seed=plan.seed,
        test=question.test,
        adjust=question.adjust,
        margin=question.margin,
        cluster=plan.cluster,
        inputs=[side.hashed() for side in sides],
        contests=contests,
        tests=tests,
        order=ORDER if question.anytime else None,
        notes=[*not_said(notes_of(sides, met), stop_notes(sides)), *apart, *more],
        primary=question.primary.text if question.primary else flat[0].cuts[0].text,
        differences=[cut.measured.difference for some in drafts for draft in some for cut in draft.cuts],
    )


def _findings(draft: MeasuredPair, among: Sequence[TestedPair], question: Question, tests: int) -> list[Finding]:
    """The differences of two runs judged: the primary question first, as the others hang on it."""
    first = next(number for number, standing in enumerate(among) if standing.primary)
    leading = finding(draft.cuts[first], among[first], question, tests)
    open_to_all = question.adjust != SIDAK or leading.verdict in DECIDED
    return [
        with_missing(finding(cut, standing, question, tests, claims=standing.primary or open_to_all), cut.matter, tests)
        for cut, standing in zip(draft.cuts, among, strict=True)
    ]


def _said(drafts: Sequence[MeasuredPair], sides: Sequence[ReadSource]) -> list[dict[Key, Texts]]:
    """What each side says: its prompts, and its answers to what flipped."""
    wanted: list[dict[Key, set[str]]] = [{} for _ in sides]
    for draft in drafts:
        for place, at in enumerate(draft.places):
            names = _own_ids(draft, place)
            key = tuple(draft.meeting.parts[at].keys[0])
            those = wanted[draft.meeting.runners[at].side].setdefault(key, set())
            if draft.flips:
                those |= {names.get(one.task, "") for one in (*draft.flips.regressions, *draft.flips.fixes)}
    return [side.said(some) for side, some in zip(sides, wanted, strict=True)]


def _own_ids(draft: MeasuredPair, place: int) -> Mapping[str, str]:
    """What a side calls the tasks that flipped, by the first run's ids."""
    if not draft.flips:
        return {}
    flipped = {one.task for one in (*draft.flips.regressions, *draft.flips.fixes)}
    pairs = zip(draft.common.first.tasks, draft.common.own_ids, strict=True)
    return {task: own if place else task for task, own in pairs if task in flipped}


def _pair(
    draft: MeasuredPair, findings: Sequence[Any], said: Sequence[dict[Key, Texts]], sides: Sequence[ReadSource]
) -> Pair:
    meeting = draft.meeting
    own = [said[meeting.runners[at].side].get(tuple(meeting.parts[at].keys[0])) or Texts() for at in draft.places]
    ids = [_own_ids(draft, place) for place in (0, 1)]

    def answer(place: int, task: str) -> str | None:
        return own[place].answers.get(ids[place].get(task, ""), (0, None))[1]

    names = meeting.names[draft.first], meeting.names[draft.second]
    tasks = draft.common.first.tasks
    one, two = (sides[meeting.runners[at].side].papers(meeting.parts[at].keys[0][2]) for at in draft.places)
    notes = [*draft.notes, *provenance_differences(one, two, names, tasks)]
    if draft.common.alignment.by == "id":
        # where the digest of a task is the same, so is its instruction: the rest is how the agent puts it
        same = {key[1] for key, digest in one.digests.items() if two.digests.get(key) == digest}
        notes += prompts_differ(own[0].prompts, own[1].prompts, [task for task in tasks if task not in same])
    shown = answered(draft.flips, answer) if draft.flips else None
    return Pair(draft.first, draft.second, draft.common.alignment, findings, shown, notes)


def _runs(meeting: Meeting) -> list[Run]:
    return [
        Run(name, runner.path, *runner.who, part.keys[0][2], len(part.tasks), len(part))
        for name, runner, part in zip(meeting.names, meeting.runners, meeting.parts, strict=True)
    ]
