"""Tasks of lm-evaluation-harness as benchmarks: the tasks of a name, their settings of a run, and their prompts."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import zip_longest
from pathlib import Path
from typing import Any, Final

import msgspec

from calipers.errors import InputError, UnknownName
from calipers.formats.run_folder import PLAN
from calipers.reports.figures import counted
from calipers.running import LOAD_SEEDS, Job, Seeds
from calipers.systems.lm_eval.client import manner, prompts, sampling
from calipers.systems.lm_eval.entries import DEFAULTS, GENERATION, KNOWN, ROLLING, Scoring
from calipers.systems.lm_eval.judges import VERIFIER, judge_of, scoring, scoring_notes, trial_notes
from calipers.systems.lm_eval.task_scores import right_answer
from calipers.systems.lm_eval.tasks.groups import Leaf, Node, TaskGroup, Tasks, installed, leaves
from calipers.systems.lm_eval.tasks.groups import is_task_file as is_task
from calipers.systems.lm_eval.tasks.loaded import LoadedTask, load_class, load_task, seeded, trusted
from calipers.systems.lm_eval.tasks.prompts import PLAIN, Manner
from calipers.systems.lm_eval.tasks.requests import request_cache
from calipers.systems.lm_eval.tasks.task_file import Function, TaskFields, TaskFile, functions_in, rewind
from calipers.systems.lm_eval.write import digest, dumped
from calipers.tasks import Suite, Task
from calipers.typed import complete
from calipers.verifiers.user_code import ObjectVerifier

HASH_DIGITS: Final = 16  # of a document's hash, the doc_hash of lm-evaluation-harness' samples files


@dataclass(frozen=True, slots=True)
class TaskRequest:
    """The options of a command that change how tasks are loaded."""

    include_path: tuple[str, ...] = ()
    num_fewshot: int | None = None
    predict_only: bool = False
    trust: bool = False
    samples: int | None = None  # per document; None: the task's own number of repeats
    seeds: Seeds = LOAD_SEEDS
    manner: Manner = PLAIN  # how prompts are written
    default_metrics: str = "release"  # the default metrics of a task without a metric_list: release or guide
    metadata: str = "{}"  # JSON that overrides the metadata of each task


def request_of(job: Job) -> TaskRequest:
    """The options of a job that change how its task is loaded."""
    settings = job.include_path, job.num_fewshot, job.predict_only, job.trust, job.samples
    metadata = json.dumps(dict(job.task_metadata))
    return TaskRequest(
        *settings, seeds=job.load_seeds, manner=manner(job), default_metrics=job.default_metrics, metadata=metadata
    )


def is_task_file(path: str) -> bool:
    """Whether a path is a file of a task or group of lm-evaluation-harness, and not a configuration of Calipers."""
    file = Path(path)
    return file.suffix in (".yaml", ".yml") and file.is_file() and is_task(file)


def is_known(benchmark: str, include_path: Sequence[str] = ()) -> bool:
    """Whether a benchmark is a task file, or a name, tag or pattern in ``include_path`` or an installed lm-eval.

    Other files and folders of this name, and benchmarks in the store, are recognised elsewhere.
    """
    if is_task_file(benchmark):
        return True
    if os.path.lexists(benchmark) or Path(benchmark).suffix in (".yaml", ".yml"):
        return False
    if not include_path and installed() is None:
        return False
    if include_path or tasks_in().has(benchmark):
        return True  # with include_path, an unknown name is an error of `nodes_of`, which suggests the nearest name
    _tasks.cache_clear()  # the task may have been written in the meantime, as in a notebook
    return tasks_in().has(benchmark)


def nodes_of(benchmark: str, include_path: tuple[str, ...] = ()) -> list[Node]:
    """The tasks and groups of a name or file."""
    try:
        nodes = tasks_in(include_path).find(benchmark)
    except UnknownName:
        _tasks.cache_clear()  # the task may have been written in the meantime, as in a notebook
        nodes = tasks_in(include_path).find(benchmark)
    return _without_covered(nodes) if len(nodes) > 1 else nodes


def tasks_in(include_path: tuple[str, ...] = ()) -> Tasks:
    """The tasks, groups and tags of an installed lm-evaluation-harness, and those of further folders."""
    return _tasks(include_path, os.getcwd())


def _without_covered(nodes: Sequence[Node]) -> list[Node]:
    """The nodes without those whose tasks are all in larger groups: ``mmlu_*`` matches groups and their tasks."""
    names = [{leaf.name for leaf in leaves([node])} for node in nodes]
    groups = sorted(
        (index for index, node in enumerate(nodes) if isinstance(node, TaskGroup)), key=lambda i: -len(names[i])
    )
    kept: list[int] = []
    covered: set[str] = set()
    for index in groups:
        if not names[index] <= covered:
            kept.append(index)
            covered |= names[index]
    for index, node in enumerate(nodes):
        if isinstance(node, Leaf) and node.name not in covered:
            kept.append(index)
            covered.add(node.name)
    return [nodes[index] for index in sorted(kept)]


@lru_cache(8)
def _tasks(include_path: tuple[str, ...], _folder: str) -> Tasks:
    return Tasks([*map(Path, include_path)], library=installed())


def settings(benchmark: str, request: TaskRequest) -> list[dict[str, Any]]:
    """The settings of a job for each task of a name or file.

    Everything that can be checked without the documents is checked here, so that an unsupported task is refused.
    """
    runs = []
    for leaf in leaves(nodes_of(benchmark, request.include_path)):
        _check_supported(leaf)
        runs.append({"benchmark": (benchmark,), "lm_eval": leaf.name, **_request_settings(leaf), "dialect": "lm_eval"})
    return runs


def _check_supported(leaf: Leaf) -> None:
    for field in ("doc_to_image", "doc_to_audio", "use_prompt"):
        if getattr(leaf.config, field) is not None:
            raise InputError.at(leaf.file.location(field), "is not supported here", "expected a task of plain text")


def _request_settings(leaf: Leaf) -> dict[str, Any]:
    """The settings of a job that a task decides: samples, API route and sampling parameters."""
    if leaf.code is not None:  # a class's requests are known only once it is created, and may be for likelihoods
        return {"samples": leaf.config.repeats, "api": "completions"}
    if leaf.config.output_type != GENERATION:
        return {"samples": 1, "api": "completions"}  # the chat route does not return log-likelihoods of prompts
    settings = sampling(leaf.config.generation_kwargs or {}, leaf.file.location("generation_kwargs"))
    return {**settings, "samples": leaf.config.repeats}


class LoadedTasks:
    """The tasks that a command has loaded, each once, so that random prompts and documents are the same for scoring."""

    def __init__(self, cache_requests: str = "") -> None:
        self._cache, self.notes = request_cache(cache_requests) if cache_requests else (None, [])
        self._nodes: dict[tuple[str, tuple[str, ...]], tuple[Sequence[Node], Mapping[str, Leaf]]] = {}
        self._loaded: dict[tuple[str, str, TaskRequest], LoadedTask] = {}

    def nodes(self, benchmark: str, include_path: tuple[str, ...]) -> Sequence[Node]:
        """The tasks and groups of a name or file, resolved once for all its tasks."""
        return self._resolved(benchmark, include_path)[0]

    def _resolved(self, benchmark: str, include_path: tuple[str, ...]) -> tuple[Sequence[Node], Mapping[str, Leaf]]:
        key = benchmark, include_path
        if key not in self._nodes:
            nodes = nodes_of(benchmark, include_path)
            self._nodes[key] = nodes, {leaf.name: leaf for leaf in leaves(nodes)}
        return self._nodes[key]

    def task(self, benchmark: str, name: str, request: TaskRequest) -> LoadedTask:
        """One of the tasks of a name or file, with its documents."""
        leaf = self._resolved(benchmark, request.include_path)[1].get(name)
        if leaf is None:
            raise InputError.at(benchmark, f"no task {name!r} in it", "expected the planned task")
        leaf = with_metadata(leaf, json.loads(request.metadata))
        key = benchmark, name, replace(request, predict_only=False, samples=None)  # these do not change the documents
        if key in self._loaded:
            return replace(self._loaded[key], config=_reconfigured(self._loaded[key], leaf, request))
        self._loaded[key] = load(leaf, request)
        if self._cache is not None:
            self.notes += self._cache.fill(self._loaded[key])
        return self._loaded[key]


def with_metadata(leaf: Leaf, metadata: Mapping[str, Any]) -> Leaf:
    """A task whose metadata, from which its code may make documents, is overridden by the command's."""
    if not metadata:
        return leaf
    own = leaf.file.values.get("metadata")
    merged = {**(own if isinstance(own, Mapping) else {}), **metadata}
    file = TaskFile(leaf.file.path, {**leaf.file.values, "metadata": merged}, leaf.file.lines)
    return replace(leaf, file=file, config=replace(leaf.config, metadata=merged))


