"""The table of rollouts: a row per rollout, columns by name, in an order that does not depend on the input files.

`assemble` makes it from the parts that readers return. A `Part` has the rows of one file as columns, before the parts
are joined and checked.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from calipers.errors import InputError
from calipers.rollouts.checks import Check
from calipers.rollouts.column import Bools, Column, Floats, Groups, Ints
from calipers.rollouts.ids import Ids
from calipers.rollouts.record import GROUP, MISSING, SCORED, STOPPED_EARLY, UNSTATED, Stop, id_order, label

P = TypeVar("P", bound="Part")
_SPARSE = 4  # if the largest number is more than this many times the row count, sorting is cheaper than a lookup table


class BadRow(Exception):
    """An invalid row: (its index, what is wrong, what was expected)."""


@dataclass(frozen=True, slots=True)
class Labels:
    """A column of JSON values, stored as codes into a list of the distinct values."""

    code: Ints  # [R]; -1 for a row without a value
    values: Sequence[Any]  # the distinct values, by code

    @classmethod
    def absent(cls, rows: int) -> Labels:
        """A column without values."""
        return cls(np.full(rows, -1, dtype=np.int64), [])

    def take(self, rows: slice | Ints | Bools) -> Labels:
        """The labels restricted to these rows."""
        return Labels(self.code[rows], self.values)


@dataclass(frozen=True, slots=True)
class Places:
    """The line of each row of a file, recorded a block of rows at a time."""

    path: str
    unit: str = ""  # "" for text lines (path:17), else a word ("row": path:row 17)
    blocks: list[tuple[int, int | Ints]] = field(default_factory=list)  # (first row, first line | all lines)

    def add(self, first_row: int, lines: int | Ints) -> None:
        """Record the lines of a block of rows: an array, or the line of the first row if the lines are consecutive."""
        self.blocks.append((first_row, lines))

    def of(self, row: int) -> str:
        """``path:line`` of a row."""
        return f"{self.path}:{self.unit}{self.line(row)}"

    def line(self, row: int) -> int:
        """The line of a row."""
        first, lines = self.blocks[bisect_right(self.blocks, row, key=lambda block: block[0]) - 1]
        return lines + row - first if isinstance(lines, int) else int(lines[row - first])

    def lines(self, rows: int) -> Ints:
        """The line of each row, [rows]."""
        ends = [*(first for first, _ in self.blocks[1:]), rows]
        pieces = [
            np.arange(lines, lines + end - first) if isinstance(lines, int) else lines
            for (first, lines), end in zip(self.blocks, ends, strict=False)
        ]
        return np.concatenate(pieces) if pieces else np.zeros(0, dtype=np.int64)

    def shifted(self, lines: int) -> Places:
        """The same places, if ``lines`` more lines come before them."""
        return Places(self.path, self.unit, [(first, numbers + lines) for first, numbers in self.blocks])


@dataclass(frozen=True, slots=True)
class Part:
    """R rows of one file. Columns that the file does not have are absent."""

    places: Places
    tasks: Sequence[str]  # the distinct ids, by code
    task: Ints  # [R] codes into tasks
    sample: Ints  # [R]
    attempt: Ints  # [R]
    outcome: NDArray[np.uint8]  # [R] codes of record.OUTCOMES, or UNSTATED
    rewards: dict[str, Column] = field(default_factory=dict)
    columns: dict[str, Column] = field(default_factory=dict)
    labels: dict[str, Labels] = field(default_factory=dict)  # agent, model, dataset and the labels requested
    planned_from: str = "rows"  # the source of the list of planned rollouts
    named: frozenset[str] = frozenset()  # the keys named by --columns that occur in a row
    digests: Mapping[tuple[str, str], str] = field(default_factory=dict)  # (dataset, task) -> digest of the task
    others: Sequence[str] = ()  # keys without a role, if no row has a reward: one of them may be the reward
    notes: Sequence[str] = ()  # what the reader skipped, for the user
    stop: Stop | None = None  # the stopping rule that ended the run of this file, if any
    # [R] the position among the rows of all parts, by the start of their tasks; None if rows are in that order
    turn: Floats | None = None

    rollout_ids: Ints | None = None  # [R] a hash of the rollout's id in the file, -1 for a rollout without an id
    headline: str = ""  # the reward to read if the user picks none; "" for `reward`, or else every reward
    unnumbered: bool = False  # the file has no sample numbers, so that samples are numbered in order of appearance
    checks: Sequence[Check] = ()  # the numbers that the system which wrote the file reports itself, beside ours
    before_answer: Bools | None = None  # [R] whether no request was accepted; None if that is true of no row

    def __len__(self) -> int:
        return len(self.task)

    def take(self, rows: Ints, places: Places) -> Self:
        """These rows, in this order, with the list of tasks unchanged; ``places`` has the lines of these rows."""
        return replace(
            self,
            places=places,
            task=self.task[rows],
            sample=self.sample[rows],
            attempt=self.attempt[rows],
            outcome=self.outcome[rows],
            rewards={name: column.take(rows) for name, column in self.rewards.items()},
            columns={name: column.take(rows) for name, column in self.columns.items()},
            labels={name: labels.take(rows) for name, labels in self.labels.items()},
            turn=None if self.turn is None else self.turn[rows],
            rollout_ids=None if self.rollout_ids is None else self.rollout_ids[rows],
            before_answer=None if self.before_answer is None else self.before_answer[rows],
        )


def renumbered(numbers: Ints) -> Ints:
    """The rank of each number among the distinct numbers, from 0.

    >>> renumbered(np.array([7, 2, 7])).tolist()
    [1, 0, 1]
    """
    most = int(numbers.max(initial=0))
    if most > _SPARSE * len(numbers):
        return np.unique(numbers, return_inverse=True)[1].reshape(-1)
    occurs = np.zeros(most + 1, dtype=bool)
    occurs[numbers] = True
    return (np.cumsum(occurs) - 1).take(numbers)


def paired(first: Ints, second: Ints) -> Ints:
    """One number for each pair (first, second), such that the numbers compare as the pairs do."""
    width = int(second.max(initial=0)) + 1
    if int(first.max(initial=0)) >= 2**62 // width:
        return np.unique(np.stack([first, second]), axis=1, return_inverse=True)[1].reshape(-1)
    numbers = first * width
    numbers += second
    return numbers


def order_of(numbers: Ints) -> Ints | None:
    """The rows by ascending number, found without sorting; None if two rows have equal numbers, or the gaps are large.

    A run that has every planned sample of every task has no gaps.

    >>> order_of(np.array([2, 0, 3])).tolist()
    [1, 0, 2]
    """
    most = int(numbers.max(initial=0))
    if most > _SPARSE * len(numbers):
        return None
    row_of = np.full(most + 1, -1, dtype=np.int64)
    row_of[numbers] = np.arange(len(numbers))
    occurs = row_of >= 0
    if np.count_nonzero(occurs) < len(numbers):
        return None
    return row_of if len(row_of) == len(numbers) else row_of[occurs]


NAMELESS = (None, None, None)
"""The group of rollouts without agent, model and dataset."""


@dataclass(frozen=True, slots=True, repr=False)
class Rollouts:
    """Rollouts of one or more groups (agent, model, dataset), a row per planned (task, sample).

    Rows are sorted by group, task and sample; of several attempts only the highest is kept. Tasks that were not
    finished because of a stopping rule have no rows here; they are in ``left``, for the ledger only.
    """

    keys: Sequence[tuple[str | None, ...]]  # (agent, model, dataset) of each group
    tasks: Sequence[str]  # [T] ids, group by group
    owner: Ints  # [T] the group of each task, ascending
    task: Ints  # [R] codes into tasks, ascending
    sample: Ints  # [R]
    outcome: np.ndarray[Any, np.dtype[np.uint8]]  # [R] codes of record.OUTCOMES
    rewards: dict[str, Column]
    columns: dict[str, Column]
    labels: dict[str, Labels]
    tries: Ints | None = None  # [R] the number of attempts read, including replaced ones; None if all are 1
    before_answer: Bools | None = None  # [R] whether no request of any attempt was accepted; None if of no rollout
    planned_from: str = "rows"
    notes: Sequence[str] = ()  # what the readers skipped, for the user
    stops: Mapping[tuple[str | None, ...], Stop] = field(default_factory=dict)  # group -> the rule that ended its run
    left: Rollouts | None = None  # the tasks that a stopping rule left undone, with all their rows
    turn: Floats | None = None  # [T] ascending in the order in which tasks were begun; None if that is their order here
    headline: str = ""  # the reward to read if the user picks none, according to the system that wrote the files
    unread: Sequence[str] = ()  # keys of rows without reward and outcome: one of them may be the reward
    elsewhere: Mapping[str, frozenset[str | None]] = field(default_factory=dict)  # see `rewards_elsewhere`
    checks: Sequence[Check] = ()  # the numbers that the systems which wrote the files report themselves, beside ours

    def __len__(self) -> int:
        return len(self.task)

    def __repr__(self) -> str:
        rewards = ", ".join(self.rewards) or "no reward"
        groups = f", {len(self.keys)} groups" if len(self.keys) > 1 else ""
        return f"<Rollouts: {len(self):,} of {len(self.tasks):,} tasks{groups}; {rewards[:100]}>"

    @property
    def usual_reward(self) -> str:
        """The reward to read if the user picks none: the headline, else `reward`; "" if there is neither."""
        return next((key for key in (self.headline, "reward") if key in self.rewards), "")

    def lacks(self, key: str) -> Bools:
        """Whether the dataset of each row has other rewards but never this one, [R]."""
        absent = self.elsewhere.get(key, ())
        return np.array([dataset in absent for _, _, dataset in self.keys])[self.owner[self.task]]

    @property
    def by_task(self) -> Groups:
        """The partition of the rows into tasks."""
        return Groups.of(self.task, len(self.tasks))

    @property
    def stop(self) -> Stop | None:
        """The rule that stopped the run of this group, if any; of several groups, the first such rule."""
        return next((self.stops[key] for group in self.keys if (key := tuple(group)) in self.stops), None)

    def groups(self) -> Iterator[Rollouts]:
        """One table per (agent, model, dataset), each a view of this one."""
        if len(self.keys) == 1:
            yield self
            return
        left = list(self.left.groups()) if self.left is not None else [None] * len(self.keys)
        for number, key in enumerate(self.keys):
            first, last = np.searchsorted(self.owner, [number, number + 1])
            start, end = np.searchsorted(self.task, [first, last])
            rows = slice(int(start), int(end))
            yield replace(
                self.take(rows),
                keys=[key],
                tasks=self.tasks[first:last],
                owner=np.zeros(last - first, dtype=np.int64),
                task=self.task[rows] - first,
                turn=None if self.turn is None else self.turn[first:last],
                left=left[number],
            )

    def where(self, rows: Bools | Ints) -> Rollouts:
        """The rows marked by a mask, [R], or with these ascending indices; and only their tasks."""
        kept, code = np.unique(self.task[rows], return_inverse=True)
        part = self.take(rows)
        turn = None if self.turn is None else self.turn[kept]
        tasks = self.tasks.take(kept) if isinstance(self.tasks, Ids) else [self.tasks[t] for t in kept]
        return replace(part, tasks=tasks, owner=self.owner[kept], task=code, turn=turn, left=None)

    def take(self, rows: slice | Bools | Ints) -> Rollouts:
        """Some of the rows, with `task` and the list of tasks unchanged."""
        return replace(
            self,
            sample=self.sample[rows],
            outcome=self.outcome[rows],
            rewards={name: column.take(rows) for name, column in self.rewards.items()},
            columns={name: column.take(rows) for name, column in self.columns.items()},
            labels={name: values.take(rows) for name, values in self.labels.items()},
            tries=None if self.tries is None else self.tries[rows],
            before_answer=None if self.before_answer is None else self.before_answer[rows],
        )


def assemble(parts: Sequence[Part]) -> Rollouts:
    """Join the parts of the readers into one table, which does not depend on the row order or the split into files.

    Only ``turn`` keeps the order of the rows, for tests that look at tasks one after another.
    InputError names both lines of a (task, sample, attempt) that appears twice in one group, and
    the line of a `scored` rollout without a reward.
    """
    ids, task = join_codes([part.tasks for part in parts], [part.task for part in parts])
    sample = np.concatenate([part.sample for part in parts])
    labels = join_labels(parts)
    keys, group = group_keys(labels, len(task))
    tasks, owner, unit = _units(ids, task, keys, group)
    rows, tries = _sorted_rows(parts, unit, sample)
    table = Rollouts(keys, tasks, owner, unit, sample, outcomes_of(parts), {}, {}, labels)
    if rows is not None:
        table = replace(table.take(rows), task=unit.take(rows), tries=tries)
    rewards = join_columns([(len(part), part.rewards) for part in parts], rows)
    table = replace(
        table,
        rewards=rewards,
        elsewhere=rewards_elsewhere(rewards, keys, table.owner[table.task]),
        columns=join_columns([(len(part), part.columns) for part in parts], rows),
        before_answer=_kept_before_answer(parts, unit, sample, rows, retried=tries is not None),
        planned_from=parts[0].planned_from,
        notes=list(dict.fromkeys(note for part in parts for note in part.notes)),
        turn=_turns(parts, unit, len(tasks), rows is None),
        stops=_stops(parts, keys, group),
        headline=headline_of(parts),
        unread=unread_of(parts),
        checks=checks_of(parts),
    )
    return without_left(table)


def checks_of(parts: Sequence[Part]) -> list[Check]:
    """The checks of all parts, each once."""
    return list(dict.fromkeys(chain.from_iterable(part.checks for part in parts)))


def rewards_elsewhere(
    rewards: Mapping[str, Column], keys: Sequence[tuple[str | None, ...]], group: Ints
) -> dict[str, frozenset[str | None]]:
    """For each reward, the datasets whose rollouts have other rewards but never this one; ``group``: [R] into keys.

    The reward does not apply to these datasets, so a failed rollout there is missing and not 0.
    """
    datasets = list(dict.fromkeys(dataset for _, _, dataset in keys))
    if len(datasets) < 2 or len(rewards) < 2:
        return {}
    number = {dataset: code for code, dataset in enumerate(datasets)}
    code = np.array([number[dataset] for _, _, dataset in keys])[group]
    has = {name: np.bincount(code[column.given], minlength=len(datasets)) > 0 for name, column in rewards.items()}
    has_any = np.logical_or.reduce([*has.values()])
    without = {name: frozenset(datasets[n] for n in np.flatnonzero(has_any & ~has[name])) for name in rewards}
    return {name: absent for name, absent in without.items() if absent}


def headline_of(parts: Sequence[Part]) -> str:
    """The headline that all parts with rewards share; "" if they disagree."""
    named = {part.headline for part in parts if part.rewards}
    return named.pop() if len(named) == 1 else ""


def unread_of(parts: Sequence[Part]) -> list[str]:
    """The keys without a role, if every part has some and no row has a reward or an outcome; else none."""
    if any(part.rewards or not part.others or bool((part.outcome != UNSTATED).any()) for part in parts):
        return []
    return list(dict.fromkeys(key for part in parts for key in part.others))


def numbered(parts: Sequence[Part]) -> list[Part]:
    """The parts with the samples of each task numbered in order of appearance, across all parts.

    InputError for a retry: without a number, the sample that it repeats is unknown.
    """
    counts: dict[tuple[Any, ...], int] = {}
    renumbered_parts = []
    for part in parts:
        if len(retries := np.flatnonzero(part.attempt != 1)):
            problem = "an attempt, and samples without numbers"
            expected = "expected a sample number beside each attempt"
            raise InputError.at(part.places.of(int(retries[0])), problem, expected)
        groups = [part.labels.get(name) or Labels.absent(len(part)) for name in GROUP]
        unit = part.task
        for labels in groups:  # renumbered at each step, so that the codes do not overflow
            unit = renumbered(unit * (len(labels.values) + 1) + labels.code + 1)
        # rows without numbers are all sample 0 and keep their order; a reader may have ranked them
        order = np.lexsort((part.sample, unit)) if part.sample.any() else np.argsort(unit, kind="stable")
        first = np.flatnonzero(np.diff(unit[order], prepend=-1))
        sizes = np.diff(np.append(first, len(order)))
        before = np.zeros(len(first), dtype=np.int64)
        alone = len(parts) == 1  # no other part has samples of these tasks
        for number, (row, size) in enumerate(() if alone else zip(order[first].tolist(), sizes.tolist(), strict=True)):
            names = (labels.values[code] if (code := int(labels.code[row])) >= 0 else None for labels in groups)
            key = (part.tasks[int(part.task[row])], *names)
            before[number] = counts.get(key, 0)
            counts[key] = int(before[number]) + size
        sample = np.empty(len(part), dtype=np.int64)
        sample[order] = np.arange(len(part)) - np.repeat(first - before, sizes)
        renumbered_parts.append(replace(part, sample=sample))
    return renumbered_parts


def refuse_repeated(parts: Sequence[Part]) -> None:
    """InputError if two rollouts have the same id in their files."""
    if all(part.rollout_ids is None for part in parts):
        return
    ids = rollout_ids_of(parts)
    known = np.flatnonzero(ids >= 0)
    order = known[np.argsort(ids[known], kind="stable")]
    twice = np.flatnonzero(np.diff(ids[order]) == 0)
    if len(twice):
        first = int(twice[np.argmin(order[twice + 1])])  # the pair whose second row comes first in the files
        earlier, later = int(order[first]), int(order[first + 1])
        problem = f"the same rollout as {location(parts, earlier)}: both have the same id"
        raise InputError.at(location(parts, later), problem, "expected each rollout once")


def rollout_ids_of(parts: Sequence[Part]) -> Ints:
    """The hash of each rollout's id, [R], -1 for a rollout without an id."""
    return np.concatenate(
        [np.full(len(part), -1, dtype=np.int64) if part.rollout_ids is None else part.rollout_ids for part in parts]
    )


