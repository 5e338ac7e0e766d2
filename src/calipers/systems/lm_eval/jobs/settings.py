"""Tasks of lm-evaluation-harness as jobs: which a name stands for, and how each is asked."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from calipers.errors import InputError, UnknownName
from calipers.names import DIALECTS
from calipers.reports.figures import counted
from calipers.running.job import Job
from calipers.systems.lm_eval.jobs.chat import manner
from calipers.systems.lm_eval.jobs.class_task import judge_class
from calipers.systems.lm_eval.jobs.judge import VERIFIER, judge
from calipers.systems.lm_eval.jobs.likelihood import judge_likelihoods
from calipers.systems.lm_eval.jobs.sampling import sampling
from calipers.systems.lm_eval.jobs.suite import suite
from calipers.systems.lm_eval.scores.entries import DEFAULTS, GENERATION, ROLLING
from calipers.systems.lm_eval.tasks.config import TaskFields
from calipers.systems.lm_eval.tasks.groups import Leaf, Node, TaskGroup, Tasks, installed, leaves
from calipers.systems.lm_eval.tasks.groups import is_task_file as is_task
from calipers.systems.lm_eval.tasks.loaded import LoadedTask, load_class, load_task, trusted
from calipers.systems.lm_eval.tasks.prompts import PLAIN, Manner
from calipers.systems.lm_eval.tasks.task_file import TaskFile, rewind
from calipers.tasks.load_seeds import LOAD_SEEDS, Seeds, seeded
from calipers.tasks.task import Suite
from calipers.verifiers.user_code import ObjectVerifier


def with_guide_metrics(config: TaskFields, file: TaskFile) -> TaskFields:
    """The task with the guide's default metrics; InputError for one that generates text and names no metric."""
    if config.metric_list or config.scorer is not None or config.process_results is not None:
        return config
    if config.output_type == ROLLING:
        return replace(config, metric_list=[{"metric": name} for name in ("perplexity", *DEFAULTS[ROLLING])])
    inner = [bool(entry.get("metric_list")) for entry in config.filter_list or ()]
    if config.output_type != GENERATION or (inner and all(inner)):
        return config
    wrong = "there is none, and the guide has no default metrics for generated text"
    right = "expected metric_list: [{metric: exact_match}], or --default-metrics release"
    raise InputError.at(file.place("metric_list"), wrong, right)


@dataclass(frozen=True, slots=True)
class TaskRequest:
    """What the command says of lm-evaluation-harness' tasks."""

    include_path: tuple[str, ...] = ()
    num_fewshot: int | None = None
    predict_only: bool = False
    trust: bool = False
    samples: int | None = None  # of a document; None: as the task says
    seeds: Seeds = LOAD_SEEDS
    manner: Manner = PLAIN  # how its prompts are written
    default_metrics: str = "release"  # of a task that names none; or those of the guide


def wanted(job: Job) -> TaskRequest:
    """What a job says of its task."""
    told = job.include_path, job.num_fewshot, job.predict_only, job.trust, job.samples
    return TaskRequest(*told, seeds=job.load_seeds, manner=manner(job), default_metrics=job.default_metrics)


def is_task_file(path: str) -> bool:
    """Whether a path is a task or a group of lm-evaluation-harness, and no configuration of ours."""
    place = Path(path)
    return place.suffix in (".yaml", ".yml") and place.is_file() and is_task(place)


def is_known(asked: str, include_path: Sequence[str] = ()) -> bool:
    """Whether a benchmark is one of theirs: a task file, or a name, tag or pattern of a folder of tasks.

    A file or folder of that name, and a benchmark in the store, are looked at by others: this only says
    what there is in ``include_path`` and in an installed lm-evaluation-harness.
    """
    if is_task_file(asked):
        return True
    if os.path.lexists(asked) or Path(asked).suffix in (".yaml", ".yml"):
        return False
    if not include_path and installed() is None:
        return False
    try:
        _found(asked, tuple(include_path))
    except KeyError:  # UnknownName
        return bool(include_path)  # whoever names a folder means a task in it, and is told the nearest
    except InputError:
        return True  # it is there, and something is wrong with it
    return True


def found(asked: str, wanted: TaskRequest) -> list[Node]:
    """What a name or file stands for: tasks, and groups of them."""
    return _found(asked, wanted.include_path)


def _found(asked: str, include_path: tuple[str, ...]) -> list[Node]:
    try:
        return _tasks(include_path, os.getcwd()).find(asked)
    except UnknownName:
        _tasks.cache_clear()  # it may have been written since, as in a notebook
        return _tasks(include_path, os.getcwd()).find(asked)


@lru_cache(8)
def _tasks(include_path: tuple[str, ...], _folder: str) -> Tasks:
    own = installed()
    return Tasks([*([own] if own else []), *map(Path, include_path)])


def settings(asked: str, wanted: TaskRequest) -> list[dict[str, Any]]:
    """The runs that a name or file asks for, one per task, as settings of a job.

    Checked as far as it goes without documents: a task that can never be run is refused here.
    """
    shared = {"dialect": "lm_eval"} if "lm_eval" in DIALECTS.entries else {}
    return [
        {"benchmark": (asked,), "lm_eval": leaf.name, **_asking(leaf), **shared}
        for leaf in leaves(found(asked, wanted))
        if _runs(leaf)
    ]


def _runs(leaf: Leaf) -> bool:
    for field in ("doc_to_image", "doc_to_audio", "use_prompt"):
        if getattr(leaf.config, field) is not None:
            raise InputError.at(leaf.file.place(field), "is not supported here", "expected a task of plain text")
    return True


