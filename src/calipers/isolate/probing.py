"""Whether there can be a sandbox here, found out by making one."""

from __future__ import annotations

from functools import cache

from calipers.errors import SandboxError
from calipers.isolate.launch import launch
from calipers.isolate.limits import Limits
from calipers.isolate.mechanism import NAMES, Mechanism, Name, find
from calipers.isolate.view import interpreter, view

NONE = Mechanism("none", "")
_forgone: list[Mechanism] = []


def forgo(sandbox: bool = True) -> None:
    """Do without a sandbox from now on, where there can be none: what ``--unsafe-no-sandbox`` means.

    Limits of time, of memory per process and of output still hold; nothing else does. False takes it back.
    """
    _forgone[:] = [NONE] if sandbox else []


def probe() -> Mechanism:
    """The best mechanism that works here; `SandboxError` with the reason against each when none does."""
    reasons = []
    for name in NAMES:
        mechanism = attempt(name)
        if isinstance(mechanism, Mechanism):
            return mechanism
        reasons.append(mechanism)
    if _forgone:
        return _forgone[0]
    raise SandboxError(
        f"no sandbox can be had here ({'; '.join(reasons)}); install bubblewrap, or allow user namespaces,"
        " or run model-written code unprotected with --unsafe-no-sandbox"
    )


@cache
def attempt(name: Name) -> Mechanism | str:
    """A mechanism that works, or why this one does not; found out once in the life of a process."""
    mechanism = find(name)
    if mechanism is None:
        return f"{name} is not installed"
    job = {"argv": [interpreter(), "-I", "-S", "-c", ""], "folders": [], "folder": "/tmp", "collect": []}
    limits = Limits()
    try:
        done = launch(mechanism, "program", job, view(limits.disk_mb), limits, seconds=limits.seconds)
    except (SandboxError, OSError) as error:
        return str(error)
    return mechanism if done.report == b"0\n" else f"{name}: the interpreter does not start inside"
