"""What process 1 does first: it shuts itself in, says so, and goes to work."""

from __future__ import annotations

import os

from calipers.isolate.inside.attend import Keeper
from calipers.isolate.inside.mounts import build
from calipers.isolate.inside.privileges import give_up
from calipers.isolate.inside.program import send

TYPE_CHECKING = False  # typing takes long to load
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any


def enter(job: dict[str, Any], proc: int) -> None:
    """Leave the machine behind."""
    if os.getpid() != 1:
        raise OSError("what was started is not process 1 of a namespace")  # it would kill and mount outside
    if job["view"] is not None:
        build(job["view"])
    give_up(proc, job["root"], job["filter"])


def main(
    job: dict[str, Any], work: Callable[[dict[str, Any], Keeper], None], control: int, report: int, proc: int
) -> None:
    """Enter the sandbox and do the job; the report begins with ``ready`` or with why there is no sandbox."""
    try:
        if job["apart"]:
            enter(job, proc)
        os.close(proc)
    except (OSError, KeyError) as error:
        send(report, f"{error}\n".encode())
        os._exit(1)
    for pipe in (control, report):
        os.set_inheritable(
            pipe, False
        )  # children close them before all else; what they start would not get them either
    os.environ.clear()
    os.environ.update(job["environment"])
    os.umask(0o022)
    os.chdir("/tmp")
    send(report, b"ready\n")
    work(job, Keeper(control, report, job["apart"]))
    os._exit(0)
