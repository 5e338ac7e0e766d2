"""What lies beside NeMo Gym's rollouts: which attempts failed, and which rollouts were planned at all."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import msgspec
import numpy as np

from calipers.errors import InputError
from calipers.readers.files import BOM, STDIN, Source, line_blocks
from calipers.readers.nemo_gym_file import outcome_of
from calipers.readers.nemo_gym_rows import ROLLOUT, TASK
from calipers.readers.nemo_gym_schema import Agent
from calipers.readers.nemo_gym_taking import GymPart
from calipers.rollouts.column import Ints
from calipers.rollouts.part import Labels, Part, Places
from calipers.rollouts.record import CODE

FAILURES: Final = "_failures.jsonl"
INPUTS: Final = "_materialized_inputs.jsonl"
PLANNED_FROM: Final = "materialized_inputs"


class _Row(msgspec.Struct, gc=False):
    task: int | str = msgspec.field(name=TASK)
    rollout: int = msgspec.field(name=ROLLOUT)
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
    places, rows, numbers = Places(where), list[_Row](), list[int]()
    if os.path.isfile(where):
        with Source(where) as source:
            source.head = source.head.removeprefix(BOM)
            line = 0
            for block in line_blocks(source.readinto):
                for number, text in enumerate(bytes(block).split(b"\n"), line + 1):
                    if text.strip():
                        rows.append(_decoded(f"{where}:{number}", text))
                        numbers.append(number)
                line += bytes(block).count(b"\n")
    places.add(0, np.array(numbers, dtype=np.int64))
    tasks = list(dict.fromkeys(str(row.task) for row in rows))
    code = {task: number for number, task in enumerate(tasks)}
    agents = list(dict.fromkeys(name for row in rows if (name := row.agent.name if row.agent else None)))
    who = {name: number for number, name in enumerate(agents)}
    agent = [who.get(row.agent.name or "", -1) if row.agent else -1 for row in rows]
    missing = CODE["not_run"]
    return Part(
        places=places,
        tasks=tasks,
        task=np.array([code[str(row.task)] for row in rows], dtype=np.int64),
        sample=np.array([row.rollout for row in rows], dtype=np.int64),
        attempt=np.ones(len(rows), dtype=np.int64),
        outcome=np.array([missing if word == INPUTS else outcome_of(row.failure) for row in rows], dtype=np.uint8),
        labels={"agent": Labels(np.array(agent, dtype=np.int64), agents)},
    )


def _decoded(place: str, text: bytes) -> _Row:
    try:
        row = _DECODER.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InputError.at(place, f"cannot be read ({error})", _RIGHT) from None
    if not 0 <= row.rollout < 2**53:
        raise InputError.at(place, f"{ROLLOUT} is {row.rollout}", "expected an integer >= 0")
    return row


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
    lines = places.blocks[0][1]
    found = Places(places.path)
    found.add(0, lines[rows] if not isinstance(lines, int) else lines)
    return found
