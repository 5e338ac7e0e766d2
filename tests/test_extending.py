"""docs/extending.md: every block of it, run in its order, as a reader would."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

from cli.running import calipers
from waiting import PATIENCE

PAGE = Path(__file__).parents[1] / "docs" / "extending.md"
BLOCK = re.compile(r"^```(csv|python|sh)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def test_every_block_of_the_page_runs(tmp_path):
    commands = files = 0
    for kind, text in BLOCK.findall(PAGE.read_text()):
        if kind == "sh":
            for line in text.splitlines():
                program, *arguments = shlex.split(line)
                assert program == "calipers"
                done = calipers(*arguments, cwd=tmp_path)
                assert done.returncode == 0, done.stderr
                commands += 1
        else:
            name = "qa.csv" if kind == "csv" else text.partition("\n")[0].removeprefix("# ")
            (tmp_path / name).write_text(text)
            files += 1
            if name == "notebook.py":
                command = [sys.executable, name]
                done = subprocess.run(
                    command, cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE, check=False
                )
                assert done.returncode == 0, done.stderr
                assert done.stdout.splitlines() == ["0.0 None", "1.0"]
    assert (files, commands) == (6, 5)
