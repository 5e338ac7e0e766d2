"""What stands for each path that was given: the file itself, a run's log, Harbor's jobs, the results of lm-eval."""

from __future__ import annotations

import os
from collections.abc import Sequence

from calipers.errors import InputError
from calipers.readers import lm_eval_folder
from calipers.readers.harbor_folder import JobFolder, with_jobs
from calipers.readers.run_plan import is_run

RIGHT = (
    "expected a file of rollouts, a run or a Harbor job (plan.json or result.json in it), "
    "or what lm_eval --output_path wrote (results_*.json beside samples_*.jsonl, or in a folder for each model)"
)


def with_folders(paths: Sequence[str]) -> tuple[list[str | JobFolder], list[str]]:
    """The paths with what is to be read of each folder in its place, and notes on what is not.

    InputError for a folder that holds nothing we read, or whose results were given before.
    """
    given: list[str | JobFolder] = []
    notes: list[str] = []
    met = {os.path.realpath(path): path for path in paths if not os.path.isdir(path)}
    for each in with_jobs(paths):
        if isinstance(each, JobFolder) or not os.path.isdir(each) or is_run(each):
            given.append(each)
            continue
        found, told = lm_eval_folder.newest(each)
        if not found:
            raise InputError.at(each, "is a directory", RIGHT)
        for path in found:
            real = os.path.realpath(path)
            if real in met:
                raise InputError.at(
                    path, f"stands twice, also by way of {met[real]}", "expected each results file once"
                )
            met[real] = each
        given += found
        notes += told
    return given, notes
