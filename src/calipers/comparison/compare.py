"""Is B better than A? Read both, find the tasks they share, measure every metric, judge, and say what flipped.

::

    sources ──► sides ──► meetings ──► pairs: common tasks ──► differences ──► adjusted ──► findings
                                          └─► what differs beside the answers, what flipped
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from calipers.comparison.align import Common, by_content, by_id, cut, units
from calipers.comparison.contents import Key, Said
from calipers.comparison.documents import of_documents
from calipers.comparison.flips import answered, flips
from calipers.comparison.judge import Cut, adjusted, finding
from calipers.comparison.matter import Matter
from calipers.comparison.measure import measure
from calipers.comparison.question import SHOWN, Question, make_question
from calipers.comparison.ranks import ranks
from calipers.comparison.reads import columns_of, of_both
from calipers.comparison.runs import Meeting, chosen, meetings, runners
from calipers.comparison.side import Side, opened
from calipers.comparison.told import check_gaps, check_sources, gaps_told, notes_of
from calipers.comparison.unlike import differences, prompts_differ
from calipers.errors import InputError
from calipers.pipeline import Progress, Source, quietly
from calipers.plan import make_plan
from calipers.reports.compare import Comparison, Contest, Flips, Pair, Run
from calipers.rollouts.labels import has


def compare(
    *sources: Source,
    metric: str | Sequence[str | Mapping[str, Any]] | None = None,
    by: str | Sequence[str] = (),
    cluster: str | None = None,
    dialect: str | None = None,
    missing: str | None = None,
    reward: str | None = None,
    columns: Mapping[str, str] | None = None,
    confidence: float = 0.95,
    seed: int = 0,
    margin: float | None = None,
    test: str = "default",
    adjust: str = "holm",
    baseline: str | None = None,
    flips: int = SHOWN,
    progress: Progress | None = None,
) -> Comparison:
    """Compare runs on the tasks they share; every difference is the later run less the earlier one.

    A source is anything that `score` reads. One source is compared within itself, by agent and model;
    more than two in all pairs, or each against the ``baseline``.

    >>> found = compare([[1], [0], [1], [0], [1], [0]], [[1], [1], [1], [1], [1], [1]])["mean_reward"]
    >>> found.delta, found.verdict
    (0.5, 'undecided')
    """
    plan = make_plan(
        metric,
        by=by,
        cluster=cluster,
        dialect=dialect,
        missing=missing,
        reward=reward,
        confidence=confidence,
        seed=seed,
    )
    question = make_question(
        plan, test=test, adjust=adjust, margin=margin, baseline=baseline, flips=flips, documents=metric is None
    )
    check_sources(sources)
    sides = [opened(source, columns or {}, plan.labels, progress) for source in sources]
    with quietly():
        return _compared(sides, question)


@dataclass(frozen=True, slots=True)
class Draft:
    """Two runs of a meeting, measured and not yet judged."""

    meeting: Meeting
    first: int
    second: int
    common: Common
    cuts: Sequence[Cut]
    flips: Flips | None
    notes: Sequence[str]

    @property
    def places(self) -> tuple[int, int]:
        """Of both runs in their meeting."""
        return self.first, self.second


def _compared(sides: Sequence[Side], question: Question) -> Comparison:
    met = meetings([runners(place, side.path, side.rollouts) for place, side in enumerate(sides)])
    planned = [(meeting, chosen(meeting, question.baseline)) for meeting in met]
    for meeting, _ in planned:
        check_gaps(meeting, question)
    drafts: list[list[Draft]] = []
    apart: list[str] = []
    for meeting, pairs in planned:
        found = [_draft(meeting, one, two, sides, question) for one, two in pairs]
        drafts.append([draft for draft in found if isinstance(draft, Draft)])
        apart += [said for said in found if isinstance(said, str)]
    flat = [draft for some in drafts for draft in some]
    if not flat:
        raise InputError("; ".join(apart))
    among, tests = adjusted([draft.cuts for draft in flat])
    said = _said(flat, sides)
    judged = {
        id(draft): _pair(
            draft, [finding(one, p, question, tests) for one, p in zip(draft.cuts, its, strict=True)], said, sides
        )
        for draft, its in zip(flat, among, strict=True)
    }
    contests = [
        Contest(
            meeting.dataset,
            _runs(meeting),
            [judged[id(draft)] for draft in some],
            ranks(meeting, question) if len(meeting.runners) > 2 else (),
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
        notes=[*notes_of(sides, met), *apart],
    )


def _draft(meeting: Meeting, one: int, two: int, sides: Sequence[Side], question: Question) -> Draft | str:
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
    cuts = []
    for key, slices in parts.items():
        for value, part in slices.items():
            own = clusters if key is None else units(part, plan.cluster)[0] if plan.cluster else None
            for both in asked:
                one_columns = columns_of(both.first, part.first, names[0], zero=plan.missing == "zero")
                two_columns = columns_of(both.second, part.second, names[1], zero=plan.missing == "zero")
                matter = Matter(both, part, (one_columns, two_columns), own, question)
                cuts.append(Cut(key, value, measure(matter)))
    if question.documents:
        those = [sides[meeting.runners[at].side].hashed() for at in (one, two)]
        cuts += [Cut(None, None, found) for found in of_documents(those[0], those[1], common, question)]
    notes += [*gaps_told(names[0], common.first, plan.missing), *gaps_told(names[1], common.second, plan.missing)]
    counts = len(common.first), len(common.second)
    if counts[0] != counts[1]:
        notes.append(f"on the common tasks {names[0]} has {counts[0]:,} samples, {names[1]} {counts[1]:,}")
    return Draft(meeting, one, two, common, cuts, flips(cuts, common.first.tasks, question.flips), notes)


def _common(meeting: Meeting, one: int, two: int, sides: Sequence[Side]) -> tuple[Common, list[str]]:
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
        notes += prompts_differ(own[0].prompts, own[1].prompts, tasks)
    shown = answered(draft.flips, answer) if draft.flips else None
    return Pair(draft.first, draft.second, draft.common.alignment, findings, shown, notes)


def _runs(meeting: Meeting) -> list[Run]:
    return [
        Run(name, runner.path, *runner.who, part.keys[0][2], len(part.tasks), len(part))
        for name, runner, part in zip(meeting.names, meeting.runners, meeting.parts, strict=True)
    ]
