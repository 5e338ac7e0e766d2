"""A stand-in for the package ``nemo_gym`` and the modules of it that user code imports. This file has its folders.

This package is not in a NeMo Gym tree. The root is therefore that of the importing server: the first entry of sys.path
with a folder of resources servers, or else the working folder.
"""

from __future__ import annotations

import sys
from pathlib import Path

__all__ = ["CACHE_DIR", "PARENT_DIR", "RESULTS_DIR", "ROOT_DIR", "WORKING_DIR"]

_INSIDE = {"CACHE_DIR": "cache", "PARENT_DIR": "", "RESULTS_DIR": "results", "ROOT_DIR": "nemo_gym", "WORKING_DIR": ""}


def __getattr__(name: str) -> Path:
    if name not in _INSIDE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    trees = (Path(entry) for entry in sys.path if Path(entry or ".", "resources_servers").is_dir())
    return next(trees, Path.cwd()).absolute() / _INSIDE[name]
