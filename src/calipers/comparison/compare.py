"""Is B better than A? Read both, find the tasks they share, measure every metric, judge, and say what flipped.

::

    sources ──► sides ──► meetings ──► pairs: common tasks ──► differences ──► adjusted ──► findings
                                          └─► what differs beside the answers, what flipped
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from calipers.comparison.contents import Key, Said
from calipers.comparison.draft import Draft, drafted
from calipers.comparison.families import Standing, standings
from calipers.comparison.flips import answered
from calipers.comparison.judge import DECIDED, finding
from calipers.comparison.missing import with_missing
from calipers.comparison.named import Named, named
from calipers.comparison.question import ORDER, SHOWN, SIDAK, Primary, Question, make_question
from calipers.comparison.ranks import ranks
from calipers.comparison.runs import Meeting, chosen, meetings, runners
from calipers.comparison.side import Side, opened
from calipers.comparison.stopped import stop_notes, without_fixed_tests, without_ranks
from calipers.comparison.told import check_gaps, check_sources, check_tables, notes_of
from calipers.comparison.unlike import differences, prompts_differ
from calipers.errors import InputError
from calipers.pipeline import Progress, Source, quietly
from calipers.plan import make_plan
from calipers.reports.compare import Comparison, Contest, Finding, Pair, Run
from calipers.rollouts.stop import not_said


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
    sides = [opened(source, columns or {}, plan.labels, progress) for source in sources]
    with quietly():
        return _compared(sides, question, asked)


def _compared(sides: Sequence[Side], question: Question, asked: Named) -> Comparison:
    met = meetings([runners(place, side.path, side.rollouts) for place, side in enumerate(sides)])
    planned = [(meeting, chosen(meeting, question.baseline)) for meeting in met]
    for meeting, _ in planned:
        check_gaps(meeting, question)
    drafts: list[list[Draft]] = []
    apart: list[str] = []
    for meeting, pairs in planned:
        found = [without_fixed_tests(drafted(meeting, one, two, sides, question)) for one, two in pairs]
        drafts.append([draft for draft in found if isinstance(draft, Draft)])
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


def _findings(draft: Draft, among: Sequence[Standing], question: Question, tests: int) -> list[Finding]:
    """The differences of two runs judged: the primary question first, as the others hang on it."""
    first = next(number for number, standing in enumerate(among) if standing.primary)
    leading = finding(draft.cuts[first], among[first], question, tests)
    open_to_all = question.adjust != SIDAK or leading.verdict in DECIDED
    return [
        with_missing(finding(cut, standing, question, tests, claims=standing.primary or open_to_all), cut.matter, tests)
        for cut, standing in zip(draft.cuts, among, strict=True)
    ]


def _said(drafts: Sequence[Draft], sides: Sequence[Side]) -> list[dict[Key, Said]]:
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


def _own_ids(draft: Draft, place: int) -> Mapping[str, str]:
    """What a side calls the tasks that flipped, by the first run's ids."""
    if not draft.flips:
        return {}
    flipped = {one.task for one in (*draft.flips.regressions, *draft.flips.fixes)}
    pairs = zip(draft.common.first.tasks, draft.common.own_ids, strict=True)
    return {task: own if place else task for task, own in pairs if task in flipped}


def _pair(draft: Draft, findings: Sequence[Any], said: Sequence[dict[Key, Said]], sides: Sequence[Side]) -> Pair:
    meeting = draft.meeting
    own = [said[meeting.runners[at].side].get(tuple(meeting.parts[at].keys[0])) or Said() for at in draft.places]
    ids = [_own_ids(draft, place) for place in (0, 1)]

    def answer(place: int, task: str) -> str | None:
        return own[place].answers.get(ids[place].get(task, ""), (0, None))[1]

    names = meeting.names[draft.first], meeting.names[draft.second]
    tasks = draft.common.first.tasks
    one, two = (sides[meeting.runners[at].side].papers(meeting.parts[at].keys[0][2]) for at in draft.places)
    notes = [*draft.notes, *differences(one, two, names, tasks)]
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
