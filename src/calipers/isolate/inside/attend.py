"""Process 1 of a sandbox: it starts and supervises children until they end or are killed; it runs none of their code.

Nothing is imported here that takes long to load (typing, signal, contextlib): every sandbox would pay for it.
"""

from __future__ import annotations

import os
import resource
import select
import time
from fcntl import F_DUPFD, fcntl

from calipers.isolate.inside.libc import Unsigned, function

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any

MB = 1 << 20
OPEN_FILES = 256
SIGINT, SIGKILL, SIGPIPE, SIGXFSZ = 2, 9, 13, 25
REAP_EVERY = 0.1  # seconds; orphans count as processes until then
CLOSE_RANGE = 436  # the same number on every architecture, as for all calls of its age

c_signal, c_syscall = function("signal"), function("syscall")


class Keeper:
    """The pipes of process 1: ``control``, at whose end it ends too, and ``report``, which no child ever holds."""

    def __init__(self, control: int, report: int, apart: bool) -> None:
        self.control, self.report, self.apart = control, report, apart
        c_signal(SIGINT, None)  # Python would end of it; process 1 without a handler hears nothing from inside

    def start(self, limits: Mapping[str, Any], child: Callable[[], object], streams: Sequence[int] = (0, 1, 2)) -> int:
        """Fork a child that holds these streams, as 0, 1, 2 and on, and nothing else; it ends where ``child`` does."""
        pid = os.fork()
        if pid:
            return pid
        try:
            for number in (SIGPIPE, SIGXFSZ):  # which Python ignores
                c_signal(number, None)
            for descriptor, copy in enumerate([fcntl(stream, F_DUPFD, len(streams)) for stream in streams]):
                os.dup2(copy, descriptor)
            close_from(len(streams))
            os.setsid()
            restrict(limits, self.apart)
            child()
        finally:
            os._exit(127)

    def attend(
        self,
        pid: int,
        until: float,
        reads: Mapping[int, bytearray] | None = None,
        most: int = 0,
        write: int = -1,
        data: bytes = b"",
    ) -> tuple[int | None, bool]:
        """Feed and read a child to its end, then kill whatever it left; its exit code and whether it said too much.

        The code is None for one that was still there at ``until``. A child that said too much is killed.
        """
        reads = reads or {}
        ended = os.pidfd_open(pid)
        poll = select.poll()
        for end in (ended, self.control, *reads):
            poll.register(end, select.POLLIN)
        if write >= 0:
            os.set_blocking(write, False)
            poll.register(write, select.POLLOUT)
        status: int | None = None
        left, cut, rest = set(reads), False, memoryview(data)
        while status is None and not cut and (remaining := until - time.monotonic()) > 0:
            for end, _ in poll.poll(min(remaining, REAP_EVERY) * 1000):
                if end == self.control:
                    if not os.read(end, 1):
                        os._exit(1)  # whoever started this is gone, and with process 1 goes everything
                elif end == write:
                    rest = rest[_feed(end, rest) :]
                    if not rest:
                        poll.unregister(end)
                        os.close(end)
                        write = -1
                elif end in reads:
                    if not _take(end, reads[end], most):
                        poll.unregister(end)
                        left.discard(end)
                    cut = cut or len(reads[end]) > most
            status = reap(pid)
        sweep(-1 if self.apart else -pid)
        for end in left:  # what was said before the end, and not read yet
            while not cut and _take(end, reads[end], most):
                cut = len(reads[end]) > most
        for end in (ended, write):
            if end >= 0:
                os.close(end)
        return status, cut


def restrict(limits: Mapping[str, Any], apart: bool) -> None:
    """Set what this process and its children may use; outside a namespace all processes of the user would count."""
    seconds = int(limits["seconds"]) + 1
    wanted = (
        (resource.RLIMIT_AS, limits["memory_mb"] * MB),
        (resource.RLIMIT_FSIZE, limits["disk_mb"] * MB),
        (resource.RLIMIT_NOFILE, OPEN_FILES),
        (resource.RLIMIT_MSGQUEUE, 0),
        (resource.RLIMIT_MEMLOCK, 0),
        (resource.RLIMIT_CORE, 0),
    )
    if apart:
        resource.setrlimit(resource.RLIMIT_NPROC, (limits["processes"] + 1,) * 2)  # process 1 is counted
    for what, most in wanted:
        resource.setrlimit(what, (most, most))
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 1))


def close_from(first: int) -> None:
    """Close this descriptor and every one above it, whatever their numbers: ours are as high as the run is wide."""
    if c_syscall(CLOSE_RANGE, first, Unsigned(0xFFFFFFFF), 0) < 0:  # a kernel too old for a sandbox
        most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        os.closerange(first, 1 << 20 if most == resource.RLIM_INFINITY else most)


def sweep(whom: int) -> None:
    """Kill every other process of the namespace (-1) or of a group (minus its number), and wait until none is left."""
    try:
        os.kill(whom, SIGKILL)
        while True:
            os.waitpid(-1, 0)
    except (ProcessLookupError, ChildProcessError):
        return  # nobody was left, or is


def reap(pid: int) -> int | None:
    """Collect the dead; the exit code of this one if it is among them, minus a signal's number."""
    exit_code = None
    try:
        while (dead := os.waitpid(-1, os.WNOHANG))[0]:
            if dead[0] == pid:
                exit_code = os.waitstatus_to_exitcode(dead[1])
    except ChildProcessError:
        pass
    return exit_code


def _take(end: int, into: bytearray, most: int) -> bool:
    """Read once, no further than one byte past the most; False at the end."""
    got = os.read(end, min(1 << 16, most + 1 - len(into)))
    into += got
    return bool(got)


def _feed(end: int, data: memoryview) -> int:
    """Write what fits; how much is done with, which is all of it when nobody listens."""
    try:
        return os.write(end, data[: 1 << 16])
    except BlockingIOError:
        return 0
    except BrokenPipeError:
        return len(data)
