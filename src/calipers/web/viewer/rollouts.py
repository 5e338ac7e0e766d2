"""The rollouts of a log as pages show them: which ones a list has, in which order, and what a record says.

A list comes from filters over the columns of an index and a search in its log; a record is read at its place in it.
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

from calipers.analyses.compare.source import spoken
from calipers.errors import InputError
from calipers.formats import BAD, TARGET
from calipers.formats.carried import CARRIED
from calipers.metrics import PASS_THRESHOLD, passed
from calipers.rollouts.column import Bools, Column
from calipers.rollouts.record import CODE, OUTCOMES, ROLES
from calipers.web.gather import STATE_CODE, STATES, States, is_outright, states_of
from calipers.web.markup import one_line, visible
from calipers.web.viewer.index import LogIndex

Rows = NDArray[np.int32]
MOST_FOUND: Final = 20_000  # rollouts that a search finds
LONGEST_SEARCH: Final = 20.0  # seconds
BLOCK: Final = 4 << 20  # bytes that are searched at once: others wait for a few milliseconds only
SORTS: Final = ("order", "task", "reward", "-reward", "tokens", "-tokens", "seconds", "-seconds")
LONG_LINES, LONG = 200, 20_000  # lines and characters beyond which a block is cut
END_LINES, END = 40, 8_000  # of its beginning and its end that are shown
PIECE: Final = 200_000  # characters that are shown at once of what was cut
PREVIEWED: Final = 1 << 18  # bytes of a record up to which its text is shown in the list
PREVIEW: Final = 160  # characters of it
PRETTY: Final = 1 << 18  # bytes of a record up to which it is indented
MOST_STEPS: Final = 2_000  # of a trajectory
STEP_TEXT: Final = 4_000  # characters of one of its steps
STEP_KEYS: Final = ("trajectory", "steps", "messages", "conversation", "turns")
_ROW: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])

Record = Mapping[str, msgspec.Raw]


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
    states: States  # [R of the whole index] codes of gather.STATES
    numbers: Column  # [R of the whole index]
    outcomes: NDArray[np.uint8]  # [R of the whole index] codes of record.OUTCOMES
    outright: bool  # every number is 0 or 1


def group_rows(index: LogIndex, group: int) -> GroupRows:
    """The rows of a group, and how each looks, as the report shows it."""
    chosen = index.current()
    if len(index.groups) > 1:
        chosen = chosen & (index.columns["group"] == group)
    numbers = index.contributions()
    outright = is_outright(numbers.values[numbers.given & chosen])
    outcomes = index.outcomes()
    states = states_of(numbers, outcomes, outright)
    return GroupRows(np.flatnonzero(chosen).astype(np.int32), states, numbers, outcomes, outright)


def checked(query: Query, index: LogIndex) -> None:
    """InputError for a value of a query that there is not."""
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


def tokens(index: LogIndex, rows: Sequence[int] | slice = slice(None)) -> Column:
    """The tokens of some rows, in and out."""
    columns = [index.number("usage", name) for name in ("input_tokens", "output_tokens")]
    first, second = (np.where(column.given[rows], column.values[rows], 0.0) for column in columns)
    return Column(first + second, columns[0].given[rows] | columns[1].given[rows])


def flipped(index: LogIndex, own: GroupRows, other: LogIndex, others: GroupRows) -> tuple[Bools, Bools]:
    """The rows that pass here and not there, and the other way round, [R] each; pairs by task and sample."""
    better, worse = np.zeros(len(index), dtype=bool), np.zeros(len(index), dtype=bool)
    if not len(others.rows):
        return better, worse
    mine, theirs = (_keys(each, rows.rows) for each, rows in ((index, own), (other, others)))
    order = np.argsort(theirs)
    place = np.minimum(np.searchsorted(theirs[order], mine), len(order) - 1)
    there = theirs[order][place] == mine
    passes = passed(own.numbers, PASS_THRESHOLD)[own.rows]
    passed_there = passed(others.numbers, PASS_THRESHOLD)[others.rows[order[place]]]
    better[own.rows] = there & passes & ~passed_there
    worse[own.rows] = there & ~passes & passed_there
    return better, worse


def _keys(index: LogIndex, rows: Rows) -> NDArray[np.uint64]:
    """A number for each row's task and sample, the same in every index."""
    task = index.columns["hash"][index.columns["task"][rows]]
    sample = index.columns["sample"][rows].astype(np.uint64)
    keys: NDArray[np.uint64] = task ^ (sample * np.uint64(0x9E3779B97F4A7C15))
    return keys


