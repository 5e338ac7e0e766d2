"""The rollouts of each group of a result as records, for the files of other systems."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec
import numpy as np

from calipers.formats.convert import records_of
from calipers.reports.result import Group
from calipers.rollouts.column import Bools
from calipers.rollouts.ledger import contribution
from calipers.rollouts.part import Part
from calipers.rollouts.record import GROUP

Record = dict[str, Any]
Key = tuple[str | None, ...]  # agent, model, dataset


class GroupRecords:
    """The last attempt at each rollout, group by group; the files are read again for what they say beside numbers."""

    def __init__(self, paths: Sequence[str], columns: Mapping[str, str]) -> None:
        self.paths, self._columns = paths, columns
        self.parts: list[Part] = []  # as they were read

    def of(self, group: Group) -> Iterator[Record]:
        """The records of a group, in the order of the files."""
        key = (group.agent, group.model, group.dataset)
        last: dict[tuple[str, int], int] = {}
        for part in self.parts:
            rows = np.flatnonzero(_is_of(part, key))
            columns = (part.task[rows].tolist(), part.sample[rows].tolist(), part.attempt[rows].tolist())
            for task, sample, attempt in zip(*columns, strict=True):
                rollout = part.tasks[task], sample
                last[rollout] = max(attempt, last.get(rollout, 0))
        for record in records_of(self.paths, self._columns, self.parts):
            mine = tuple(record.get(name) for name in GROUP) == key
            if mine and record.get("attempt", 1) == last[record["task"], record["sample"]]:
                yield {name: _plain(value) for name, value in record.items()}


def _is_of(part: Part, key: Key) -> Bools:
    """The rows of a group, [R]."""
    rows = np.ones(len(part), dtype=bool)
    for name, value in zip(GROUP, key, strict=True):
        labels = part.labels.get(name)
        codes = [] if labels is None else [code for code, known in enumerate(labels.values) if known == value]
        if labels is not None:
            rows &= np.isin(labels.code, [*codes, -1] if value is None else codes)
        elif value is not None:
            rows[:] = False
    return rows


def _plain(value: Any) -> Any:
    return msgspec.json.decode(value) if isinstance(value, msgspec.Raw) else value


def rewards_of(record: Record) -> dict[str, float]:
    """The rewards of a record by name."""
    rewards = {key: value for key, value in (record.get("rewards") or {}).items() if value is not None}
    return {**({} if record.get("reward") is None else {"reward": record["reward"]}), **rewards}


def numbers_of(record: Record, names: Sequence[str]) -> dict[str, float]:
    """What a rollout contributes to the metrics of each of these rewards; a missing one contributes nothing."""
    rewards = rewards_of(record)
    known = {name: contribution(record.get("outcome"), rewards.get(name)) for name in names}
    return {name: number for name, number in known.items() if number is not None}
