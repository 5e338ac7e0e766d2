"""The folders of a tree of NeMo Gym's; lent as ``nemo_gym`` itself.

The package that is lent lies in no tree, so the root is that of the server that imports it: the first entry of
Python's path that has the folder of resources servers, else the working folder.
"""

from __future__ import annotations

import sys
from pathlib import Path

__all__ = ["CACHE_DIR", "PARENT_DIR", "RESULTS_DIR", "ROOT_DIR", "WORKING_DIR"]

_trees = (Path(entry) for entry in sys.path if Path(entry or ".", "resources_servers").is_dir())
PARENT_DIR = next(_trees, Path.cwd()).absolute()
ROOT_DIR = PARENT_DIR / "nemo_gym"
WORKING_DIR = PARENT_DIR
CACHE_DIR = WORKING_DIR / "cache"
RESULTS_DIR = WORKING_DIR / "results"
