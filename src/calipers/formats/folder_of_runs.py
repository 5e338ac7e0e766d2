"""A folder of runs: run folders, results and files of rollouts, in it and in the folders below it.

::

    runs/
      arith-openai_m-1f0a4c2e/    a run: plan.json and its log
      old/result.json             a finished result
      gsm8k-m.jsonl               a file of rollouts
      notes.md                    not looked at
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from typing import Any, Final

from calipers.errors import InputError
from calipers.formats.read import has_rollouts, is_one_set
from calipers.formats.run_folder import IDENTITY, is_run
from calipers.names import FOLDER_FORMATS, FORMATS

DEEPEST = 3  # folders within each other in which runs are looked for
ROLLOUTS: Final = (".jsonl", ".ndjson", ".csv", ".tsv", ".parquet", ".eval")
"""How the names of files of rollouts end in a folder; a path that is given by itself may have any name."""
PACKED: Final = (".gz", ".zst")
RESULT_SCHEMA: Final = "calipers.result/1"
_HEAD = 4_096  # bytes at the beginning of a file that say what it is
_SCHEMA = re.compile(rb'\A(?:\xef\xbb\xbf)?\s*\{\s*"schema"\s*:\s*"(calipers\.[a-z_]+/\d+)"')
EXPECTED: Final = (
    "expected run folders (with plan.json), results (result.json), files of rollouts (.jsonl, .csv, .parquet), or a "
    "folder that another system wrote (calipers list formats)"
)


def runs_inside(folder: str) -> list[str]:
    """The paths of the runs in a folder, sorted; InputError where there are none.

    A folder of another system's files is one path: their reader knows what belongs together.
    """
    paths = list(_inside(folder, DEEPEST))
    if not paths:
        raise InputError.at(folder, "has no runs", EXPECTED)
    return paths


def unfolded(sources: Sequence[Any]) -> list[Any]:
    """The sources, with the runs inside a folder of runs in its place."""
    every: list[Any] = []
    for source in sources:
        folder = os.fspath(source) if isinstance(source, (str, os.PathLike)) else ""
        every += runs_inside(folder) if folder and is_folder_of_runs(folder) else [source]
    return every


def is_folder_of_runs(path: str) -> bool:
    """Whether a path is a folder that no format reads as a whole."""
    if not os.path.isdir(path) or _is_one_run(path) or _is_of_a_system(path):
        return False
    return _of_calipers(path, DEEPEST) or not _is_read_whole(path)


def _is_one_run(path: str) -> bool:
    """Whether a folder is that of one run of Calipers, of a model or of agents."""
    return is_run(path) or os.path.isfile(os.path.join(path, IDENTITY))


def _is_of_a_system(path: str) -> bool:
    """Whether a folder's own files say that it is one run of another system; what its agents left in it does not."""
    wholes = (FORMATS.load(name).whole for name in FOLDER_FORMATS)
    return any(whole(path) for whole in wholes if whole)


def schema_of(path: str) -> str | None:
    """The schema of a document that Calipers wrote; None for any other file."""
    try:
        with open(path, "rb") as file:
            match = _SCHEMA.match(file.read(_HEAD))
    except OSError:  # whoever reads it says it better
        return None
    return match[1].decode() if match else None


def is_result(path: str) -> bool:
    """Whether a path is the file of a finished result."""
    return os.path.isfile(path) and schema_of(path) == RESULT_SCHEMA


def _inside(folder: str, depth: int) -> Iterator[str]:
    for name, path in _entries(folder):
        if os.path.isdir(path):
            one = _is_one_run(path) or _is_of_a_system(path)
            if one or (not _of_calipers(path, depth - 1) and _is_read_whole(path)):
                yield path
            elif depth > 1:
                yield from _inside(path, depth - 1)
        elif _is_rollouts(name) or (name.endswith(".json") and _is_wanted(path)):
            yield path


def _entries(folder: str) -> list[tuple[str, str]]:
    """Names and paths in a folder, sorted, without hidden ones."""
    try:
        names = sorted(os.listdir(folder))
    except OSError as error:
        raise InputError.at(folder, f"cannot be read ({error.strerror})") from None
    return [(name, os.path.join(folder, name)) for name in names if not name.startswith(".")]


def _is_rollouts(name: str) -> bool:
    stem, packing = os.path.splitext(name.lower())
    return (stem if packing in PACKED else name.lower()).endswith(ROLLOUTS)


def _is_wanted(path: str) -> bool:
    """Whether a JSON file is a result or has rollouts; configurations and other documents are only about runs."""
    schema = schema_of(path)
    return schema == RESULT_SCHEMA or (schema is None and has_rollouts(path))


def _of_calipers(folder: str, depth: int) -> bool:
    """Whether there is a run or a result of Calipers in a folder."""
    for name, path in _entries(folder):
        if os.path.isdir(path):
            if _is_one_run(path) or (depth > 1 and not _is_of_a_system(path) and _of_calipers(path, depth - 1)):
                return True
        elif name.endswith(".json") and is_result(path):
            return True
    return False


def _is_read_whole(folder: str) -> bool:
    """Whether some format knows what a folder is, or its files are one set of another system."""
    return any(FORMATS.load(name).folder(folder)[0] for name in FOLDER_FORMATS) or is_one_set(folder)
