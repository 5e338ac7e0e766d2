"""What lies beside NeMo Gym's rollouts: which attempts failed, and which rollouts were planned at all."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

import msgspec
import numpy as np

from calipers.errors import InputError
from calipers.readers.files import BOM, STDIN, Source, line_blocks
from calipers.readers.growing import Growing
from calipers.readers.jsonl import one_a_line
from calipers.readers.nemo_gym_file import outcome_of
from calipers.readers.nemo_gym_rows import ROLLOUT, TASK, as_index, index_fault
from calipers.readers.nemo_gym_schema import Agent
from calipers.readers.nemo_gym_taking import GymPart
from calipers.rollouts.column import Ints
from calipers.rollouts.part import Labels, Part, Places
from calipers.rollouts.record import CODE

FAILURES: Final = "_failures.jsonl"
INPUTS: Final = "_materialized_inputs.jsonl"
PLANNED_FROM: Final = "materialized_inputs"
NOT_RUN: Final = CODE["not_run"]


class _Row(msgspec.Struct, gc=False):
    task: int | float | str = msgspec.field(name=TASK)
    rollout: int | float = msgspec.field(name=ROLLOUT)
    agent: Agent | None = msgspec.field(name="agent_ref", default=None)
    failure: str | None = msgspec.field(name="_ng_failure_class", default=None)


_DECODER = msgspec.json.Decoder(_Row)
_RIGHT = f"expected a JSON object with {TASK} and {ROLLOUT}"


def beside(path: str, word: str) -> str:
    """The file of that ending beside a file of rollouts: only the last extension is replaced."""
    return os.path.splitext(path)[0] + word


def has_companions(path: str) -> bool:
    """Whether a file of rollouts is known to be one by what lies beside it, should it be empty itself."""
    return path != STDIN and any(os.path.isfile(beside(path, word)) for word in (FAILURES, INPUTS))


def with_companions(path: str, parts: Sequence[GymPart]) -> list[Part]:
    """The rollouts that succeeded, the attempts that failed, and a row for each that was planned and never ended.

    A rollout that failed and then succeeded is one rollout of several attempts.
    """
    if not has_companions(path):
        return [part for part in parts if len(part)]
    failed, planned = _companion(path, FAILURES), _companion(path, INPUTS)
    keys = _keys([*parts, failed, planned])
    done, lost, wanted = np.concatenate(keys[:-2]), keys[-2], keys[-1]
    attempt, tried = _attempts(lost)
    failed = replace(failed, attempt=attempt)
    idle = np.flatnonzero(~np.isin(wanted, np.concatenate([done, lost])))
    idle = idle[np.unique(wanted[idle], return_index=True)[1]]
    owed = replace(planned, task=planned.task[idle], sample=planned.sample[idle], attempt=planned.attempt[idle])
    owed = replace(owed, outcome=planned.outcome[idle], labels={"agent": planned.labels["agent"].take(idle)})
    owed = replace(owed, places=_chosen(planned.places, idle))
    main = [replace(part, attempt=1 + _looked_up(key, *tried)) for part, key in zip(parts, keys, strict=False)]
    found: list[Part] = [part for part in (*main, failed, owed) if len(part)]
    source = PLANNED_FROM if len(planned) else "rows"
    return [replace(part, planned_from=source) for part in found]


def _companion(path: str, word: str) -> Part:
    """One of the files beside, as rollouts without a number; empty where there is none."""
    where = beside(path, word)
    codes: dict[int | str, int] = {}
    agents: dict[str, int] = {}
    task, sample, agent = Growing(np.int64), Growing(np.int64), Growing(np.int64)
    outcome, lines, size = Growing(np.uint8), Growing(np.int64), 0
    for numbers, rows in _blocks(where) if os.path.isfile(where) else ():
        names = [row.agent.name if row.agent else None for row in rows]
        task.put(size, np.array([codes.setdefault(as_index(row.task), len(codes)) for row in rows]))
        sample.put(size, np.array([int(row.rollout) for row in rows]))
        agent.put(size, np.array([agents.setdefault(name, len(agents)) if name else -1 for name in names]))
        outcome.put(size, np.array([NOT_RUN if word == INPUTS else outcome_of(row.failure) for row in rows]))
        lines.put(size, numbers)
        size += len(rows)
    places = Places(where)
    places.add(0, lines.finish(size))
    return Part(
        places=places,
        tasks=[str(index) for index in codes],
        task=task.finish(size),
        sample=sample.finish(size),
        attempt=np.ones(size, dtype=np.int64),
        outcome=outcome.finish(size),
        labels={"agent": Labels(agent.finish(size), list(agents))},
    )


def _blocks(where: str) -> Iterator[tuple[Ints, list[_Row]]]:
    """The rows of a file, a block at a time, and the lines they stand on. InputError for a line that is none."""
    before = 0
    with Source(where) as source:
        source.head = source.head.removeprefix(BOM)
        for block in line_blocks(source.readinto):
            octets = np.frombuffer(block, dtype=np.uint8)
            ends = np.flatnonzero(octets == ord(b"\n"))
            rows = _quickly(block)
            if rows and one_a_line(octets, ends, len(rows)):
                yield np.arange(before + 1, before + 1 + len(rows)), rows
            else:
                filled = [(n, line) for n, line in enumerate(bytes(block).split(b"\n"), before + 1) if line.strip()]
                found = [_decoded(f"{where}:{number}", line) for number, line in filled]
                if found:
                    yield np.array([number for number, _ in filled]), found
            before += len(ends)


def _quickly(block: memoryview) -> list[_Row]:
    """The rows of a block if all are good; none if one is not."""
    try:
        rows: list[_Row] = _DECODER.decode_lines(block)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return []
    return rows if all(0 <= row.rollout < 2**53 and _fault(row) is None for row in rows) else []


def _decoded(place: str, text: bytes) -> _Row:
    try:
        row = _DECODER.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InputError.at(place, f"cannot be read ({error})", _RIGHT) from None
    if not 0 <= row.rollout < 2**53:
        raise InputError.at(place, f"{ROLLOUT} is {row.rollout}", "expected an integer >= 0")
    if fault := _fault(row):
        raise InputError.at(place, *fault)
    return row


def _fault(row: _Row) -> tuple[str, str] | None:
    """What is wrong with an index that is a float, and not a whole one."""
    if type(row.task) is not float and type(row.rollout) is not float:
        return None
    return index_fault(TASK, row.task) or index_fault(ROLLOUT, row.rollout)


def _keys(parts: Sequence[Part]) -> list[Ints]:
    """A number for each row, equal where agent, task and rollout are."""
    tasks: dict[str, int] = {}
    agents: dict[str, int] = {}
    task, agent = [], []
    for part in parts:
        table = [tasks.setdefault(name, len(tasks)) for name in part.tasks]
        task.append(np.array([*table, -1], dtype=np.int64)[part.task])
        held = part.labels["agent"]
        table = [agents.setdefault(name, len(agents) + 1) for name in held.values]
        agent.append(np.array([*table, 0], dtype=np.int64)[held.code])
    rollout = np.concatenate([part.sample for part in parts])
    ids = [np.unique(column, return_inverse=True)[1].reshape(-1) for column in (np.concatenate(agent), rollout)]
    key = (np.concatenate(task) * (len(agents) + 1) + ids[0]) * (int(ids[1].max(initial=0)) + 1) + ids[1]
    return np.split(key, np.cumsum([len(part) for part in parts])[:-1])


def _attempts(keys: Ints) -> tuple[Ints, tuple[Ints, Ints]]:
    """The number of each failed attempt among those of its rollout, from 1; and how many each rollout had."""
    distinct, code, counts = np.unique(keys, return_inverse=True, return_counts=True)
    rows = np.argsort(code, kind="stable")
    before = np.repeat(np.cumsum(counts) - counts, counts)
    attempt = np.empty(len(keys), dtype=np.int64)
    attempt[rows] = np.arange(len(keys)) - before + 1
    return attempt, (distinct, counts)


def _looked_up(keys: Ints, distinct: Ints, counts: Ints) -> Ints:
    """How many failed attempts each rollout had before."""
    if not len(distinct):
        return np.zeros(len(keys), dtype=np.int64)
    at = np.minimum(np.searchsorted(distinct, keys), len(distinct) - 1)
    return np.where(distinct[at] == keys, counts[at], 0)


def _chosen(places: Places, rows: Ints) -> Places:
    found = Places(places.path)
    found.add(0, np.array([int(places.of(row).rpartition(":")[2]) for row in rows.tolist()], dtype=np.int64))
    return found
