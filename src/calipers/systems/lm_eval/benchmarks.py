"""Tasks of lm-evaluation-harness as benchmarks: which a name stands for, how each is asked, and its questions."""

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
from calipers.verifiers.user_code import ObjectVerifier

DIGITS: Final = 16  # of a document's hash, the doc_hash of lm-evaluation-harness' samples files


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
    metadata: str = "{}"  # JSON, laid over the metadata of each task


def request_of(job: Job) -> TaskRequest:
    """What a job says of its task."""
    settings = job.include_path, job.num_fewshot, job.predict_only, job.trust, job.samples
    metadata = json.dumps(dict(job.task_metadata))
    return TaskRequest(
        *settings, seeds=job.load_seeds, manner=manner(job), default_metrics=job.default_metrics, metadata=metadata
    )


def is_task_file(path: str) -> bool:
    """Whether a path is a task or a group of lm-evaluation-harness, and no configuration of ours."""
    file = Path(path)
    return file.suffix in (".yaml", ".yml") and file.is_file() and is_task(file)


def is_known(benchmark: str, include_path: Sequence[str] = ()) -> bool:
    """Whether a benchmark is one of theirs: a task file, or a name, tag or pattern of a folder of tasks.

    A file or folder of that name, and a benchmark in the store, are looked at by others: this only says
    what there is in ``include_path`` and in an installed lm-evaluation-harness.
    """
    if is_task_file(benchmark):
        return True
    if os.path.lexists(benchmark) or Path(benchmark).suffix in (".yaml", ".yml"):
        return False
    if not include_path and installed() is None:
        return False
    if include_path or tasks_in().has(benchmark):
        return True  # whoever names a folder means a task in it, and is told the nearest
    _tasks.cache_clear()  # it may have been written since, as in a notebook
    return tasks_in().has(benchmark)


def nodes_of(benchmark: str, include_path: tuple[str, ...] = ()) -> list[Node]:
    """What a name or file stands for: tasks, and groups of them."""
    try:
        nodes = tasks_in(include_path).find(benchmark)
    except UnknownName:
        _tasks.cache_clear()  # it may have been written since, as in a notebook
        nodes = tasks_in(include_path).find(benchmark)
    return _apart(nodes) if len(nodes) > 1 else nodes


def tasks_in(include_path: tuple[str, ...] = ()) -> Tasks:
    """The tasks, groups and tags of an installed lm-evaluation-harness, and those of further folders."""
    return _tasks(include_path, os.getcwd())


def _apart(nodes: Sequence[Node]) -> list[Node]:
    """The nodes without those whose tasks all stand in a group beside them: ``mmlu_*`` names groups and their tasks."""
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
    """The runs that a name or file asks for, one per task, as settings of a job.

    Checked as far as it goes without documents: a task that can never be run is refused here.
    """
    runs = []
    for leaf in leaves(nodes_of(benchmark, request.include_path)):
        _check_supported(leaf)
        runs.append({"benchmark": (benchmark,), "lm_eval": leaf.name, **_request_settings(leaf), "dialect": "lm_eval"})
    return runs


def _check_supported(leaf: Leaf) -> None:
    for field in ("doc_to_image", "doc_to_audio", "use_prompt"):
        if getattr(leaf.config, field) is not None:
            raise InputError.at(leaf.file.place(field), "is not supported here", "expected a task of plain text")


def _request_settings(leaf: Leaf) -> dict[str, Any]:
    """How a task's documents are asked, in our words."""
    if leaf.code is not None:  # what a class asks is known once it is made, and may be likelihoods
        return {"samples": leaf.config.repeats, "api": "completions"}
    if leaf.config.output_type != GENERATION:
        return {"samples": 1, "api": "completions"}  # a chat says nothing of the likelihood of its prompt
    settings = sampling(leaf.config.generation_kwargs or {}, leaf.file.place("generation_kwargs"))
    return {**settings, "samples": leaf.config.repeats}


