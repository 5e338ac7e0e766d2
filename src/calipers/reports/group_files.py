"""Export files for other systems: one or more per group of a result, with the group's rollouts as records.

File names are safe, and the files are written all together or not at all.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from types import TracebackType
from typing import Any, Final

from calipers.errors import InputError
from calipers.formats.convert import decoded, records_of
from calipers.reports.result import Group, finite
from calipers.rollouts.ledger import contribution
from calipers.rollouts.record import GROUP
from calipers.rollouts.table import Labels, Part

LONGEST: Final = 80  # characters of a name
BUFFER: Final = 1 << 20  # bytes kept in memory before they are written
UNNAMED: Final = "unnamed"
_UNSAFE: Final = re.compile(r"[^A-Za-z0-9._-]+")


def safe_name(text: str | None) -> str:
    """A name for a file or a folder that is safe on any system; if the text had to be changed, a hash is appended.

    >>> safe_name("tiny-1"), safe_name("../etc"), safe_name(None), safe_name(".")
    ('tiny-1', 'etc-f7f9121f', 'unnamed', 'unnamed-cdb4ee2a')
    """
    if not text:
        return UNNAMED
    name = _UNSAFE.sub("_", text).strip("._-")[:LONGEST].rstrip("._-")
    return name if name == text else f"{name or UNNAMED}-{_short_hash(text)}"


def _short_hash(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:8]


class OutFile:
    """A file that is being written; it is open only during a write, so that many groups need few file handles."""

    def __init__(self, part: str, path: str) -> None:
        self._part, self._path = part, path
        self._digest = hashlib.sha256()
        self._buffer = bytearray()
        with _input_errors(path), open(part, "xb"):
            pass

    def write(self, data: bytes) -> None:
        """Append data."""
        self._digest.update(data)
        self._buffer += data
        if len(self._buffer) >= BUFFER:
            self._flush()

    def _flush(self) -> None:
        with _input_errors(self._path), open(self._part, "ab") as file:
            file.write(self._buffer)
            file.flush()
            os.fsync(file.fileno())
        self._buffer.clear()

    def close(self) -> str:
        """Write the rest of the data; return the SHA-256 of the file."""
        self._flush()
        return self._digest.hexdigest()


class GroupFiles:
    """Files below a folder that appear together once all are written; ``force`` replaces existing files."""

    def __init__(self, folder: str, *, force: bool) -> None:
        self.folder = folder
        self._force = force
        self._names: list[str] = []
        self._is_new = not os.path.isdir(folder)
        self._temporary = os.path.join(folder, f".calipers-{os.urandom(4).hex()}.part")

    def __enter__(self) -> GroupFiles:
        with _input_errors(self.folder):
            if self._is_new:
                os.mkdir(self.folder)
            os.mkdir(self._temporary)
        return self

    def name_of(self, parts: Sequence[str | None], end: str, unnamed: str = UNNAMED) -> str:
        """The name of a group's file: ``dataset_model.eval``; with a hash if another group has that name.

        For example, ``a_b`` and ``c`` give the same name as ``a`` and ``b_c``.
        """
        name = "_".join(safe_name(part) for part in parts if part) or unnamed
        return f"{name}-{_short_hash(json.dumps(parts))}{end}" if name + end in self._names else name + end

    def open(self, name: str) -> OutFile:
        """Open a file by its path below the folder; InputError if it exists and may not be replaced."""
        path = os.path.normpath(os.path.join(self.folder, name))
        if name in self._names:
            raise RuntimeError(f"two groups have the file {name}")
        if os.path.lexists(path) and not self._force:
            raise InputError.at(path, "already exists", "--force replaces it")
        if os.path.isdir(path):
            raise InputError.at(path, "is a directory", "expected a file, or nothing")
        self._names.append(name)
        return OutFile(os.path.join(self._temporary, str(len(self._names) - 1)), path)

    def write(self, name: str, content: bytes) -> None:
        """Write a file whose whole content is at hand."""
        file = self.open(name)
        file.write(content)
        file.close()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            if error is None:
                for number, name in enumerate(self._names):
                    path = os.path.join(self.folder, name)
                    with _input_errors(path):
                        os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
                        os.replace(os.path.join(self._temporary, str(number)), path)
        finally:
            shutil.rmtree(self._temporary, ignore_errors=True)
            if error is not None and self._is_new:
                with suppress(OSError):
                    os.rmdir(self.folder)


@contextmanager
def _input_errors(path: str) -> Iterator[None]:
    """Turn an OSError into an InputError."""
    try:
        yield
    except OSError as error:
        raise InputError.at(path, f"cannot be written ({error.strerror})") from None


Record = dict[str, Any]
Key = tuple[str | None, ...]  # agent, model, dataset


class GroupRecords:
    """The last attempt at each rollout as a record; the files are read a second time for their texts."""

    def __init__(self, paths: Sequence[str], columns: Mapping[str, str]) -> None:
        self.paths, self._columns = paths, columns
        self.parts: list[Part] = []  # in the order in which they were read

    def each(self) -> Iterator[tuple[Key, Record]]:
        """Every rollout with the key of its group, in the order of the files."""
        last = self._last_attempts()
        for record in records_of(self.paths, self._columns, self.parts):
            key = tuple(record.get(name) for name in GROUP)
            rollout = (*key, record["task"], record["sample"])
            if record.get("attempt", 1) == last.get(rollout, record.get("attempt", 1)):
                yield key, decoded(record)

    def _last_attempts(self) -> dict[tuple[Any, ...], int]:
        """The number of the last attempt at each rollout; empty if every rollout has one attempt."""
        if all(int(part.attempt.max(initial=1)) == 1 for part in self.parts):
            return {}
        last: dict[tuple[Any, ...], int] = {}
        for part in self.parts:
            labels = [part.labels.get(name) for name in GROUP]
            groups = [values_of(column, len(part)) for column in labels]
            tasks = [part.tasks[code] for code in part.task.tolist()]
            for *rollout, attempt in zip(*groups, tasks, part.sample.tolist(), part.attempt.tolist(), strict=True):
                last[tuple(rollout)] = max(attempt, last.get(tuple(rollout), 0))
        return last


def key_of(group: Group) -> Key:
    """The key of a group's rollouts."""
    return group.agent, group.model, group.dataset


def values_of(labels: Labels | None, rows: int) -> list[Any]:
    """The value of each row, or None for a row without a value."""
    if labels is None:
        return [None] * rows
    values = [*labels.values, None]
    return [values[code] for code in labels.code.tolist()]


def rewards_of(record: Record) -> dict[str, float]:
    """The rewards of a record by name."""
    rewards = {key: value for key, value in (record.get("rewards") or {}).items() if value is not None}
    return {**({} if record.get("reward") is None else {"reward": record["reward"]}), **rewards}


def usage_of(record: Record) -> dict[str, float]:
    """The usage of a record; a number that is not finite is no count, no price and no time."""
    usage = record.get("usage") or {}
    return {name: number for name, number in usage.items() if finite(number) is not None}


def numbers_of(record: Record, names: Sequence[str]) -> dict[str, float]:
    """The number that a rollout contributes to the metrics of each of these rewards; no entry for a missing reward."""
    rewards = rewards_of(record)
    known = {name: contribution(record.get("outcome"), rewards.get(name)) for name in names}
    return {name: number for name, number in known.items() if number is not None}
