"""Task files on disk, for tests."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from calipers.systems.lm_eval.tasks import TaskFields, TaskFile, task_config
from calipers.systems.lm_eval.tasks.documents import Splits
from calipers.systems.lm_eval.tasks.loaded import LoadedTask, load_task

DOCS = [{"q": f"q{i}", "a": f"a{i}", "c": ["x", "y"], "n": i % 2} for i in range(6)]
TASK = """\
task: made
dataset_path: json
dataset_kwargs:
  data_files: {test: data.jsonl}
test_split: test
doc_to_text: "Q: {{q}}\\nA:"
doc_to_target: a
metric_list:
  - metric: exact_match
"""


def task_folder(folder: Path, text: str = TASK, *, docs: Any = None, name: str = "task.yaml", **files: str) -> Path:
    """Write a task file with its data, and other files by name (``utils_py`` for ``utils.py``); return its path."""
    rows = DOCS if docs is None else docs
    (folder / "data.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    for other, content in files.items():
        (folder / other.replace("_py", ".py").replace("_yaml", ".yaml")).write_text(content)
    (folder / name).write_text(text)
    return folder / name


def config(**fields: Any) -> TaskFields:
    """A task configuration with these fields."""
    return task_config(TaskFile(None, fields))


def task(docs: Any = None, train: Any = None, **fields: Any) -> LoadedTask:
    """A loaded task with these documents."""
    given = {"task": "made", "test_split": "test", "doc_to_text": "q", "doc_to_target": "a", **fields}
    rows = {"test": DOCS if docs is None else docs, **({"train": train} if train is not None else {})}
    splits = Splits("made", {name: lambda held=held: held for name, held in rows.items()})
    return load_task(config(**given), TaskFile(None, given), splits)
