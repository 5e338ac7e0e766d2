"""One rollout of a log, by its place: the record, cut into what a screen shows."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import IO, Any, Final

import msgspec

from calipers.analyses.compare.source import spoken
from calipers.errors import InputError
from calipers.formats.carried import CARRIED
from calipers.formats.format import BAD, TARGET
from calipers.rollouts.record import ROLES
from calipers.web.markup import one_line, visible
from calipers.web.viewer.index import LogIndex

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