def before_answer_of(parts: Sequence[Part]) -> Bools | None:
    """Whether no request was accepted for each row of the parts laid end to end, [R]; None if that is true of none."""
    if all(part.before_answer is None for part in parts):
        return None
    return np.concatenate(
        [np.zeros(len(part), dtype=bool) if part.before_answer is None else part.before_answer for part in parts]
    )


def _kept_before_answer(
    parts: Sequence[Part], unit: Ints, sample: Ints, rows: Ints | None, *, retried: bool
) -> Bools | None:
    """`Rollouts.before_answer` of the kept rows.

    A rollout of several attempts is lost before an answer only if all of them are: the answer may have ended an earlier
    attempt, such as one that timed out, even if the server could not be reached for the last.
    """
    flags = before_answer_of(parts)
    if flags is None or rows is None:
        return flags
    kept = flags[rows]
    if retried:
        rollout = paired(unit, sample)
        kept &= ~np.isin(rollout[rows], rollout[~flags])
    return kept


def end_to_end(parts: Sequence[P], places: Places) -> P:
    """The rows of several parts as one part with these places; all other fields are those of the first part."""
    tasks, task = join_codes([part.tasks for part in parts], [part.task for part in parts])
    return replace(
        parts[0],
        places=places,
        tasks=tasks,
        task=task,
        sample=np.concatenate([part.sample for part in parts]),
        attempt=np.concatenate([part.attempt for part in parts]),
        outcome=np.concatenate([part.outcome for part in parts]),
        rewards=join_columns([(len(part), part.rewards) for part in parts], None),
        columns=join_columns([(len(part), part.columns) for part in parts], None),
        labels=join_labels(parts),
        rollout_ids=None if all(part.rollout_ids is None for part in parts) else rollout_ids_of(parts),
        before_answer=before_answer_of(parts),
    )