def search(index: LogIndex, words: str, cancelled: threading.Event) -> tuple[Bools, bool]:
    """The rows whose record has these words anywhere, [R]; letters of ASCII match in either case.

    It stops after `MOST_FOUND` rollouts or `LONGEST_SEARCH` seconds. The second value is whether it saw the whole log.
    """
    rows = np.zeros(len(index), dtype=bool)
    needles = _needles(words)
    starts = index.columns["start"]
    until, count = monotonic() + LONGEST_SEARCH, 0
    for offset, block in _blocks(index, max(map(len, needles))):
        if cancelled.is_set() or monotonic() > until or count >= MOST_FOUND:
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


def open_log(path: str) -> IO[bytes]:
    """A log, opened to be read; InputError where it is gone, or has become a link."""
    try:
        return os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC), "rb", buffering=0)
    except OSError as error:
        raise InputError.at(path, f"cannot be read ({error.strerror})") from None


def lines_of(index: LogIndex, rows: Sequence[int]) -> list[bytes]:
    """The lines of some rows, as the log has them now."""
    starts, lengths = index.columns["start"], index.columns["length"]
    with open_log(index.path) as file:
        return [os.pread(file.fileno(), int(lengths[row]), int(starts[row])) for row in rows]


def record_of(index: LogIndex, row: int) -> tuple[bytes, Record]:
    """The line of a row, and its keys with values that are not decoded; InputError where the log has changed."""
    [line] = lines_of(index, [row])
    try:
        return line, _ROW.decode(line)
    except BAD:
        raise InputError.at(index.path, "has changed", "reload the page") from None


def preview(index: LogIndex, row: int, line: bytes | None) -> dict[str, str]:
    """One line of what a rollout says; of a large record, its size."""
    size = int(index.columns["length"][row])
    if line is None or size > PREVIEWED:
        return {"text": f"({megabytes(size)})"}
    try:
        record = _ROW.decode(line)
    except BAD:
        return {"text": ""}
    completion = spoken(value_of(record, "completion")) or spoken(value_of(record, "answer")) or ""
    said = {"text": one_line(completion, PREVIEW)}
    if error := error_text(value_of(record, "error")):
        said["error"] = one_line(error, PREVIEW)
    return said


def previews(index: LogIndex, rows: Sequence[int]) -> list[dict[str, str]]:
    """The previews of some rows; large records are not even read."""
    small = [row for row in rows if int(index.columns["length"][row]) <= PREVIEWED]
    line_of = dict(zip(small, lines_of(index, small), strict=True))
    return [preview(index, row, line_of.get(row)) for row in rows]


def value_of(record: Record, key: str) -> Any:
    """A value of a record; None where it has none."""
    raw = record.get(key)
    if raw is None:
        return None
    try:
        return msgspec.json.decode(raw)
    except BAD:
        return None


def error_text(value: Any) -> str:
    """What went wrong, in words."""
    if isinstance(value, dict):
        parts = [str(value[key]) for key in ("kind", "message") if value.get(key)]
        return ": ".join(parts) or json.dumps(value, ensure_ascii=False)
    return spoken(value) or ""


def megabytes(size: int) -> str:
    """``1.1 MB``, ``21 KB``, ``840 bytes``."""
    if size >= 1_000_000:
        return f"{size / 1e6:.1f} MB"
    return f"{size // 1000} KB" if size >= 1000 else f"{size} bytes"


@dataclass(frozen=True, slots=True)
class TextBlock:
    """A text of a rollout under a name; long ones are cut in the middle."""

    key: str  # by which the rest of it is requested
    name: str
    head: str
    tail: str = ""
    lines: int = 0  # of the whole text, where it is cut
    size: int = 0  # characters, likewise

    @classmethod
    def of(cls, key: str, name: str, text: str) -> TextBlock:
        """A text, cut where it is long."""
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
"""What the keys of a judge's or a verifier's words contain."""


