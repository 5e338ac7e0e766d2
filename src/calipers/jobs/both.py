"""Old and new reward of every rollout as one table, gathered while the lines pass."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any, Final

import msgspec
import numpy as np

from calipers.errors import InputError
from calipers.jobs.judging import Judged
from calipers.jobs.stored import Batch, Wanted
from calipers.readers.gather import BadRow, Gather
from calipers.rollouts.column import Column, Ints
from calipers.rollouts.part import Part, Places
from calipers.rollouts.record import CODE, FIRST_GAP, GROUP, MISSING, SCORED
from calipers.rollouts.table import Rollouts, assemble

_CODES: Final = "\0codes"  # a column that no file can have
_ANSWER: Final = "\0answer"


class Both:
    """The rewards of rollouts before and after; what either contributes is given, all else is a gap."""

    def __init__(self, path: str, name: str, wanted: Wanted, labels: Collection[str]) -> None:
        self._places, self._name, self._wanted, self._labels = Places(path), name, wanted, labels
        self._gather = Gather()
        self._codes: list[int] = []  # of each row whether it was judged, its old outcome, its new one, a byte each
        self._votes = "answer" in labels

    def add(self, batch: Batch, judged: Judged, worths: Sequence[float | None]) -> None:
        """Take in a batch and what was judged."""
        gather, rows = self._gather, batch.rows
        first, last = batch.numbers[0], batch.numbers[-1]
        for number, row in zip(batch.numbers, rows, strict=True):
            if row.reward is None and row.outcome == "scored" and not any((row.rewards or {}).values()):
                self._check_rewarded(number, row)
        self._places.add(gather.rows, first if last - first + 1 == len(rows) else np.array(batch.numbers))
        gather.tasks([row.task for row in rows])
        gather.whole("sample", [row.sample for row in rows])
        gather.whole("attempt", [row.attempt for row in rows])
        gather.numbers("reward", "reward", [row.reward for row in rows])
        for key in {key for row in rows if row.rewards for key in row.rewards} - {self._name}:
            gather.numbers("reward", key, [(row.rewards or {}).get(key) for row in rows])
        gather.numbers("reward", self._name, worths)
        for key in GROUP:
            names = [getattr(row, key) for row in rows]
            if set(names) != {None}:
                gather.labels(key, names)
        for label, raws in self._wanted.labels(rows):
            gather.labels(label, raws)
        if self._votes:
            answers = [None if answer is None else msgspec.json.encode(answer) for answer in judged.answers]
            gather.labels(f"raw:{_ANSWER}", answers)
        columns = zip(rows, judged.outcomes, judged.seen, strict=True)
        self._codes += [seen << 16 | _old(row) << 8 | CODE[now] for row, now, seen in columns]
        gather.rows += len(rows)

    def _check_rewarded(self, line: int, row: Any) -> None:
        if all(reward is None for reward in (row.rewards or {}).values()):
            right = "expected a number in reward or rewards, or another outcome"
            raise InputError.at(f"{self._places.path}:{line}", "outcome is 'scored' but there is no reward", right)

    @property
    def judged(self) -> int:
        """How many rows there was anything to judge in."""
        return sum(code >> 16 for code in self._codes)

    def finish(self) -> Part:
        """Everything gathered."""
        try:
            part = self._gather.finish(self._places, [*self._labels, *([_ANSWER] if self._votes else [])])
        except BadRow as error:
            row, wrong, right = error.args
            raise InputError.at(self._places.of(row), wrong, right) from None
        codes = np.array(self._codes, dtype=np.int64)
        was = codes >> 8 & 255
        own = (was < FIRST_GAP) & (was != SCORED)
        rewards = {}
        for key, column in part.rewards.items():
            given = column.given & ((was < FIRST_GAP) | (key == self._name))
            nothing = own & ~given if key == "reward" else np.zeros(len(own), dtype=bool)
            rewards[key] = Column(np.where(given, column.values, 0.0), given | nothing)
        any_given = np.logical_or.reduce([column.given for column in rewards.values()])
        outcome = np.where(any_given, SCORED, np.where(was < FIRST_GAP, MISSING, was)).astype(np.uint8)
        return replace(part, rewards=rewards, outcome=outcome, columns={_CODES: Column.of(codes)})


def tables(part: Part) -> tuple[Rollouts, Rollouts, Ints]:
    """The rollouts with the old answers, with the new ones, and the codes of what became of each, [R]."""
    table = assemble([part])
    codes = table.columns.pop(_CODES).values.astype(np.int64)
    answer = table.labels.pop(_ANSWER, None)
    after = table if answer is None else replace(table, labels={**table.labels, "answer": answer})
    return table, after, codes


def _old(row: Any) -> int:
    if row.outcome is not None:
        return CODE[row.outcome]
    return MISSING if row.reward is None and not row.rewards else SCORED
