"""The command in this process: the same words and exit codes, without the start of an interpreter."""

from __future__ import annotations

import os
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest
from cli.running import run


class Inside:
    """Runs the command in a folder; text out as from `running.calipers`."""

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
        """The one line that a command says when it refuses; nothing else is printed, nothing is written."""
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
