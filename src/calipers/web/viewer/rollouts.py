"""The rollouts of a log as pages show them: the rows of a list, their order, and the texts of a record.

A list is computed by filters over the columns of an index and a search in its log. A record is read from its position
in the log.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from time import monotonic
from typing import IO, Any, Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from calipers.analyses.compare.source import json_text
from calipers.errors import InputError
from calipers.formats import BAD, TARGET
from calipers.formats.source_facts import FACTS
from calipers.metrics import PASS_THRESHOLD, passed
from calipers.reports.figures import megabytes
from calipers.rollouts.column import Bools, Column
from calipers.rollouts.record import CODE, OUTCOMES, ROLES
from calipers.web.markup import one_line, visible
from calipers.web.report_data import STATE_CODE, STATES, States, is_outright, states_of
from calipers.web.viewer.index import LogIndex

Rows = NDArray[np.int32]
MOST_FOUND: Final = 20_000  # rollouts after which a search stops
LONGEST_SEARCH: Final = 20.0  # seconds
BLOCK: Final = 4 << 20  # bytes that are searched at once; a block takes a few milliseconds
SORTS: Final = ("order", "task", "reward", "-reward", "tokens", "-tokens", "seconds", "-seconds")
LONG_LINES, LONG = 200, 20_000  # a text with more lines or characters is cut
END_LINES, END = 40, 8_000  # lines and characters of its beginning, and of its end, that are shown
PIECE: Final = 200_000  # characters of a cut text that are sent at once
PREVIEWED: Final = 1 << 18  # the list shows no text of a record with more bytes
PREVIEW: Final = 160  # characters of the text in the list
PRETTY: Final = 1 << 18  # a record with more bytes is not indented
MOST_STEPS: Final = 2_000  # steps of a trajectory
STEP_TEXT: Final = 4_000  # characters of a step
STEP_KEYS: Final = ("trajectory", "steps", "messages", "conversation", "turns")
_ROW: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])

Record = Mapping[str, msgspec.Raw]


@dataclass(frozen=True, slots=True)
class Query:
    """The filters and the order of a list of rollouts; the defaults select all of a group."""

    group: int = 0
    states: frozenset[str] = frozenset()  # some of report_data.STATES
    outcome: str = ""  # one of record.OUTCOMES
    least: float | None = None  # the lowest reward
    most: float | None = None  # the highest reward
    slices: tuple[tuple[str, str], ...] = ()  # pairs of key and value
    search: str = ""
    task: str = ""
    sort: str = "order"


@dataclass(frozen=True, slots=True)
class GroupRows:
    """The rows of one group that no later attempt has replaced, with their states and contributions."""

    rows: Rows  # in the order of the log
    states: States  # [R], for all rows of the index: codes of report_data.STATES
    numbers: Column  # [R], for all rows of the index
    outcomes: NDArray[np.uint8]  # [R], for all rows of the index: codes of record.OUTCOMES
    outright: bool  # every number is 0 or 1


def group_rows(index: LogIndex, group: int) -> GroupRows:
    """The rows of a group, with the states that the report would show."""
    chosen = index.current()
    if len(index.groups) > 1:
        chosen = chosen & (index.columns["group"] == group)
    numbers = index.contributions()
    outright = is_outright(numbers.values[numbers.given & chosen])
    outcomes = index.outcomes()
    states = states_of(numbers, outcomes, outright)
    return GroupRows(np.flatnonzero(chosen).astype(np.int32), states, numbers, outcomes, outright)


def checked(query: Query, index: LogIndex) -> None:
    """Raise InputError for an unknown state, outcome, order or slice in a query."""
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


def matching(index: LogIndex, own: GroupRows, query: Query, mask: Bools | None = None) -> Rows:
    """The rows that match a query and, if it is given, a mask [R]; sorted."""
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
    if mask is not None:
        keep &= mask
    return ordered(index, own, np.flatnonzero(keep).astype(np.int32), query.sort)


def ordered(index: LogIndex, own: GroupRows, rows: Rows, sort: str) -> Rows:
    """The rows in the order of ``sort``; rows without a value come last."""
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


def tokens(index: LogIndex, rows: Sequence[int] | slice = slice(None)) -> Column:
    """The input and output tokens of some rows together."""
    columns = [index.number("usage", name) for name in ("input_tokens", "output_tokens")]
    first, second = (np.where(column.given[rows], column.values[rows], 0.0) for column in columns)
    with np.errstate(over="ignore"):
        return Column(first + second, columns[0].given[rows] | columns[1].given[rows])


def flipped(index: LogIndex, own: GroupRows, other: LogIndex, others: GroupRows) -> tuple[Bools, Bools]:
    """Masks [R] of the rows that pass only in this run, and only in the other; paired by task and sample."""
    better, worse = np.zeros(len(index), dtype=bool), np.zeros(len(index), dtype=bool)
    if not len(others.rows):
        return better, worse
    own_keys, other_keys = _keys(index, own.rows), _keys(other, others.rows)
    order = np.argsort(other_keys)
    positions = np.minimum(np.searchsorted(other_keys[order], own_keys), len(order) - 1)
    paired = other_keys[order][positions] == own_keys
    passes = passed(own.numbers, PASS_THRESHOLD)[own.rows]
    other_passes = passed(others.numbers, PASS_THRESHOLD)[others.rows[order[positions]]]
    better[own.rows] = paired & passes & ~other_passes
    worse[own.rows] = paired & ~passes & other_passes
    return better, worse


def _keys(index: LogIndex, rows: Rows) -> NDArray[np.uint64]:
    """A hash of each row's task and sample, which is the same in every index."""
    task = index.columns["hash"][index.columns["task"][rows]]
    sample = index.columns["sample"][rows].astype(np.uint64)
    keys: NDArray[np.uint64] = task ^ (sample * np.uint64(0x9E3779B97F4A7C15))
    return keys


