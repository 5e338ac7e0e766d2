"""The directories Harbor leaves: a trial, a job of trials, and a directory of jobs; told apart by what lies in them.

Links are never followed: a job that came from elsewhere says nothing about the rest of this machine.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterator
from typing import Final, Literal

import msgspec

from calipers.systems.harbor.wire import FileMarks

RESULT, CONFIG, LOCK, RETRIES = "result.json", "config.json", "lock.json", "_retries"
LARGEST: Final = 256 << 20  # bytes of one of these files; a trial's has some thousands
_DEEPEST: Final = 3  # directories below _retries

Kind = Literal["trial", "job", "jobs"]


class UnreadableFile(Exception):
    """A file that is there and cannot be used; its text says why."""


class JobFolder:
    """One job, or a single trial: the directories of its trials, listed once; what comes later is not seen."""

    format = "harbor"

    def __init__(self, path: str, kind: Kind = "job") -> None:
        self.path = path
        self.is_job = kind == "job"
        self.root = path if self.is_job else os.path.dirname(os.path.abspath(path))
        self.name = os.path.basename(os.path.abspath(self.root))
        self.finished: list[str] = []  # trials with a result.json, by name
        self.unfinished: list[str] = []  # those with a config.json alone
        self.links: list[str] = []
        self.size = 0  # bytes of all results
        self._hash = hashlib.sha256()
        for name in self._names() if self.is_job else [os.path.basename(os.path.abspath(path))]:
            self._list(name)

    def close(self) -> None:
        """Nothing is held open."""

    def of(self, trial: str, name: str) -> str:
        """The path of a trial's file."""
        return f"{self.root}/{trial}/{name}"

    def result(self, trial: str) -> bytes | None:
        """A trial's result, hashed as it passes; None when it is gone."""
        data = contents(self.of(trial, RESULT))
        self._hash.update(b"%s\0%s\n" % (os.fsencode(trial), hashlib.sha256(data or b"").digest()))
        return data

    def held(self, trial: str, name: str, largest: int = LARGEST) -> bytes | None:
        """A file that an agent left in a trial; None when it is not there, cannot be read, or lies behind a link."""
        path = self.of(trial, name)
        above = [path[: -len(name)] + name[:at] for at, letter in enumerate(name) if letter == "/"]
        try:
            return None if any(map(os.path.islink, above)) else contents(path, largest)
        except (UnreadableFile, ValueError):  # ValueError: a NUL in the name
            return None

    def retries(self) -> list[str]:
        """The directories of attempts that later ones replaced, relative to the job, in their order."""
        if not self.is_job or not _is_directory(f"{self.root}/{RETRIES}"):
            return []
        return sorted(_results_below(self.root, RETRIES, _DEEPEST), key=_by_number)

    def start_hashing(self) -> None:
        """Nothing more to do: results are hashed as they are read."""

    def sha256(self) -> str:
        """The hash of the names and the bytes of all results that were read."""
        return self._hash.hexdigest()

    def _names(self) -> list[str]:
        names = []
        with os.scandir(self.path) as entries:
            for entry in entries:
                if entry.is_symlink():
                    if entry.is_dir():
                        self.links.append(entry.name)
                elif entry.is_dir() and entry.name != RETRIES:
                    names.append(entry.name)
        self.links.sort()
        return sorted(names)

    def _list(self, name: str) -> None:
        try:
            self.size += os.lstat(self.of(name, RESULT)).st_size
            self.finished.append(name)
        except OSError:
            if os.path.lexists(self.of(name, CONFIG)):
                self.unfinished.append(name)


def contents(path: str, largest: int = LARGEST) -> bytes | None:
    """The bytes of a file, None when it is not there; Unreadable for a link, a device, or too large a file."""
    try:
        number = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        linked = os.path.islink(path)
        raise UnreadableFile("it is a link, and links are not followed" if linked else f"{error.strerror}") from None
    try:
        status = os.fstat(number)
        if not stat.S_ISREG(status.st_mode):
            raise UnreadableFile("it is not a file")
        if status.st_size > largest:
            raise UnreadableFile(f"it is larger than {largest >> 20} MiB")
        with open(number, "rb", buffering=0, closefd=False) as file:
            return file.read(status.st_size + 1)  # of one that grows meanwhile, a part, which is told of
    except OSError as error:
        raise UnreadableFile(f"{error.strerror}") from None
    finally:
        os.close(number)


def kind_of(path: str) -> Kind | None:
    """What a directory is to Harbor; None when it is nothing of Harbor's."""
    if _is_trial(path):
        return "trial"
    if _is_job(path):
        return "job"
    return "jobs" if any(_is_job(f"{path}/{name}") for name in _folders(path)) else None


def jobs_in(path: str) -> list[JobFolder]:
    """The jobs that a directory stands for: a job, a trial alone, or a directory of jobs; none when it is neither."""
    kind = kind_of(path)
    if kind == "jobs":
        inside = [f"{path.rstrip('/')}/{name}" for name in _folders(path)]
        return [JobFolder(each) for each in inside if _is_job(each)]
    return [JobFolder(path, kind)] if kind else []


def _is_trial(path: str) -> bool:
    result, config = _marks(f"{path}/{RESULT}"), _marks(f"{path}/{CONFIG}")
    return _of_trial(result) or bool(config and config.task and config.trial_name)


def is_job_by_its_files(path: str) -> bool:
    """Whether a directory is a job by its own result or lock."""
    result = _marks(f"{path}/{RESULT}")
    if result and result.stats and not _of_trial(result):
        return True
    lock = _marks(f"{path}/{LOCK}")
    return bool(lock and lock.trials)


def _is_job(path: str) -> bool:
    """Whether a directory is a job: by its own files, else by a trial in it."""
    return is_job_by_its_files(path) or any(_is_trial(f"{path}/{name}") for name in _folders(path))


def _of_trial(result: FileMarks | None) -> bool:
    return bool(result and result.task_name and result.trial_name)


def _marks(path: str) -> FileMarks | None:
    try:
        return msgspec.json.decode(contents(path) or b"", type=FileMarks)
    except (UnreadableFile, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def _folders(path: str) -> list[str]:
    """The directories in a directory, no links, sorted."""
    try:
        with os.scandir(path) as entries:
            return sorted(entry.name for entry in entries if entry.is_dir(follow_symlinks=False))
    except OSError:
        return []


def _is_directory(path: str) -> bool:
    return os.path.isdir(path) and not os.path.islink(path)


def _results_below(root: str, folder: str, deep: int) -> Iterator[str]:
    for name in _folders(f"{root}/{folder}") if deep else ():
        inner = f"{folder}/{name}"
        if os.path.lexists(f"{root}/{inner}/{RESULT}"):
            yield inner
        else:
            yield from _results_below(root, inner, deep - 1)


def _by_number(folder: str) -> tuple[str, int, str]:
    """``retry-2`` before ``retry-10``."""
    above, _, name = folder.rpartition("/")
    digits = name[len(name.rstrip("0123456789")) :]
    return above, int(digits[-9:] or 0), name
