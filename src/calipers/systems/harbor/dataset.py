"""Datasets in directories: reads and checks them, updates their dataset.toml, and creates new datasets and tasks."""

from __future__ import annotations

import os
import re
import shutil
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from calipers.errors import InputError
from calipers.stores import atomic_file
from calipers.systems.harbor.lent.dockerfile import dockerfile_fault
from calipers.systems.harbor.manifest import (
    DATASET_TOML,
    Manifest,
    below,
    checked_name,
    file_digest,
    is_name,
    manifest_digest,
    read_manifest,
    regular,
    task_digest,
)
from calipers.systems.harbor.task import BUILDS, TaskDirectory, is_task, read_task
from calipers.systems.harbor.wire import ADHOC
from calipers.tasks.jsonl import TASKS

if TYPE_CHECKING:
    from tomlkit import TOMLDocument


T = TypeVar("T")
METRIC: Final = "metric.py"
_NOT_TASKS: Final = ("__pycache__", "jobs", "node_modules", "runs")  # no note says that these are not tasks


@dataclass(frozen=True, slots=True)
class TaskDataset:
    """The tasks of one directory, sorted by directory, and the subdirectories that are not valid tasks."""

    path: Path
    name: str  # from dataset.toml, else the directory's
    tasks: tuple[TaskDirectory, ...]
    faults: tuple[str, ...]  # an error for each subdirectory that is meant to be a task and is not valid
    passed_over: tuple[str, ...]  # names of subdirectories that are not meant to be tasks
    manifest: Manifest | None

    def full_name(self, task: TaskDirectory) -> str:
        """A task's name with its organisation: the task's own, else that of the dataset."""
        org = self.manifest.org if self.manifest else ""
        return task.name if "/" in task.name or not org else f"{org}/{task.name}"

    @property
    def by_name(self) -> dict[str, TaskDirectory]:
        """The tasks by full name, without those that `wrong_names` reports."""
        named: dict[str, TaskDirectory] = {}
        for task in self.tasks:
            if self.can_name(task):
                named.setdefault(self.full_name(task), task)
        return named

    def can_name(self, task: TaskDirectory) -> bool:
        """Whether the dataset.toml, if it exists, can contain a task's name."""
        return self.manifest is None or is_name(self.full_name(task))


def is_dataset(directory: str | os.PathLike[str]) -> bool:
    """Whether a directory is a Harbor dataset: it has a dataset.toml, contains a task, or is itself a task.

    A directory with a tasks.jsonl is an EvSys benchmark, whatever else it contains.
    """
    root = Path(directory)
    if not os.path.isdir(root) or os.path.lexists(root / TASKS):
        return False
    return os.path.lexists(root / DATASET_TOML) or is_task(root) or any(map(is_task, _subdirectories(root)))


def read_dataset(directory: str | os.PathLike[str]) -> TaskDataset:
    """The dataset in a directory, or a dataset of one task if the directory is a task.

    A subdirectory with a task.toml is meant to be a task; if it is not valid, or a link, it is among the faults. The
    tasks are those in the directory, whether or not dataset.toml lists them. InputError for a directory that cannot be
    read, and for an invalid dataset.toml.
    """
    root = Path(directory)
    if not os.path.isdir(root):
        raise InputError.at(str(root), "no such directory", "expected a directory of tasks")
    if is_task(root):
        return TaskDataset(root, ADHOC, (read_task(root),), (), (), None)
    manifest = read_manifest(root)
    tasks: list[TaskDirectory] = []
    faults: list[str] = []
    passed_over: list[str] = []
    for folder in _subdirectories(root):
        if not os.access(folder, os.R_OK | os.X_OK):
            faults.append(f"{folder}: cannot be read (Permission denied); expected a readable directory")
        elif not is_task(folder):
            passed_over += [folder.name] if folder.name not in _NOT_TASKS else []
        elif os.path.islink(folder):
            faults.append(f"{folder}: is a link; expected a real directory")
        else:
            try:
                tasks.append(read_task(folder))
            except InputError as error:
                faults.append(str(error))
    name = manifest.name if manifest else Path(os.path.abspath(root)).name
    return TaskDataset(root, name, tuple(tasks), tuple(faults), tuple(passed_over), manifest)