def search(index: LogIndex, words: str, cancelled: threading.Event) -> tuple[Bools, bool]:
    """A mask [R] of the rows whose record contains the words, ignoring the case of ASCII letters.

    The search stops after `MOST_FOUND` rollouts or `LONGEST_SEARCH` seconds. The second value is whether it covered
    the whole log.
    """
    rows = np.zeros(len(index), dtype=bool)
    needles = _needles(words)
    starts = index.columns["start"]
    deadline, count = monotonic() + LONGEST_SEARCH, 0
    for offset, block in _blocks(index, max(map(len, needles))):
        if cancelled.is_set() or monotonic() > deadline or count >= MOST_FOUND:
            return rows, False
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
    return rows, True


def _needles(words: str) -> list[bytes]:
    """The byte strings to search for in JSON: the words in lower case, with and without escapes."""
    texts = (json.dumps(words, ensure_ascii=ascii_only)[1:-1] for ascii_only in (True, False))
    return sorted({text.encode("utf-8", "surrogatepass").lower() for text in texts})


def _blocks(index: LogIndex, longest: int) -> Iterator[tuple[int, bytes]]:
    """The log in lower case as (offset, block); blocks overlap, so that each match is inside one."""
    with open_log(index.path) as file:
        offset, end = 0, index.state.end
        while offset < end:
            file.seek(offset)
            block = file.read(min(BLOCK, end - offset))
            if not block:
                return
            yield offset, block.lower()
            offset += max(len(block) - longest + 1, 1) if offset + len(block) < end else len(block)


def open_log(path: str) -> IO[bytes]:
    """Open a log for reading; InputError if it is missing, or has become a symbolic link."""
    try:
        return os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC), "rb", buffering=0)
    except OSError as error:
        raise InputError.at(path, f"cannot be read ({error.strerror})") from None


def lines_of(index: LogIndex, rows: Sequence[int]) -> list[bytes]:
    """The lines of some rows in the log as it is now."""
    starts, lengths = index.columns["start"], index.columns["length"]
    with open_log(index.path) as file:
        return [os.pread(file.fileno(), int(lengths[row]), int(starts[row])) for row in rows]


def record_of(index: LogIndex, row: int) -> tuple[bytes, Record]:
    """The line of a row, and its record with undecoded values; InputError if the log has changed."""
    [line] = lines_of(index, [row])
    try:
        return line, _ROW.decode(line)
    except BAD:
        raise InputError.at(index.path, "has changed", "reload the page") from None