def texts_of(record: Record) -> Iterator[tuple[str, str, str]]:
    """The texts of a record: key, name, text. First the known ones, then what a judge or a verifier said."""
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
        if key in ROLES or key in (TARGET, CARRIED, *STEP_KEYS):
            continue
        value = value_of(record, key)
        if isinstance(value, (str, list, dict)) and value:
            who = "Judge" if "judge" in key.lower() else "Verifier" if any(w in key.lower() for w in WORDS) else ""
            yield key, f"{who}: {key}" if who else key, conversation_text(value)


def conversation_text(value: Any) -> str:
    """A value as text: messages one after another, each with its role."""
    if value is None or isinstance(value, str):
        return value or ""
    if isinstance(value, list) and value and all(isinstance(each, dict) and "role" in each for each in value):
        if len(value) == 1:
            return spoken(value[0]) or ""
        return "\n\n".join(f"[{each['role']}]\n{spoken(each) or ''}" for each in value)
    if isinstance(value, (int, float)) or (
        isinstance(value, list) and all(isinstance(v, (int, float, str)) for v in value)
    ):
        return json.dumps(value, ensure_ascii=False)
    return json.dumps(value, ensure_ascii=False, indent=1)


def blocks_of(record: Record) -> list[TextBlock]:
    """The texts of a record as blocks."""
    return [TextBlock.of(key, name, text) for key, name, text in texts_of(record)]


def numbers_of(record: Record) -> dict[str, float | bool]:
    """The other numbers of a record, such as those that a verifier gave."""
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
    """A piece of a long text from a character on, and where the next begins; the length of the text at its end."""
    end = min(start + PIECE, len(text))
    return visible(text[start:end]), end


def whole_text(line: bytes, record: Record, key: str) -> str:
    """The whole text of a block; InputError where the record has none of that name."""
    if key == "raw":
        return raw_text(line)
    for known, _, text in texts_of(record):
        if known == key:
            return text
    raise InputError(f"the record has no text {key!r}")


def raw_text(line: bytes) -> str:
    """The record as it is in the log; indented where it is not large."""
    try:
        shown = msgspec.json.format(line, indent=2) if len(line) <= PRETTY else line
    except BAD:
        shown = line
    return shown.decode("utf-8", "replace")


def raw_block(line: bytes) -> TextBlock:
    """The record as a block; of a large one only what is shown is decoded."""
    if len(line) <= PRETTY:
        return TextBlock.of("raw", "Raw record", raw_text(line))
    ends = (line[:END].decode("utf-8", "replace"), line[-END:].decode("utf-8", "replace"))
    return TextBlock("raw", "Raw record", visible(ends[0]), visible(ends[1]), 1, len(line))


def steps_of(record: Record) -> list[dict[str, Any]]:
    """The steps of an agent's trajectory, or of a conversation: who, what, and which tools were called."""
    for key in (*STEP_KEYS, "completion"):
        if bytes(memoryview(record.get(key, b""))[:1]) not in (b"[", b"{"):  # a text may be long, and is no step
            continue
        value = value_of(record, key)
        if isinstance(value, dict):
            value = next((value[inner] for inner in STEP_KEYS if isinstance(value.get(inner), list)), None)
        if isinstance(value, list) and len(value) > 1 and all(isinstance(step, dict) for step in value):
            return [_step(step) for step in value[:MOST_STEPS]]
    return []


def _step(step: Mapping[str, Any]) -> dict[str, Any]:
    who = next(
        (step[key] for key in ("role", "source", "name", "type", "kind") if isinstance(step.get(key), str)), "step"
    )
    said = spoken({"content": step.get("content", step.get("message", step.get("text", step.get("output"))))}) or ""
    calls = step.get("tool_calls") or step.get("calls") or []
    return {
        "who": visible(who[:80]),
        "text": visible(said[:STEP_TEXT]),
        "more": max(len(said) - STEP_TEXT, 0),
        "calls": [_call(call) for call in calls if isinstance(call, dict)][:20] if isinstance(calls, list) else [],
    }


def _call(call: Mapping[str, Any]) -> dict[str, str]:
    function = call.get("function")
    inner = function if isinstance(function, dict) else call
    given = next((inner[key] for key in ("arguments", "args", "input", "parameters") if key in inner), "")
    text = given if isinstance(given, str) else json.dumps(given, ensure_ascii=False)
    name = next((str(inner[key]) for key in ("name", "function_name", "tool", "function") if inner.get(key)), "tool")
    return {"name": visible(name[:80]), "arguments": visible(text[:STEP_TEXT])}
