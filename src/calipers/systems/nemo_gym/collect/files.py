"""A collection on disk: NeMo Gym's four files beside each other, one process at a time; the plan only grows."""

from __future__ import annotations

import fcntl
import json
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

import msgspec

from calipers.errors import InputError, LogError
from calipers.formats.source import LONGEST_LINE, LongLine, line_blocks
from calipers.running.folder import differences, is_at
from calipers.running.log import Log, Scrub, put, repaired, scrubbed
from calipers.systems.nemo_gym import FAILURES, INPUTS, METRICS, ROLLOUT, TASK, beside
from calipers.systems.nemo_gym.collect.request import Key, Row, key_of
from calipers.systems.nemo_gym.wire import StoredRow

ANOTHER: Final = "choose another --output, or --overwrite it"


def grown(path: Path, plan: list[Row]) -> tuple[list[Row], list[Row], int]:
    """The plan asked for and all that was planned before; the plan before; how many rollouts only that one has."""
    inputs = beside(path, INPUTS)
    if path.is_dir():
        raise InputError.at(str(path), "is a directory", "expected a file, such as rollouts.jsonl")
    if not inputs.exists():
        if path.exists() and path.stat().st_size:
            wrong = f"contains rollouts, but there is no {inputs.name} with the plan"
            raise InputError.at(str(path), wrong, ANOTHER)
        return plan, [], 0
    before = list(_planned(inputs))
    wanted = {key_of(row): row for row in plan}
    gone = []
    for row in before:
        new = wanted.get(key_of(row))
        if new is None:
            gone.append(row)
        elif new != row and (difference := next(differences(row, new), None)):
            where = f"rollout {row[TASK]}:{row[ROLLOUT]}"
            raise InputError.at(str(path), f"contains a different collection: {where}: {difference}", ANOTHER)
    if not gone and [*map(key_of, before)] == [*map(key_of, plan)]:
        return before, before, 0
    return [*plan, *gone], before, len(gone)


