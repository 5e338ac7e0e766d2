"""Two runs task by task, from their indexes: how the mean of each task changed, and whether the usual answer did."""

from __future__ import annotations

import hashlib
import os
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from time import monotonic
from typing import Any, Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from calipers.analyses.compare.source import spoken
from calipers.formats.format import BAD
from calipers.rollouts.column import Floats
from calipers.web.gather import STATES
from calipers.web.viewer.index import LogIndex
from calipers.web.viewer.log import PREVIEWED, open_log
from calipers.web.viewer.query import LONGEST_SEARCH, GroupRows

DRAWN: Final = 64  # samples of a task whose states are shown
Hashes = NDArray[np.uint64]


class _AnswerRow(msgspec.Struct):
    """What a record answers."""

    answer: Any = None
    completion: Any = None


_SPOKEN: Final = msgspec.json.Decoder(_AnswerRow)


@dataclass(frozen=True, slots=True)
class TaskPair:
    """A task of both runs."""

    hash: int  # of its name
    codes: tuple[int, int]  # in the two indexes
    gain: float | None  # second less first; None where one of them has no number
    way: str  # better, worse or same


@dataclass(frozen=True, slots=True)
class RunPair:
    """The tasks of two runs, the largest losses first."""

    tasks: list[TaskPair]
    states: tuple[Callable[[int], list[str]], Callable[[int], list[str]]]  # of a task's samples, in each run


def run_pair(first: tuple[LogIndex, GroupRows], second: tuple[LogIndex, GroupRows]) -> RunPair:
    """The tasks of both runs with how the mean changed, the largest losses first."""
    (first_means, first_states), (second_means, second_states) = _means(*first), _means(*second)
    common, at_first, at_second = np.intersect1d(
        first[0].columns["hash"], second[0].columns["hash"], return_indices=True
    )
    gains = second_means[at_second] - first_means[at_first]
    known = np.isfinite(gains)
    tasks = []
    for at in np.argsort(np.where(known, gains, np.inf), kind="stable").tolist():
        gain = float(gains[at]) if known[at] else None
        way = "same" if gain is None or abs(gain) < 1e-12 else "better" if gain > 0 else "worse"
        tasks.append(TaskPair(int(common[at]), (int(at_first[at]), int(at_second[at])), gain, way))
    return RunPair(tasks, (first_states, second_states))


def _means(index: LogIndex, own: GroupRows) -> tuple[Floats, Callable[[int], list[str]]]:
    """The mean of each task's numbers, [T], NaN where it has none; and what gives the states of a task's samples."""
    rows, task, size = own.rows, index.columns["task"][own.rows], index.tasks
    given = own.numbers.given[rows]
    counts = np.bincount(task[given], minlength=size)
    sums = np.bincount(task[given], weights=own.numbers.values[rows][given], minlength=size)
    means = np.divide(sums, counts, out=np.full(size, np.nan), where=counts > 0)
    order = np.lexsort((index.columns["sample"][rows], task))
    starts = np.searchsorted(task[order], np.arange(size + 1))

    def states(code: int) -> list[str]:
        chosen = rows[order[starts[code] : min(starts[code + 1], starts[code] + DRAWN)]]
        return [STATES[state] for state in own.states[chosen].tolist()]

    return means, states


def other_answers(
    first: tuple[LogIndex, GroupRows], second: tuple[LogIndex, GroupRows], cancelled: threading.Event
) -> tuple[frozenset[int], bool]:
    """The hashes of the tasks whose most frequent answer is another one in the second run.

    The second value is whether both logs were read to their end: that stops after `LONGEST_SEARCH` seconds.
    """
    until = monotonic() + LONGEST_SEARCH
    (ours, all_ours), (theirs, all_theirs) = (usual_answers(*side, cancelled, until) for side in (first, second))
    common, at_first, at_second = np.intersect1d(
        first[0].columns["hash"], second[0].columns["hash"], return_indices=True
    )
    differs = (ours[at_first] != theirs[at_second]) & (ours[at_first] != 0) & (theirs[at_second] != 0)
    return frozenset(common[differs].tolist()), all_ours and all_theirs


def usual_answers(index: LogIndex, own: GroupRows, cancelled: threading.Event, until: float) -> tuple[Hashes, bool]:
    """A number for the most frequent answer of each task, [T], of several the first; 0 where it has none.

    A record without an answer counts with its completion; one that is too large for the list is not read.
    """
    usual = np.zeros(index.tasks, dtype=np.uint64)
    columns = index.columns
    rows = own.rows[columns["length"][own.rows] <= PREVIEWED]
    rows = rows[np.lexsort((columns["sample"][rows], columns["task"][rows]))]
    tasks = columns["task"][rows]
    ends = np.flatnonzero(np.diff(tasks, append=-1)) + 1
    begin = 0
    with open_log(index.path) as file:
        for end in ends.tolist():
            if cancelled.is_set() or monotonic() > until:
                return usual, False
            answers = Counter[bytes]()
            for row in rows[begin:end].tolist():
                line = os.pread(file.fileno(), int(columns["length"][row]), int(columns["start"][row]))
                if said := _answer(line):
                    answers[said] += 1
            if answers:
                digest = hashlib.blake2b(answers.most_common(1)[0][0], digest_size=8).digest()
                usual[tasks[begin]] = int.from_bytes(digest) or 1
            begin = end
    return usual, True


def _answer(line: bytes) -> bytes:
    try:
        record = _SPOKEN.decode(line)
    except BAD:
        return b""
    value = record.answer if record.answer is not None else spoken(record.completion)
    if value is None or isinstance(value, str):
        return (value or "").strip().encode("utf-8", "surrogatepass")
    return msgspec.json.encode(value)