def load(leaf: Leaf, request: TaskRequest) -> LoadedTask:
    """Load a task with its documents."""
    if leaf.code is not None:
        return _load_class(leaf, request)
    task = load_task(_configured(leaf, request), leaf.file, seeds=request.seeds, trust=request.trust)
    return replace(task, manner=request.manner)


def _load_class(leaf: Leaf, request: TaskRequest) -> LoadedTask:
    """Load a task that is a Python class."""

    def count(declared: int | None) -> int:
        return shots(replace(leaf.config, num_fewshot=declared), request.num_fewshot)

    with seeded(request.seeds):
        class_task = load_class(leaf.code, leaf.file, request.seeds, count, request.samples, trust=request.trust)
    config = _scored(class_task.config, request)
    return LoadedTask(
        config,
        leaf.file,
        class_task.docs,
        (),
        tuple(class_task.docs[0]),
        manner=request.manner,
        seeds=request.seeds,
        own=class_task,
    )


def _reconfigured(task: LoadedTask, leaf: Leaf, request: TaskRequest) -> TaskFields:
    """The configuration of a task that is loaded already, for another request."""
    if task.own is None:
        return _configured(leaf, request)
    return _scored(replace(task.own.config, repeats=request.samples or leaf.config.repeats), request)


def _scored(config: TaskFields, request: TaskRequest) -> TaskFields:
    return replace(config, metric_list=[{"metric": "bypass"}]) if request.predict_only else config