def _planned(inputs: Path) -> Iterator[Row]:
    with reading(inputs), open(inputs, "rb") as file:
        for number, line in enumerate(file, 1):
            try:
                row = msgspec.json.decode(line)
                key_of(row)
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, TypeError, KeyError):
                wrong = "is not a planned rollout"
                raise InputError.at(f"{inputs}:{number}", wrong, f"fix the line, or {ANOTHER}") from None
            yield row


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Turn what the system says of a file into one sentence."""
    try:
        yield
    except OSError as error:
        raise InputError.at(str(path), f"cannot be read ({error.strerror})") from None


def on_disk(row: Row, scrub: Scrub) -> Row:
    """A row as it will stand on disk: what is compared must be what was written."""
    stored: Row = msgspec.json.decode(scrubbed(msgspec.json.encode(row), scrub))
    return stored


_ROWS = msgspec.json.Decoder(StoredRow)


class Files:
    """The files of a collection, held by this process until they are closed."""

    def __init__(self, path: Path, lock: int, scrub: Scrub, made: Sequence[Path]) -> None:
        self.path = path
        self.notes: list[str] = []
        self.plan: list[Row] = []
        self.done: set[Key] = set()
        self.failures: Counter[Key] = Counter()  # attempts in the sidecar
        self.terminal: set[Key] = set()  # those that nobody may try again
        self._lock, self._scrub, self._made = lock, scrub, made
        self._logs: dict[str, Log] = {}
        self._before: list[Path] = []  # files of an earlier collection, set aside until something came of this one

    @classmethod
    def open(cls, path: Path, plan: Sequence[Row], scrub: Scrub, *, overwrite: bool) -> Files:
        """Begin a collection, or go on with it: nobody else may, and what is planned already must be the same.

        What was planned before stays planned. InputError says what differs, before anything is written.
        """
        stored = [on_disk(row, scrub) for row in plan]
        if not overwrite:
            grown(path, stored)  # refuses before there is anything to take back
        lock, made = _locked(path)
        files = cls(path, lock, scrub, made)
        try:
            files._begin(stored, overwrite)
        except BaseException:
            files.close()
            raise
        return files

    @property
    def rollouts(self) -> Log:
        """The log of rollouts."""
        return self._logs[""]

    @property
    def sidecar(self) -> Log:
        """The log of failed attempts."""
        return self._logs[FAILURES]

    async def flush(self) -> None:
        """Wait until all that was handed over is on disk; LogError if that cannot be."""
        for log in self._logs.values():
            await log.flush()

    def write_metrics(self, chunks: Iterator[bytes | memoryview]) -> Path:
        """Write the metrics file, whole or not at all; LogError when it cannot be."""
        path = beside(self.path, METRICS)
        put(path, chunks)
        return path

    def drop_metrics(self) -> None:
        """Take away metrics that rollouts to come will make wrong; LogError when they cannot be."""
        path = beside(self.path, METRICS)
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            raise LogError.of(path, error) from None

    def close(self) -> None:
        """Finish the logs and let go of the files; LogError when a line could not be written."""
        try:
            for log in self._logs.values():
                log.shut()
        finally:
            self._settle()
            if self._lock >= 0:
                os.close(self._lock)
                self._lock = -1

    def abandon(self) -> None:
        """Take back what `open` made, if nothing came of it."""
        try:
            for log in self._logs.values():
                log.shut()
            if self.path in self._made:
                for word in ("", FAILURES, INPUTS):
                    (beside(self.path, word) if word else self.path).unlink(missing_ok=True)
                for folder in self._made[1:]:
                    with suppress(OSError):  # somebody else has put something there
                        folder.rmdir()
        finally:
            self.close()  # not before: another process may collect into it from then on

    def _begin(self, plan: list[Row], overwrite: bool) -> None:
        sidecar, inputs = beside(self.path, FAILURES), beside(self.path, INPUTS)
        if overwrite:
            self._set_aside([self.path, sidecar, inputs, beside(self.path, METRICS)])
        self.plan, before, kept = grown(self.path, plan)
        if kept:
            wider = f"{kept} rollouts that this command does not ask for were planned earlier and stay planned"
            self.notes.append(f"{inputs}: {wider}; choose another --output for a smaller collection")
        for path in (self.path, sidecar):
            if path.exists() and repaired(path):
                self.notes.append(f"{path}: the last line was truncated by a crash; its rollout runs again")
        self._read_past(sidecar)
        if self.plan != before:
            put(inputs, (msgspec.json.encode(row) + b"\n" for row in self.plan))
        self._logs = {"": Log(self.path, self._scrub), FAILURES: Log(sidecar, self._scrub)}

    def _set_aside(self, old: Sequence[Path]) -> None:
        """Move an earlier collection out of the way; its lock goes with it, so that this one gets its own."""
        fresh = self.path.with_name(f".{self.path.name}.{os.urandom(4).hex()}.part")
        lock = os.open(fresh, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o644)
        fcntl.flock(lock, fcntl.LOCK_EX)
        for path in old:
            if path.exists() and (path != self.path or path.stat().st_size):
                path.replace(_aside(path))
                self._before.append(path)
        fresh.replace(self.path)
        os.close(self._lock)
        self._lock = lock

    def _settle(self) -> None:
        """Give up what was set aside, or put it back where nothing came of this collection."""
        logs = [self.path, beside(self.path, FAILURES)]
        collected = any(path.exists() and path.stat().st_size for path in logs)
        for path in self._before:
            if collected:
                _aside(path).unlink(missing_ok=True)
            else:
                _aside(path).replace(path)
        if self._before and not collected:
            for path in (beside(self.path, word) for word in (FAILURES, INPUTS)):
                if path not in self._before:
                    path.unlink(missing_ok=True)
        self._before = []

    def _read_past(self, sidecar: Path) -> None:
        planned = {key_of(row) for row in self.plan}
        for path in (self.path, sidecar):
            for number, line in _lines(path) if path.exists() else ():
                key = line.task, line.rollout
                if key not in planned:
                    wrong = f"rollout {line.task}:{line.rollout} was never planned"
                    raise InputError.at(f"{path}:{number}", wrong, ANOTHER)
                if path == sidecar or line.failure is not None:
                    self.failures[key] += 1
                    if line.terminal:
                        self.terminal.add(key)
                elif key in self.done:
                    wrong = f"rollout {line.task}:{line.rollout} also appears in an earlier line"
                    raise InputError.at(f"{path}:{number}", wrong, "expected it once; remove one of the lines")
                else:
                    self.done.add(key)


def _aside(path: Path) -> Path:
    return path.with_name(f".{path.name}.before")


def _lines(path: Path) -> Iterator[tuple[int, StoredRow]]:
    """The rows of a file of whole lines, each with the number of its line."""
    number = 0
    try:
        with reading(path), open(path, "rb", buffering=0) as file:
            for block in line_blocks(file.readinto):
                for line in bytes(block).removesuffix(b"\n").split(b"\n"):
                    number += 1
                    if line.strip():
                        yield number, _line(path, number, line)
    except LongLine:
        raise InputError.at(str(path), f"a line is longer than {LONGEST_LINE >> 20} MiB", ANOTHER) from None


def _line(path: Path, number: int, line: bytes) -> StoredRow:
    try:
        return _ROWS.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        with suppress(ValueError, RecursionError, msgspec.ValidationError):
            return msgspec.convert(json.loads(line), StoredRow)  # NaN, which others may have written
        wrong = f"is not a rollout ({error})"
        raise InputError.at(f"{path}:{number}", wrong, "fix the line, or remove it to run its rollout again") from None


def _locked(path: Path) -> tuple[int, list[Path]]:
    """The file of rollouts, opened and locked, and what had to be made for it, the deepest first."""
    made = [folder for folder in (path, *path.parents) if not folder.exists()]
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        lock = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        raise InputError.at(str(path), f"cannot be written ({error.strerror})", "choose another --output") from None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if not is_at(lock, path):
            raise BlockingIOError
    except OSError:
        os.close(lock)
        wrong = "another process is collecting into it"
        raise InputError.at(str(path), wrong, "wait for it, or choose another --output") from None
    return lock, made
