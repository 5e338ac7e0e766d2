"""Modules that run without Calipers: process 1 of a sandbox, and the supervisor of a container.

These files are compiled outside and sent through a pipe, so that nothing of Calipers needs to be visible inside, where
only the standard library exists.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

LOAD_FILES = """
for name in ("calipers", "calipers.isolate", "calipers.isolate.inside"):
    sys.modules[name] = type(sys)(name)
for name, code in files:
    sys.modules[name] = type(sys)(name)
    exec(code, sys.modules[name].__dict__)
"""
"""The lines of a program that load the modules in ``files`` (from `compiled`); ``name`` is then the last one's name."""


@cache
def compiled(*names: str) -> list[tuple[str, Any]]:
    """The names and code of modules of this package, in this order, in which each must find the modules it imports."""
    return [
        (
            f"calipers.isolate.inside.{name}",
            compile(Path(__file__).with_name(f"{name}.py").read_bytes(), f"<{name}>", "exec", dont_inherit=True),
        )
        for name in names
    ]