def wrong_names(dataset: TaskDataset) -> list[str]:
    """An error for each task whose name another task has, or whose name dataset.toml cannot contain."""
    seen: dict[str, Path] = {}
    faults: list[str] = []
    for task in dataset.tasks:
        name = dataset.full_name(task)
        first = seen.setdefault(name, task.path)
        if first is not task.path:
            faults.append(f"{task.path}: is named {name!r}, the same as {first}; expected different names")
        elif not dataset.can_name(task):
            hint = "give it a name in [task] of its task.toml: org/name, of letters, digits, '.', '_' and '-'"
            faults.append(f"{task.path}: is named {name!r}; {hint}")
    return faults


def select(
    tasks: Sequence[T],
    include: Sequence[str] = (),
    exclude: Sequence[str] = (),
    first: int | None = None,
    name: Callable[[T], str] = str,
) -> list[T]:
    """The first ``first`` tasks whose names match a pattern of ``include`` and no pattern of ``exclude``.

    An empty ``include`` matches all names. A pattern has to match the entire name: ``apple`` does not match
    ``o/apple``, but ``*apple`` does. InputError if ``include`` matches no task; ``exclude`` may exclude all of them.

    >>> select(["apple-1", "apple-2", "beet-2"], ["apple-*", "*-2"], ["apple-2"], first=2)
    ['apple-1', 'beet-2']
    """
    wanted = [task for task in tasks if not include or _matches(name(task), include)]
    if include and not wanted:
        raise InputError(_no_match([name(task) for task in tasks], include))
    return [task for task in wanted if not _matches(name(task), exclude)][:first]