def _stops(parts: Sequence[Part], keys: Sequence[tuple[str | None, ...]], group: Ints) -> dict[Any, Stop]:
    """The stopping rule of each group that has rows in a part with a stopping rule."""
    stops: dict[Any, Stop] = {}
    start = 0
    for part in parts:
        if part.stop is not None:
            for number in np.unique(group[start : start + len(part)]).tolist():
                stops.setdefault(tuple(keys[number]), part.stop)
        start += len(part)
    return stops


def without_left(table: Rollouts) -> Rollouts:
    """The table with the tasks that a stopping rule left unfinished moved to ``left``.

    Finished rollouts of such a task are moved as well, because the rule looks at whole tasks.
    """
    skipped = table.outcome == STOPPED_EARLY
    if not skipped.any():
        return table
    unfinished = np.bincount(table.task[skipped], minlength=len(table.tasks)) > 0
    rows_left = unfinished[table.task]
    unnamed = {tuple(table.keys[g]): Stop() for g in np.unique(table.owner[unfinished]).tolist()}
    return replace(table.where(~rows_left), left=table.where(rows_left), stops={**unnamed, **table.stops})


def join_codes(lists: Sequence[Sequence[Any]], codes: Sequence[Ints]) -> tuple[list[Any], Ints]:
    """Merge the lists of distinct values of several parts, and recode their rows into the merged list."""
    if len(lists) == 1:
        return list(lists[0]), codes[0]
    index: dict[Any, int] = {}
    distinct: list[Any] = []
    joined = np.empty(sum(map(len, codes)), dtype=np.int64)
    end = 0
    for values, code in zip(lists, codes, strict=True):
        table = []
        for value in values:
            number = index.setdefault(value if type(value) is str else _as_json(value), len(index))
            table.append(number)
            if number == len(distinct):
                distinct.append(value)
        end += len(code)
        np.take([*table, -1], code, out=joined[end - len(code) : end], mode="wrap")  # code -1 takes the last, -1
    return distinct, joined


