"""``replay/FILE``: a model that returns the completions of an earlier run, from its rollouts.jsonl."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, BinaryIO

import msgspec

from calipers.clients import Completion, Connection, Ending, Request
from calipers.errors import ClientError, InputError
from calipers.rollouts.record import USAGE, Outcome, completion_text, fault
from calipers.tasks import Prompt
from calipers.typed import complete


class _StoredRollout(msgspec.Struct):
    task: str | int
    sample: Annotated[int, msgspec.Meta(ge=0)] = 0
    attempt: Annotated[int, msgspec.Meta(ge=1)] = 1
    prompt: str | list[Any] | dict[str, Any] | None = None
    completion: str | list[Any] | dict[str, Any] | None = None
    outcome: Outcome | None = None
    finish_reason: Any = None
    usage: dict[str, float | bool | None] | None = None
    reasoning: Any = None


_decode = msgspec.json.Decoder(complete(_StoredRollout)).decode
_canonical = msgspec.json.Encoder(order="deterministic").encode


def connect(name: str, connection: Connection) -> Replay:
    """The client of a file; the file is read once to index its records."""
    path = Path(name)
    try:
        with path.open("rb") as file:
            return Replay(path, file)
    except IsADirectoryError as error:
        raise InputError.at(name, "is a directory", f"expected a file, such as {path / 'rollouts.jsonl'}") from error
    except OSError as error:
        raise InputError.at(name, error.strerror or "cannot be read", "expected a file of rollouts") from error


class Replay:
    """A model with stored completions, found by (task, sample), else by prompt and sample; the last attempt is used.

    The completions stay on disk; only the position of each record is in memory. All records must be of one model: if
    the same (task, sample, attempt) appears twice, an error names both lines.
    """

    def __init__(self, path: Path, file: BinaryIO) -> None:
        self._path = path
        self._file: BinaryIO | None = None  # open from the first call on
        self._by_task: dict[tuple[str, int], tuple[int, int]] = {}  # -> (attempt, offset of the record in bytes)
        self._by_prompt: dict[tuple[bytes, int], tuple[str, int]] = {}  # -> key of the first task with this prompt
        offset = 0
        for number, line in enumerate(file, 1):
            if not line.isspace():
                self._index(line, number, offset, file)
            offset += len(line)

    async def complete(self, request: Request) -> Completion:
        """The stored completion; `ClientError` of the kind ``absent`` if there is none."""
        key = request.task, request.sample
        if key not in self._by_task:
            prompts = ((_digest(prompt), request.sample) for prompt in (request.prompt, request.messages))
            key = next((self._by_prompt[prompt] for prompt in prompts if prompt in self._by_prompt), key)
        if key not in self._by_task:
            missing = f"no rollout with task {request.task!r}, sample {request.sample}, and none with the same prompt"
            raise ClientError(f"{self._path}: {missing}", kind="absent")
        record = self._read(self._by_task[key][1])
        text = completion_text(record.completion, record.outcome)
        if text is None:
            missing = f"task {key[0]!r}, sample {key[1]} has no completion (outcome {record.outcome or 'missing'})"
            raise ClientError(f"{self._path}: {missing}", kind="absent")
        finish = record.finish_reason if isinstance(record.finish_reason, str) else None
        reasoning = record.reasoning if isinstance(record.reasoning, str) else None
        return Completion(text, finish, _ending(record.outcome), _usage(record.usage), reasoning=reasoning)

    async def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()

    def _index(self, line: bytes, number: int, offset: int, file: BinaryIO) -> None:
        try:
            record = _decode(line)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise self._wrong(line, number) from error
        key = str(record.task), record.sample
        earlier = self._by_task.get(key)
        if earlier and earlier[0] == record.attempt:
            line_number = _line(file, earlier[1])
            problem = f"task {key[0]!r}, sample {key[1]}, attempt {record.attempt} also appears in line {line_number}"
            raise InputError.at(f"{self._path}:{number}", problem, "expected each rollout of one model once")
        if not earlier or earlier[0] < record.attempt:
            self._by_task[key] = record.attempt, offset
        if record.prompt is not None:
            self._by_prompt.setdefault((_digest(record.prompt), record.sample), key)

    def _read(self, offset: int) -> _StoredRollout:
        try:
            if self._file is None:
                self._file = self._path.open("rb")
            self._file.seek(offset)
            return _decode(self._file.readline())
        except (OSError, msgspec.MsgspecError, UnicodeDecodeError) as error:
            changed = f"{self._path}: the file changed during the replay"
            raise ClientError(changed, kind="absent", hopeless=True) from error

    def _wrong(self, line: bytes, number: int) -> InputError:
        problem, expected = "the line is not JSON", "expected one rollout per line"
        with suppress(msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            problem, expected = fault(msgspec.json.decode(line), {}) or ("the rollout cannot be read", "")
        if problem.startswith("no key"):  # its advice, to name a key, applies only to a file that is scored
            expected = "expected one rollout per line, as in a run's rollouts.jsonl"
        return InputError.at(f"{self._path}:{number}", problem, expected)


def _line(file: BinaryIO, offset: int) -> int:
    """The number of the line that begins at a byte offset."""
    file.seek(0)
    number = 1
    while block := file.read(min(offset, 2**20)):
        number += block.count(b"\n")
        offset -= len(block)
    return number


def _digest(prompt: Prompt | Mapping[str, Any]) -> bytes:
    """The digest of a prompt, 16 bytes; it does not depend on the order of a message's keys."""
    try:
        text = _canonical(prompt)
    except (TypeError, ValueError):  # a lone surrogate, or a value that JSON lacks, which no file can have
        return b""
    return hashlib.blake2b(text, digest_size=16).digest()


def _ending(outcome: str | None) -> Ending:
    if outcome == "refused":
        return "refused"
    return "truncated" if outcome == "truncated" else ""


def _usage(counts: Mapping[str, float | bool | None] | None) -> dict[str, float]:
    return {name: value for name in USAGE if (value := (counts or {}).get(name)) is not None}