def _matches(name: str, patterns: Sequence[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def _no_match(names: Sequence[str], patterns: Sequence[str]) -> str:
    wanted = " or ".join(map(repr, patterns))
    if any(_matches(name.rpartition("/")[2], patterns) for name in names):
        hint = f"names here start with an organisation, as in {names[0]!r}; put '*/' before a pattern to match any"
    elif close := [name for pattern in patterns for name in get_close_matches(pattern, names, 1)]:
        hint = f"did you mean {close[0]!r}?"
    else:
        hint = f"there are {len(names)}, such as {', '.join(map(repr, names[:3]))}" if names else "there are none"
    return f"no task matches {wanted}; {hint}"


def metric_scripts(directory: str | os.PathLike[str]) -> list[Path]:
    """The metric.py of a dataset's directory, whether or not dataset.toml lists it; an empty list if there is none.

    InputError if dataset.toml lists a metric.py that does not exist, and for a link that leads out of the directory.
    """
    root = Path(directory)
    manifest = read_manifest(root)
    path = below(root, METRIC)
    if os.path.lexists(path):
        return [path] if regular(root, path) else []
    for at, file in enumerate(manifest.files if manifest else ()):
        if manifest and file.path == METRIC:
            location = manifest.source.location(("files", at, "path"))
            raise InputError.at(location, f"names {METRIC}, which does not exist", "write it, or remove the entry")
    return []


def _subdirectories(root: Path) -> list[Path]:
    try:
        return sorted(path for path in root.iterdir() if not path.name.startswith(".") and os.path.isdir(path))
    except OSError as error:
        raise InputError.at(str(root), f"cannot be read ({error.strerror})") from None


@dataclass(frozen=True, slots=True)
class Drift:
    """The differences between a dataset.toml and its directory. The mappings are from a name to the actual digest."""

    tasks: Mapping[str, str]  # listed tasks with another digest or none
    files: Mapping[str, str]  # listed files with another digest or none
    new_tasks: Mapping[str, str]  # tasks that are not listed
    new_files: Mapping[str, str]  # metric.py, if it is not listed; other files need not be
    errors: tuple[str, ...]  # listed tasks and files that do not exist or cannot be read, and links that lead outside

    @property
    def changes(self) -> list[str]:
        """The changes that would update dataset.toml, one line each."""
        old = [f"the digest of {name} is computed again" for name in (*self.tasks, *self.files)]
        return old + [f"{name} is added" for name in (*self.new_tasks, *self.new_files)]


def drift(root: Path, manifest: Manifest, tasks: Mapping[str, str]) -> Drift:
    """The differences between a dataset.toml and its directory; ``tasks`` are the actual digests of its tasks by name.

    A digest of "" means that the task exists, but its digest cannot be computed.
    """
    listed_tasks = {pin.name: pin.digest for pin in manifest.tasks}
    listed_files = {pin.path: pin.digest for pin in manifest.files}
    errors = [
        f"{manifest.source.location(('tasks', at, 'name'))}: {root} contains no valid task {pin.name!r}"
        for at, pin in enumerate(manifest.tasks)
        if pin.name not in tasks
    ]
    files: dict[str, str] = {}
    for at, name in enumerate(listed_files):
        location = manifest.source.location(("files", at, "path"))
        if not os.path.lexists(root / name):
            errors.append(f"{location}: there is no file {name!r} in {root}; write it, or remove the entry")
        elif digest := _digest(root, name, location, errors):
            files[name] = digest
    unlisted_metric = os.path.lexists(root / METRIC) and METRIC not in listed_files
    metric = _digest(root, METRIC, str(root), errors) if unlisted_metric else ""
    known = {name: digest for name, digest in tasks.items() if digest}
    return Drift(
        {name: digest for name, digest in known.items() if listed_tasks.get(name, digest) != digest},
        {path: digest for path, digest in files.items() if listed_files[path] != digest},
        {name: digest for name, digest in known.items() if name not in listed_tasks},
        {METRIC: metric} if metric else {},
        tuple(errors),
    )


def _digest(root: Path, name: str, location: str, errors: list[str]) -> str:
    """The digest of a file beside the tasks; if it cannot be read, "" and an error is added to ``errors``."""
    try:
        path = below(root, name, location)
        return file_digest(path) if regular(root, path) else ""
    except InputError as error:
        errors.append(str(error))
        return ""


def refreshed(
    manifest: Manifest, tasks: Mapping[str, str], files: Mapping[str, str], version: str | None = None
) -> str:
    """The text of dataset.toml with these digests of tasks and files; tasks and files that it does not list are added.

    Comments, order and everything else in the file stay unchanged.
    """
    import tomlkit

    document = tomlkit.parse(manifest.source.text)
    _pin(document, "tasks", "name", tasks)
    _pin(document, "files", "path", files)
    if version is not None:
        head: Any = document["dataset"]
        head["version"] = version
    return _spaced(tomlkit.dumps(document))


def new_document(name: str, version: str) -> str:
    """A dataset.toml without tasks."""
    import tomlkit

    document = tomlkit.document()
    document["schema_version"] = "1.0"
    head = tomlkit.table()
    head.update({"name": name, "version": version, "description": "", "authors": [], "keywords": []})
    document["dataset"] = head
    return tomlkit.dumps(document)


def _spaced(text: str) -> str:
    """The same TOML with a blank line before each table and a newline at the end."""
    text = text.rstrip("\n") + "\n"
    spaced = re.sub(r"(?<=[^\n])\n(?=\[\[?[a-z])", "\n\n", text)
    return spaced if tomllib.loads(spaced) == tomllib.loads(text) else text  # a multi-line string can contain [table]


def replace_file(path: Path, text: str) -> None:
    """Write a file atomically."""
    try:
        with atomic_file(path) as file:
            file.write(text.encode())
    except OSError as error:
        raise InputError.at(str(path), f"cannot be written ({error.strerror})") from None


def _pin(document: TOMLDocument, table: str, key: str, digests: Mapping[str, str]) -> None:
    """Set the digests of the entries of a table, by their key; missing entries are added."""
    import tomlkit
    from tomlkit.items import AoT

    entries: Any = document.get(table)
    by_name = {entry[key]: entry for entry in entries or ()}
    for name, digest in digests.items():
        if name in by_name:
            by_name[name]["digest"] = digest
            continue
        if not entries:
            document.pop(table, None)  # `files = []` cannot be followed by [[files]]
            document[table] = tomlkit.aot()
            entries = document[table]
        entry = tomlkit.table() if isinstance(entries, AoT) else tomlkit.inline_table()
        entry.update({key: name, "digest": digest})
        entries.append(entry)


@dataclass(frozen=True, slots=True)
class Examined:
    """The result of checking a dataset."""

    name: str
    version: str | None
    tasks: int  # the number of valid tasks
    digest: str  # `manifest_digest`, or that of a single task; "" if there are errors or dataset.toml is out of date
    faults: tuple[str, ...]
    notes: tuple[str, ...]
    changes: tuple[str, ...] = ()  # the changes that ``fix`` made
    directories: tuple[TaskDirectory, ...] = field(default=(), repr=False)  # the valid tasks


def examine(directory: str | os.PathLike[str], fix: bool = False) -> Examined:
    """Check the directory of a dataset or of a single task, and report all errors.

    ``fix`` first updates dataset.toml, as ``harbor sync`` does: digests are computed again, and unlisted tasks and an
    unlisted metric.py are added. It changes nothing else.
    """
    dataset = read_dataset(directory)
    faults = [*dataset.faults, *wrong_names(dataset)]
    digests = _digests(dataset, faults)
    faults += [fault for task in dataset.tasks if (fault := dockerfile_fault(task.path / "environment"))]
    notes = [note for task in dataset.tasks for note in (*task.unknown, *_about(task))]
    if dataset.passed_over:
        notes.append(f"{dataset.path}: not tasks, because they have no task.toml: {', '.join(dataset.passed_over)}")
    if not dataset.tasks and not dataset.faults:
        faults.append(f"{dataset.path}: contains no tasks; expected subdirectories with a task.toml")
    manifest, name = dataset.manifest, dataset.name
    valid = tuple(task for full_name, task in dataset.by_name.items() if digests[full_name])
    version = manifest.version if manifest else None
    if is_task(dataset.path):
        ((name, digest),) = digests.items()
    elif manifest is None:
        digest = "" if faults else manifest_digest(digests.values())
    else:
        drifted = drift(dataset.path, manifest, digests)
        if fix and drifted.changes:
            text = refreshed(manifest, {**drifted.tasks, **drifted.new_tasks}, {**drifted.files, **drifted.new_files})
            replace_file(manifest.source.path, text)
            return replace(examine(directory), changes=tuple(drifted.changes))
        faults += [*drifted.errors, *_outdated(manifest, drifted)]
        notes += [*manifest.unknown, *_incomplete(manifest, drifted)]
        digest = "" if faults or drifted.changes else manifest.digest
    return Examined(name, version, len(valid), digest, tuple(faults), tuple(notes), directories=valid)


def _digests(dataset: TaskDataset, faults: list[str]) -> dict[str, str]:
    """The digest of each task by name; "" and an added fault if its files cannot be read or a link leads outside."""
    digests: dict[str, str] = {}
    for name, task in dataset.by_name.items():
        try:
            digests[name] = task.digest
        except InputError as error:
            digests[name] = ""
            faults.append(str(error))
    return digests


def _about(task: TaskDirectory) -> list[str]:
    if task.needs_image:
        return []
    return [f"{task.path / 'environment'}: has neither of {' and '.join(BUILDS)}; no image can be built from it"]


def _outdated(manifest: Manifest, drifted: Drift) -> list[str]:
    """An error for each digest in dataset.toml that differs from the actual digest."""
    actual: Mapping[str, str] = {**drifted.tasks, **drifted.files}
    pins = [(("tasks", at), pin.name, pin.digest) for at, pin in enumerate(manifest.tasks)]
    pins += [(("files", at), pin.path, pin.digest) for at, pin in enumerate(manifest.files)]
    hint = "calipers check --fix updates it"
    return [
        f"{manifest.source.location((*keys, 'digest'))}: the digest of {name} is {digest}, not {actual[name]}; {hint}"
        for keys, name, digest in pins
        if name in actual and digest
    ]


def _incomplete(manifest: Manifest, drifted: Drift) -> list[str]:
    """A note on each digest, task, file and version that dataset.toml lacks."""
    path = manifest.source.path
    pins = [(pin.name, pin.digest) for pin in manifest.tasks] + [(pin.path, pin.digest) for pin in manifest.files]
    notes = [f"{path}: {name} has no digest yet" for name, digest in pins if not digest]
    notes += [
        f"{path}: does not list {name}, which is in the folder" for name in (*drifted.new_tasks, *drifted.new_files)
    ]
    if manifest.version is None:
        notes.append(f"{path}: has no version; publishing gives it the next number")
    return notes


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
    _make_folder(root)
    manifest = read_manifest(root)
    if manifest and not with_metric:
        hint = f"--with-metric adds a {METRIC} to it"
        raise InputError.at(str(root / DATASET_TOML), f"already exists, for {manifest.name}", hint)
    if manifest and manifest.name != name:
        raise InputError.at(
            manifest.source.location(("dataset", "name")),
            f"is for {manifest.name}, not {name}",
            f"expected --dataset {manifest.name}",
        )
    if with_metric and os.path.lexists(root / METRIC):
        command = f"calipers check --fix {root}" if manifest else "the same command without --with-metric"
        raise InputError.at(str(root / METRIC), "already exists", f"{command} adds it unchanged")
    lines = []
    if with_metric:
        lines.append(_write(root / METRIC, METRIC_TEMPLATE))
    if not os.path.lexists(root / README) and manifest is None:
        text = f"# {name}\n\nDescribe the tasks of this dataset and how they are verified.\n"
        lines.append(_write(root / README, text))
    if manifest is None:
        lines.append(_write(root / DATASET_TOML, new_document(name, VERSION)))
    return lines + _add_to_manifest(root, tasks=manifest is None)


def make_task(name: str, directory: str | os.PathLike[str] = ".") -> list[str]:
    """Write a task that runs without changes, in its own directory, and add it to a dataset.toml beside it."""
    checked_name(name, "--task")
    root = Path(directory)
    _make_folder(root)
    manifest = read_manifest(root)
    folder = root / name.rpartition("/")[2]
    try:
        folder.mkdir()
    except FileExistsError:
        raise InputError.at(str(folder), "already exists", "expected another name") from None
    except OSError as error:
        raise InputError.at(str(folder), f"cannot be created ({error.strerror})", "expected a directory") from None
    try:
        for file, text in TASK_FILES.items():
            _make_folder((folder / file).parent)
            _write(folder / file, text.replace("{name}", name))
            if file.endswith(".sh"):
                (folder / file).chmod(0o755)
    except InputError:
        shutil.rmtree(folder, ignore_errors=True)  # an incomplete task would make the next attempt fail
        raise
    lines = [f"{folder}: written"]
    if manifest:
        replace_file(manifest.source.path, refreshed(manifest, {name: task_digest(folder)}, {}))
        lines.append(f"{manifest.source.path}: {name} is added")
    return lines


def _add_to_manifest(root: Path, tasks: bool) -> list[str]:
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


def _make_folder(root: Path) -> None:
    try:
        root.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError.at(str(root), f"cannot be created ({error.strerror})", "expected a directory") from None


def _write(path: Path, text: str) -> str:
    """Write a file and return a line that says so."""
    replace_file(path, text)
    return f"{path}: written"
