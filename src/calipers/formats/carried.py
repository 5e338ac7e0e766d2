"""What a converted file carries of its source beside the records: an object under one key of a row.

A run's plan, a job's lock or a log's header says what was planned; a file of plain rows cannot. `calipers convert`
therefore writes such facts into the rows themselves, where they survive sorting, cutting and joining. Readers that do
not know the key pass it over.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, Any, Final

import msgspec
import numpy as np

from calipers.formats import BAD
from calipers.formats.rows import Growing, GrowingLabels
from calipers.rollouts.ledger import ERROR_KIND
from calipers.rollouts.record import Stop
from calipers.rollouts.table import BadRow, Labels, Part

CARRIED: Final = "_calipers"
"""The key of a row."""

ROWS: Final = "rows"  # what a file of plain rows is planned from: itself


class Carried(msgspec.Struct, omit_defaults=True, kw_only=True, gc=False):
    """What one row carries; nothing that its record has already."""

    # what said which rollouts were planned; a page shows it as its own words
    planned_from: Annotated[str, msgspec.Meta(pattern=r"\A[A-Za-z0-9_. ]{1,80}\Z")] | None = None
    turn: float | None = None  # the place of its task in the order in which tasks were begun
    error_kind: str | None = None  # what the ledger counts as its exception
    digest: str | None = None  # of the content of its task
    target: str | None = None  # the hash of its task's target
    stop: Stop | None = None  # of its run, where a stopping rule ended that
    headline: str | None = None  # the reward to read where nobody picks one
    labels: dict[str, int | float | str] = {}  # a training run's step and split, by which its numbers are shown
    empty_tasks: list[str] = []  # in the first row: planned tasks that have no rollout
    keys: dict[str, Any] = {}  # in a table: values of keys whose column has numbers only


DECODER: Final = msgspec.json.Decoder(Carried)


class CarriedRows:
    """What the rows of a file carry, in the making."""

    def __init__(self) -> None:
        self._planned_from: str | None = None  # of the first row of the file
        self._kinds, self._digests = GrowingLabels(), GrowingLabels()
        self._turn = Growing(np.float64)
        self._turns = 0  # rows that have one
        self._stops: dict[Stop | None, int] = {}  # -> the first row that it is of
        self._empty: list[str] = []
        self._headlines: dict[str, None] = {}
        self._labels = defaultdict[str, GrowingLabels](GrowingLabels)  # of values as JSON, in which 1 and 1.0 are two

    def put(self, start: int, raws: Sequence[bytes | None]) -> None:
        """What the rows from there on carry, as JSON; None or nothing where a row has none. BadRow for what is none."""
        if start and not self._stops:
            self._stops[None] = 0  # rows before the first that carries something
        rows = [self._decoded(start + at, raw) for at, raw in enumerate(raws)]
        if start == 0 and rows:
            self._planned_from = rows[0].planned_from
        self._kinds.put(start, [row.error_kind for row in rows])
        self._digests.put(start, [row.digest for row in rows])
        turns = [row.turn for row in rows if row.turn is not None]
        if len(turns) == len(rows):
            self._turn.put(start, np.array(turns))
            self._turns += len(turns)
        for at, row in enumerate(rows):
            self._empty += row.empty_tasks
            self._headlines[row.headline or ""] = None
            self._stops.setdefault(row.stop, start + at)
        for name in {name for row in rows for name in row.labels}:
            values = [msgspec.json.encode(row.labels[name]) if name in row.labels else None for row in rows]
            self._labels[name].put(start, values)

    def finish(self, part: Part) -> Part:
        """The part with what its rows carry; BadRow where some of them are of a stopped run and others are not."""
        if len(self._stops) > 1:
            row = sorted(self._stops.values())[1]
            raise BadRow(row, "it is of another run, and one of them was stopped early", "expected one run in a file")
        kinds, digests = self._kinds.finish(len(part)), self._digests.finish(len(part))
        return replace(
            part,
            tasks=list(dict.fromkeys((*part.tasks, *self._empty))),
            planned_from=self._planned_from or ROWS,
            labels={**self._finished_labels(len(part)), **part.labels, **({ERROR_KIND: kinds} if kinds.values else {})},
            headline=next(iter(self._headlines)) if len(self._headlines) == 1 else "",
            digests=_by_task(part, digests),
            turn=self._turn.finish(len(part)) if self._turns == len(part) else None,
            stop=next(iter(self._stops), None),
        )

    def _finished_labels(self, rows: int) -> dict[str, Labels]:
        """The labels of all rows."""
        coded = {name: labels.finish(rows) for name, labels in self._labels.items()}
        return {name: Labels(each.code, [*map(msgspec.json.decode, each.values)]) for name, each in coded.items()}

    @staticmethod
    def _decoded(row: int, raw: bytes | None) -> Carried:
        try:
            return DECODER.decode(raw) if raw else Carried()
        except BAD as error:
            wrong = f"{CARRIED} is not as calipers convert writes it ({error})"
            raise BadRow(row, wrong, "expected the object as it was written, or no such key") from None


def _by_task(part: Part, digests: Labels) -> dict[tuple[str, str], str]:
    """(dataset, task) -> the digest of its content."""
    if not digests.values:
        return {}
    datasets = part.labels.get("dataset")
    found = {}
    for row in np.flatnonzero(digests.code >= 0).tolist():
        dataset = datasets.values[code] if datasets and (code := int(datasets.code[row])) >= 0 else ""
        found[dataset, part.tasks[int(part.task[row])]] = digests.values[int(digests.code[row])]
    return found
