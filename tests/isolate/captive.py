"""A Python program in the sandbox, for tests; and a way to find what it left running."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

import calipers
from calipers.isolate import Mechanism, Ran, run
from calipers.isolate.launch import interpreter


def captive(code: str, mechanism: Mechanism, *arguments: str, **options: Any) -> Ran:
    """Run some Python as a model's program would run."""
    return run([interpreter(), "-I", "-S", "-c", dedent(code), *arguments], mechanism=mechanism, **options)


def said(code: str, mechanism: Mechanism, *arguments: str, **options: Any) -> list[str]:
    """The lines that a program printed, which must have ended normally."""
    ran = captive(code, mechanism, *arguments, **options)
    assert ran.exit_code == 0, (ran.stopped, ran.stderr.decode())
    return ran.stdout.decode().splitlines()


def as_ordinary_user(code: str, name: str) -> list[str]:
    """The lines that some Python prints which an ordinary user runs; ``how`` in it is the mechanism of this name.

    Only modules of the standard library can be imported beside the sandbox itself.
    """
    python = shutil.which("python3", path="/usr/bin")
    new_enough = "import sys; sys.exit(sys.version_info < (3, 11))"
    if not python or not shutil.which(name) or subprocess.run([python, "-I", "-c", new_enough]).returncode:
        pytest.skip(f"needs {name}, and a system Python that an ordinary user can reach")
    whole = f"from calipers.isolate.launch import attempt\nhow = attempt({name!r})\nprint(how)\n{dedent(code)}"
    with tempfile.TemporaryDirectory() as home:
        os.chmod(home, 0o755)
        source, target = Path(calipers.__file__).parent, Path(home, "calipers")
        shutil.copytree(source / "isolate", target / "isolate")
        for name in ("__init__.py", "errors.py"):
            shutil.copy(source / name, target)
        subprocess.run(["chmod", "-R", "a+rX", home], check=True)
        done = subprocess.run(
            [python, "-c", whole], env={"PATH": os.environ["PATH"], "PYTHONPATH": home, "PYTHONDONTWRITEBYTECODE": "1"},
            user=54321, group=54321, extra_groups=[], capture_output=True, text=True, cwd="/",
        )  # fmt: skip
    if "could not create a sandbox" in done.stdout:
        pytest.skip(done.stdout)  # namespaces are root's alone on this machine
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()[1:]


def alive(marker: str) -> list[int]:
    """The processes of this machine with a certain word in their command."""
    return [int(path.parent.name) for path in Path("/proc").glob("[0-9]*/cmdline") if marker in _words(path)]


def _words(path: Path) -> str:
    try:
        words = path.read_bytes().split(b"\0")
    except OSError:  # it has just ended
        return ""
    return " ".join(os.fsdecode(word) for word in words[-3:])
