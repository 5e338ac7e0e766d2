"""The log of a run: a background thread writes and syncs the lines in batches.

::

    append, append, append ──► gathered ──► one write, one sync ──► on disk
                               └── the next lines gather meanwhile, and for a moment longer

Nobody waits for the disk unless it falls behind. An idle log writes a line as soon as it comes; under
load a batch is what came during the batch before it and a short pause.
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

PAUSE = 0.05  # seconds between two batches, as each takes the event loop's turn away; whoever waits ends it
MOST_LINES, MOST_BYTES = 4096, 4 << 20  # handed over and not on disk yet; beyond either, `append` waits

Scrub = Callable[[bytes], bytes]
"""A function that removes secrets from bytes before they are written."""


class Log:
    """An append-only file of lines. One event loop appends them; one thread writes them."""

    def __init__(self, path: Path, scrub: Scrub, mode: int = 0o644) -> None:
        self.path = path
        self.written = 0  # lines on disk, of those handed over
        self._scrub = scrub
        try:
            self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, mode)
            sync_directory(path.parent)
        except OSError as error:
            raise LogError.of(path, error) from None
        self._size = os.fstat(self._file).st_size  # where the next line starts
        self._lock = threading.Lock()  # of all that follows
        self._changed = threading.Condition(self._lock)
        self._lines: list[bytes] = []  # gathered
        self._handed = self._settled = 0  # lines handed over; lines the thread is done with
        self._bytes = 0  # of lines handed over and not settled
        self._idle = self._closing = False
        self._error: Exception | None = None
        self._waiting: list[asyncio.Future[None]] = []  # for the end of the batch being written
        self._thread = threading.Thread(target=self._work, name="log", daemon=True)
        self._thread.start()

    async def append(self, line: bytes) -> None:
        """Append a line, without its newline; waits only while the disk is far behind.

        LogError after a failed write; no later line is written, either.
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
            self._handed += 1
            self._bytes += len(line)
            if self._idle:
                self._idle = False
                self._changed.notify()

    async def flush(self) -> None:
        """Wait until every appended line is on disk; LogError if that fails."""
        handed = self._handed
        await self._until(lambda: self._settled >= handed)

    async def close(self) -> None:
        """Flush and close the file; LogError when a line could not be written."""
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
        return self._handed - self._settled >= MOST_LINES or self._bytes >= MOST_BYTES

    async def _until(self, reached: Callable[[], bool]) -> None:
        while True:
            with self._lock:
                if self._error is not None:
                    raise self._refusal()
                if reached():
                    return
                landed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
                self._waiting.append(landed)
                self._changed.notify()
            await landed

    def _refusal(self) -> Exception:
        if isinstance(self._error, OSError):
            return LogError.of(self.path, self._error)
        return self._error or ValueError(f"{self.path} is closed")

    def _work(self) -> None:
        """The thread's loop: take the gathered lines, write them, wake the waiting callers."""
        rested = 0.0  # when the next batch may begin
        while True:
            with self._lock:
                while not (self._lines or self._closing):
                    self._idle = True
                    self._changed.wait()
                while (pause := rested - monotonic()) > 0 and not (self._waiting or self._closing):
                    self._changed.wait(pause)
                lines, self._lines = self._lines, []
            if not lines:
                return
            kept, error = self._commit(lines)
            with self._lock:
                self.written += kept
                self._settled += len(lines)
                self._bytes -= sum(map(len, lines))
                self._error = error
                waiting, self._waiting = self._waiting, []
            _wake(waiting)
            rested = monotonic() + PAUSE
            if error is not None:
                return

    def _commit(self, lines: list[bytes]) -> tuple[int, Exception | None]:
        """Write and sync some lines: how many of them are on disk now, and why not all of them are."""
        try:
            batch = memoryview(self._ready(lines))
        except Exception as error:  # a thread that dies in silence would leave others waiting for ever
            return 0, error
        done = 0
        try:
            if not os.fstat(self._file).st_nlink and not self.path.exists():  # what is written now goes with it
                return 0, LogError(f"{self.path}: was removed while it was written; put it back, or begin again")
            while done < len(batch):
                done += os.write(self._file, batch[done:])
        except OSError as error:
            return self._retreat(batch[:done].tobytes()), error
        try:
            os.fsync(self._file)
        except OSError as error:  # asked again it would say yes, whatever became of these lines
            return 0, error
        self._size += done
        return len(lines), None

    def _retreat(self, begun: bytes) -> int:
        """After a failed write: cut off the line that was begun; how many whole ones before it are on disk."""
        with suppress(OSError):
            os.ftruncate(self._file, self._size + begun.rfind(b"\n") + 1)
            os.fsync(self._file)
            return begun.count(b"\n")
        return 0  # nobody can say what is on disk; whoever opens the log next looks

    def _ready(self, lines: list[bytes]) -> bytes:
        batch = b"\n".join(lines) + b"\n"
        if self._scrub(batch) == batch:  # nearly always: one search for all the lines
            return batch
        return b"\n".join([scrubbed(line, self._scrub) for line in lines]) + b"\n"


def mode_in(folder: Path) -> int:
    """The mode of a new file: whoever may not look into its folder may not read it, wherever it is moved to."""
    return os.stat(folder).st_mode & 0o666


def sync_directory(path: Path) -> None:
    """Have a directory's names on disk: without it a power failure may leave bytes that no name leads to."""
    directory = os.open(path, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def scrubbed(data: bytes, scrub: Scrub) -> bytes:
    """The data without secrets; JSON stays the same JSON, but for its texts.

    A key such as ``123456`` may stand inside a number, one such as ``reward`` among the names of a
    record: neither is the secret, and without them the data could not be read any more.
    """
    if scrub(data) == data:
        return data
    try:
        value = msgspec.json.decode(data)
    except (msgspec.DecodeError, RecursionError):
        return scrub(data)
    if not isinstance(value, dict):
        return msgspec.json.encode(_without(value, scrub))
    ours = {"outcome", "schema"}  # words of ours, whatever the key
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
    """Wake those who wait, together; a loop that is gone has nobody left to wake."""
    loops = {landed.get_loop() for landed in waiting}
    for loop in loops:
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(_settle, [landed for landed in waiting if landed.get_loop() is loop])


def _settle(waiting: list[asyncio.Future[None]]) -> None:
    for landed in waiting:
        if not landed.done():  # or cancelled
            landed.set_result(None)


def put(path: Path, pieces: Iterable[bytes | memoryview], mode: int = 0o666) -> None:
    """Write a file atomically; LogError when that fails."""
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
