"""A program in the sandbox."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory
from threading import Event

from calipers.errors import InputError, SandboxError
from calipers.isolate.launch import launch, probe
from calipers.isolate.limits import Cause, Limits
from calipers.isolate.namespaces import Mechanism, view

USUAL = Limits()
TAKEN = {"bin", "dev", "etc", "lib", "lib32", "lib64", "libx32", "proc", "sbin", "sys", "tmp", "usr"}


@dataclass(frozen=True, slots=True)
class Ran:
    """How a program ended."""

    exit_code: int | None  # minus the signal's number for one that was killed; None when it was stopped
    stdout: bytes
    stderr: bytes
    stopped: Cause = ""
    cut: bool = False  # it printed more than was kept
    seconds: float = 0.0  # from start to end, the sandbox's own share included
    files: Mapping[str, bytes] = field(default_factory=dict)  # those of `collect` that it left behind

    @property
    def timed_out(self) -> bool:
        """Whether the time limit ended it."""
        return self.stopped == "time"


def run(
    argv: Sequence[str],
    *,
    stdin: bytes = b"",
    files: Mapping[str, bytes] | None = None,
    folders: Sequence[str] = (),
    collect: Sequence[str] = (),
    limits: Limits = USUAL,
    mechanism: Mechanism | None = None,
    stop: Event | None = None,
) -> Ran:
    """Run a command in the sandbox, and wait until all its processes are gone.

    ``files`` are its inputs, by a path such as ``tests/test.sh``, which it finds read-only at ``/tests/test.sh``.
    ``folders`` are absolute paths it may write to, beside its home and working directory ``/tmp``. ``collect`` are
    absolute paths of files wanted back; they are read when every process is dead, and the inputs compared once more.
    """
    how = apart_here(mechanism)
    tops = sorted({f"/{Path(folder).parts[1]}" for folder in folders} - {"/tmp"})
    job = {"argv": list(argv), "folders": list(folders), "folder": "/tmp", "collect": list(collect)}
    for name in files or {}:
        check_place(name, folders)
    with _placed(files or {}) as inputs:
        entries = view(limits.disk_mb, programs=True, scratch=tops, inputs=inputs)
        done = launch(how, "program", job, entries, limits, seconds=limits.seconds, stdin=stdin, stop=stop)
    if not done.report and not done.stopped:
        raise SandboxError("the sandbox ended before the program ended")
    try:
        exit_code, collected = _read(BytesIO(done.report), collect)
    except ValueError:
        raise SandboxError("the sandbox's report cannot be read") from None
    stopped: Cause = done.stopped or ("time" if exit_code is None else "")
    return Ran(None if stopped else exit_code, done.stdout, done.stderr, stopped, done.cut, done.seconds, collected)


def apart_here(mechanism: Mechanism | None = None) -> Mechanism:
    """A sandbox for a program other than Python; SandboxError if there is none, also with --unsafe-no-sandbox."""
    usable = mechanism or probe()
    if not usable.apart:
        raise SandboxError("a program other than Python needs a sandbox, even with --unsafe-no-sandbox")
    return usable


def _read(report: BytesIO, collect: Sequence[str]) -> tuple[int | None, dict[str, bytes]]:
    """The report of `inside.program`: how the program ended, and the files it left; ValueError for any other."""
    status = report.readline().strip() or b"-"  # nothing at all from a process 1 that was killed
    exit_code, files = None if status == b"-" else int(status), {}
    for path in collect:
        size = report.readline().strip() or b"-"
        if size != b"-":
            files[path] = report.read(length := int(size))
            if len(files[path]) != length:
                raise ValueError("the report ends in the middle of a file")
    return exit_code, files


def check_place(name: str, folders: Sequence[str] = ()) -> None:
    """Reject an input path that leads outside, or that hides what the sandbox shows or can write to."""
    parts = PurePosixPath(name).parts
    taken = TAKEN | {Path(folder).parts[1] for folder in folders}
    if not parts or ".." in parts or parts[0] == "/" or parts[0] in taken or "\0" in name:
        raise InputError.at(
            f"file {name!r}", "cannot be copied into the sandbox", "expected a path such as tests/test.sh"
        )


@contextmanager
def _placed(files: Mapping[str, bytes]) -> Iterator[str | None]:
    """A directory of the inputs, if there are any; `SandboxError` when they are not the same at the end."""
    if not files:
        yield None
        return
    with TemporaryDirectory(prefix="calipers-") as inputs:
        for name, data in files.items():
            _put(Path(inputs), name, data)
        yield inputs
        for name, data in files.items():
            if Path(inputs, name).read_bytes() != data:
                raise SandboxError(f"{name} was changed while the program ran")


def _put(root: Path, name: str, data: bytes) -> None:
    """Write an input for anybody to read, and nobody to change; its directories likewise."""
    path, parts = root, PurePosixPath(name).parts
    for part in parts[:-1]:
        path /= part
        path.mkdir(exist_ok=True)
        path.chmod(0o755)
    path /= parts[-1]
    path.write_bytes(data)
    path.chmod(0o555)
