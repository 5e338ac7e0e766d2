"""Packed rollouts: each distinct row is stored once, and each rollout is a small code, by task and sample.

Most rollouts are alike: a reward of 0 or 1, one outcome, one model. The L distinct rows, called *kinds*, are kept in
full, and each of the R rollouts is the number of its kind, which takes one byte in most files. Packing is lossless, so
rollouts can be packed file by file, or piece by piece, and `merge` returns the same table for every order and split.

::

    Part ──pack──► Loose ──┐
    Part ──pack──► Loose ──┴─ merge ──► Packed ──blocks──► Rollouts of a range of tasks
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calipers.rollouts.column import Bools, Column, Ints, starts_of
from calipers.rollouts.ids import Ids, union
from calipers.rollouts.record import STOPPED_EARLY
from calipers.rollouts.table import (
    NAMELESS,
    Part,
    Places,
    Rollouts,
    checks_of,
    end_to_end,
    group_keys,
    headline_of,
    outcomes_of,
    renumbered,
    rewards_elsewhere,
    unread_of,
    without_left,
)

Unsigned = NDArray[Any]
"""Non-negative integers in the smallest dtype that holds the largest."""

AT_A_TIME = 1 << 18  # rollouts unpacked at once, so that they stay in the processor's cache
THREADS = 2  # threads that write to slots; more of them would wait for memory
LOOSE = 64  # slots per rollout, up to which a table of slots is cheaper than sorting
_PROBED = 4096  # values at the start of a column from which its distinct values are guessed
_FEW = 8  # distinct values, up to which comparing with each is cheaper than a search


@dataclass(frozen=True, slots=True)
class Loose:
    """R packed rollouts of one file or a piece of it, in any order."""

    kinds: Part  # [L] the distinct rows; their tasks and samples have no meaning
    tasks: Ids  # [N] distinct
    task: Unsigned  # [R] codes into tasks
    sample: Unsigned  # [R]
    code: Unsigned  # [R] rows of kinds
    tries: Ints  # [L] the number of attempts read for each rollout of a kind
    inputs: str = ""  # the name of the file, for errors

    def __len__(self) -> int:
        return len(self.code)

    def rows(self) -> Iterator[tuple[Ints, Unsigned, Unsigned]]:
        """(task, sample, kind) of the rollouts, in chunks."""
        for start in range(0, len(self.code), AT_A_TIME):
            chunk = slice(start, start + AT_A_TIME)
            yield self.task[chunk].astype(np.int64), self.sample[chunk], self.code[chunk]


@dataclass(frozen=True, slots=True)
class Packed:
    """R packed rollouts of T tasks, sorted by group, task and sample, one for each planned (task, sample)."""

    kinds: Part  # [L] the distinct rows; their tasks and samples have no meaning
    tries: Ints  # [L]
    tasks: Ids  # [N] distinct ids, sorted
    unit: Ints | None  # [T] codes into tasks; None if task n has id n
    starts: Ints  # [T + 1] the first rollout of each task, then R
    sample: Unsigned | None  # [R]; None if each task has samples 0, 1, 2, ...
    code: Unsigned  # [R] rows of kinds
    inputs: str = ""

    def __len__(self) -> int:
        return len(self.code)

    def rows(self) -> Iterator[tuple[Ints, Unsigned, Unsigned]]:
        """(task, sample, kind) of the rollouts, in chunks; the task is a code into `tasks`."""
        for first, last in self.ranges(np.array([0, len(self.starts) - 1])):
            counts = np.diff(self.starts[first : last + 1])
            chunk = slice(int(self.starts[first]), int(self.starts[last]))
            ids = np.arange(first, last) if self.unit is None else self.unit[first:last]
            yield np.repeat(ids, counts), self._samples(first, last), self.code[chunk]

    def _samples(self, first: int, last: int) -> Unsigned:
        """The sample numbers of the rollouts of a range of tasks."""
        starts = self.starts[first : last + 1]
        if self.sample is not None:
            return self.sample[starts[0] : starts[-1]]
        most = int(starts[1] - starts[0]) if last > first else 0
        if (last - first) * most == starts[-1] - starts[0] and bool((np.diff(starts) == most).all()):
            return np.tile(np.arange(most), last - first)
        return np.arange(starts[0], starts[-1]) - np.repeat(starts[:-1], np.diff(starts))

    def ranges(self, owners: Ints) -> Iterator[tuple[int, int]]:
        """Ranges of tasks with at most AT_A_TIME rollouts, or one task; no range crosses one of these boundaries."""
        for begin, end in zip(owners[:-1].tolist(), owners[1:].tolist(), strict=True):
            first = begin
            while first < end:
                reach = int(self.starts[first]) + AT_A_TIME
                last = int(np.searchsorted(self.starts, reach, side="right")) - 1
                last = min(max(last, first + 1), end)
                yield first, last
                first = last


def table_of(packed: Packed) -> PackedRollouts:
    """Packed rollouts as a table to score."""
    labels = dict(packed.kinds.labels)  # `group_keys` removes some of them
    keys, group = group_keys(labels, len(packed.kinds))
    tasks = len(packed.starts) - 1
    owner = np.zeros(tasks, dtype=np.int64)
    if len(keys) > 1:
        filled = np.diff(packed.starts) > 0
        owner[filled] = group[packed.code[packed.starts[:-1][filled]]]
        owner[~filled] = keys.index(NAMELESS) if NAMELESS in keys else 0
    kinds = Rollouts(
        keys,
        [],
        np.zeros(0, dtype=np.int64),
        np.zeros(len(packed.kinds), dtype=np.int64),
        np.zeros(len(packed.kinds), dtype=np.int64),
        packed.kinds.outcome,
        dict(sorted(packed.kinds.rewards.items())),  # a single file has them in its own order
        dict(sorted(packed.kinds.columns.items())),
        labels,
        tries=None if bool((packed.tries == 1).all()) else packed.tries,
        before_answer=packed.kinds.before_answer,
        planned_from=packed.kinds.planned_from,
        notes=list(packed.kinds.notes),
        checks=list(packed.kinds.checks),
        headline=headline_of([packed.kinds]),
        unread=packed.kinds.others,
        elsewhere=rewards_elsewhere(packed.kinds.rewards, keys, group),
    )
    return PackedRollouts(packed, kinds, owner)


@dataclass(frozen=True, slots=True)
class PackedRollouts:
    """A table of packed rollouts, which is unpacked into `Rollouts` of a range of tasks at a time."""

    packed: Packed
    kinds: Rollouts  # [L] the distinct rows; the names of columns and labels, the keys and notes are those of the table
    owner: Ints  # [T] the group of each task, ascending

    def __len__(self) -> int:
        return len(self.packed)

    @property
    def stopped(self) -> bool:
        """Whether a stopping rule left some rollouts undone."""
        return bool((self.kinds.outcome == STOPPED_EARLY).any())

    def blocks(self, group: int) -> list[Callable[[], Rollouts]]:
        """Functions that unpack the rollouts of a group, a range of tasks each; at least one, even without tasks."""
        first, last = np.searchsorted(self.owner, [group, group + 1])
        ranges = list(self.packed.ranges(np.array([first, last])))
        return [partial(self._block, begin, end, group) for begin, end in ranges or [(int(first), int(first))]]

    def whole(self) -> Rollouts:
        """All rollouts, unpacked at once."""
        return without_left(self._rollouts(0, len(self.owner), self.kinds.keys, self.owner))

    def _block(self, first: int, last: int, group: int) -> Rollouts:
        owner = np.zeros(last - first, dtype=np.int64)
        return without_left(self._rollouts(first, last, [self.kinds.keys[group]], owner))

    def _rollouts(self, first: int, last: int, keys: Sequence[Any], owner: Ints) -> Rollouts:
        packed = self.packed
        starts = packed.starts[first : last + 1]
        ids = np.arange(first, last) if packed.unit is None else packed.unit[first:last]
        rows = self.kinds.take(packed.code[starts[0] : starts[-1]].astype(np.int64))
        return replace(
            rows,
            keys=keys,
            tasks=packed.tasks.take(ids),
            owner=owner,
            task=np.repeat(np.arange(last - first), np.diff(starts)),
            sample=packed._samples(first, last).astype(np.int64),
        )


def pack(part: Part, keep: Collection[str] | None = None) -> Loose:
    """The rollouts of a part, packed, with the columns in ``keep`` (None for all) and with all rewards and labels."""
    if keep is not None:
        part = replace(part, columns={name: column for name, column in part.columns.items() if name in keep})
    part = replace(part, others=unread_of([part]), outcome=outcomes_of([part]))
    code, first = _coded(part)
    ids = part.tasks if isinstance(part.tasks, Ids) else Ids.of(part.tasks)
    kinds = _kinds(part, first)
    tries = np.ones(len(first), dtype=np.int64)
    return Loose(kinds, ids, small(part.task), small(part.sample), small(code), tries, part.places.path)


def _coded(part: Part, tries: Ints | None = None) -> tuple[Ints, Ints]:
    """A code for each row, [R], equal for equal rows (apart from task and sample); and the first row of each code."""
    code = _refined(part.outcome.astype(np.int64), part.attempt)
    code = code if tries is None else _refined(code, tries)
    code = code if part.before_answer is None else _refined(code, part.before_answer.astype(np.int64))
    for column in (*part.rewards.values(), *part.columns.values()):
        code = _refined(code, _levels(column))
    for labels in part.labels.values():
        code = _refined(code, labels.code + 1)
    code = renumbered(code)
    first = np.zeros(int(code.max(initial=-1)) + 1, dtype=np.int64)
    first[code[::-1]] = np.arange(len(code))[::-1]
    return code, first


def _refined(code: Ints, levels: Unsigned) -> Ints:
    """Codes that are equal for rows that agree in both ``code`` and ``levels``."""
    least, most = int(levels.min(initial=0 if not len(levels) else levels[0])), int(levels.max(initial=0))
    return code if least == most else renumbered(code * (most + 1) + levels)


def _levels(column: Column) -> Unsigned:
    """A code for each row, equal for values with equal bits; 0 for a gap."""
    bits = np.ascontiguousarray(column.values).view(np.int64)
    known = np.unique(bits[:_PROBED])
    code = np.zeros(len(bits), dtype=np.uint8)
    if len(known) <= _FEW:
        for number, value in enumerate(known.tolist()):
            code += (bits == value) * np.uint8(number + 1)
        if bool((code > 0).all()):
            return code if column.given.all() else np.where(column.given, code, 0)
    ranks = np.minimum(np.searchsorted(known, bits), len(known) - 1) if len(known) else bits
    if len(known) > _PROBED // 8 or not bool((known[ranks] == bits).all()):
        known, ranks = np.unique(bits, return_inverse=True)
    return np.where(column.given, ranks + 1, 0)


def _kinds(part: Part, rows: Ints) -> Part:
    """Some rows of a part, without their tasks and samples."""
    nothing = np.zeros(len(rows), dtype=np.int64)
    kinds = part.take(rows, Places(part.places.path))
    return replace(kinds, tasks=[], task=nothing, sample=nothing, turn=None, rollout_ids=None, digests={})


def laid_end_to_end(pieces: Sequence[Loose], tasks: Ids, position: Ints) -> Loose:
    """The pieces of one file as one; their task codes share a numbering, and ``position`` is the index of each."""
    kinds, tries, of_kind = joined_kinds(pieces)
    task = np.concatenate([piece.task for piece in pieces])
    if not bool((position == np.arange(len(position))).all()):
        task = small(position)[task]
    codes = [small(number)[piece.code] for piece, number in zip(pieces, of_kind, strict=True)]
    sample = np.concatenate([piece.sample for piece in pieces])
    return Loose(kinds, tasks, task, sample, np.concatenate(codes), tries, pieces[0].inputs)


def small(numbers: NDArray[Any]) -> Unsigned:
    """Non-negative numbers in the smallest dtype that holds the largest."""
    return numbers.astype(np.min_scalar_type(int(numbers.max(initial=0))), copy=False)


class Repeated(Exception):
    """A rollout that is in two inputs, or twice in one: (task, sample, attempt, the names of both inputs)."""


def merge(parts: Sequence[Loose | Packed]) -> Packed:
    """All rollouts as one table, with the highest attempt of each (task, sample), as in `rollouts.table.assemble`.

    The result depends neither on the order of the parts nor on how rollouts are split among them. `Repeated` for a
    (task, sample, attempt) that appears twice in one group.
    """
    kinds, tries, of_kind = joined_kinds(parts)
    labels = dict(kinds.labels)
    keys, group = group_keys(labels, len(kinds))
    ids, of_task = union([part.tasks for part in parts])
    units, unit_of, tasks = _units(parts, of_kind, of_task, group, keys, len(ids))
    bounds = [part_ends(part) for part in parts if len(part)]
    least, most = min((low for low, _ in bounds), default=0), 1 + max((high for _, high in bounds), default=0)
    rows = sum(map(len, parts))
    once = bool((kinds.attempt == 1).all()) and bool((tries == 1).all())
    slots = None
    if once and tasks * (most - least) <= LOOSE * rows + AT_A_TIME:
        slots = _slots(parts, of_kind, unit_of, tasks, (least, most), len(kinds), rows)
    if slots is not None:
        starts, sample, code = slots
    else:
        starts, sample, code, kinds, tries = _sorted(parts, of_kind, unit_of, tasks, kinds, tries, ids, units)
    return Packed(kinds, tries, ids, units, starts, sample, code, parts[0].inputs if len(parts) == 1 else "")


def part_ends(part: Loose | Packed) -> tuple[int, int]:
    """The smallest and the largest sample number of a part that has rollouts."""
    if part.sample is not None:
        return int(part.sample.min()), int(part.sample.max())
    starts: Ints = part.starts  # only packed rollouts lack sample numbers
    return 0, int(np.diff(starts).max()) - 1


UnitOf = Any
"""``unit_of(part number, task, kind)``: the task of each rollout in the merged table."""


def _units(
    parts: Sequence[Loose | Packed],
    of_kind: Sequence[Ints],
    of_task: Sequence[Ints],
    group: Ints,
    keys: Sequence[Any],
    ids: int,
) -> tuple[Ints | None, UnitOf, int]:
    """The tasks, one for each (group, id), sorted by group and id: `Packed.unit`, a `UnitOf`, and the number of tasks.

    An id without rollouts becomes one task, of the group without names if there is one, else of the first group.
    """
    if len(keys) == 1:
        unchanged = [len(places) == ids and bool((places == np.arange(ids)).all()) for places in of_task]

        def in_one_group(number: int, task: Ints, code: Unsigned) -> Ints:
            return task if unchanged[number] else of_task[number][task]

        return None, in_one_group, ids
    seen = [np.zeros(0, dtype=np.int64)]
    for number, part in enumerate(parts):
        for task, _, code in part.rows():
            seen.append(np.unique(group[of_kind[number][code]] * ids + of_task[number][task]))
    pairs = np.unique(np.concatenate(seen))
    nameless = keys.index(NAMELESS) if NAMELESS in keys else 0
    without_rollouts = np.setdiff1d(np.arange(ids), pairs % max(ids, 1)) + nameless * ids
    pairs = np.union1d(pairs, without_rollouts)

    def among_groups(number: int, task: Ints, code: Unsigned) -> Ints:
        return np.searchsorted(pairs, group[of_kind[number][code]] * ids + of_task[number][task])

    return pairs % max(ids, 1), among_groups, len(pairs)


def _slots(
    parts: Sequence[Loose | Packed],
    of_kind: Sequence[Ints],
    unit_of: UnitOf,
    tasks: int,
    samples: tuple[int, int],
    kinds: int,
    rows: int,
) -> tuple[Ints, Unsigned | None, Unsigned] | None:
    """(starts, sample, code) of `Packed`, by a table with a slot for each sample of each task.

    ``samples`` is the range of the sample numbers. None if two rollouts have the same slot.
    """
    dtype = np.min_scalar_type(kinds)
    empty = kinds  # the code of a slot without a rollout
    least, most = samples[0], samples[1] - samples[0]
    slots = np.full(tasks * most, empty, dtype=dtype)

    def fill(number: int, task: Ints, sample: Unsigned, code: Unsigned) -> None:
        slot = unit_of(number, task, code)
        slot *= most
        slot += sample
        slot -= least
        slots[slot] = codes[number][code]

    codes = [numbers.astype(dtype) for numbers in of_kind]
    with ThreadPoolExecutor(THREADS) as pool:
        waiting: deque[Future[None]] = deque()
        for number, part in enumerate(parts):
            for rows_of_part in part.rows():
                waiting.append(pool.submit(fill, number, *rows_of_part))
                if len(waiting) > 2 * THREADS:
                    waiting.popleft().result()
        for future in waiting:
            future.result()
    pieces = (slots[start : start + AT_A_TIME] for start in range(0, len(slots), AT_A_TIME))
    if sum(int(np.count_nonzero(piece != empty)) for piece in pieces) != rows:
        return None
    if rows == len(slots) and not least:
        return np.arange(0, rows + 1, most), None, slots
    taken = (slots != empty).reshape(tasks, most)
    counts = np.count_nonzero(taken, axis=1)
    starts = starts_of(counts)
    last = most - np.argmax(taken[:, ::-1], axis=1)
    if not least and bool((last[counts > 0] == counts[counts > 0]).all()):
        return starts, None, slots[taken.reshape(-1)]
    step = AT_A_TIME // most + 1
    samples_taken = [small(np.nonzero(taken[n : n + step])[1] + least) for n in range(0, tasks, step)]
    return starts, small(np.concatenate(samples_taken)), slots[taken.reshape(-1)]


def _sorted(
    parts: Sequence[Loose | Packed],
    of_kind: Sequence[Ints],
    unit_of: UnitOf,
    tasks: int,
    kinds: Part,
    tries: Ints,
    ids: Ids,
    units: Ints | None,
) -> tuple[Ints, Unsigned | None, Unsigned, Part, Ints]:
    """As `_slots`, by sorting, for sample numbers that are far apart and rollouts with several attempts.

    Also returns the kinds and their tries, as a rollout with several attempts is of a new kind.
    """
    pieces: list[tuple[Ints, Ints, Ints, Ints]] = []
    for number, part in enumerate(parts):
        for task, sample, code in part.rows():
            kind = of_kind[number][code]
            owner = np.full(len(kind), number)
            pieces.append((unit_of(number, task, code).astype(np.int64), sample.astype(np.int64), kind, owner))
    unit, sample, code, owner = (np.concatenate(each) for each in zip(*pieces, strict=True)) if pieces else _NO_ROWS
    attempt = kinds.attempt[code]
    order = np.lexsort((attempt, sample, unit))
    unit, sample, code, attempt, owner = unit[order], sample[order], code[order], attempt[order], owner[order]
    same = (np.diff(unit) == 0) & (np.diff(sample) == 0)
    twice = np.flatnonzero(same & (np.diff(attempt) == 0))
    if len(twice):
        row = int(twice[0])
        name = ids[int(unit[row]) if units is None else int(units[unit[row]])]
        inputs = parts[int(owner[row])].inputs, parts[int(owner[row + 1])].inputs
        raise Repeated(name, int(sample[row]), int(attempt[row]), *inputs)
    last = np.append(~same, True)[: len(unit)]
    rollout = np.cumsum(np.concatenate([[True], ~same])[: len(unit)]) - 1
    read = np.bincount(rollout, tries[code]).astype(np.int64) if len(unit) else tries[:0]
    before = None
    if kinds.before_answer is not None:  # of a rollout: whether it is true of all its attempts, as in `assemble`
        before = np.bincount(rollout, ~kinds.before_answer[code]) == 0
    unit, sample, code = unit[last], sample[last], code[last]
    if before is not None:
        kinds, code = _with_before_answer(kinds, code, before)
    pairs, code = np.unique(code * (int(read.max(initial=1)) + 1) + read, return_inverse=True)
    rows, read = pairs // (int(read.max(initial=1)) + 1), pairs % (int(read.max(initial=1)) + 1)
    starts = starts_of(np.bincount(unit, minlength=tasks))
    within = np.arange(len(unit)) - starts[unit]
    kept = replace(_kinds(kinds, rows), notes=kinds.notes)
    return starts, None if bool((within == sample).all()) else small(sample), small(code), kept, read


def _with_before_answer(kinds: Part, code: Ints, before: Bools) -> tuple[Part, Ints]:
    """The kinds, twice: with and without the mark that no request was accepted; and the kind of each rollout.

    ``before`` has the mark of each rollout, [R].
    """
    every = np.arange(len(kinds))
    twice = kinds.take(np.concatenate([every, every]), kinds.places)
    flags = np.repeat([True, False], len(kinds))
    return replace(twice, before_answer=flags), np.where(before, code, code + len(kinds))


_NO_ROWS = tuple(np.zeros(0, dtype=np.int64) for _ in range(4))


def joined_kinds(parts: Sequence[Loose | Packed]) -> tuple[Part, Ints, list[Ints]]:
    """The distinct kinds of all parts, the tries of each, and for each part the new number of each of its kinds."""
    tables = [part.kinds for part in parts]
    if len(parts) == 1:
        return tables[0], parts[0].tries, [np.arange(len(tables[0]))]
    tries = np.concatenate([part.tries for part in parts])
    all_unread = all(table.others for table in tables)
    joined = replace(
        end_to_end(tables, tables[0].places),
        named=frozenset().union(*(table.named for table in tables)),
        others=list(dict.fromkeys(key for table in tables for key in table.others)) if all_unread else (),
        notes=list(dict.fromkeys(note for table in tables for note in table.notes)),
        checks=checks_of(tables),
        headline=headline_of(tables),
    )
    code, first = _coded(joined, tries)
    ends = np.cumsum([len(table) for table in tables])[:-1]
    return _kinds(joined, first), tries[first], np.split(code, ends)
