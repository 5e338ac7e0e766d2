"""``calipers check`` on a dataset of Harbor's: in a directory, or in a registry."""

from __future__ import annotations

import json
import os
from dataclasses import asdict
from pathlib import Path

from calipers.cli.output import tell, write
from calipers.errors import InputError
from calipers.reports.safe import clean, safe_json
from calipers.systems.harbor.tasks.dataset import Examined, examine, is_dataset
from calipers.systems.harbor.tasks.registry import REGISTRY, DatasetAt, is_spec, resolve


def means_dataset(benchmark: str) -> bool:
    """Whether an argument is a dataset: a directory of Harbor's, or a name where this project has a registry."""
    if os.path.lexists(benchmark):
        return is_dataset(benchmark)
    return is_spec(benchmark) and Path(REGISTRY).is_dir()


def check_dataset(benchmark: str, registry: str | None, fix: bool, shape: str) -> bool:
    """Look at a dataset and print what was found; whether all of it is right."""
    if os.path.lexists(benchmark):
        if not is_dataset(benchmark):
            right = "expected a directory of tasks, each with a task.toml"
            raise InputError.at(benchmark, "is no dataset, and --fix and --registry are for those", right)
        found = examine(benchmark, fix)
    elif fix:
        raise InputError.at("--fix", f"there is no directory {benchmark}", "what is published does not change")
    else:
        found = _published(resolve(benchmark, registry))
    if shape == "json":
        write(safe_json(json.dumps(asdict(found), indent=1, ensure_ascii=False) + "\n"))
        return not found.faults
    version = f" {found.version}" if found.version else ""
    tasks = f"{found.tasks:,} task{'s' if found.tasks != 1 else ''}"
    write(f"{clean(found.name)}{clean(version)}: {tasks}, {_verdict(found)}\n")
    write("".join(f"{clean(line, None)}\n" for line in found.faults))
    for note in (*found.changes, *found.notes):
        tell(f"note: {clean(note, None)}")
    return not found.faults


def _verdict(found: Examined) -> str:
    if found.faults:
        count = len(found.faults)
        return f"{count:,} thing{'s' if count > 1 else ''} wrong:"
    return f"nothing wrong, digest {found.digest}" if found.digest else "nothing wrong"


def _published(dataset: DatasetAt) -> Examined:
    """A dataset of a registry: it could be read, so it is what its digests say."""
    notes = [note for task in dataset.tasks for note in task.unknown]
    if not dataset.digest:
        notes.append("the registry states no digest, so none could be checked")
    return Examined(dataset.name, dataset.version, len(dataset.tasks), dataset.digest, (), tuple(notes))