def preview(index: LogIndex, row: int, line: bytes | None) -> dict[str, str]:
    """The text and the error of a rollout, on one line each; for a large record, its size."""
    size = int(index.columns["length"][row])
    if line is None or size > PREVIEWED:
        return {"text": f"({megabytes(size)})"}
    try:
        record = _ROW.decode(line)
    except BAD:
        return {"text": ""}
    completion = json_text(value_of(record, "completion")) or json_text(value_of(record, "answer")) or ""
    shown = {"text": one_line(completion, PREVIEW)}
    if error := error_text(value_of(record, "error")):
        shown["error"] = one_line(error, PREVIEW)
    return shown


def previews(index: LogIndex, rows: Sequence[int]) -> list[dict[str, str]]:
    """The previews of some rows; large records are not read."""
    small = [row for row in rows if int(index.columns["length"][row]) <= PREVIEWED]
    line_of = dict(zip(small, lines_of(index, small), strict=True))
    return [preview(index, row, line_of.get(row)) for row in rows]


def value_of(record: Record, key: str) -> Any:
    """A value of a record; None if it has none, or if it cannot be decoded."""
    raw = record.get(key)
    if raw is None:
        return None
    try:
        return msgspec.json.decode(raw)
    except BAD:
        return None


def error_text(value: Any) -> str:
    """The error of a record as text."""
    if isinstance(value, dict):
        parts = [str(value[key]) for key in ("kind", "message") if value.get(key)]
        return ": ".join(parts) or json.dumps(value, ensure_ascii=False)
    return json_text(value) or ""


@dataclass(frozen=True, slots=True)
class TextBlock:
    """A named text of a rollout; a long text has only its beginning and its end."""

    key: str  # with which the rest of the text is requested
    name: str
    head: str
    tail: str = ""
    lines: int = 0  # lines of the whole text, if it is cut
    size: int = 0  # characters of the whole text, if it is cut

    @classmethod
    def of(cls, key: str, name: str, text: str) -> TextBlock:
        """The block of a text, cut if the text is long."""
        if len(text) <= LONG and text.count("\n") < LONG_LINES:
            return cls(key, name, visible(text))
        head = "\n".join(text[:END].split("\n")[:END_LINES])
        tail = "\n".join(text[-END:].split("\n")[-END_LINES:])
        return cls(key, name, visible(head), visible(tail), text.count("\n") + 1, len(text))


NAMES: Final = {
    "prompt": "Prompt",
    "completion": "Completion",
    "answer": "Answer",
    TARGET: "Expected",
    "error": "Error",
}
WORDS: Final = ("judge", "verifier", "explanation", "rationale", "feedback", "critique", "reason", "grade", "comment")
"""Parts of keys whose texts are from a judge or a verifier."""


def texts_of(record: Record) -> Iterator[tuple[str, str, str]]:
    """The texts of a record as (key, name, text): first the known ones, then others, such as those of a judge."""
    metadata = value_of(record, "metadata")
    known = {key: value_of(record, key) for key in ("prompt", "completion", "answer", TARGET, "error")}
    if known[TARGET] is None and isinstance(metadata, dict):
        known[TARGET] = metadata.get(TARGET)
    known["error"] = error_text(known["error"]) or None
    for key, value in known.items():
        text = conversation_text(value)
        if text:
            yield key, NAMES[key], text
    for key in record:
        if key in ROLES or key in (TARGET, FACTS, *STEP_KEYS):
            continue
        value = value_of(record, key)
        if isinstance(value, (str, list, dict)) and value:
            is_verdict = any(word in key.lower() for word in WORDS)
            author = "Judge" if "judge" in key.lower() else "Verifier" if is_verdict else ""
            yield key, f"{author}: {key}" if author else key, conversation_text(value)