def _asking(leaf: Leaf) -> dict[str, Any]:
    """How a task's documents are asked, in our words."""
    if leaf.code is not None:  # what a class asks is known once it is made, and may be likelihoods
        return {"samples": leaf.config.repeats, "api": "completions"}
    if leaf.config.output_type != GENERATION:
        return {"samples": 1, "api": "completions"}  # a chat says nothing of the likelihood of its prompt
    told = sampling(leaf.config.generation_kwargs or {}, leaf.file.place("generation_kwargs"))
    return {**told, "samples": leaf.config.repeats}


class Loaded:
    """The tasks that one command has loaded, each once: what is asked is what is scored, whatever their code draws."""

    def __init__(self) -> None:
        self._held: dict[tuple[str, str, TaskRequest], LoadedTask] = {}

    def task(self, asked: str, name: str, wanted: TaskRequest) -> LoadedTask:
        """One of the tasks that a name or file stands for, with its documents."""
        leaf = next((leaf for leaf in leaves(found(asked, wanted)) if leaf.name == name), None)
        if leaf is None:
            raise InputError.at(asked, f"no task {name!r} in it", "expected the one that was planned")
        key = asked, name, replace(wanted, predict_only=False, samples=None)  # neither changes the documents
        if key in self._held:
            return replace(self._held[key], config=_again(self._held[key], leaf, wanted))
        self._held[key] = load(leaf, wanted)
        return self._held[key]


def loaded(asked: str, name: str, wanted: TaskRequest) -> LoadedTask:
    """One of the tasks that a name or file stands for, loaded for this call alone."""
    return Loaded().task(asked, name, wanted)


def prepared(
    asked: str, name: str, wanted: TaskRequest, tasks: Loaded | None = None
) -> tuple[Suite, Mapping[str, ObjectVerifier]]:
    """What a run needs of a task: its questions, and the verifier that they name."""
    task = (tasks or Loaded()).task(asked, name, wanted)
    made = suite(task, scored=not wanted.predict_only)
    if wanted.predict_only:
        return made, {}
    if task.own is not None:
        return made, {VERIFIER: judge_class(task)}
    return made, {VERIFIER: (judge if task.config.output_type == GENERATION else judge_likelihoods)(task)}


def load(leaf: Leaf, wanted: TaskRequest) -> LoadedTask:
    """A task with its documents, as the command wants it."""
    if leaf.code is not None:
        return _class(leaf, wanted)
    task = load_task(_configured(leaf, wanted), leaf.file, seeds=wanted.seeds, trust=wanted.trust)
    return replace(task, manner=wanted.manner)


def _class(leaf: Leaf, wanted: TaskRequest) -> LoadedTask:
    """A task that is a Python class, made and with its documents."""

    def count(own: int | None) -> int:
        return shots(replace(leaf.config, num_fewshot=own), wanted.num_fewshot)

    with seeded(wanted.seeds):
        own = load_class(leaf.code, leaf.file, wanted.seeds, count, wanted.samples, trust=wanted.trust)
    config = _scored(own.config, wanted)
    return LoadedTask(
        config, leaf.file, own.docs, (), tuple(own.docs[0]), manner=wanted.manner, seeds=wanted.seeds, own=own
    )


def _again(task: LoadedTask, leaf: Leaf, wanted: TaskRequest) -> TaskFields:
    """The configuration of a task that is loaded already, as another command wants it."""
    if task.own is None:
        return _configured(leaf, wanted)
    return _scored(replace(task.own.config, repeats=wanted.samples or leaf.config.repeats), wanted)


def _scored(config: TaskFields, wanted: TaskRequest) -> TaskFields:
    return replace(config, metric_list=[{"metric": "bypass"}]) if wanted.predict_only else config


def _configured(leaf: Leaf, wanted: TaskRequest) -> TaskFields:
    """A task's configuration as the command wants it, its functions loaded."""
    asked = wanted.samples if leaf.config.output_type == GENERATION else None
    repeats = asked or leaf.config.repeats
    config = replace(leaf.config, num_fewshot=shots(leaf.config, wanted.num_fewshot), repeats=repeats)
    if wanted.default_metrics == "guide" and not wanted.predict_only:
        config = with_guide_metrics(config, leaf.file)
    with seeded(wanted.seeds):  # a module may draw while it is imported
        config = trusted(config, leaf.file, trust=wanted.trust, scored=not wanted.predict_only)
        rewind()
    return _scored(config, wanted)


def shots(config: TaskFields, asked: int | None) -> int:
    """How many examples stand before a question: as the command says, unless the task says none."""
    return config.num_fewshot or 0 if asked is None or config.num_fewshot == 0 else asked


def groups(nodes: Sequence[Node]) -> list[TaskGroup]:
    """Every group, the outer before the inner."""
    return [one for node in nodes if isinstance(node, TaskGroup) for one in (node, *groups(node.members))]


def checked(asked: str, wanted: TaskRequest) -> list[str]:
    """What can be right or wrong about a task file before a model is asked: a line for each task, and its notes."""
    every = leaves(found(asked, wanted))
    return [line for leaf in every if _runs(leaf) for line in _lines(load(leaf, wanted), leaf, wanted)]


def _lines(task: LoadedTask, leaf: Leaf, wanted: TaskRequest) -> list[str]:
    made = suite(task, scored=not wanted.predict_only)
    config = leaf.config if task.own is None else task.own.config
    kind = config.output_type if task.own is None else f"class {task.own.name}"
    shots, repeats = config.num_fewshot or 0, config.repeats
    sizes = [counted(len(made.tasks), "document"), counted(repeats, "repeat"), counted(shots, "example")]
    told = f"{leaf.name}: {kind}, {', '.join(sizes)}"
    return [told, *(f"note: {note}" for note in made.notes)]
