"""EvSys' tasks written as Harbor's: a directory each, as EvSys itself lays them out.

The directory's name is the id with every character but letters, digits, ``-`` and ``_`` replaced by ``_``; ids that
would share one get a number, so that no task has another's trials.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from calipers.tasks.evsys import HarborTask

SPEC: Final = "evsys_verifier.json"
LIMIT: Final = 600.0  # seconds an agent has
TASK: Final = f"""\
schema_version = "1.4"

[agent]
timeout_sec = {LIMIT}

[verifier]
timeout_sec = {LIMIT}
"""
NEVER_RUN: Final = "#!/bin/sh\n# the verdict is given outside; see {spec}\nexit 1\n"


def write_tasks(tasks: Sequence[HarborTask], folder: Path) -> list[str]:
    """Write each task to a directory of its own in ``folder``, which is emptied first; the directories' names."""
    shutil.rmtree(folder, ignore_errors=True)
    names = _names([str(task.task_id) for task in tasks])
    for task, name in zip(tasks, names, strict=True):
        place = folder / name
        (place / "tests").mkdir(parents=True)
        (place / "environment").mkdir()
        (place / "instruction.md").write_text(str(task.instruction), encoding="utf-8")
        (place / "task.toml").write_text(TASK, encoding="utf-8")
        script = place / "tests" / "test.sh"
        script.write_text(NEVER_RUN.format(spec=SPEC), encoding="utf-8")
        script.chmod(0o755)
        (place / SPEC).write_text(json.dumps(_spec(task), ensure_ascii=False, default=str), encoding="utf-8")
    return names


def _spec(task: HarborTask) -> dict[str, object]:
    verifier = task.verifier
    return {name: getattr(verifier, name, None) for name in ("fn_name", "expected", "params")}


def _names(ids: Sequence[str]) -> list[str]:
    taken: set[str] = set()
    names = []
    for one in ids:
        name = base = re.sub(r"[^0-9A-Za-z_-]", "_", one) or "_"
        number = 2
        while name.lower() in taken:  # some file systems do not tell a from A
            name, number = f"{base}_{number}", number + 1
        taken.add(name.lower())
        names.append(name)
    return names
