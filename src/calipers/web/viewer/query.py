"""Which rollouts a list shows, and in which order: filters over the columns of an index, and a search in its log."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from time import monotonic
from typing import Final

import numpy as np
from numpy.typing import NDArray

from calipers.errors import InputError
from calipers.metrics.metric import PASS_THRESHOLD
from calipers.rollouts.column import Bools, Column
from calipers.rollouts.record import CODE, OUTCOMES, SCORED
from calipers.web.gather import STATE_CODE, STATES
from calipers.web.viewer.index import LogIndex
from calipers.web.viewer.log import open_log

Rows = NDArray[np.int32]
MOST_FOUND: Final = 20_000  # rollouts that a search finds
LONGEST_SEARCH: Final = 20.0  # seconds
BLOCK: Final = 4 << 20  # bytes that are searched at once: others wait for a few milliseconds only
SORTS: Final = ("order", "task", "reward", "-reward", "tokens", "-tokens", "seconds", "-seconds")


@dataclass(frozen=True, slots=True)
class Query:
    """What the user asks for; the defaults ask for everything."""

    group: int = 0
    states: frozenset[str] = frozenset()  # of gather.STATES
    outcome: str = ""  # of record.OUTCOMES
    least: float | None = None  # reward
    most: float | None = None
    slices: tuple[tuple[str, str], ...] = ()  # key, value
    search: str = ""
    task: str = ""
    sort: str = "order"


@dataclass(frozen=True, slots=True)
class GroupRows:
    """The rows of one group that no later attempt has replaced, with what they contribute."""

    rows: Rows  # in the order of the log
    states: NDArray[np.uint8]  # [R of the whole index] codes of gather.STATES
    numbers: Column  # [R of the whole index]
    outcomes: NDArray[np.uint8]  # [R of the whole index] codes of record.OUTCOMES
    outright: bool  # every number is 0 or 1


def group_rows(index: LogIndex, group: int) -> GroupRows:
    """The rows of a group, and how each looks, as the report shows it."""
    chosen = index.current()
    if len(index.groups) > 1:
        chosen = chosen & (index.columns["group"] == group)
    numbers = index.contributions()
    kept = numbers.values[numbers.given & chosen]
    outright = bool(len(kept) and ((kept == 0) | (kept == 1)).all())
    outcome = index.outcomes()
    states = np.full(len(index), STATE_CODE["wrong" if outright else "scored"], dtype=np.uint8)
    if outright:
        states[numbers.given & (numbers.values >= PASS_THRESHOLD)] = STATE_CODE["passed"]
    states[numbers.given & (outcome != SCORED) & (numbers.values == 0)] = STATE_CODE["zero"]
    states[~numbers.given] = STATE_CODE["missing"]
    return GroupRows(np.flatnonzero(chosen).astype(np.int32), states, numbers, outcome, outright)


def checked(query: Query, index: LogIndex) -> Query:
    """The query; InputError for a value that there is not."""
    for state in query.states:
        if state not in STATES:
            raise InputError(f"no state {state!r}; expected one of {', '.join(STATES)}")
    if query.outcome and query.outcome not in OUTCOMES:
        raise InputError(f"no outcome {query.outcome!r}; expected one of {', '.join(OUTCOMES)}")
    if query.sort not in SORTS:
        raise InputError(f"cannot sort by {query.sort!r}; expected one of {', '.join(SORTS)}")
    for key, value in query.slices:
        if key not in index.slices or value not in index.slices[key]:
            raise InputError(f"no slice {key}={value}")
    return query


def matching(index: LogIndex, own: GroupRows, query: Query, also: Bools | None = None) -> Rows:
    """The rows that a query asks for, sorted; ``also`` is a mask [R] that they must fulfil, too."""
    keep = np.zeros(len(index), dtype=bool)
    keep[own.rows] = True
    if query.states:
        keep &= np.isin(own.states, [STATE_CODE[state] for state in query.states])
    if query.outcome:
        keep &= own.outcomes == CODE[query.outcome]
    if query.least is not None:
        keep &= own.numbers.given & (own.numbers.values >= query.least)
    if query.most is not None:
        keep &= own.numbers.given & (own.numbers.values <= query.most)
    for key, value in query.slices:
        keep &= index.columns[f"slice:{key}"] == index.slices[key].index(value)
    if query.task:
        code = index.task(query.task)
        keep &= np.zeros(len(index), dtype=bool) if code is None else index.columns["task"] == code
    if also is not None:
        keep &= also
    return ordered(index, own, np.flatnonzero(keep).astype(np.int32), query.sort)


def ordered(index: LogIndex, own: GroupRows, rows: Rows, sort: str) -> Rows:
    """The rows in some order; what is missing comes last."""
    if sort == "order":
        return rows
    if sort == "task":
        return rows[np.lexsort((index.columns["sample"][rows], index.columns["task"][rows]))]
    word = sort.removeprefix("-")
    if word == "reward":
        column = own.numbers
    elif word == "seconds":
        column = index.number("usage", "latency_s")
    else:
        column = tokens(index)
    values = column.values[rows] * (-1.0 if sort.startswith("-") else 1.0)
    values = np.where(column.given[rows] & np.isfinite(values), values, np.inf)
    return rows[np.argsort(values, kind="stable")]


def tokens(index: LogIndex) -> Column:
    """The tokens of each row, in and out, [R]."""
    columns = [index.number("usage", name) for name in ("input_tokens", "output_tokens")]
    values = sum((np.where(column.given, column.values, 0.0) for column in columns), np.zeros(len(index)))
    return Column(values, columns[0].given | columns[1].given)


def flipped(index: LogIndex, own: GroupRows, other: LogIndex, others: GroupRows) -> tuple[Bools, Bools]:
    """The rows that pass here and not there, and the other way round, [R] each; pairs by task and sample."""
    mine, theirs = (_keys(each, rows.rows) for each, rows in ((index, own), (other, others)))
    order = np.argsort(theirs)
    place = np.searchsorted(theirs[order], mine)
    place = np.minimum(place, max(len(order) - 1, 0))
    there = theirs[order][place] == mine if len(order) else np.zeros(len(mine), dtype=bool)
    passes = own.numbers.given[own.rows] & (own.numbers.values[own.rows] >= PASS_THRESHOLD)
    match = others.rows[order[place]] if len(order) else np.zeros(len(mine), dtype=np.int32)
    passed_there = np.zeros(len(mine), dtype=bool)
    if len(order):
        passed_there = others.numbers.given[match] & (others.numbers.values[match] >= PASS_THRESHOLD)
    better, worse = np.zeros(len(index), dtype=bool), np.zeros(len(index), dtype=bool)
    better[own.rows] = there & passes & ~passed_there
    worse[own.rows] = there & ~passes & passed_there
    return better, worse


def _keys(index: LogIndex, rows: Rows) -> NDArray[np.uint64]:
    """A number for each row's task and sample, the same in every index."""
    task = index.columns["hash"][index.columns["task"][rows]]
    sample = index.columns["sample"][rows].astype(np.uint64)
    keys: NDArray[np.uint64] = task ^ (sample * np.uint64(0x9E3779B97F4A7C15))
    return keys