def _as_json(value: Any) -> Any:
    """A key that is equal for equal JSON values only: 1, 1.0 and True, or 0.0 and -0.0, are equal in Python."""
    return type(value), label(value)


def join_labels(parts: Sequence[Part]) -> dict[str, Labels]:
    """The labels of the parts laid end to end."""
    joined = {}
    for name in sorted({name for part in parts for name in part.labels}):
        columns = [part.labels.get(name) or Labels.absent(len(part)) for part in parts]
        values, code = join_codes([labels.values for labels in columns], [labels.code for labels in columns])
        joined[name] = Labels(code, values)
    return joined


def group_keys(labels: dict[str, Labels], rows: int) -> tuple[list[tuple[str | None, ...]], Ints]:
    """The distinct (agent, model, dataset), sorted by (dataset, model, agent), and the group of each row, [R].

    Removes agent, model and dataset from ``labels``.
    """
    columns = [labels.pop(name, None) for name in GROUP]
    if rows == 0 or not any(columns):
        return [NAMELESS], np.zeros(rows, dtype=np.int64)
    code = np.zeros(rows, dtype=np.int64)
    for column in columns:
        if column:  # renumbered at each step, so that the codes do not overflow
            width = len(column.values) + 1
            code = renumbered(code * width + column.code + 1)
    example = np.empty(int(code.max()) + 1, dtype=np.int64)
    example[code] = np.arange(rows)  # any row of each group
    keys = [
        tuple(column.values[c] if column and (c := int(column.code[row])) >= 0 else None for column in columns)
        for row in example.tolist()
    ]
    order = sorted(range(len(keys)), key=lambda i: [(part is not None, part or "") for part in reversed(keys[i])])
    rank = np.empty(len(keys), dtype=np.int64)
    rank[order] = np.arange(len(keys))
    return [keys[i] for i in order], rank.take(code)