def _configured(leaf: Leaf, request: TaskRequest) -> TaskFields:
    """The configuration of a task for a request, with its functions loaded."""
    samples = request.samples if leaf.config.output_type == GENERATION else None
    repeats = samples or leaf.config.repeats
    config = replace(leaf.config, num_fewshot=shots(leaf.config, request.num_fewshot), repeats=repeats)
    if request.default_metrics == "guide" and not request.predict_only:
        config = with_guide_metrics(config, leaf.file)
    with seeded(request.seeds):  # a module may use random numbers when it is imported
        config = trusted(config, leaf.file, trust=request.trust, scored=not request.predict_only)
        rewind()
    return _scored(config, request)


def with_guide_metrics(config: TaskFields, file: TaskFile) -> TaskFields:
    """The task with the guide's default metrics; InputError if it generates text and has no metric_list."""
    if config.metric_list or config.scorer is not None or config.process_results is not None:
        return config
    if config.output_type == ROLLING:
        return replace(config, metric_list=[{"metric": name} for name in ("perplexity", *DEFAULTS[ROLLING])])
    pipelines_with_metrics = [bool(entry.get("metric_list")) for entry in config.filter_list or ()]
    if config.output_type != GENERATION or (pipelines_with_metrics and all(pipelines_with_metrics)):
        return config
    problem = (
        "there is no metric_list, and the guide of lm-evaluation-harness defines no default metrics for generated text"
    )
    expected = "expected metric_list: [{metric: exact_match}], or --default-metrics release"
    raise InputError.at(file.location("metric_list"), problem, expected)


def shots(config: TaskFields, requested: int | None) -> int:
    """The number of few-shot examples: the command's, unless it gives none or the task says 0."""
    return config.num_fewshot or 0 if requested is None or config.num_fewshot == 0 else requested


def suite_of(job: Job, tasks: LoadedTasks) -> tuple[Suite, Mapping[str, ObjectVerifier]]:
    """The suite of a job's task, and the verifier that its tasks name."""
    task = tasks.task(job.benchmark, str(job.lm_eval), request_of(job))
    task_suite = suite(task, scored=not job.predict_only)
    if tasks.notes:
        task_suite = replace(task_suite, notes=[*task_suite.notes, *tasks.notes])
        tasks.notes.clear()
    return task_suite, {} if job.predict_only else {VERIFIER: judge_of(task)}


