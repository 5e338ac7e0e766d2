"""Run the command as a user does: in an empty folder, with its own environment, input, output and exit code."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from importlib.resources import files
from pathlib import Path
from typing import Any

from forks import FORKS, PROGRAM, Forked
from waiting import PATIENCE

from calipers.cli import main

ARITH = str(files("calipers") / "examples" / "arith.jsonl")
REWARDS = [[1, 1, 0], [1, 0, 0], [0, 0, 0], [1, 1, 1]]
MAIN = "from calipers.cli import main; main()"
NARROW = f"""import resource, signal
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (60_000, resource.RLIM_INFINITY))
{MAIN}"""
SECONDS = PATIENCE
READERS = (
    "audit",
    "certify",
    "compare",
    "convert",
    "curve",
    "explain",
    "gate",
    "items",
    "judge-check",
    "leaderboard",
    "list",
    "merge",
    "plan",
    "preregister",
    "report",
    "score",
    "verify",
)  # commands that only read files and print: a process of their own would change nothing but its price


def _interpreter(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment variables that an interpreter reads when it starts."""
    return {name: value for name, value in environment.items() if name.startswith("PYTHON")}


AS_FORKED = _interpreter(os.environ)


def calipers(
    *arguments: str, cwd: Path, stdin: str | bytes = b"", **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run the command to its end; text in, text out. In a process of its own, unless it only reads and prints."""
    given = stdin.encode() if isinstance(stdin, str) else stdin
    if reads(arguments, environment):
        return here(*arguments, cwd=cwd, stdin=given, **environment)
    if _interpreter({**os.environ, **environment}) != AS_FORKED:  # also where a test has set one
        return started(*arguments, cwd=cwd, stdin=given, **environment)
    code, out, err = FORKS.run(arguments, cwd, {**os.environ, **environment}, given)
    return subprocess.CompletedProcess([*arguments], code, out.decode(), err.decode())


def reads(arguments: tuple[str, ...], environment: Mapping[str, str]) -> bool:
    """Whether a command can run in this process: it only reads, and loads no user module, which would stay loaded.

    Not for help, of which click keeps the names that it had when it was first asked for.
    """
    apart = any(
        argument.endswith(".py") or ".py:" in argument or argument in ("-h", "--help") for argument in arguments
    )
    alone = threading.current_thread() is threading.main_thread()
    return alone and arguments[:1] != () and arguments[0] in READERS and not apart and not _interpreter(environment)


def run(arguments: Sequence[str]) -> int:
    """Run the command in this process, and return its exit code."""
    try:
        main(arguments)
    except SystemExit as stop:
        return int(str(stop.code))
    raise AssertionError("the command did not exit")


def here(*arguments: str, cwd: Path, stdin: bytes = b"", **environment: str) -> subprocess.CompletedProcess[str]:
    """The same in this process, with input, output and errors that are files, as a child of this process has."""
    before, folder = dict(os.environ), Path.cwd()
    with standard(stdin) as printed:
        try:
            os.chdir(cwd)
            os.environ.update(environment)
            code = run(arguments)
        finally:
            os.environ.clear()
            os.environ.update(before)
            os.chdir(folder)
    out, err = (data.decode() for data in printed)
    return subprocess.CompletedProcess([*arguments], code, out, err)


@contextmanager
def standard(stdin: bytes) -> Iterator[list[bytes]]:
    """Replace the standard streams of this process by new files; afterwards, yields what was written to them."""
    ours = [os.dup(number) for number in range(3)]
    theirs = [os.memfd_create(name) for name in ("input", "output", "errors")]
    streams, printed = (sys.stdin, sys.stdout, sys.stderr), list[bytes]()
    os.write(theirs[0], stdin)
    os.lseek(theirs[0], 0, os.SEEK_SET)
    for number, file in enumerate(theirs):
        os.dup2(file, number)
    sys.stdin, sys.stdout, sys.stderr = (
        open(number, "w" if number else "r", encoding="utf-8", closefd=False)  # noqa: SIM115
        for number in range(3)
    )
    try:
        yield printed
    finally:
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError, ValueError):
                stream.flush()
        sys.stdin, sys.stdout, sys.stderr = streams
        for number, file in enumerate(ours):
            os.dup2(file, number)
            os.close(file)
        for number, file in enumerate(theirs):
            if number:
                printed.append(os.pread(file, os.fstat(file).st_size, 0))
            os.close(file)


def started(*arguments: str, cwd: Path, stdin: bytes = b"", **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the command in a new interpreter, for tests of its start."""
    command = [sys.executable, "-c", MAIN, *arguments]
    settings: dict[str, Any] = {"cwd": cwd, "env": {**os.environ, **environment}, "input": stdin}
    done = subprocess.run(command, capture_output=True, timeout=PATIENCE, check=False, **settings)
    return subprocess.CompletedProcess(done.args, done.returncode, done.stdout.decode(), done.stderr.decode())


def on_a_full_disk(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run the command with a limit of 60,000 bytes per file."""
    code, out, err = FORKS.run((NARROW, *arguments), cwd, dict(os.environ), module=PROGRAM)
    return subprocess.CompletedProcess([*arguments], code, out.decode(), err.decode())


def begun(*arguments: str, cwd: Path, **environment: str) -> Forked | subprocess.Popen[bytes]:
    """The running command, for tests that send it signals or observe it."""
    given = {**os.environ, **environment}
    if _interpreter(given) == AS_FORKED:
        return FORKS.begin(arguments, cwd, given)
    pipes: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen([sys.executable, "-c", MAIN, *arguments], cwd=cwd, env=given, bufsize=0, **pipes)


def refused(*arguments: str, cwd: Path, code: int = 2, **more: Any) -> str:
    """The single error line of a command that refuses its arguments; it prints nothing else and writes no file."""
    before = sorted(cwd.rglob("*"))
    done = calipers(*arguments, cwd=cwd, **more)
    assert (done.returncode, done.stdout) == (code, ""), done.stderr
    assert done.stderr.endswith("\n")
    assert len(done.stderr.splitlines()) == 1, done.stderr
    assert "Traceback" not in done.stderr
    assert sorted(cwd.rglob("*")) == before
    return done.stderr.rstrip("\n")


def scored(*arguments: str, cwd: Path, **more: Any) -> Any:
    """The result document of ``calipers score``."""
    done = calipers("score", *arguments, "--format", "json", cwd=cwd, **more)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def rewards(folder: Path, tasks: list[list[float | None]] | None = None, name: str = "rewards.json") -> str:
    """Write a file of rewards to a folder; return its name."""
    (folder / name).write_text(json.dumps(REWARDS if tasks is None else tasks))
    return name


def lines(folder: Path, *rows: dict[str, Any], name: str = "rollouts.jsonl") -> str:
    """Write a file of records to a folder; return its name."""
    (folder / name).write_text("".join(json.dumps(row) + "\n" for row in rows))
    return name