def _units(ids: Sequence[str], task: Ints, keys: Sequence[Any], group: Ints) -> tuple[list[str], Ints, Ints]:
    """The tasks, one for each (group, id), sorted by group and id: their ids, their groups, and the task of each row.

    An id without rows becomes one task, of the group without names if there is one, else of the first group.
    """
    plain = not any(map(str.isdecimal, ids))  # without numbers, ids sort as plain text
    order = sorted(range(len(ids)), key=ids.__getitem__ if plain else lambda i: id_order(ids[i]))
    rank = np.empty(len(ids), dtype=np.int64)
    rank[order] = np.arange(len(ids))
    if len(keys) == 1:
        return [ids[i] for i in order], np.zeros(len(ids), dtype=np.int64), rank[task]
    pair, code = np.unique(group * len(ids) + rank[task], return_inverse=True)
    nameless = keys.index(NAMELESS) if NAMELESS in keys else 0
    without_rows = np.setdiff1d(np.arange(len(ids)), pair % len(ids)) + nameless * len(ids)
    if len(without_rows):
        every = np.union1d(pair, without_rows)
        pair, code = every, np.searchsorted(every, pair)[code]
    return [ids[order[i]] for i in (pair % len(ids)).tolist()], pair // len(ids), code


def _sorted_rows(parts: Sequence[Part], unit: Ints, sample: Ints) -> tuple[Ints | None, Ints | None]:
    """The rows to keep, sorted by (task, sample), with the highest attempt of each; and the number of attempts of each.

    The rows are None if all are kept in their order; the attempts are None if each rollout has one.
    """
    rollout = paired(unit, sample)  # one number for each (task, sample), in their order
    if bool((rollout[1:] > rollout[:-1]).all()):
        return None, None
    rows = order_of(rollout)
    if rows is not None:
        return rows, None
    attempt = np.concatenate([part.attempt for part in parts])
    retried = int(attempt.max(initial=1)) > 1
    rows = np.argsort(paired(rollout, attempt) if retried else rollout, kind="stable")  # cheap where nearly sorted
    same = np.diff(rollout[rows]) == 0
    twice = same & (np.diff(attempt[rows]) == 0)
    if twice.any():
        # report the repetition that comes first in the files
        second = rows[1:][twice]
        first = int(np.argmin(second))
        earlier, later = sorted((int(rows[:-1][twice][first]), int(second[first])))
        task, number = parts_task(parts, earlier), int(sample[earlier])
        raise InputError.at(
            location(parts, later),
            f"task {task!r} sample {number} attempt {int(attempt[earlier])} appears twice, "
            f"first at {location(parts, earlier)}",
            "give each rollout its own sample number, or each retry a higher attempt"
            + ("" if sample.any() else "; --columns sample=# numbers them in order of appearance"),
        )
    if not same.any():
        return rows, None
    last = np.flatnonzero(np.append(~same, True))
    return rows[last], np.diff(last, prepend=-1)


