"""The facts about its source that a converted file keeps, as an object under one key of a row.

A run's plan, a job's lock or a log's header states what was planned; a file of plain rows cannot. `calipers convert`
therefore writes such facts into the rows, where they survive sorting, cutting and joining of files. Readers that do
not know the key ignore it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, Any, Final

import msgspec
import numpy as np

from calipers.formats import BAD
from calipers.formats.rows import Buffer, FlagBuffer, LabelBuffer
from calipers.rollouts.ledger import ERROR_KIND
from calipers.rollouts.record import Stop
from calipers.rollouts.table import BadRow, Labels, Part
from calipers.typed import complete

FACTS: Final = "_calipers"
"""The key of the object in a row."""

ROWS: Final = "rows"  # `planned_from` of a file of plain rows: the rows themselves


class SourceFacts(msgspec.Struct, omit_defaults=True, kw_only=True, gc=False):
    """The facts that one row carries, without those that its record has already."""

    # the source of the list of planned rollouts; checked, because pages show it as their own text
    planned_from: Annotated[str, msgspec.Meta(pattern=r"\A[A-Za-z0-9_. ]{1,80}\Z")] | None = None
    turn: float | None = None  # the position of its task in the order in which tasks were begun
    error_kind: str | None = None  # the kind of exception, for the ledger
    before_answer: bool = False  # whether no request for the rollout was accepted
    digest: str | None = None  # the digest of its task's content
    target: str | None = None  # the hash of its task's target
    stop: Stop | None = None  # the stopping rule that ended its run, if any
    headline: str | None = None  # the reward to read if the user picks none
    labels: dict[str, int | float | str] = {}  # the step and split of a training run
    empty_tasks: list[str] = []  # in the first row: planned tasks without rollouts
    keys: dict[str, Any] = {}  # in Parquet: the non-numeric values of keys whose column holds numbers


DECODER: Final = msgspec.json.Decoder(complete(SourceFacts))


class FactColumns:
    """The facts carried by the rows of a file, collected a block of rows at a time."""

    def __init__(self) -> None:
        self._planned_from: str | None = None  # that of the first row of the file
        self._kinds, self._digests = LabelBuffer(), LabelBuffer()
        self._turn = Buffer(np.float64)
        self._before_answer = FlagBuffer()
        self._turns = 0  # the number of rows with a turn
        self._stops: dict[Stop | None, int] = {}  # stop -> its first row
        self._empty: list[str] = []
        self._headlines: dict[str, None] = {}
        self._labels = defaultdict[str, LabelBuffer](LabelBuffer)  # values as JSON, where 1 and 1.0 differ

    def put(self, start: int, raws: Sequence[bytes | None]) -> None:
        """Add the objects of the rows from ``start`` on, as JSON; None or b"" for a row without one.

        BadRow for an object that is not as `calipers convert` writes it.
        """
        if start and not self._stops:
            self._stops[None] = 0  # the rows before carried nothing
        rows = [self._decoded(number, raw) for number, raw in enumerate(raws, start)]
        if start == 0 and rows:
            self._planned_from = rows[0].planned_from
        self._kinds.put(start, [row.error_kind for row in rows])
        self._digests.put(start, [row.digest for row in rows])
        self._before_answer.put(start, len(rows), np.array([row.before_answer for row in rows], dtype=bool))
        turns = [row.turn for row in rows if row.turn is not None]
        if len(turns) == len(rows):
            self._turn.put(start, np.array(turns))
            self._turns += len(turns)
        for number, row in enumerate(rows, start):
            self._empty += row.empty_tasks
            self._headlines[row.headline or ""] = None
            self._stops.setdefault(row.stop, number)
        for name in {name for row in rows for name in row.labels}:
            values = [msgspec.json.encode(row.labels[name]) if name in row.labels else None for row in rows]
            self._labels[name].put(start, values)

    def finish(self, part: Part) -> Part:
        """The part with the facts that its rows carry; BadRow if its rows are of runs with different stops."""
        if len(self._stops) > 1:
            row = sorted(self._stops.values())[1]
            raise BadRow(row, "it is of another run, and one of them was stopped early", "expected one run in a file")
        kinds, digests = self._kinds.finish(len(part)), self._digests.finish(len(part))
        before_answer = self._before_answer.finish(len(part))
        if part.before_answer is not None:  # from the errors of the rows themselves
            before_answer = before_answer | part.before_answer
        return replace(
            part,
            tasks=list(dict.fromkeys((*part.tasks, *self._empty))),
            planned_from=self._planned_from or ROWS,
            labels={**self._finished_labels(len(part)), **part.labels, **({ERROR_KIND: kinds} if kinds.values else {})},
            headline=next(iter(self._headlines)) if len(self._headlines) == 1 else "",
            digests=_by_task(part, digests),
            before_answer=before_answer if before_answer.any() else None,
            turn=self._turn.finish(len(part)) if self._turns == len(part) else None,
            stop=next(iter(self._stops), None),
        )

    def _finished_labels(self, rows: int) -> dict[str, Labels]:
        coded = {name: labels.finish(rows) for name, labels in self._labels.items()}
        return {name: Labels(each.code, [*map(msgspec.json.decode, each.values)]) for name, each in coded.items()}

    @staticmethod
    def _decoded(row: int, raw: bytes | None) -> SourceFacts:
        try:
            return DECODER.decode(raw) if raw else SourceFacts()
        except BAD as error:
            problem = f"{FACTS} is not as calipers convert writes it ({error})"
            raise BadRow(row, problem, "expected the object as it was written, or no such key") from None


def _by_task(part: Part, digests: Labels) -> dict[tuple[str, str], str]:
    """The digest of each task's content, by (dataset, task)."""
    if not digests.values:
        return {}
    datasets = part.labels.get("dataset")
    by_task = {}
    for row in np.flatnonzero(digests.code >= 0).tolist():
        dataset = datasets.values[code] if datasets and (code := int(datasets.code[row])) >= 0 else ""
        by_task[dataset, part.tasks[int(part.task[row])]] = digests.values[int(digests.code[row])]
    return by_task
