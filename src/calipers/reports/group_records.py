"""The rollouts of each group of a result as records, for the files of other systems."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from calipers.formats.convert import records_of
from calipers.reports.result import Group
from calipers.rollouts.ledger import contribution
from calipers.rollouts.record import GROUP, Labels, Part

Record = dict[str, Any]
Key = tuple[str | None, ...]  # agent, model, dataset


class GroupRecords:
    """The last attempt at each rollout; the files are read again for what they say beside numbers."""

    def __init__(self, paths: Sequence[str], columns: Mapping[str, str]) -> None:
        self.paths, self._columns = paths, columns
        self.parts: list[Part] = []  # as they were read

    def each(self) -> Iterator[tuple[Key, Record]]:
        """Every rollout with the group that it is of, in the order of the files."""
        last = self._last_attempts()
        for record in records_of(self.paths, self._columns, self.parts):
            key = tuple(record.get(name) for name in GROUP)
            rollout = (*key, record["task"], record["sample"])
            if record.get("attempt", 1) == last.get(rollout, record.get("attempt", 1)):
                yield key, {name: _plain(value) for name, value in record.items()}

    def _last_attempts(self) -> dict[tuple[Any, ...], int]:
        """The last attempt at each rollout; nothing where there is one at each."""
        if all(int(part.attempt.max(initial=1)) == 1 for part in self.parts):
            return {}
        last: dict[tuple[Any, ...], int] = {}
        for part in self.parts:
            labels = [part.labels.get(name) for name in GROUP]
            groups = [values_of(each, len(part)) for each in labels]
            tasks = [part.tasks[code] for code in part.task.tolist()]
            for *rollout, attempt in zip(*groups, tasks, part.sample.tolist(), part.attempt.tolist(), strict=True):
                last[tuple(rollout)] = max(attempt, last.get(tuple(rollout), 0))
        return last


def key_of(group: Group) -> Key:
    """The key of a group's rollouts."""
    return group.agent, group.model, group.dataset


def values_of(labels: Labels | None, rows: int) -> list[Any]:
    """The value of each row, None where it has none."""
    if labels is None:
        return [None] * rows
    values = [*labels.values, None]
    return [values[code] for code in labels.code.tolist()]


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
