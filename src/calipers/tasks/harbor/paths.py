"""Names of files below a directory. A name that leads out of it, in whatever way, is refused."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from calipers.errors import InputError


def below(root: Path, name: str, place: str = "") -> Path:
    """The path that a relative name means below a root, whether or not it is there.

    InputError for an absolute name, for ``..``, for a name that no file system has, and for one that
    a link carries out of the root. ``place`` says where the name was given.
    """
    where, right = place or str(root), "expected a path below its own directory"
    parts = name.split("/")
    if not name or "\0" in name or "\\" in name or name.startswith("/") or ".." in parts or os.path.isabs(name):
        raise InputError.at(where, f"the path {name!r} leads elsewhere", right)
    path = root / name
    if not within(root, path):
        raise InputError.at(where, f"the path {name!r} is a link that leads elsewhere", right)
    return path


def within(root: Path, path: Path) -> bool:
    """Whether a path, all links followed, lies in a root or is it."""
    real, base = os.path.realpath(path), os.path.realpath(root)
    return real == base or real.startswith(base.rstrip(os.sep) + os.sep)


def regular(root: Path, path: Path) -> bool:
    """Whether a path is a regular file, or a link to one inside the root; InputError for any other kind of file.

    A link to a directory is refused as well: a walk does not follow it, so no digest would cover what it holds.
    """
    try:
        mode = os.lstat(path).st_mode
        if not stat.S_ISLNK(mode):
            return stat.S_ISREG(mode) or _refuse(path, "is no regular file")
        if not within(root, path):
            return _refuse(path, f"is a link out of {root}")
        return stat.S_ISREG(os.stat(path).st_mode) or _refuse(path, "is a link to something that is no file")
    except OSError as error:
        return _refuse(path, f"cannot be read ({error.strerror})")


def _refuse(path: Path, wrong: str) -> bool:
    raise InputError.at(str(path), wrong, "expected a file of its own")
