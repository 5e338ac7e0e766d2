"""The digest of a task or a dataset: the same content has the same digest in every place."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

from calipers.errors import InputError
from calipers.systems.harbor.tasks.toml import regular

if TYPE_CHECKING:
    from pathspec import GitIgnoreSpec


TASK_TOML: Final = "task.toml"
FILES: Final = ("README.md", "instruction.md", TASK_TOML, "trajectory.json")
FOLDERS: Final = ("environment", "solution", "steps", "tests")
IGNORE: Final = ".gitignore"
UNASKED: Final = ("__pycache__/", "*.pyc", ".DS_Store", "*.swp", "*.swo", "*~")  # where no .gitignore says otherwise
PREFIX: Final = "sha256:"


def task_digest(directory: str | os.PathLike[str]) -> str:
    """``sha256:`` and the hash of a task's files: of lines ``path NUL sha256hex LF``, sorted by path.

    The files are those of `task_files`. Their modes and times do not count, nor does the name of the directory.
    """
    root = Path(directory)
    whole = hashlib.sha256()
    for name in task_files(root):
        whole.update(f"{name}\0{file_digest(root / name).removeprefix(PREFIX)}\n".encode(errors="surrogateescape"))
    return PREFIX + whole.hexdigest()


def manifest_digest(tasks: Iterable[str], files: Mapping[str, str] | None = None) -> str:
    """The hash of a dataset, from the digests of its tasks and, by name, of its files: 64 bare digits.

    Neither the order nor the names of the tasks count.

    >>> manifest_digest(["sha256:" + "b" * 64, "sha256:" + "a" * 64])[:8]
    'b1da1a17'
    """
    text = ",".join(sorted(digest.removeprefix(PREFIX) for digest in tasks))
    if files:
        text += ";" + ",".join(sorted(f"{path}:{digest.removeprefix(PREFIX)}" for path, digest in files.items()))
    return hashlib.sha256(text.encode()).hexdigest()


def file_digest(path: Path) -> str:
    """``sha256:`` and the hash of one file's bytes."""
    try:
        with open(path, "rb") as file:
            return PREFIX + hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise InputError.at(str(path), f"cannot be read ({error.strerror})") from None


def task_files(directory: str | os.PathLike[str]) -> list[str]:
    """The files that make a task what it is, as sorted POSIX paths; what its ``.gitignore`` names is not among them.

    InputError for a directory without task.toml, and for a link that leads out of the task.
    """
    root = Path(directory)
    if not os.path.isfile(root / TASK_TOML):
        raise InputError.at(str(root), f"is not a task: it has no {TASK_TOML}", "expected a directory with one")
    ignored = _ignored(root)
    kept = [name for name in _candidates(root) if not ignored.match_file(name)]
    return sorted(name for name in kept if regular(root, root / name))


def _candidates(root: Path) -> Iterator[str]:
    yield from (name for name in FILES if os.path.lexists(root / name))
    for folder in FOLDERS:
        if os.path.islink(root / folder):
            yield folder  # it is refused: see `regular`
            continue
        if not os.path.lexists(root / folder):
            continue
        for here, folders, files in os.walk(root / folder, onerror=_unreadable):
            below = Path(here).relative_to(root).as_posix()
            links = [name for name in folders if os.path.islink(os.path.join(here, name))]
            yield from (f"{below}/{name}" for name in (*files, *links))


def _ignored(root: Path) -> GitIgnoreSpec:
    path = root / IGNORE
    if not os.path.lexists(path):
        return _spec(UNASKED)
    regular(root, path)
    try:
        return _spec(tuple(path.read_text(encoding="utf-8").splitlines()))
    except (OSError, ValueError) as error:  # ValueError: no UTF-8, or no pattern
        raise InputError.at(str(path), f"cannot be read ({error})", "expected gitignore's patterns") from None


@lru_cache(16)  # the tasks of a dataset mostly ignore the same files
def _spec(lines: tuple[str, ...]) -> GitIgnoreSpec:
    from pathspec import GitIgnoreSpec

    return GitIgnoreSpec.from_lines(lines)


def _unreadable(error: OSError) -> None:
    raise InputError.at(str(error.filename), f"cannot be read ({error.strerror})") from None
