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
from calipers.systems.harbor.tasks.digest import file_digest, task_digest
from calipers.systems.harbor.tasks.manifest import DATASET_TOML, checked_name, read_manifest
from calipers.systems.harbor.tasks.toml import regular

VERSION: Final = "1.0.0"
README: Final = "README.md"

METRIC_TEMPLATE: Final = '''\
# /// script
# requires-python = ">=3.10"
# dependencies = []
# ///
"""The numbers of this dataset, from the rewards of its trials.

The input has one line for each trial: an object of rewards by name, or null when the trial has
none because something broke. The output is one object of numbers, whose first is the headline.

As written, a trial without a reward counts 0 in `mean`, is left out of `mean_of_scored`, and is
counted in `missing`, so that a broken trial and a failed one can be told apart. With several reward
names, each has numbers of its own. An empty input gives counts alone: there is nothing to average.
"""

import argparse
import json
from pathlib import Path


def metrics(trials):
    """The object to be written, for a list of reward objects and Nones."""
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
    parser = argparse.ArgumentParser(description="Numbers of a dataset from the rewards of its trials.")
    parser.add_argument("-i", "--input-path", type=Path, required=True, help="rewards, one JSON value a line")
    parser.add_argument("-o", "--output-path", type=Path, required=True, help="where the JSON object goes")
    paths = parser.parse_args()
    lines = paths.input_path.read_text(encoding="utf-8").split("\\n")
    found = metrics([json.loads(line) for line in lines if line.strip()])
    paths.output_path.write_text(json.dumps(found), encoding="utf-8")
'''

TASK_FILES: Final = {
    "task.toml": """\
schema_version = "1.4"
artifacts = ["/app/answer.txt"]  # kept beside the result; all that a separate verifier is given

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
# "separate" judges in a fresh environment, where the agent has never been; it needs a container engine
environment_mode = "shared"
""",
    "instruction.md": "Write the sum of 2 and 3, as digits and nothing else, to /app/answer.txt.\n",
    "environment/Dockerfile": "FROM ubuntu:24.04\nWORKDIR /app\n",
    "solution/solve.sh": "#!/bin/bash\nset -eu\nmkdir -p /app\necho 5 > /app/answer.txt\n",
    "tests/test.sh": """\
#!/bin/bash
# The reward is what this script writes; its exit code counts for nothing.
mkdir -p /logs/verifier
if [ "$(tr -d '[:space:]' < /app/answer.txt 2> /dev/null)" = "5" ]; then
    echo 1 > /logs/verifier/reward.txt
else
    echo 0 > /logs/verifier/reward.txt
fi
""",
}


def make_dataset(name: str, directory: str | os.PathLike[str] = ".", with_metric: bool = False) -> list[str]:
    """Make a directory a dataset and say what was done, a line each: dataset.toml, README.md, perhaps metric.py.

    Tasks that lie there are added. A README.md that is there stays as it is; so does a dataset.toml,
    but for the metric.py that is added to it; where none is asked for, it is an error, and so is a
    metric.py that is there already.
    """
    checked_name(name, "--dataset")
    root = Path(directory)
    _make(root)
    manifest = read_manifest(root)
    if manifest and not with_metric:
        right = f"--with-metric adds a {METRIC} to it"
        raise InputError.at(str(root / DATASET_TOML), f"is there already, for {manifest.name}", right)
    if manifest and manifest.name != name:
        raise InputError.at(
            manifest.source.place(("dataset", "name")),
            f"is for {manifest.name}, not {name}",
            f"expected --dataset {manifest.name}",
        )
    if with_metric and os.path.lexists(root / METRIC):
        how = f"calipers check --fix {root}" if manifest else "the same command without --with-metric"
        raise InputError.at(str(root / METRIC), "is there already", f"{how} adds it as it is")
    done = []
    if with_metric:
        done.append(_written(root / METRIC, METRIC_TEMPLATE))
    if not os.path.lexists(root / README) and manifest is None:
        done.append(_written(root / README, f"# {name}\n\nWhat this dataset asks, and how its answers are judged.\n"))
    if manifest is None:
        done.append(_written(root / DATASET_TOML, new_document(name, VERSION)))
    return done + _added(root, tasks=manifest is None)


def make_task(name: str, directory: str | os.PathLike[str] = ".") -> list[str]:
    """Write a task that can be run as it is, in a directory of its own, and add it to a dataset.toml beside that."""
    checked_name(name, "--task")
    root = Path(directory)
    _make(root)
    folder = root / name.rpartition("/")[2]
    if os.path.lexists(folder):
        raise InputError.at(str(folder), "is there already", "expected a name that is free")
    for file, text in TASK_FILES.items():
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        _written(folder / file, text.replace("{name}", name))
        if file.endswith(".sh"):
            (folder / file).chmod(0o755)
    done = [f"{folder}: a task"]
    if manifest := read_manifest(root):
        replace_file(manifest.source.path, refreshed(manifest, {name: task_digest(folder)}, {}))
        done.append(f"{manifest.source.path}: {name} is added")
    return done


def _added(root: Path, tasks: bool) -> list[str]:
    """Write into a dataset.toml what lies beside it; what is no valid task is said and left out."""
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
    return [f"{path}: {added} is added" for added in (*digests, *files)] + [f"{fault} (excluded)" for fault in faults]


def _make(root: Path) -> None:
    try:
        root.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError.at(str(root), f"cannot be made ({error.strerror})", "expected a directory") from None


def _written(path: Path, text: str) -> str:
    replace_file(path, text)
    return f"{path}: written"
