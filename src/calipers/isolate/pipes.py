"""The pipes to a sandbox: all written and read at once, nothing kept beyond its cap, nobody waited for too long."""

from __future__ import annotations

import os
import selectors
import signal
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from threading import Event
from typing import IO, cast

from calipers.isolate.limits import Cause
from calipers.isolate.memory import children

CHUNK = 1 << 16
MEASURE_EVERY = 0.1  # seconds
LAST_WORDS = 5.0  # seconds for the kernel to clear away what was killed


@dataclass(slots=True)
class PipeOutput:
    """What came through a pipe, and whether there was more."""

    most: int
    data: bytearray = field(default_factory=bytearray)
    cut: bool = False


@dataclass(slots=True)
class PipeText:
    """What is still to go through a pipe; ``keep`` leaves it open after the last byte."""

    data: memoryview
    keep: bool


class Talk:
    """All pipes of one sandbox, served until its outer process is gone."""

    def __init__(self, outer: subprocess.Popen[bytes]) -> None:
        self._outer = outer
        self._pipes: list[tuple[IO[bytes], PipeOutput | PipeText]] = []

    def hear(self, pipe: IO[bytes] | None, most: int) -> PipeOutput:
        """Read a pipe to its end, and keep the first ``most`` bytes."""
        heard = PipeOutput(most)
        self._add(pipe, heard)
        return heard

    def say(self, pipe: IO[bytes] | None, data: bytes, *, keep: bool = False) -> None:
        """Write to a pipe, as fast as it is read."""
        self._add(pipe, PipeText(memoryview(data), keep))

    def until(self, deadline: float, too_much: Callable[[], bool], stop: Event | None = None) -> Cause:
        """Serve all pipes until the sandbox has ended; why it was killed from here, or ''.

        ``too_much`` says, each time it is asked, whether the sandbox holds more memory than it may.
        """
        cause: Cause = ""
        gone = os.pidfd_open(self._outer.pid)
        with selectors.DefaultSelector() as selector, os.fdopen(gone) as ended:
            selector.register(ended, selectors.EVENT_READ)
            for pipe, role in self._pipes:
                selector.register(pipe, _event(role), role)
            measure_at = time.monotonic() + MEASURE_EVERY
            over = False
            while True:
                wait = 0 if over else max(0.0, min(deadline, measure_at) - time.monotonic())
                ready = [key for key, _ in selector.select(wait) if key.fileobj is not ended]
                for key in ready:
                    self._serve(selector, key)
                if over and not any(isinstance(key.data, PipeOutput) for key in ready):
                    return cause
                over = over or self._outer.poll() is not None
                if over or (now := time.monotonic()) < measure_at:
                    continue
                measure_at = now + MEASURE_EVERY
                if stop is not None and stop.is_set():
                    cause = "caller"
                elif now >= deadline:
                    cause = "time"
                elif too_much():
                    cause = "memory"
                if cause:
                    end(self._outer)

    def _add(self, pipe: IO[bytes] | None, role: PipeOutput | PipeText) -> None:
        if pipe is None:
            raise ValueError("a stream of the sandbox is no pipe")
        os.set_blocking(pipe.fileno(), False)
        self._pipes.append((pipe, role))

    def _serve(self, selector: selectors.BaseSelector, key: selectors.SelectorKey) -> None:
        pipe, role = cast(IO[bytes], key.fileobj), key.data  # we register pipes only, never numbers
        done = _write(key.fd, role) if isinstance(role, PipeText) else _read(key.fd, role)
        if done:
            selector.unregister(pipe)
            if isinstance(role, PipeOutput) or not role.keep:
                pipe.close()


def end(outer: subprocess.Popen[bytes]) -> None:
    """Kill all of a sandbox and wait until it is gone.

    It is process 1 that is killed: the kernel then ends every other process in there before anybody hears of it.
    """
    if outer.poll() is None:
        for first in children(outer.pid):
            with suppress(ProcessLookupError):
                os.kill(first, signal.SIGKILL)
        try:
            outer.wait(LAST_WORDS)
        except subprocess.TimeoutExpired:
            outer.kill()  # which process 1 does not survive either
    outer.wait()


def _event(role: PipeOutput | PipeText) -> int:
    return selectors.EVENT_WRITE if isinstance(role, PipeText) else selectors.EVENT_READ


def _write(pipe: int, text: PipeText) -> bool:
    try:
        text.data = text.data[os.write(pipe, text.data[:CHUNK]) :]
    except BlockingIOError:
        return False
    except BrokenPipeError:
        return True
    return not text.data


def _read(pipe: int, heard: PipeOutput) -> bool:
    try:
        got = os.read(pipe, CHUNK)
    except BlockingIOError:
        return False
    room = heard.most - len(heard.data)
    heard.data += got[:room]
    heard.cut = heard.cut or len(got) > room
    return not got
