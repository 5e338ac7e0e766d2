"""The log of a run: a background thread writes and syncs the lines in batches.

::

    append, append, append ──► buffer ──► one write, one sync ──► on disk
                               └── meanwhile, and for a short pause, the next lines go into the buffer

Callers do not wait for the disk unless it falls behind. An idle log writes a line at once; under load, a batch has the
lines that were appended during the batch before it and a short pause.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from time import monotonic
from typing import Any

import msgspec

from calipers.errors import LogError
from calipers.formats.run_folder import whole

PAUSE = 0.05  # seconds between two batches, as each of them delays the event loop; a waiting caller ends the pause
MOST_LINES, MOST_BYTES = 4096, 4 << 20  # maximum appended and not yet on disk; beyond either, `append` waits

Scrub = Callable[[bytes], bytes]
"""A function that removes secrets from bytes before they are written."""


class Log:
    """An append-only file of lines. One event loop appends them; one thread writes them."""

    def __init__(self, path: Path, scrub: Scrub, mode: int = 0o644) -> None:
        self.path = path
        self.written = 0  # number of appended lines that are on disk
        self._scrub = scrub
        try:
            self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, mode)
            sync_directory(path.parent)
        except OSError as error:
            raise LogError.of(path, error) from None
        self._absolute = path.absolute()  # the same file, also if user code changes the working directory
        self._size = os.fstat(self._file).st_size  # the offset of the next line
        self._lock = threading.Lock()  # protects all fields below
        self._changed = threading.Condition(self._lock)
        self._lines: list[bytes] = []  # the buffer
        self._appended = self._settled = 0  # number of appended lines, and of those that were written or have failed
        self._bytes = 0  # size of the lines that are appended and not settled
        self._idle = self._closing = False
        self._error: Exception | None = None
        self._waiting: list[asyncio.Future[None]] = []  # set at the end of the batch that is being written
        self._thread = threading.Thread(target=self._work, name="log", daemon=True)
        self._thread.start()

    async def append(self, line: bytes) -> None:
        """Append a line, given without its newline; waits only while the disk is far behind.

        LogError after a failed write, after which no line is written any more.
        """
        if self.behind:
            await self._until(lambda: not self.behind)
        self.put(line)

    def put(self, line: bytes) -> None:
        """Append a line without waiting, however far the disk is behind."""
        with self._lock:
            if self._error is not None or self._closing:
                raise self._refusal()
            self._lines.append(line)
            self._appended += 1
            self._bytes += len(line)
            if self._idle:
                self._idle = False
                self._changed.notify()

    async def flush(self) -> None:
        """Wait until every appended line is on disk; LogError if that fails."""
        appended = self._appended
        await self._until(lambda: self._settled >= appended)

    async def close(self) -> None:
        """Flush and close the file; LogError if a line could not be written."""
        try:
            with suppress(LogError):
                await self.flush()
        finally:
            self.shut()

    def shut(self) -> None:
        """`close` for synchronous code: it blocks until everything is on disk."""
        with self._lock:
            if self._closing:
                return
            self._closing = True
            self._changed.notify()
        self._thread.join()
        os.close(self._file)
        if self._error is not None:
            raise self._refusal()

    @property
    def behind(self) -> bool:
        """Whether so many lines wait for the disk that callers should wait, too."""
        return self._appended - self._settled >= MOST_LINES or self._bytes >= MOST_BYTES

    async def _until(self, reached: Callable[[], bool]) -> None:
        while True:
            with self._lock:
                if self._error is not None:
                    raise self._refusal()
                if reached():
                    return
                batch_end: asyncio.Future[None] = asyncio.get_running_loop().create_future()
                self._waiting.append(batch_end)
                self._changed.notify()
            await batch_end

    def _refusal(self) -> Exception:
        if isinstance(self._error, OSError):
            return LogError.of(self.path, self._error)
        return self._error or ValueError(f"{self.path} is closed")

    def _work(self) -> None:
        """The thread's loop: take the lines in the buffer, write them, wake the waiting callers."""
        next_batch = 0.0  # the time at which the next batch may begin
        while True:
            with self._lock:
                while not (self._lines or self._closing):
                    self._idle = True
                    self._changed.wait()
                while (pause := next_batch - monotonic()) > 0 and not (self._waiting or self._closing):
                    self._changed.wait(pause)
                lines, self._lines = self._lines, []
            if not lines:
                return
            written, error = self._commit(lines)
            with self._lock:
                self.written += written
                self._settled += len(lines)
                self._bytes -= sum(map(len, lines))
                self._error = error
                waiting, self._waiting = self._waiting, []
            _wake(waiting)
            next_batch = monotonic() + PAUSE
            if error is not None:
                return

    def _commit(self, lines: list[bytes]) -> tuple[int, Exception | None]:
        """Write and sync lines; returns how many of them are on disk now, and the error if not all are."""
        try:
            batch = memoryview(self._encoded(lines))
        except Exception as error:  # if the thread ended here, callers would wait forever
            return 0, error
        written_bytes = 0
        try:
            if not is_at(self._file, self._absolute):  # the lines would be lost
                problem = "was removed, moved or replaced while it was written; put it back, or begin again"
                return 0, LogError(f"{self.path}: {problem}")
            while written_bytes < len(batch):
                written_bytes += os.write(self._file, batch[written_bytes:])
        except OSError as error:
            return self._retreat(batch[:written_bytes].tobytes()), error
        try:
            os.fsync(self._file)
        except OSError as error:  # a second sync would succeed, even if these lines are lost
            return 0, error
        self._size += written_bytes
        return len(lines), None

    def _retreat(self, begun: bytes) -> int:
        """After a failed write, remove the incomplete last line; returns how many lines of the batch are on disk."""
        with suppress(OSError):
            os.ftruncate(self._file, self._size + begun.rfind(b"\n") + 1)
            os.fsync(self._file)
            return begun.count(b"\n")
        return 0  # it is unknown what is on disk; the next start checks the log

    def _encoded(self, lines: list[bytes]) -> bytes:
        batch = b"\n".join(lines) + b"\n"
        if self._scrub(batch) == batch:  # nearly always; this is one search for all lines
            return batch
        return b"\n".join([scrubbed(line, self._scrub) for line in lines]) + b"\n"


