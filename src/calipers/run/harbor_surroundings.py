"""What surrounds an agent's work in a room: whether the room is ready for it, and which files are kept of it."""

from __future__ import annotations

import fnmatch
import os
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from calipers.harbor_side.room import Room
from calipers.tasks.harbor.schema import Artifact, Healthcheck

PUBLISHED: Final = "/logs/artifacts"
MANIFEST: Final = "manifest.json"
MAIN: Final = "main"


def unhealthy(
    room: Room, check: Healthcheck, workdir: str, env: Mapping[str, str], sleep: Callable[[float], None] = time.sleep
) -> str | None:
    """Why a room is not ready, once its task's check failed as often as allowed; None when it succeeded.

    What fails within the start period does not count.
    """
    begun, failed = time.monotonic(), 0
    while True:
        ran = room.run(check.command, cwd=workdir, env=env, timeout=check.timeout_sec)
        if ran.code == 0 and not ran.timed_out:
            return None
        early = time.monotonic() - begun < check.start_period_sec
        failed += not early
        if failed >= max(1, check.retries):
            how = "took too long" if ran.timed_out else f"ended with {ran.code}"
            return f"the healthcheck failed {failed} times; the last {how}"
        sleep(check.start_interval_sec if early else check.interval_sec)


def keep_artifacts(room: Room, wanted: Sequence[str | Artifact], folder: Path) -> None:
    """Bring out what the agent published and what the task names, and write down what became of each.

    A file is kept where its path inside says, below ``folder``, or where the task wants it. One that is not there,
    or is too large, or belongs to a container that a room has not, is no failure of the trial: the manifest says so.
    """
    asked = [Artifact(one) if isinstance(one, str) else one for one in wanted]
    if room.run(f'[ -n "$(ls -A {PUBLISHED} 2>/dev/null)" ]', cwd="/").code == 0:
        asked = [Artifact(PUBLISHED), *asked]
    kept = [_kept(room, one, folder) for one in asked]
    if kept:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / MANIFEST).write_bytes(msgspec.json.format(msgspec.json.encode(kept), indent=2))


def _kept(room: Room, one: Artifact, folder: Path) -> dict[str, Any]:
    inner = os.path.normpath(one.destination or one.source.lstrip("/"))
    target = folder / inner
    entry = {"source": one.source, "destination": inner, "type": "file", "status": "failed", "service": one.service}
    if one.service in (None, MAIN) and not inner.startswith(".."):
        try:
            room.take(one.source, target)
            _drop(target, one.exclude)
            entry |= {"type": "directory" if target.is_dir() else "file", "status": "ok"}
        except (OSError, shutil.Error):
            pass  # the entry says so
    return {**entry, "exclude": list(one.exclude)}


def _drop(folder: Path, patterns: Sequence[str]) -> None:
    for path in sorted(folder.rglob("*"), reverse=True) if patterns and folder.is_dir() else ():
        names = (path.name, path.relative_to(folder).as_posix())
        if any(fnmatch.fnmatch(name, pattern) for name in names for pattern in patterns):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