def _turns(parts: Sequence[Part], unit: Ints, tasks: int, ascending: bool) -> Floats | None:
    """The turn of each task, [T], which is the turn of its first row; infinite for a task without rows.

    None if the tasks are in the order of the rows.
    """
    if ascending and all(part.turn is None for part in parts):
        return None
    turns = np.full(tasks, np.inf)
    if all(part.turn is None for part in parts):
        turns[unit[::-1]] = np.arange(len(unit) - 1, -1, -1)  # of equal indices, the last assignment holds
        return turns
    ends = np.cumsum([len(part) for part in parts])
    by_part = [
        np.arange(end - len(part), end, dtype=np.float64) if part.turn is None else part.turn
        for part, end in zip(parts, ends.tolist(), strict=True)
    ]
    turn = np.concatenate(by_part)
    latest_first = np.argsort(turn, kind="stable")[::-1]
    turns[unit[latest_first]] = turn[latest_first]
    return turns


def join_columns(parts: Sequence[tuple[int, dict[str, Column]]], rows: Ints | None) -> dict[str, Column]:
    """The columns of the parts laid end to end, or these rows of them.

    With ``rows``, all columns are joined in the same memory, one after the other: new memory takes time.
    """
    joined = {}
    buffer = None if rows is None else np.empty(sum(size for size, _ in parts))
    for name in sorted({name for _, columns in parts for name in columns}):
        pieces = [columns[name] if name in columns else Column.gaps(size) for size, columns in parts]
        column = pieces[0] if len(pieces) == 1 else Column.joined(pieces, buffer)
        joined[name] = column if rows is None else column.take(rows)
    return joined


