"""What stands for each path that was given: the file itself, a run's log, or what a format finds in a folder."""

from __future__ import annotations

import os
from collections.abc import Sequence

from calipers.errors import InputError
from calipers.names import FOLDER_FORMATS, FORMATS
from calipers.readers.format import Opened
from calipers.readers.run_plan import is_run

RIGHT = (
    "expected a file of rollouts, a run or a Harbor job (plan.json or result.json in it), "
    "or what lm_eval --output_path wrote (results_*.json beside samples_*.jsonl, or in a folder for each model)"
)


def with_folders(paths: Sequence[str]) -> tuple[list[str | Opened], list[str]]:
    """The paths with what is to be read of each folder in its place, and notes on what is not.

    InputError for a folder that holds nothing we read, or for what was given before.
    """
    given: list[str | Opened] = []
    notes: list[str] = []
    files = {os.path.realpath(path): path for path in paths if not os.path.isdir(path)}
    jobs: dict[str, str] = {}
    for path in paths:
        if not os.path.isdir(path) or is_run(path):
            given.append(path)
            continue
        found, told = _inside(path)
        for each in found:
            if isinstance(each, str):
                _once(each, files, path, "stands twice, also by way of", "expected each results file once")
            else:
                _once(each.path, jobs, each.path, "stands twice, first as", "expected each job once")
        given += found
        notes += told
    return given, notes


def _inside(path: str) -> tuple[Sequence[str | Opened], Sequence[str]]:
    """What the first format that knows a folder finds in it, and its notes."""
    for name in FOLDER_FORMATS:
        found, notes = FORMATS.load(name).folder(path)
        if found:
            return found, notes
    raise InputError.at(path, "is a directory", RIGHT)


def _once(path: str, met: dict[str, str], by: str, wrong: str, right: str) -> None:
    real = os.path.realpath(path)
    if real in met:
        raise InputError.at(path, f"{wrong} {met[real]}", right)
    met[real] = by