def conversation_text(value: Any) -> str:
    """A value as text; messages are listed one after another, each with its role."""
    if value is None or isinstance(value, str):
        return value or ""
    if isinstance(value, list) and value and all(isinstance(message, dict) and "role" in message for message in value):
        if len(value) == 1:
            return json_text(value[0]) or ""
        return "\n\n".join(f"[{message['role']}]\n{json_text(message) or ''}" for message in value)
    if isinstance(value, (int, float)) or (
        isinstance(value, list) and all(isinstance(v, (int, float, str)) for v in value)
    ):
        return json.dumps(value, ensure_ascii=False)
    return json.dumps(value, ensure_ascii=False, indent=1)


def blocks_of(record: Record) -> list[TextBlock]:
    """The texts of a record as blocks."""
    return [TextBlock.of(key, name, text) for key, name, text in texts_of(record)]


def numbers_of(record: Record) -> dict[str, float | bool]:
    """The other numbers of a record, such as scores from a verifier."""
    numbers: dict[str, float | bool] = {}
    for key in record:
        if key not in ROLES and isinstance(value := value_of(record, key), (int, float)):
            numbers[visible(key)] = value
    rewards = value_of(record, "rewards")
    for key, value in rewards.items() if isinstance(rewards, dict) else ():
        if isinstance(value, (int, float)):
            numbers[visible(f"rewards.{key}")] = value
    return numbers


def piece(text: str, start: int) -> tuple[str, int]:
    """A piece of a long text from the character at ``start``, and the start of the next piece."""
    end = min(start + PIECE, len(text))
    return visible(text[start:end]), end


def whole_text(line: bytes, record: Record, key: str) -> str:
    """The complete text of a block; InputError if the record has no text with this key."""
    if key == "raw":
        return raw_text(line)
    for known, _, text in texts_of(record):
        if known == key:
            return text
    raise InputError(f"the record has no text {key!r}")


def raw_text(line: bytes) -> str:
    """The record as it is in the log, indented unless it is large."""
    try:
        shown = msgspec.json.format(line, indent=2) if len(line) <= PRETTY else line
    except BAD:
        shown = line
    return shown.decode("utf-8", "replace")


def raw_block(line: bytes) -> TextBlock:
    """The record as a block; of a large record, only the shown parts are decoded."""
    if len(line) <= PRETTY:
        return TextBlock.of("raw", "Raw record", raw_text(line))
    ends = (line[:END].decode("utf-8", "replace"), line[-END:].decode("utf-8", "replace"))
    return TextBlock("raw", "Raw record", visible(ends[0]), visible(ends[1]), 1, len(line))


def steps_of(record: Record) -> list[dict[str, Any]]:
    """The steps of an agent's trajectory, or of a conversation: role, text and tool calls of each."""
    for key in (*STEP_KEYS, "completion"):
        if bytes(memoryview(record.get(key, b""))[:1]) not in (b"[", b"{"):  # do not decode texts, which may be long
            continue
        value = value_of(record, key)
        if isinstance(value, dict):
            value = next((value[inner] for inner in STEP_KEYS if isinstance(value.get(inner), list)), None)
        if isinstance(value, list) and len(value) > 1 and all(isinstance(step, dict) for step in value):
            return [_step(step) for step in value[:MOST_STEPS]]
    return []


def _step(step: Mapping[str, Any]) -> dict[str, Any]:
    role = next(
        (step[key] for key in ("role", "source", "name", "type", "kind") if isinstance(step.get(key), str)), "step"
    )
    text = json_text({"content": step.get("content", step.get("message", step.get("text", step.get("output"))))}) or ""
    calls = step.get("tool_calls") or step.get("calls") or []
    return {
        "who": visible(role[:80]),
        "text": visible(text[:STEP_TEXT]),
        "more": max(len(text) - STEP_TEXT, 0),
        "calls": [_call(call) for call in calls if isinstance(call, dict)][:20] if isinstance(calls, list) else [],
    }


def _call(call: Mapping[str, Any]) -> dict[str, str]:
    function = call.get("function")
    inner = function if isinstance(function, dict) else call
    arguments = next((inner[key] for key in ("arguments", "args", "input", "parameters") if key in inner), "")
    text = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
    name = next((str(inner[key]) for key in ("name", "function_name", "tool", "function") if inner.get(key)), "tool")
    return {"name": visible(name[:80]), "arguments": visible(text[:STEP_TEXT])}
