"""A Python program in the sandbox, for tests; and a way to find what it left running."""

from __future__ import annotations

import os
from pathlib import Path
from textwrap import dedent
from typing import Any

from calipers.sandbox import Mechanism, Ran, run
from calipers.sandbox.view import interpreter


def captive(code: str, mechanism: Mechanism, *arguments: str, **options: Any) -> Ran:
    """Run some Python as a model's program would run."""
    return run([interpreter(), "-I", "-S", "-c", dedent(code), *arguments], mechanism=mechanism, **options)


def said(code: str, mechanism: Mechanism, *arguments: str, **options: Any) -> list[str]:
    """The lines it printed; it must have got to its end."""
    ran = captive(code, mechanism, *arguments, **options)
    assert ran.exit_code == 0, (ran.stopped, ran.stderr.decode())
    return ran.stdout.decode().splitlines()


def alive(marker: str) -> list[int]:
    """The processes of this machine that were started with a certain word."""
    return [int(path.parent.name) for path in Path("/proc").glob("[0-9]*/cmdline") if marker in _words(path)]


def _words(path: Path) -> str:
    try:
        words = path.read_bytes().split(b"\0")
    except OSError:  # it has just ended
        return ""
    return " ".join(os.fsdecode(word) for word in words[-3:])
