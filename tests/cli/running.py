"""The command as a user runs it: another process, in an empty folder."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any

from forks import FORKS, Forked
from waiting import PATIENCE

ARITH = str(files("calipers") / "examples" / "arith.jsonl")
REWARDS = [[1, 1, 0], [1, 0, 0], [0, 0, 0], [1, 1, 1]]
MAIN = "from calipers.cli import main; main()"
SECONDS = PATIENCE


def _interpreter(environment: Mapping[str, str]) -> dict[str, str]:
    """What an interpreter reads of its environment when it starts."""
    return {name: value for name, value in environment.items() if name.startswith("PYTHON")}


AS_FORKED = _interpreter(os.environ)


def calipers(
    *arguments: str, cwd: Path, stdin: str | bytes = b"", **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run the command to its end; text in, text out."""
    given = stdin.encode() if isinstance(stdin, str) else stdin
    if _interpreter({**os.environ, **environment}) != AS_FORKED:  # also where a test has set one
        return started(*arguments, cwd=cwd, stdin=given, **environment)
    code, out, err = FORKS.run(arguments, cwd, {**os.environ, **environment}, given)
    return subprocess.CompletedProcess([*arguments], code, out.decode(), err.decode())


def started(*arguments: str, cwd: Path, stdin: bytes = b"", **environment: str) -> subprocess.CompletedProcess[str]:
    """The same in an interpreter that starts with nothing loaded, for tests of that start."""
    command = [sys.executable, "-c", MAIN, *arguments]
    settings: dict[str, Any] = {"cwd": cwd, "env": {**os.environ, **environment}, "input": stdin}
    done = subprocess.run(command, capture_output=True, timeout=PATIENCE, check=False, **settings)
    return subprocess.CompletedProcess(done.args, done.returncode, done.stdout.decode(), done.stderr.decode())


def begun(*arguments: str, cwd: Path, **environment: str) -> Forked | subprocess.Popen[bytes]:
    """The command while it runs, for tests that send it signals or look at what it does meanwhile."""
    given = {**os.environ, **environment}
    if _interpreter(given) == AS_FORKED:
        return FORKS.begin(arguments, cwd, given)
    pipes: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen([sys.executable, "-c", MAIN, *arguments], cwd=cwd, env=given, bufsize=0, **pipes)


def refused(*arguments: str, cwd: Path, code: int = 2, **more: Any) -> str:
    """The one line that a command says when it refuses; nothing else is printed, nothing is written."""
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
    """A file of rewards in a folder; its name."""
    (folder / name).write_text(json.dumps(REWARDS if tasks is None else tasks))
    return name


def lines(folder: Path, *rows: dict[str, Any], name: str = "rollouts.jsonl") -> str:
    """A file of records in a folder; its name."""
    (folder / name).write_text("".join(json.dumps(row) + "\n" for row in rows))
    return name
