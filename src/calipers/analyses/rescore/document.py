"""The result of a rescore: which rollouts changed, and how far each metric moved."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, Self

import msgspec

from calipers.errors import InputError
from calipers.reports.document import Blank, Block, Document, Name, Row, Sentence, Table, TableColumn, Text, Title
from calipers.reports.figures import counted, decimals, ends, figure
from calipers.reports.page import Page
from calipers.reports.result import Result, Slice
from calipers.reports.result_page import named, title
from calipers.reports.untrusted_text import clean
from calipers.stats.estimate import Estimate

SHOWN = 8  # rollouts of a kind that are named in a table
_WHAT = {"other reward": "reward changed", "number to gap": "reward to missing", "gap to number": "missing to reward"}


@dataclass(frozen=True, slots=True)
class Flip:
    """The rollouts with one kind of change; ``which`` names the first of them as (task, sample)."""

    what: str  # "pass to fail", ...
    count: int
    which: Sequence[tuple[str, int]]


@dataclass(frozen=True, slots=True, repr=False)
class Rescored(Page):
    """The same rollouts with the old and the new reward."""

    path: str  # the file with both rewards
    old: str | None  # the old reward; None when there was none
    new: str  # the new reward
    rollouts: int
    judged: int  # rollouts with a new verdict
    flips: Sequence[Flip]
    outcomes: Mapping[str, tuple[int, int]]  # ledger's word -> rollouts before, after
    before: Result | None
    after: Result
    notes: Sequence[str] = ()

    @classmethod
    def from_dict(cls, document: Mapping[str, Any]) -> Self:
        """The rescoring that a document was made of."""
        try:
            known = {name: document[name] for name in ("path", "old", "new", "rollouts", "judged")}
            return cls(
                **known,
                flips=msgspec.convert(document["flips"], list[Flip]),
                outcomes={word: (counts["before"], counts["after"]) for word, counts in document["outcomes"].items()},
                before=None if document["before"] is None else Result.from_dict(document["before"]),
                after=Result.from_dict(document["after"]),
            )
        except (KeyError, TypeError, AttributeError, msgspec.ValidationError) as error:
            raise InputError(f"not a rescoring of this version: {type(error).__name__}: {error}") from None

    def page(self) -> Document:
        """The page and its data, for renderers."""
        return document(self)

    def headline(self) -> str:
        """What it says, in a line."""
        changed = sum(flip.count for flip in self.flips)
        return f"{self.judged} of {self.rollouts} rollouts judged again, {changed} changed"

    def to_dict(self) -> dict[str, Any]:
        """The comparison, ready for strict JSON."""
        return {
            "schema": "calipers.rescored/1",
            "path": self.path,
            "old": self.old,
            "new": self.new,
            "rollouts": self.rollouts,
            "judged": self.judged,
            "flips": [asdict(flip) for flip in self.flips],
            "outcomes": {word: {"before": before, "after": after} for word, (before, after) in self.outcomes.items()},
            "before": None if self.before is None else self.before.to_dict(),
            "after": self.after.to_dict(),
        }


def document(rescored: Rescored) -> Document:
    """A rescore as a page: which rollouts changed, then each metric with both rewards."""
    return Document(partial(_blocks, rescored), rescored.to_dict)


def _blocks(rescored: Rescored) -> Iterator[Block]:
    beside = f", compared with reward {clean(rescored.old)!r}" if rescored.old else ""
    judged = f"{counted(rescored.rollouts, 'rollout')}, {rescored.judged:,} rescored"
    yield Sentence(f"{judged}: reward {clean(rescored.new)!r}{beside}", whole=True)
    yield Sentence(Name(rescored.path, None), whole=True)
    yield Blank()
    rows = []
    for flip in rescored.flips:
        names = [f"{clean(task)}/{sample}" for task, sample in flip.which[:SHOWN]]
        more = ["…"] if names and flip.count > len(names) else []
        rows.append(Row([_WHAT.get(flip.what, flip.what), f"{flip.count:,}", ", ".join([*names, *more])]))
    yield Table([TableColumn(), TableColumn(align="right"), TableColumn()], rows, ruled=False, fits=True)
    changed = [
        f"{word} {before:,} to {after:,}" for word, (before, after) in rescored.outcomes.items() if before != after
    ]
    if changed:
        yield Sentence(f"outcomes: {', '.join(changed)}", whole=True)
    for number, group in enumerate(rescored.after.groups):
        yield Blank()
        if name := title(group, rescored.after):
            yield Title(Name(name, None))
        yield from _moved(rescored, number)


def _moved(rescored: Rescored, number: int) -> Iterator[Block]:
    """A table of the metrics of a group and its slices, with the old and the new reward."""
    after = rescored.after.groups[number]
    before = rescored.before.groups[number] if rescored.before else None
    pairs: list[tuple[Text, Estimate | None, Estimate]] = []
    pairs += [(named(name, e), _of(before, name), e) for name, e in after.metrics.items()]
    for key, cut in after.breakdowns.items():
        for value, part in cut.items():
            beside = before.breakdowns[key].get(value) if before else None
            slice_of = f"{clean(key)}={clean(value)} "
            pairs += [((slice_of, *named(name, e)), _of(beside, name), e) for name, e in part.metrics.items()]
    rewards = [clean(rescored.old or "", 24)] if any(old for _, old, _ in pairs) else []
    columns = [TableColumn("metric")]
    for reward in [*rewards, clean(rescored.new, 24)] if pairs else []:
        columns += [TableColumn(reward, "point"), TableColumn("interval")]
    columns += [TableColumn("difference", "point")] if before else []
    rows = []
    for name, old, new in pairs:
        places = max(decimals(estimate) for estimate in (old, new) if estimate)
        cells = [name, *(_cells(old, places) if rewards else []), *_cells(new, places)]
        rows.append(Row([*cells, _difference(old, new, places)] if before else cells))
    yield Table(columns, rows, ruled=False)
    if any(old and old.samples != new.samples for _, old, new in pairs):
        apart = "not every rollout has both rewards, so a difference is partly between different rollouts"
        yield Sentence(apart, whole=True)


def _of(part: Slice | None, name: str) -> Estimate | None:
    return None if part is None else part.metrics.get(name)


def _cells(estimate: Estimate | None, places: int) -> tuple[str, str]:
    return (figure(estimate.value, places), ends(estimate.interval, places)) if estimate else ("", "")


def _difference(old: Estimate | None, new: Estimate, places: int) -> str:
    if old is None or old.value is None or new.value is None:
        return "–"
    moved = new.value - old.value
    return f"{'+' if moved > 0 else ''}{figure(moved, places)}"