class LoadedTasks:
    """The tasks that one command has loaded, each once: what is asked is what is scored, whatever their code draws."""

    def __init__(self, cache_requests: str = "") -> None:
        self._cache, self.notes = request_cache(cache_requests) if cache_requests else (None, [])
        self._nodes: dict[tuple[str, tuple[str, ...]], tuple[Sequence[Node], Mapping[str, Leaf]]] = {}
        self._loaded: dict[tuple[str, str, TaskRequest], LoadedTask] = {}

    def nodes(self, benchmark: str, include_path: tuple[str, ...]) -> Sequence[Node]:
        """What a name or file stands for, resolved once for all its tasks."""
        return self._resolved(benchmark, include_path)[0]

    def _resolved(self, benchmark: str, include_path: tuple[str, ...]) -> tuple[Sequence[Node], Mapping[str, Leaf]]:
        key = benchmark, include_path
        if key not in self._nodes:
            nodes = nodes_of(benchmark, include_path)
            self._nodes[key] = nodes, {leaf.name: leaf for leaf in leaves(nodes)}
        return self._nodes[key]

    def task(self, benchmark: str, name: str, request: TaskRequest) -> LoadedTask:
        """One of the tasks that a name or file stands for, with its documents."""
        leaf = self._resolved(benchmark, request.include_path)[1].get(name)
        if leaf is None:
            raise InputError.at(benchmark, f"no task {name!r} in it", "expected the planned task")
        leaf = with_metadata(leaf, json.loads(request.metadata))
        key = benchmark, name, replace(request, predict_only=False, samples=None)  # neither changes the documents
        if key in self._loaded:
            return replace(self._loaded[key], config=_reconfigured(self._loaded[key], leaf, request))
        self._loaded[key] = load(leaf, request)
        if self._cache is not None:
            self.notes += self._cache.fill(self._loaded[key])
        return self._loaded[key]


def with_metadata(leaf: Leaf, metadata: Mapping[str, Any]) -> Leaf:
    """A task with the command's metadata over its own, from which its code may make documents."""
    if not metadata:
        return leaf
    before = leaf.file.values.get("metadata")
    known = dict(before) if isinstance(before, Mapping) else {}
    merged = {**known, **metadata}
    file = TaskFile(leaf.file.path, {**leaf.file.values, "metadata": merged}, leaf.file.lines)
    return replace(leaf, file=file, config=replace(leaf.config, metadata=merged))


def load(leaf: Leaf, request: TaskRequest) -> LoadedTask:
    """A task with its documents, as the command wants it."""
    if leaf.code is not None:
        return _load_class(leaf, request)
    task = load_task(_configured(leaf, request), leaf.file, seeds=request.seeds, trust=request.trust)
    return replace(task, manner=request.manner)


def _load_class(leaf: Leaf, request: TaskRequest) -> LoadedTask:
    """A task that is a Python class, made and with its documents."""

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
    """The configuration of a task that is loaded already, as another command wants it."""
    if task.own is None:
        return _configured(leaf, request)
    return _scored(replace(task.own.config, repeats=request.samples or leaf.config.repeats), request)


def _scored(config: TaskFields, request: TaskRequest) -> TaskFields:
    return replace(config, metric_list=[{"metric": "bypass"}]) if request.predict_only else config


def _configured(leaf: Leaf, request: TaskRequest) -> TaskFields:
    """A task's configuration as the command wants it, its functions loaded."""
    samples = request.samples if leaf.config.output_type == GENERATION else None
    repeats = samples or leaf.config.repeats
    config = replace(leaf.config, num_fewshot=shots(leaf.config, request.num_fewshot), repeats=repeats)
    if request.default_metrics == "guide" and not request.predict_only:
        config = with_guide_metrics(config, leaf.file)
    with seeded(request.seeds):  # a module may draw while it is imported
        config = trusted(config, leaf.file, trust=request.trust, scored=not request.predict_only)
        rewind()
    return _scored(config, request)


def with_guide_metrics(config: TaskFields, file: TaskFile) -> TaskFields:
    """The task with the guide's default metrics; InputError for one that generates text and names no metric."""
    if config.metric_list or config.scorer is not None or config.process_results is not None:
        return config
    if config.output_type == ROLLING:
        return replace(config, metric_list=[{"metric": name} for name in ("perplexity", *DEFAULTS[ROLLING])])
    inner = [bool(entry.get("metric_list")) for entry in config.filter_list or ()]
    if config.output_type != GENERATION or (inner and all(inner)):
        return config
    wrong = (
        "there is no metric_list, and the guide of lm-evaluation-harness defines no default metrics for generated text"
    )
    right = "expected metric_list: [{metric: exact_match}], or --default-metrics release"
    raise InputError.at(file.place("metric_list"), wrong, right)


def shots(config: TaskFields, requested: int | None) -> int:
    """How many examples stand before a question: as the command says, unless the task says none."""
    return config.num_fewshot or 0 if requested is None or config.num_fewshot == 0 else requested


def suite_of(job: Job, tasks: LoadedTasks) -> tuple[Suite, Mapping[str, ObjectVerifier]]:
    """What a run needs of its task: the questions, and the verifier that they name."""
    task = tasks.task(job.benchmark, str(job.lm_eval), request_of(job))
    questions = suite(task, scored=not job.predict_only)
    if tasks.notes:
        questions = replace(questions, notes=[*questions.notes, *tasks.notes])
        tasks.notes.clear()
    return questions, {} if job.predict_only else {VERIFIER: judge_of(task)}