def mode_in(folder: Path) -> int:
    """The mode of a new file in a folder: the folder's, so that moving the file does not make it more accessible."""
    return os.stat(folder).st_mode & 0o666


def is_at(file: int, path: Path) -> bool:
    """Whether an open file is still the file at a path, and was neither removed nor replaced."""
    try:
        return os.path.samestat(os.fstat(file), path.stat())
    except FileNotFoundError:
        return False


def sync_directory(path: Path) -> None:
    """Sync a directory, without which a new file in it may be lost in a power failure."""
    directory = os.open(path, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def scrubbed(data: bytes, scrub: Scrub) -> bytes:
    """The data without secrets; in JSON, only texts are changed.

    A secret such as ``123456`` may also occur in a number, and one such as ``reward`` is a key of every record. These
    are not the secret, and replacing them would make the data unreadable.
    """
    if scrub(data) == data:
        return data
    try:
        value = msgspec.json.decode(data)
    except (msgspec.DecodeError, RecursionError):
        return scrub(data)
    if not isinstance(value, dict):
        return msgspec.json.encode(_without(value, scrub))
    ours = {"outcome", "schema"}  # their values are Calipers' own words, and never a secret
    return msgspec.json.encode({name: part if name in ours else _without(part, scrub) for name, part in value.items()})


def _without(value: Any, scrub: Scrub) -> Any:
    if isinstance(value, str):
        return scrub(value.encode()).decode()
    if isinstance(value, list):
        return [_without(part, scrub) for part in value]
    if isinstance(value, dict):
        return {_without(name, scrub): _without(part, scrub) for name, part in value.items()}
    return value


def _wake(waiting: list[asyncio.Future[None]]) -> None:
    """Wake all waiting callers, with one call for each event loop; a closed loop has no callers any more."""
    loops = {future.get_loop() for future in waiting}
    for loop in loops:
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(_settle, [future for future in waiting if future.get_loop() is loop])


def _settle(waiting: list[asyncio.Future[None]]) -> None:
    for future in waiting:
        if not future.done():  # it may be cancelled
            future.set_result(None)


def put(path: Path, pieces: Iterable[bytes | memoryview], mode: int = 0o666) -> None:
    """Write a file atomically; LogError if that fails."""
    new = path.with_name(f".{path.name}.new")
    try:
        with open(new, "wb", opener=lambda name, flags: os.open(name, flags, mode)) as file:
            file.writelines(pieces)
            file.flush()
            os.fsync(file.fileno())
        os.replace(new, path)
        sync_directory(path.parent)
    except OSError as error:
        with suppress(OSError):
            new.unlink(missing_ok=True)
        raise LogError.of(path, error) from None


def repaired(log: Path) -> bool:
    """Remove an incomplete last line that a crash left; returns whether there was one."""
    try:
        end = whole(str(log))
        if end == log.stat().st_size:
            return False
        with open(log, "r+b") as file:
            file.truncate(end)
            os.fsync(file.fileno())
    except OSError as error:
        raise LogError.of(log, error) from None
    return True
