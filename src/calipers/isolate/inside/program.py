"""One program in the sandbox: it is started and supervised, and the named files it left are reported."""

from __future__ import annotations

import os
import stat
import time

TYPE_CHECKING = False  # typing takes long to load
if TYPE_CHECKING:
    from typing import Any

    from calipers.isolate.inside.attend import Keeper


def work(job: dict[str, Any], keeper: Keeper) -> None:
    """Run the job's program and report ``EXIT\\n``, then ``SIZE\\n`` and the bytes of each file asked for.

    EXIT is ``-`` for a program that was stopped, SIZE for a file that is not there.
    """

    def child() -> None:
        try:
            os.execvpe(job["argv"][0], job["argv"], job["environment"])
        except OSError as error:
            os.write(2, f"{job['argv'][0]}: {error.strerror}\n".encode(errors="replace"))

    for folder in job["folders"]:
        os.makedirs(folder, exist_ok=True)
    os.chdir(job["folder"])
    pid = keeper.start(job["limits"], child)
    status, _ = keeper.attend(pid, time.monotonic() + job["limits"]["seconds"])
    send(keeper.report, b"-\n" if status is None else b"%d\n" % status)
    for path in job["collect"]:  # nobody is left to change them
        data = content(path, job["limits"]["output_bytes"])
        send(keeper.report, b"-\n" if data is None else b"%d\n%s" % (len(data), data))


def content(path: str, most: int) -> bytes | None:
    """The content of an ordinary file; None for anything else, or if it is too long."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return None
    try:
        facts = os.fstat(file)
        return os.read(file, most) if stat.S_ISREG(facts.st_mode) and facts.st_size <= most else None
    finally:
        os.close(file)


def send(report: int, data: bytes) -> None:
    """Write all of it."""
    while data:
        data = data[os.write(report, data) :]
