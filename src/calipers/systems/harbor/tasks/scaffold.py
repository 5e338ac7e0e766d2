"""New datasets and new tasks: the files to start from."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from calipers.errors import InputError
from calipers.systems.harbor.tasks.dataset import (
    METRIC,
    new_document,
    read_dataset,
    refreshed,
    replace_file,
    wrong_names,
)
from calipers.systems.harbor.tasks.manifest import DATASET_TOML, checked_name, file_digest, read_manifest, task_digest
from calipers.systems.harbor.tasks.toml import regular

VERSION: Final = "1.0.0"
README: Final = "README.md"

METRIC_TEMPLATE: Final = '''\
# /// script
# requires-python = ">=3.10"
# dependencies = []
# ///
"""The metrics of this dataset, computed from the rewards of its trials.

The input has one line for each trial: an object of rewards by name, or null if the trial has no
reward because of an error. The output is one object of numbers. Its first number is the headline.

In this template, a trial without a reward counts 0 in `mean`, is excluded from `mean_of_scored`,
and is counted in `missing`, so you can tell errors and failures apart. If there are several reward
names, each has its own numbers. An empty input gives only the counts.
"""

import argparse
import json
from pathlib import Path


def metrics(trials):
    """The object to write, for a list of reward objects and Nones."""
    numbers = {}
    names = sorted({name for trial in trials for name in trial or {}})
    for name in names:
        given = [trial[name] for trial in trials if trial and name in trial]
        label = "" if len(names) == 1 else f"{name}_"
        numbers[f"{label}mean"] = sum(given) / len(trials)
        numbers[f"{label}mean_of_scored"] = sum(given) / len(given)
    if trials and not names:
        numbers["mean"] = 0.0
    numbers["trials"] = len(trials)
    numbers["missing"] = sum(not trial for trial in trials)
    return numbers


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Compute the metrics of a dataset from the rewards of its trials.")
    parser.add_argument("-i", "--input-path", type=Path, required=True, help="file of rewards, one JSON value per line")
    parser.add_argument("-o", "--output-path", type=Path, required=True, help="file for the JSON object")
    paths = parser.parse_args()
    lines = paths.input_path.read_text(encoding="utf-8").split("\\n")
    found = metrics([json.loads(line) for line in lines if line.strip()])
    paths.output_path.write_text(json.dumps(found), encoding="utf-8")
'''

TASK_FILES: Final = {
    "task.toml": """\
schema_version = "1.4"
artifacts = ["/app/answer.txt"]  # files kept with the result; a separate verifier gets only these

[task]
name = "{name}"
version = "1.0.0"
description = ""

[metadata]
difficulty = "easy"

[agent]
timeout_sec = 600.0

[verifier]
timeout_sec = 60.0
# "separate" verifies in a new environment that the agent has not used; it needs a container engine
environment_mode = "shared"
""",
    "instruction.md": "Write the sum of 2 and 3 to /app/answer.txt. Write only the digits.\n",
    "environment/Dockerfile": "FROM ubuntu:24.04\nWORKDIR /app\n",
    "solution/solve.sh": "#!/bin/bash\nset -eu\nmkdir -p /app\necho 5 > /app/answer.txt\n",
    "tests/test.sh": """\
#!/bin/bash
# The reward is the number that this script writes. Its exit code is ignored.
mkdir -p /logs/verifier
if [ "$(tr -d '[:space:]' < /app/answer.txt 2> /dev/null)" = "5" ]; then
    echo 1 > /logs/verifier/reward.txt
else
    echo 0 > /logs/verifier/reward.txt
fi
""",
}


def make_dataset(name: str, directory: str | os.PathLike[str] = ".", with_metric: bool = False) -> list[str]:
    """Make a directory a dataset and return a line for each file: dataset.toml, README.md, optionally metric.py.

    Tasks in the directory are added. Existing files are kept, but an existing dataset.toml gets the metric.py of
    ``with_metric``. An existing dataset.toml without ``with_metric``, and an existing metric.py, are errors.
    """
    checked_name(name, "--dataset")
    root = Path(directory)
    _make(root)
    manifest = read_manifest(root)
    if manifest and not with_metric:
        right = f"--with-metric adds a {METRIC} to it"
        raise InputError.at(str(root / DATASET_TOML), f"already exists, for {manifest.name}", right)
    if manifest and manifest.name != name:
        raise InputError.at(
            manifest.source.place(("dataset", "name")),
            f"is for {manifest.name}, not {name}",
            f"expected --dataset {manifest.name}",
        )
    if with_metric and os.path.lexists(root / METRIC):
        how = f"calipers check --fix {root}" if manifest else "the same command without --with-metric"
        raise InputError.at(str(root / METRIC), "already exists", f"{how} adds it unchanged")
    done = []
    if with_metric:
        done.append(_written(root / METRIC, METRIC_TEMPLATE))
    if not os.path.lexists(root / README) and manifest is None:
        text = f"# {name}\n\nDescribe the tasks of this dataset and how they are verified.\n"
        done.append(_written(root / README, text))
    if manifest is None:
        done.append(_written(root / DATASET_TOML, new_document(name, VERSION)))
    return done + _added(root, tasks=manifest is None)


def make_task(name: str, directory: str | os.PathLike[str] = ".") -> list[str]:
    """Write a task that can be run unchanged, in its own directory, and add it to a dataset.toml beside it."""
    checked_name(name, "--task")
    root = Path(directory)
    _make(root)
    folder = root / name.rpartition("/")[2]
    if os.path.lexists(folder):
        raise InputError.at(str(folder), "already exists", "expected another name")
    for file, text in TASK_FILES.items():
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        _written(folder / file, text.replace("{name}", name))
        if file.endswith(".sh"):
            (folder / file).chmod(0o755)
    done = [f"{folder}: written"]
    if manifest := read_manifest(root):
        replace_file(manifest.source.path, refreshed(manifest, {name: task_digest(folder)}, {}))
        done.append(f"{manifest.source.path}: {name} is added")
    return done


def _added(root: Path, tasks: bool) -> list[str]:
    """Add the tasks and the metric.py of a directory to its dataset.toml; invalid tasks are reported and skipped."""
    dataset = read_dataset(root)
    if dataset.manifest is None:
        return []
    digests = {name: task.digest for name, task in dataset.by_name.items()} if tasks else {}
    path = dataset.manifest.source.path
    metric = root / METRIC
    files = {METRIC: file_digest(metric)} if os.path.lexists(metric) and regular(root, metric) else {}
    if digests or files:
        replace_file(path, refreshed(dataset.manifest, digests, files))
    faults = [*dataset.faults, *wrong_names(dataset)] if tasks else []
    return [f"{path}: {added} is added" for added in (*digests, *files)] + [f"{fault} (skipped)" for fault in faults]


def _make(root: Path) -> None:
    try:
        root.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError.at(str(root), f"cannot be created ({error.strerror})", "expected a directory") from None


def _written(path: Path, text: str) -> str:
    replace_file(path, text)
    return f"{path}: written"
