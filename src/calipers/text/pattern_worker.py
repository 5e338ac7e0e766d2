"""The process that matches patterns where SIGALRM cannot be used: started when first needed, killed when it hangs.

Lines of JSON go both ways. It limits its own time by the alarm of its main thread, so it survives a bad
pattern; only one that does not even answer late is killed.
"""

from __future__ import annotations

import atexit
import json
import os
import select
import subprocess
import sys
import threading
import time
from functools import partial
from typing import IO, Any, Final, cast

from calipers.errors import CalipersError

GRACE: Final = 0.5  # seconds beyond the limit before it is killed
STARTING: Final = 60.0  # seconds for an interpreter to start, on a machine that is busy
PROGRAM: Final = "import sys; sys.path[:] = sys.argv[1:]; from calipers.text.pattern_worker import serve; serve()"


class Worker:
    """One process for all threads, which wait for each other."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None

    def ask(self, question: list[Any], limit: float) -> tuple[str, Any]:
        """(kind, answer): ``done``, ``bad`` with what is wrong, ``timeout``, or ``died``."""
        with self._lock:
            process = self._running()
            end = time.monotonic() + limit + GRACE
            line = json.dumps([question, limit]).encode() + b"\n"
            try:
                reply = _receive(process, end) if _send(process, line, end) else None
            except BaseException:
                self._stop()  # its answer, should it come, would be taken for that to the next question
                raise
            if not reply:
                self._stop()
                return ("timeout" if reply is None else "died"), None
        kind, answer = json.loads(reply)
        return kind, answer

    def stop(self) -> None:
        """End the process, if there is one."""
        with self._lock:
            self._stop()

    def forget(self) -> None:
        """After a fork: whoever held the lock is not here, and the process is no child of ours, as `poll` finds out."""
        self._lock = threading.Lock()

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is not None and self._process.poll() is None:
            return self._process
        self._stop()
        command = [sys.executable, "-c", PROGRAM, *sys.path]
        pipe = subprocess.PIPE
        try:  # a session of its own, as Ctrl-C is for us
            self._process = subprocess.Popen(command, bufsize=0, stdin=pipe, stdout=pipe, start_new_session=True)
        except OSError as error:
            raise CalipersError(f"cannot start the process that matches regular expressions: {error}") from error
        if not _receive(self._process, time.monotonic() + STARTING):
            self._stop()
            raise CalipersError("the process that matches regular expressions does not start")
        return self._process

    def _stop(self) -> None:
        if self._process is not None:
            with self._process as process:  # which closes its pipes and waits for it
                process.kill()
            self._process = None


def _send(process: subprocess.Popen[bytes], data: bytes, end: float) -> bool:
    """Whether all of it was taken in time. A process that died says so when it is asked for its answer."""
    pipe = cast(IO[bytes], process.stdin).fileno()
    os.set_blocking(pipe, False)
    left = memoryview(data)
    while left:
        if not _ready(pipe, select.POLLOUT, end):
            return False
        try:
            left = left[os.write(pipe, left) :]
        except BrokenPipeError:
            return True
    return True


def _receive(process: subprocess.Popen[bytes], end: float) -> bytes | None:
    """A line; None when it does not come in time, b"" when it never will."""
    pipe = cast(IO[bytes], process.stdout).fileno()
    parts: list[bytes] = []
    while not parts or not parts[-1].endswith(b"\n"):
        if not _ready(pipe, select.POLLIN, end):
            return None
        parts.append(os.read(pipe, 1 << 20))
        if not parts[-1]:
            return b""
    return b"".join(parts)


def _ready(pipe: int, event: int, end: float) -> bool:
    waiting = select.poll()
    waiting.register(pipe, event)
    return bool(waiting.poll(max(0.0, end - time.monotonic()) * 1000))


def serve() -> None:
    """The process itself: answer questions until there are no more."""
    from calipers.text.patterns import BadPattern, attempt
    from calipers.time_limit import Rang, within

    out = sys.stdout.buffer
    out.write(b"ready\n")
    out.flush()
    for line in sys.stdin.buffer:
        question, limit = json.loads(line)
        reply: tuple[str, Any]
        try:
            reply = "done", within(limit, partial(attempt, *question))
        except Rang:
            reply = "timeout", None
        except BadPattern as error:
            reply = "bad", [error.msg, error.pos]
        out.write(json.dumps(reply).encode() + b"\n")
        out.flush()


WORKER: Final = Worker()
atexit.register(WORKER.stop)
os.register_at_fork(after_in_child=WORKER.forget)