def suite(task: LoadedTask, *, scored: bool = True) -> Suite:
    """The questions of a task, and what counts as right for each where they are to be ``scored``."""
    tasks = []
    with seeded(task.seeds):
        digest = scoring_digest(task)
        plan = scoring(task) if scored else []
        for number, prompt in prompts(task):
            target = plain(right_answer(task, number)) if scored else None
            params = {"doc": plain(task.docs[number]), "scoring": digest}
            try:
                msgspec.json.encode((prompt, target, params))
            except UnicodeEncodeError:  # no log and no request can hold it
                wrong, right = "half of a surrogate pair stands alone", "expected whole characters"
                raise InputError.at(task.place("dataset_path", number), wrong, right) from None
            tasks.append(Task(str(number), prompt, VERIFIER if scored else None, target, params, {"doc_id": number}))
        path = task.file.path
        sha256 = hashlib.sha256(path.read_bytes()).hexdigest() if path else ""
        metadata = {"lm_eval": described(task)}
        notes = [*_unused(task), *scoring_notes(task, plan), *trial_notes(task, plan)]
        return Suite(str(task.config.task), tasks, metadata, path, sha256, notes, rewards=_rewards(task, plan))


def _rewards(task: LoadedTask, plan: Sequence[Scoring]) -> list[str]:
    """The names that its documents' scores can have; none where code, or a metric of another library, names them."""
    entries = [entry for scoring in plan for entry in scoring.metrics]
    free = task.own is not None or task.config.process_results is not None
    if free or any(entry.function or entry.reduction or entry.name not in KNOWN for entry in entries):
        return []
    return sorted({"reward", *(entry.name for entry in entries)}) if entries else []


def _unused(task: LoadedTask) -> Iterator[str]:
    if task.own is not None:
        return
    if task.config.fewshot_config.fewshot_indices:
        where = task.file.place("fewshot_config")
        yield f"{where}.fewshot_indices: ignored, as in lm-evaluation-harness 0.4.13"
    if (split := _leaking(task.config)) is not None:
        where = task.file.place("num_fewshot")
        leak = f"the examples are drawn from the evaluated split {split!r}"
        more = "a document may be a few-shot example in its own prompt, with its answer, as in lm-evaluation-harness"
        yield f"{where}: {leak}, and {more}; set fewshot_split to another split to prevent it"
    inside = task.file.place("filter_list")
    for number, entry in enumerate(task.config.filter_list or ()):
        if any(step["function"] == "decontaminate" for step in entry["filter"]):
            why = "lm-evaluation-harness 0.4.13 has no code for it"
            yield f"{inside}[{number}]: decontaminate keeps every response: {why}"
    pipelines = [(entry.get("metric_list"), f"{inside}[{n}]") for n, entry in enumerate(task.config.filter_list or ())]
    for listed, where in [(task.config.metric_list, task.file.place("metric_list")), *pipelines]:
        names = [entry.get("metric") for entry in listed or ()]
        for name in dict.fromkeys(name for name in names if isinstance(name, str) and names.count(name) > 1):
            yield (
                f"{where}: {name} is listed {names.count(name)} times; the "
                "last entry is used, as in lm-evaluation-harness"
            )


def _leaking(config: TaskFields) -> str | None:
    """The evaluated split where its documents are examples, and the document itself is not left out.

    lm-evaluation-harness leaves it out only where the split of the examples has the name of ``test_split``.
    """
    shots = config.fewshot_config
    first = config.training_split or config.validation_split or config.test_split
    source = shots.split or (first if shots.samples is None else None)
    leaks = source == config.evaluated_split and shots.split != config.test_split
    return source if config.num_fewshot and leaks else None


def described(task: LoadedTask) -> dict[str, Any]:
    """What lm-evaluation-harness would dump of the task, as JSON; functions by their names."""
    config: dict[str, Any] = plain(task.config.dumped())
    return {
        "config": config,
        **({} if task.own is None else {"class": task.own.name}),
        "multiple_targets": task.multiple_targets,
        "documents": len(task.docs),
        "document_hashes": document_hashes(task),
    }


def scoring_digest(task: LoadedTask) -> str:
    """A few digits for how answers are scored: another filter, metric or function is another run."""
    config, whole = task.config, hashlib.sha256()
    scoring = (config.metric_list, config.filter_list, config.scorer, config.process_results)
    whole.update(msgspec.json.encode(plain(list(scoring)), order="sorted"))
    for function in functions_in(list(task.file.values.values())):
        file = function.folder.joinpath(*function.module.split(".")).with_suffix(".py")
        whole.update(file.read_bytes() if file.is_file() else function.module.encode())
    return whole.hexdigest()[:16]


