"""Both sides on the same made-up documents: each writes lm-evaluation-harness' own files into a folder."""

from __future__ import annotations

import hashlib
import importlib
import json
import os
import random
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.parity.model import TARGETS, answer, likelihood, prompt_key, rolling

DRAWS = 100  # of the bootstrap on both sides: the default of 100,000 takes lm-eval minutes for some metrics
Data = Mapping[str, Mapping[str, Sequence[Mapping[str, Any]]]]
"""A dataset's key -> its splits -> their rows."""


ANY = "*"
"""The key of the rows for a dataset that no field of the task names, because its own code loads it."""
_served: dict[str, Mapping[str, Sequence[Mapping[str, Any]]]] = {}


def dataset_key(path: Any, name: Any, kwargs: Mapping[str, Any] | None) -> str:
    """The key that identifies a dataset: its path, its name, and its arguments for the library."""
    rest = {key: value for key, value in (kwargs or {}).items() if key not in ("trust_remote_code", "split")}
    return json.dumps([path, name, rest], sort_keys=True, default=str)


def serve(data: Data, disk: Path | None = None) -> None:
    """Make the library ``datasets`` of this process return made-up rows for every dataset.

    With ``disk``, they are like a dataset of the hub, and results computed from them are cached beside them.
    """
    library: Any = importlib.import_module("datasets")
    _served.clear()
    _served.update(data)  # a module of a task may have kept the earlier function, which must return the new rows

    def load_dataset(path: Any = None, name: Any = None, **kwargs: Any) -> Any:
        splits = _served.get(dataset_key(path, name, kwargs)) or _served[ANY]
        made = {split: library.Dataset.from_list([dict(row) for row in rows]) for split, rows in splits.items()}
        if disk is not None:
            place = disk / hashlib.sha256(dataset_key(path, name, kwargs).encode()).hexdigest()
            if not place.exists():
                library.DatasetDict(made).save_to_disk(str(place))
            made = library.load_from_disk(str(place))
        return made[kwargs["split"]] if kwargs.get("split") else library.DatasetDict(dict(made))

    library.load_dataset = load_dataset


WARM = (  # imported once, before the processes for each task part
    "calipers.systems.harbor.trials.run calipers.running.perform calipers.systems.lm_eval.report "
    "calipers.clients.python "
    "evaluate lm_eval.evaluator lm_eval.loggers lm_eval.filters sacrebleu sklearn.metrics"
)


def manager(folders: Sequence[str] | None) -> Any:
    """lm-evaluation-harness' index of the tasks in these folders, or of all tasks."""
    for name in WARM.split():
        importlib.import_module(name)
    tasks = importlib.import_module("lm_eval.tasks")
    return tasks.TaskManager(include_path=list(folders), include_defaults=False) if folders else tasks.TaskManager()


def evaluate(known: Any, name: str, shots: int | None, out: Path | None) -> dict[str, str]:
    """Run lm-evaluation-harness on a task or group, with files below ``out``; returns the answer for each prompt."""
    evaluator: Any = importlib.import_module("lm_eval.evaluator")
    evaluator.add_env_info = lambda storage: None  # it adds nothing about the task, and starts programs
    evaluator.get_git_commit_hash = lambda: None
    model = _mock(importlib.import_module("lm_eval.api.model").LM)()
    load = known.load

    def loading(names: Any) -> Any:
        model.tasks = load(names)
        return model.tasks

    known.load = loading
    tracker = None
    if out is not None:
        tracker = importlib.import_module("lm_eval.loggers").EvaluationTracker(output_path=str(out))
    try:
        found = evaluator.simple_evaluate(
            model,
            tasks=[name],
            num_fewshot=shots,
            task_manager=known,
            bootstrap_iters=DRAWS if out is not None else 0,
            evaluation_tracker=tracker,
            log_samples=True,
            confirm_run_unsafe_code=True,
        )
    finally:
        known.load = load
    if tracker is not None:
        samples = found.pop("samples")
        tracker.save_results_aggregated(results=found, samples=samples)
        for task in samples:
            tracker.save_results_samples(task_name=task, samples=samples[task])
    targets: dict[str, str] = model.targets
    return targets


def _mock(base: Any) -> Any:
    class Theirs(base):  # type: ignore[misc]  # of a library that is not installed where types are checked
        """The mock model on lm-evaluation-harness' side."""

        def __init__(self) -> None:
            super().__init__()
            self.tasks: Any = None
            self.targets: dict[str, str] = {}

        def loglikelihood(self, requests: Any) -> list[Any]:
            return [likelihood(*one.args) for one in requests]

        def loglikelihood_rolling(self, requests: Any) -> list[Any]:
            return [rolling(one.args[0]) for one in requests]

        def generate_until(self, requests: Any) -> list[str]:
            asked: Counter[int] = Counter()
            found = []
            for one in requests:
                prompt = one.args[0]
                if prompt_key(prompt) not in self.targets:
                    self.targets[prompt_key(prompt)] = _right(self.tasks["tasks"][one.task_name], one.doc)
                found.append(answer(prompt, asked[id(one)], self.targets))
                asked[id(one)] += 1
            return found

    return Theirs


def _right(task: Any, doc: Any) -> str:
    """The correct answer for a document, as text; the global random generator is not used."""
    state = random.getstate()
    try:
        target = task.doc_to_target(doc)
        choices = task.doc_to_choice(doc) if task.config.doc_to_choice is not None else None
        if isinstance(target, (list, tuple)) and target:
            target = target[0]
        if isinstance(target, int) and choices:
            target = choices[target]
    except Exception:  # a task that scores by a function may have no target
        target = "stone"
    finally:
        random.setstate(state)
    return str(target)


def calipers(name: str, shots: int | None, folder: Path, targets: Path) -> int:
    """Run the command in this process as a user types it, with lm-eval's files below ``out``; returns its exit code."""
    from calipers.cli import main
    from calipers.systems.lm_eval.task_scores import TaskScores

    TaskScores.numbers.__defaults__ = (DRAWS,)
    os.environ[TARGETS] = str(targets)
    model = Path(__file__).with_name("model.py")
    command = ["calipers", "run", name, "--model", f"python/{model}:Mock", "--trust", "--api", "completions"]
    command += ["--out", str(folder / "run"), "--export", f"lm_eval={folder / 'files'}", "--format", "json"]
    command += [] if shots is None else ["--num-fewshot", str(shots)]
    sys.argv = command
    try:
        main()
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    return 0
