"""Two runs of a meeting on the tasks they share: every metric measured, and what is to be said beside it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from calipers.comparison.align import Common, by_content, by_id, cut, units
from calipers.comparison.corpus import Tables, of_tables
from calipers.comparison.families import Cut
from calipers.comparison.flips import flips
from calipers.comparison.matter import Matter
from calipers.comparison.measure import measure
from calipers.comparison.missing import filled_matter, warnings_of
from calipers.comparison.question import Question
from calipers.comparison.reads import columns_of, of_both
from calipers.comparison.runs import Meeting
from calipers.comparison.side import Side
from calipers.comparison.told import gaps_told, waiting_told
from calipers.comparison.values import Table
from calipers.reports.compare import Flips
from calipers.rollouts.labels import has


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
    refused: Mapping[str, str]  # numbers of tables that were asked for -> why they are not compared

    @property
    def places(self) -> tuple[int, int]:
        """Of both runs in their meeting."""
        return self.first, self.second


def drafted(meeting: Meeting, one: int, two: int, sides: Sequence[Side], question: Question) -> Draft | str:
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
    cuts: list[Cut] = []
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
                    Matter(both, part, (columns[0][zero], columns[1][zero]), own, question) for zero in (0, 1)
                )
                matter = counted if question.filled is None else filled_matter(held, *question.filled)
                cuts.append(Cut(key, value, measure(matter), held))
            if key is not None and question.tables is None:
                continue  # draws take their time: in slices only for what is named
            told = of_tables(Tables(tables, names, part, own, question), question.tables)
            cuts += [
                Cut(key, value, found, Matter(found.both, part, ([], []), own, question)) for found in told.measured
            ]
            if key is None:
                notes, refused = [*notes, *told.notes], told.refused
    notes += [*gaps_told(names[0], common.first, plan.missing), *gaps_told(names[1], common.second, plan.missing)]
    notes += waiting_told(common.settled) if question.anytime else []
    notes += warnings_of(names, (common.first, common.second))
    counts = len(common.first), len(common.second)
    if counts[0] != counts[1]:
        notes.append(f"on the common tasks {names[0]} has {counts[0]:,} samples, {names[1]} {counts[1]:,}")
    return Draft(meeting, one, two, common, cuts, flips(cuts, common.first.tasks, question.flips), notes, refused)


def _tables(meeting: Meeting, one: int, two: int, sides: Sequence[Side]) -> tuple[Table, Table]:
    first, second = (sides[meeting.runners[at].side].table(tuple(meeting.parts[at].keys[0])) for at in (one, two))
    return first, second


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
