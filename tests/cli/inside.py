"""Run the command in this process, without the start of an interpreter; the output and exit codes are the same."""

from __future__ import annotations

import os
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest
from cli.running import run


class Inside:
    """Runs the command in a folder; the output is text, as that of `running.calipers`."""

    def __init__(self, monkeypatch: Any, capsys: Any) -> None:
        self._patch, self._capsys = monkeypatch, capsys

    def __call__(self, *arguments: str, cwd: Path, **environment: str) -> CompletedProcess[str]:
        """Run the command to its end."""
        with self._patch.context() as patch:
            patch.chdir(cwd)
            for name in ("GITHUB_ACTIONS", "GITHUB_STEP_SUMMARY"):
                patch.delenv(name, raising=False)
            for name, value in environment.items():
                patch.setitem(os.environ, name, value)
            self._capsys.readouterr()
            code = run([*arguments])
            said = self._capsys.readouterr()
        return CompletedProcess([*arguments], code, said.out, said.err)

    def refused(self, *arguments: str, cwd: Path) -> str:
        """The single error line of a command that refuses its arguments; it prints nothing else and writes no file."""
        before = sorted(cwd.rglob("*"))
        done = self(*arguments, cwd=cwd)
        assert (done.returncode, done.stdout) == (2, ""), done.stderr
        assert len(done.stderr.splitlines()) == 1, done.stderr
        assert sorted(cwd.rglob("*")) == before
        return done.stderr.rstrip("\n")


@pytest.fixture
def inside(monkeypatch: Any, capsys: Any) -> Inside:
    """The command in this process."""
    return Inside(monkeypatch, capsys)
