"""Which files of tests/ and solution/ go into the environment: all but those that a .harborignore names."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from calipers.errors import InputError
from calipers.tasks.harbor.paths import regular

HARBORIGNORE: Final = ".harborignore"


def uploaded(task: Path, folder: Path) -> list[Path]:
    """The files below tests/ or solution/ that an environment is given, sorted; none where the folder is not there."""
    found: list[Path] = []
    for here, folders, files in os.walk(folder):
        links = [name for name in folders if os.path.islink(os.path.join(here, name))]
        found += [Path(here, name) for name in (*files, *links)]
    return sorted(path for path in found if not left_out(task, path) and regular(task, path))


def left_out(task: Path, path: Path) -> str:
    """The place of the .harborignore that keeps a file out, such as ``tests/.harborignore``; "" when none does.

    One lies in the task's directory or in any directory on the way to the file, speaks of names
    below itself, and the nearest that has an opinion decides.
    """
    from pathspec import GitIgnoreSpec

    for folder in path.parents:
        ignore = folder / HARBORIGNORE
        if os.path.lexists(ignore):
            regular(task, ignore)
            try:
                spec = GitIgnoreSpec.from_lines(ignore.read_text(encoding="utf-8").splitlines())
            except (OSError, ValueError) as error:
                raise InputError.at(str(ignore), f"cannot be read ({error})", "expected gitignore's patterns") from None
            said = spec.check_file(path.relative_to(folder).as_posix())
            if said.include is not None:
                return str(ignore) if said.include else ""
        if folder == task:
            break
    return ""
