"""What another judge changed: which rollouts flipped, and how far each number moved."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from calipers.reports.figures import counted, decimals, ends, figure, on_the_point
from calipers.reports.page import PLAIN_WIDTH, named, title
from calipers.reports.result import Result, Slice
from calipers.reports.safe import clean, width
from calipers.stats.estimate import Estimate

SHOWN = 8  # rollouts of a kind that are named in a table


@dataclass(frozen=True, slots=True)
class Flip:
    """The rollouts that went one way; ``which`` names the first of them as (task, sample)."""

    what: str  # "pass to fail", ...
    count: int
    which: Sequence[tuple[str, int]]


@dataclass(frozen=True, slots=True)
class Rescored:
    """The same rollouts by two judges."""

    path: str  # the file with both rewards
    old: str | None  # the reward that was there; None when there was none
    new: str  # the reward beside it
    rollouts: int
    judged: int  # of them, by the new judge
    flips: Sequence[Flip]
    outcomes: Mapping[str, tuple[int, int]]  # ledger's word -> rollouts before, after
    before: Result | None
    after: Result
    notes: Sequence[str] = ()

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
            "outcomes": {word: {"before": one, "after": two} for word, (one, two) in self.outcomes.items()},
            "before": None if self.before is None else self.before.to_dict(),
            "after": self.after.to_dict(),
        }


def render(found: Rescored, columns: int = PLAIN_WIDTH) -> str:
    """The comparison as plain lines."""
    return "".join(line.rstrip() + "\n" for line in _lines(found, columns))


def _lines(found: Rescored, columns: int) -> Iterator[str]:
    beside = f" beside reward {clean(found.old)!r}" if found.old else ""
    yield f"{counted(found.rollouts, 'rollout')}, {found.judged:,} judged: reward {clean(found.new)!r}{beside}"
    yield clean(found.path, None)
    yield ""
    yield from _flips(found, columns)
    for number, group in enumerate(found.after.groups):
        yield ""
        if name := title(group, found.after):
            yield name
        yield from _moved(found, number)


def _flips(found: Rescored, columns: int) -> Iterator[str]:
    widest = max(len(flip.what) for flip in found.flips)
    numbers = max(len(f"{flip.count:,}") for flip in found.flips)
    for flip in found.flips:
        head = f"{flip.what:<{widest}}  {flip.count:>{numbers},}"
        names = [f"{clean(task)}/{sample}" for task, sample in flip.which[:SHOWN]]
        if flip.count > len(names) and names:
            names.append("…")
        listed = textwrap.wrap(", ".join(names), max(columns - len(head) - 2, 20), break_on_hyphens=False)
        for place, part in enumerate(listed or [""]):
            yield f"{head if not place else '':<{len(head)}}  {part}"
    changed = {word: pair for word, pair in found.outcomes.items() if pair[0] != pair[1]}
    if changed:
        yield "outcomes: " + ", ".join(f"{word} {one:,} to {two:,}" for word, (one, two) in changed.items())


def _moved(found: Rescored, number: int) -> Iterator[str]:
    """A table of a group's metrics, by the old reward and by the new, and of its slices."""
    after = found.after.groups[number]
    before = found.before.groups[number] if found.before else None
    rows: list[tuple[str, Estimate | None, Estimate]] = []
    rows += [(named(name, e), _of(before, name), e) for name, e in after.metrics.items()]
    for key, cut in after.breakdowns.items():
        for value, part in cut.items():
            old = before.breakdowns[key].get(value) if before else None
            rows += [(f"{clean(key)}={clean(value)} {named(n, e)}", _of(old, n), e) for n, e in part.metrics.items()]
    places = [max(decimals(e) for e in (old, new) if e) for _, old, new in rows]
    cells = [
        ("metric", [name for name, _, _ in rows], False),
        *_column(found.old or "", [old for _, old, _ in rows], places),
        *_column(found.new, [new for _, _, new in rows], places),
    ]
    if before:
        moves = [_difference(old, new, p) for (_, old, new), p in zip(rows, places, strict=True)]
        cells.append(("difference", on_the_point(moves), True))
    apart = [new for _, old, new in rows if old and old.samples != new.samples]
    widths = [max(map(width, (head, *column))) for head, column, _ in cells]
    for row in [[head for head, _, _ in cells], *zip(*(column for _, column, _ in cells), strict=True)]:
        yield "  ".join(
            " " * (wide - width(cell)) + cell if right else cell + " " * (wide - width(cell))
            for cell, wide, (_, _, right) in zip(row, widths, cells, strict=True)
        )
    if apart:
        yield "not every rollout has both rewards, so that a difference is in part one between rollouts"


def _of(part: Slice | None, name: str) -> Estimate | None:
    return None if part is None else part.metrics.get(name)


def _column(head: str, found: Sequence[Estimate | None], places: Sequence[int]) -> list[tuple[str, list[str], bool]]:
    if not any(found):
        return []
    pairs = list(zip(found, places, strict=True))
    values = on_the_point([figure(e.value, p) if e else "" for e, p in pairs])
    return [(clean(head, 24), values, True), ("interval", [ends(e.interval, p) if e else "" for e, p in pairs], False)]


def _difference(old: Estimate | None, new: Estimate, places: int) -> str:
    if old is None or old.value is None or new.value is None:
        return "–"
    moved = new.value - old.value
    return f"{'+' if moved > 0 else ''}{figure(moved, places)}"