def suite(task: LoadedTask, *, scored: bool = True) -> Suite:
    """The prompts of a task's documents and, if they are to be ``scored``, their targets and verifier."""
    tasks = []
    with seeded(task.seeds):
        scoring_sha256 = scoring_digest(task)
        plan = scoring(task) if scored else []
        for number, prompt in prompts(task):
            target = plain(right_answer(task, number)) if scored else None
            params = {"doc": plain(task.docs[number]), "scoring": scoring_sha256}
            try:
                msgspec.json.encode((prompt, target, params))
            except UnicodeEncodeError:  # neither the log nor a request can contain it
                problem, expected = "half of a surrogate pair stands alone", "expected whole characters"
                raise InputError.at(task.location("dataset_path", number), problem, expected) from None
            tasks.append(Task(str(number), prompt, VERIFIER if scored else None, target, params, {"doc_id": number}))
        path = task.file.path
        sha256 = hashlib.sha256(path.read_bytes()).hexdigest() if path else ""
        metadata = {"lm_eval": described(task)}
        notes = [*_task_notes(task), *scoring_notes(task, plan), *trial_notes(task, plan)]
        return Suite(str(task.config.task), tasks, metadata, path, sha256, notes, rewards=_rewards(task, plan))


def _rewards(task: LoadedTask, plan: Sequence[Scoring]) -> list[str]:
    """The possible names of the documents' scores; empty if the task's code or another library decides the names."""
    entries = [entry for scoring in plan for entry in scoring.metrics]
    own_scores = task.own is not None or task.config.process_results is not None
    if own_scores or any(entry.function or entry.reduction or entry.name not in KNOWN for entry in entries):
        return []
    return sorted({"reward", *(entry.name for entry in entries)}) if entries else []


def _task_notes(task: LoadedTask) -> Iterator[str]:
    """Notes on fields of the task that lm-evaluation-harness ignores, and on examples from the evaluated split."""
    if task.own is not None:
        return
    if task.config.fewshot_config.fewshot_indices:
        where = task.file.location("fewshot_config")
        yield f"{where}.fewshot_indices: ignored, as in lm-evaluation-harness 0.4.13"
    if (split := _leaking(task.config)) is not None:
        where = task.file.location("num_fewshot")
        leak = f"the examples are drawn from the evaluated split {split!r}"
        more = "a document may be a few-shot example in its own prompt, with its answer, as in lm-evaluation-harness"
        yield f"{where}: {leak}, and {more}; set fewshot_split to another split to prevent it"
    metric_lists = [(task.config.metric_list, task.file.location("metric_list"))]
    for number, entry in enumerate(task.config.filter_list or ()):
        where = f"{task.file.location('filter_list')}[{number}]"
        metric_lists.append((entry.get("metric_list"), where))
        if any(step["function"] == "decontaminate" for step in entry["filter"]):
            why = "lm-evaluation-harness 0.4.13 has no code for it"
            yield f"{where}: decontaminate keeps every response: {why}"
    for listed, where in metric_lists:
        names = [entry.get("metric") for entry in listed or ()]
        for name in dict.fromkeys(name for name in names if isinstance(name, str) and names.count(name) > 1):
            yield (
                f"{where}: {name} is listed {names.count(name)} times; the "
                "last entry is used, as in lm-evaluation-harness"
            )


def _leaking(config: TaskFields) -> str | None:
    """The evaluated split if a document may be an example in its own prompt, else None.

    lm-evaluation-harness excludes the document itself only if the split of the examples is ``test_split`` by name.
    """
    shots = config.fewshot_config
    default_split = config.training_split or config.validation_split or config.test_split
    source = shots.split or (default_split if shots.samples is None else None)
    leaks = source == config.evaluated_split and shots.split != config.test_split
    return source if config.num_fewshot and leaks else None


def described(task: LoadedTask) -> dict[str, Any]:
    """The metadata of the task's suite: lm-evaluation-harness' dump of the task as JSON, and document hashes."""
    config: dict[str, Any] = plain(task.config.dumped())
    return {
        "config": config,
        **({} if task.own is None else {"class": task.own.name}),
        "multiple_targets": task.multiple_targets,
        "documents": len(task.docs),
        "document_hashes": document_hashes(task),
    }


def scoring_digest(task: LoadedTask) -> str:
    """A digest of how answers are scored; a run with another filter, metric or function is another run."""
    config, sha256 = task.config, hashlib.sha256()
    scoring = (config.metric_list, config.filter_list, config.scorer, config.process_results)
    sha256.update(msgspec.json.encode(plain(list(scoring)), order="sorted"))
    for function in functions_in(list(task.file.values.values())):
        file = function.folder.joinpath(*function.module.split(".")).with_suffix(".py")
        sha256.update(file.read_bytes() if file.is_file() else function.module.encode())
    return sha256.hexdigest()[:16]


