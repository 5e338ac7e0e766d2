"""NeMo Gym's modules that user code imports; and the package itself, which has the folders of a tree of NeMo Gym's.

The package that is lent lies in no tree, so the root is that of the server that imports it: the first entry of
Python's path that has the folder of resources servers, else the working folder.
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