def outcomes_of(parts: Sequence[Part]) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """The outcome of each row of the parts laid end to end; InputError for a `scored` one without a reward."""
    outcome = np.concatenate([part.outcome for part in parts])
    rewarded = np.concatenate([_rewarded(part) for part in parts])
    unrewarded = np.flatnonzero((outcome == SCORED) & ~rewarded)
    if len(unrewarded):
        raise InputError.at(
            location(parts, int(unrewarded[0])),
            "outcome is 'scored' but there is no reward",
            "expected a number in reward or rewards, or another outcome",
        )
    return np.where(outcome == UNSTATED, np.where(rewarded, SCORED, MISSING), outcome).astype(np.uint8)


def _rewarded(part: Part) -> Bools:
    """Whether each row has any reward, [R]."""
    rewarded = np.zeros(len(part), dtype=bool)
    for column in part.rewards.values():
        rewarded |= column.given
    return rewarded


def location(parts: Sequence[Part], row: int) -> str:
    """``path:line`` of a row of the parts laid end to end."""
    part, row = _part_of(parts, row)
    return part.places.of(row)


def parts_task(parts: Sequence[Part], row: int) -> str:
    """The task id of a row of the parts laid end to end."""
    part, row = _part_of(parts, row)
    return part.tasks[int(part.task[row])]


def _part_of(parts: Sequence[Part], row: int) -> tuple[Part, int]:
    for part in parts:
        if row < len(part):
            return part, row
        row -= len(part)
    raise IndexError(row)