def plain(value: Any) -> Any:
    """A value as JSON; a value that JSON does not have, such as a date, as text, and a function by its name."""
    if value is None or isinstance(value, (str, bool, int, float)):
        return value
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if callable(value) and not isinstance(value, Function):
        return f"!function {getattr(value, '__name__', type(value).__name__)}"
    return str(value)


class _RecordedDocuments(msgspec.Struct):
    document_hashes: list[str] | None = None


class _LmEvalPlan(msgspec.Struct):
    dataset: str | None = None
    lm_eval: _RecordedDocuments | None = None


def document_hashes(task: LoadedTask) -> list[str]:
    """The hash of each document of the evaluated split, in order."""
    if "hashes" not in task.cache:
        task.cache["hashes"] = [digest(dumped(dict(doc)))[:HASH_DIGITS] for doc in task.docs]
    hashes: list[str] = task.cache["hashes"]
    return hashes


def check_documents(folder: Path, task: str, hashes: Sequence[str]) -> None:
    """Refuse a folder whose run used other documents of a task; a run that recorded no documents is not refused."""
    recorded = _recorded(folder, task)
    if recorded is None or recorded == list(hashes):
        return
    pairs = zip_longest(recorded, hashes)
    different = [number for number, (before, now) in enumerate(pairs) if before != now]
    examples = ", ".join(map(str, different[:3])) + (", ..." if len(different) > 3 else "")
    problem = f"{len(different)} of its {len(recorded)} documents differ from those of the run ({examples})"
    expected = "expected the same data files, task code and --load-seeds, or another --out"
    raise InputError.at(str(folder), problem, expected)


def _recorded(folder: Path, task: str) -> list[str] | None:
    try:
        plan = msgspec.json.decode((folder / PLAN).read_bytes(), type=complete(_LmEvalPlan))
    except (OSError, msgspec.DecodeError, UnicodeDecodeError):
        return None  # an error in the plan is reported where the plan itself is read
    return plan.lm_eval.document_hashes if plan.lm_eval is not None and plan.dataset == task else None


def written_out(job: Job, tasks: LoadedTasks) -> str:
    """The prompt and the target of the first document of a job's task, as ``--write_out`` prints them."""
    task = tasks.task(job.benchmark, str(job.lm_eval), request_of(job))
    with seeded(task.seeds):
        first = min(job.documents) if job.documents else 0
        number, prompt = next((pair for pair in prompts(task) if pair[0] == first), (first, ""))
        target = task.target(task.docs[number], number)
    text = prompt if isinstance(prompt, str) else json.dumps(prompt, ensure_ascii=False, indent=1)
    return (
        f"Task: {job.lm_eval}; document {number}; context prompt (starting on next line):\n{text}\n"
        f"(end of prompt on previous line)\ntarget string or answer choice index (starting on next line):\n{target}\n"
        "(end of target on previous line)"
    )


def shown_config(job: Job, tasks: LoadedTasks) -> str:
    """The configuration of a job's task as JSON, including the command's settings."""
    task = tasks.task(job.benchmark, str(job.lm_eval), request_of(job))
    return json.dumps(plain(task.config.dumped()), indent=2, ensure_ascii=False)


def integrity(job: Job, tasks: LoadedTasks) -> list[str]:
    """A line on the size of a job's task, and notes, before the first request; InputError for a task with an error."""
    task = tasks.task(job.benchmark, str(job.lm_eval), request_of(job))
    return _summary(task, suite(task, scored=not job.predict_only), task.config)


def _summary(task: LoadedTask, task_suite: Suite, config: TaskFields) -> list[str]:
    kind = config.output_type if task.own is None else f"class {task.own.name}"
    sizes = [
        counted(len(task_suite.tasks), "document"),
        counted(config.repeats, "repeat"),
        counted(config.num_fewshot or 0, "example"),
    ]
    return [f"{config.task}: {kind}, {', '.join(sizes)}", *(f"note: {note}" for note in task_suite.notes)]


def checked(benchmark: str, request: TaskRequest) -> list[str]:
    """Check the tasks of a name or file without calling a model: a line on the size of each task, and its notes."""
    lines = []
    for leaf in leaves(nodes_of(benchmark, request.include_path)):
        _check_supported(leaf)
        task = load(leaf, request)
        task_suite = suite(task, scored=not request.predict_only)
        config = leaf.config if task.own is None else task.own.config
        lines += _summary(task, task_suite, config)
    return lines