def plain(value: Any) -> Any:
    """A value as JSON has it; what has no place there, such as a date, as its text."""
    if value is None or isinstance(value, (str, bool, int, float)):
        return value
    if isinstance(value, Mapping):
        return {str(key): plain(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(each) for each in value]
    if callable(value) and not isinstance(value, Function):
        return f"!function {getattr(value, '__name__', type(value).__name__)}"
    return str(value)


class _RecordedDocuments(msgspec.Struct):
    document_hashes: list[str] | None = None


class _LmEvalPlan(msgspec.Struct):
    dataset: str | None = None
    lm_eval: _RecordedDocuments | None = None


def document_hashes(task: LoadedTask) -> list[str]:
    """The hash of each document of the evaluated split, in its order."""
    if "hashes" not in task.cache:
        task.cache["hashes"] = [digest(dumped(dict(doc)))[:DIGITS] for doc in task.docs]
    hashes: list[str] = task.cache["hashes"]
    return hashes


def check_documents(folder: Path, task: str, hashes: Sequence[str]) -> None:
    """Refuse a folder whose run of a task was asked about other documents; one that recorded none is not refused."""
    recorded = _recorded(folder, task)
    if recorded is None or recorded == list(hashes):
        return
    pairs = zip_longest(recorded, hashes)
    different = [number for number, (before, now) in enumerate(pairs) if before != now]
    some = ", ".join(map(str, different[:3])) + (", ..." if len(different) > 3 else "")
    wrong = f"{len(different)} of its {len(recorded)} documents differ from those of the run ({some})"
    right = "expected the same data files, task code and --load-seeds, or another --out"
    raise InputError.at(str(folder), wrong, right)


def _recorded(folder: Path, task: str) -> list[str] | None:
    try:
        plan = msgspec.json.decode((folder / PLAN).read_bytes(), type=_LmEvalPlan)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError):
        return None  # whoever reads the plan itself says what is wrong with it
    return plan.lm_eval.document_hashes if plan.lm_eval is not None and plan.dataset == task else None


def written_out(job: Job, tasks: LoadedTasks) -> str:
    """The prompt and the target of the first document of a job's task, as ``--write_out`` has them."""
    task = tasks.task(job.benchmark, str(job.lm_eval), request_of(job))
    with seeded(task.seeds):
        first = min(job.documents) if job.documents else 0
        numbered = prompts(task)
        number, prompt = next((pair for pair in numbered if pair[0] == first), (first, ""))
        target = task.target(task.docs[number], number)
    text = prompt if isinstance(prompt, str) else json.dumps(prompt, ensure_ascii=False, indent=1)
    return (
        f"Task: {job.lm_eval}; document {number}; context prompt (starting on next line):\n{text}\n"
        f"(end of prompt on previous line)\ntarget string or answer choice index (starting on next line):\n{target}\n"
        "(end of target on previous line)"
    )


def shown_config(job: Job, tasks: LoadedTasks) -> str:
    """The configuration of a job's task as JSON, with the command's settings in it."""
    task = tasks.task(job.benchmark, str(job.lm_eval), request_of(job))
    return json.dumps(plain(task.config.dumped()), indent=2, ensure_ascii=False)


def integrity(job: Job, tasks: LoadedTasks) -> list[str]:
    """What can be said of a job's task before the first call: a line on its size, and notes; InputError if faulty."""
    task = tasks.task(job.benchmark, str(job.lm_eval), request_of(job))
    return _looked_over(task, suite(task, scored=not job.predict_only), task.config)


def _looked_over(task: LoadedTask, questions: Suite, config: TaskFields) -> list[str]:
    kind = config.output_type if task.own is None else f"class {task.own.name}"
    sizes = [
        counted(len(questions.tasks), "document"),
        counted(config.repeats, "repeat"),
        counted(config.num_fewshot or 0, "example"),
    ]
    return [f"{config.task}: {kind}, {', '.join(sizes)}", *(f"note: {note}" for note in questions.notes)]


def checked(benchmark: str, request: TaskRequest) -> list[str]:
    """What can be right or wrong about a task file before a model is asked: a line for each task, and its notes."""
    lines = []
    for leaf in leaves(nodes_of(benchmark, request.include_path)):
        _check_supported(leaf)
        task = load(leaf, request)
        questions = suite(task, scored=not request.predict_only)
        config = leaf.config if task.own is None else task.own.config
        lines += _looked_over(task, questions, config)
    return lines