@dataclass(frozen=True, slots=True)
class QueryResult:
    """What a search found."""

    rows: Bools  # [R]
    complete: bool  # the whole log was searched


def search(index: LogIndex, words: str, cancelled: threading.Event) -> QueryResult:
    """The rows whose record has these words anywhere; letters of ASCII match in either case.

    It stops after `MOST_FOUND` rollouts or `LONGEST_SEARCH` seconds, and says so.
    """
    rows = np.zeros(len(index), dtype=bool)
    needles = _needles(words)
    starts = index.columns["start"]
    until, count = monotonic() + LONGEST_SEARCH, 0
    for offset, block in _blocks(index, max(map(len, needles))):
        if cancelled.is_set() or monotonic() > until or count >= MOST_FOUND:
            return QueryResult(rows, False)
        for needle in needles:
            at = block.find(needle)
            while at >= 0:
                row = int(np.searchsorted(starts, offset + at, side="right")) - 1
                if row >= 0 and not rows[row] and offset + at < int(starts[row]) + int(index.columns["length"][row]):
                    rows[row] = True
                    count += 1
                    if count >= MOST_FOUND:
                        break
                following = int(starts[row + 1]) - offset if row + 1 < len(starts) else len(block)
                at = block.find(needle, max(following, at + 1))
    return QueryResult(rows, True)


def _needles(words: str) -> list[bytes]:
    """What to look for in JSON: the words as they are written there, with and without escapes, in small letters."""
    written = {
        json.dumps(words, ensure_ascii=ascii_)[1:-1].encode("utf-8", "surrogatepass") for ascii_ in (True, False)
    }
    return sorted(needle.lower() for needle in written)


def _blocks(index: LogIndex, longest: int) -> Iterator[tuple[int, bytes]]:
    """The log in small letters, block by block, each with its first byte; blocks overlap by what is looked for."""
    with open_log(index.path) as file:
        offset, end = 0, index.state.end
        while offset < end:
            file.seek(offset)
            block = file.read(min(BLOCK, end - offset))
            if not block:
                return
            yield offset, block.lower()
            offset += max(len(block) - longest + 1, 1) if offset + len(block) < end else len(block)
