"""Tasks of lm-evaluation-harness as benchmarks: the tasks of a name, their settings of a run, suites and verifiers.

A verifier scores one response at a time while a run is in progress. The task's numbers need all responses to a document
and all documents, so they are computed from the log when the run is over. The verifier applies the same filters and
metrics to a single response: each gives a column ``metric,pipeline``, and the first column is the reward.

For log-likelihoods the reward is the first score that is averaged, such as acc. If there is none, it is the
log-likelihood; for a whole text the log-likelihood per byte, so that long texts do not outweigh short ones.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import lru_cache
from itertools import zip_longest
from pathlib import Path
from typing import Any, Final

import msgspec

from calipers.clients import Completion, Line, read_back
from calipers.errors import CalipersError, InputError, PluginError, UnknownName, VerifierError
from calipers.formats.run_folder import PLAN
from calipers.running import LOAD_SEEDS, Job, Seeds
from calipers.running.library import CheckedTask
from calipers.systems.lm_eval import AVERAGED
from calipers.systems.lm_eval.aggregations import NAMES, aggregate
from calipers.systems.lm_eval.client import manner, prompts, read_answers, request_kinds, sampling
from calipers.systems.lm_eval.entries import (
    CHOICE,
    DEFAULTS,
    GENERATION,
    KNOWN,
    NEWER,
    ROLLING,
    Scoring,
    metrics_of,
    process,
    score_answer,
    scorer_of,
    scorings,
    silently_ignored,
    words,
)
from calipers.systems.lm_eval.pipelines import (
    STOPPED,
    UNPARSED,
    Pipeline,
    Select,
    check_ends,
    filtered,
    patterns_of,
    pipeline,
    settings_of,
)
from calipers.systems.lm_eval.task_scores import (
    NO_CHOICE,
    ScoringSettings,
    answered_documents,
    argmax,
    check,
    gold_of,
    right_answer,
    score_documents,
    target_of,
)
from calipers.systems.lm_eval.tasks import Function, TaskFields, TaskFile, functions_in, read_task_file, rewind
from calipers.systems.lm_eval.tasks.groups import FILES, Leaf, Node, TaskGroup, Tasks, installed, is_task_file, leaves
from calipers.systems.lm_eval.tasks.loaded import LoadedTask, load_class, load_task, request_cache, seeded, trusted
from calipers.systems.lm_eval.tasks.prompts import PLAIN, Manner
from calipers.systems.lm_eval.write import digest, dumped, markdown
from calipers.tasks import Suite, Task
from calipers.typed import complete
from calipers.verifiers import Verdict
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


def is_known(benchmark: str, include_path: Sequence[str] = ()) -> bool:
    """Whether a benchmark is a task file, or a name, tag or pattern in ``include_path`` or an installed lm-eval.

    Other files and folders of this name, and benchmarks in the store, are recognised elsewhere.
    """
    if is_task_file(benchmark):
        return True
    if os.path.lexists(benchmark) or Path(benchmark).suffix in FILES:
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
    fields = (config.metric_list, config.filter_list, config.scorer, config.process_results)
    sha256.update(msgspec.json.encode(plain(list(fields)), order="sorted"))
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
    count = f"{len(different)} of its {len(recorded)} documents"
    problem = f"{count} differ from those of the run ({_first_three(different)})"
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
    return _checked_task(task, scored=not job.predict_only).lines()


def _checked_task(task: LoadedTask, *, scored: bool) -> CheckedTask:
    config, task_suite = task.config, suite(task, scored=scored)
    kind = config.output_type if task.own is None else f"class {task.own.name}"
    documents, examples = len(task_suite.tasks), config.num_fewshot or 0
    return CheckedTask(str(config.task), kind, documents, config.repeats, examples, task_suite.notes)


def checked(benchmark: str, request: TaskRequest) -> list[CheckedTask]:
    """Check the tasks of a name or file without calling a model."""
    tasks = []
    for leaf in leaves(nodes_of(benchmark, request.include_path)):
        _check_supported(leaf)
        tasks.append(_checked_task(load(leaf, request), scored=not request.predict_only))
    return tasks


def listed(kind: str, pattern: str, include_path: Sequence[str]) -> dict[str, str]:
    """The ``tasks``, ``groups`` or ``tags`` that match a pattern: location (or for a tag, number of tasks) by name."""
    index = tasks_in(tuple(include_path))
    if not index.heads:
        problem = "lm_eval is not installed" if not include_path else f"no task file in {', '.join(include_path)}"
        raise InputError.at(kind, problem, "expected --include-path DIR with a folder of tasks")
    if kind == "tags":
        names = {tag: f"{len(members):,} task{'s' if len(members) > 1 else ''}" for tag, members in index.tags.items()}
    else:
        wanted = ("group",) if kind == "groups" else ("task", "class")
        names = {name: _location(head.path) for name, head in index.heads.items() if head.kind in wanted}
    return {name: names[name] for name in sorted(names) if fnmatchcase(name, pattern)}


def listing(kind: str, include_path: str | None) -> str:
    """The output of ``calipers lm-eval ls``: tables of groups, tags and tasks."""
    index = tasks_in((include_path,) if include_path else ())
    groups = [[name, _location(head.path)] for name, head in sorted(index.heads.items()) if head.kind == "group"]
    tags = [[name] for name in sorted(index.tags)]
    tables = []
    if kind in ("tasks", "groups"):
        tables.append(markdown(["Group", "Config Location"], groups))
    if kind in ("tasks", "tags"):
        tables.append(markdown(["Tag"], tags))
    if kind in ("tasks", "subtasks"):
        rows = [
            [name, _location(head.path), _output_type(head.path)]
            for name, head in sorted(index.heads.items())
            if head.kind != "group"
        ]
        tables.append(markdown(["Task", "Config Location", "Output Type"], rows))
    return "\n" + "".join(f"{table}\n\n" for table in tables) + "\n"


def _location(path: Path) -> str:
    _, folder, below = str(path).partition("lm_eval/tasks/")
    return f"{folder}{below}" if folder else str(path)


def _output_type(path: Path) -> str:
    try:
        return str(read_task_file(path).values.get("output_type", ""))
    except InputError:
        return ""


VERIFIER = "lm_eval"
CORPUS_ONLY: Final = ("f1", "matthews_corrcoef")  # aggregations that are meaningless for a single document
TRIAL_RESULTS: Final = {GENERATION: "", ROLLING: -1.0}
"""Made-up results, by kind of request, for a trial of a class before the first call; TRIAL_LIKELIHOOD for others."""
TRIAL_LIKELIHOOD: Final = (-1.0, False)


def judge_of(task: LoadedTask) -> ObjectVerifier:
    """The verifier of a task; InputError, with file and key, for an unknown filter, metric or scorer."""
    judge: Any = ResponseJudge(task, scoring(task))
    if task.own is not None:
        judge = ClassJudge(task, judge.scorings)
    elif task.config.output_type != GENERATION:
        judge = LikelihoodJudge(task, judge.scorings, scoring_settings(task))
    return ObjectVerifier(VERIFIER, judge)


def scoring_settings(task: LoadedTask) -> ScoringSettings:
    """The scoring settings of a task; a class scores its documents itself, unless ``bypass`` is a metric."""
    if task.own is None:
        return ScoringSettings(task.config.output_type, task.multiple_targets, task.config.process_results)
    bypass = any(entry["metric"] == "bypass" for entry in task.config.metric_list or ())
    return ScoringSettings(GENERATION, process_results=None if bypass else task.own.process)


def responses_of(task: LoadedTask, number: int, completions: Sequence[str]) -> list[list[Any]]:
    """A document's logged completions as lm-evaluation-harness' responses, [requests x repeats]."""
    if task.own is not None:
        repeats = [read_answers(text, request_kinds(task)[number]) for text in completions]
        return [list(answers) for answers in zip(*repeats, strict=True)]
    if task.config.output_type == GENERATION:
        return [list(completions)]
    return _likelihoods(task.config.output_type, read_back(completions[0]))


def _likelihoods(kind: str, lines: Sequence[Line]) -> list[list[Any]]:
    return [[line.logprob] if kind == ROLLING else [(line.logprob, line.greedy)] for line in lines]


def scoring(task: LoadedTask) -> list[Scoring]:
    """The pipelines of a task and their metrics; InputError for an unknown name or a wrong setting."""
    config, file = task.config, task.file
    if task.own is not None and not config.metric_list:
        metrics, where = task.own.metrics, file.location("class")
        return scorings(GENERATION, filter_list=config.filter_list, metric_list=metrics, scored=False, location=where)
    scored = config.process_results is None
    for number, entry in enumerate(config.filter_list or ()):
        location = f"{file.location('filter_list')}[{number}]"
        _located(location, pipeline, entry, location)
        _located(f"{location}.metric_list", _check_metrics, entry.get("metric_list"), config, scored)
        for step in entry["filter"]:
            _check_step(task, step, location)
    _located(file.location("scorer"), scorer_of, config.scorer, config.output_type, file.location("scorer"))
    _located(file.location("metric_list"), _check_metrics, config.metric_list, config, scored)
    plan = scorings(
        config.output_type,
        filter_list=config.filter_list,
        metric_list=config.metric_list,
        scorer=config.scorer,
        scored=scored,
        location=file.location(),
    )
    _check_plan(task, plan)
    return plan


def _check_metrics(metric_list: Any, config: TaskFields, scored: bool) -> None:
    if not metric_list:
        return
    for entry in metrics_of(metric_list, config.output_type, scored=scored, has_scorer=config.scorer is not None):
        if isinstance(entry.aggregation, str) and entry.aggregation not in NAMES:
            # lm-evaluation-harness notices it only when the run is over
            raise UnknownName.of("lm_eval aggregation", entry.aggregation, NAMES)


def _check_step(task: LoadedTask, step: Mapping[str, Any], where: str) -> None:
    settings = settings_of(step)
    if step["function"] == "take_first_k" and settings["k"] > task.config.repeats:
        problem = f"take_first_k takes {settings['k']} of {task.config.repeats} responses"
        raise InputError.at(where, problem, f"expected repeats: {settings['k']} or more, or as many --samples")
    if step["function"] == "multi_choice_regex" and "choices" not in task.columns:
        problem = "multi_choice_regex needs a column 'choices'"
        raise InputError.at(where, problem, f"the documents have {', '.join(task.columns)}")


def _check_plan(task: LoadedTask, plan: Sequence[Scoring]) -> None:
    """InputError, with file and key, for scoring that could not be completed once the run is over.

    That is an unknown reduction, a k larger than the number of repeats that will be run (``task.config.repeats``) or
    that a pipeline keeps, and a pattern that may take exponential time.
    """
    config, file = task.config, task.file
    for number, entry in enumerate(config.filter_list or ()):
        for step in entry["filter"]:
            _located(f"{file.location('filter_list')}[{number}]", _check_patterns, step)
    for step in scorer_of(config.scorer, config.output_type).default_filter_cfg:
        _located(file.location("scorer"), _check_patterns, step)
    has_own_metrics = [bool(entry.get("metric_list")) for entry in config.filter_list or ()] or [False]
    for number, (own_metrics, scoring) in enumerate(zip(has_own_metrics, plan, strict=True)):
        where = f"{file.location('filter_list')}[{number}].metric_list" if own_metrics else file.location("metric_list")
        kept = kept_repeats(scoring.pipeline, config.repeats)
        for metric in scoring.metrics:
            _located(where, check, metric, config.repeats, where)
            if metric.k is not None and (max_k := metric.k if isinstance(metric.k, int) else max(metric.k)) > kept:
                pipeline_name = scoring.pipeline.name
                problem = f"k is {max_k}, but pipeline {pipeline_name!r} keeps only {kept} of {config.repeats} repeats"
                raise InputError.at(where, problem, "expected a pipeline without take_first, such as filter: [noop]")
            _located(where, _check_patterns, metric.settings)


def kept_repeats(through: Pipeline, repeats: int) -> int:
    """The number of repeats per document that a pipeline keeps, as far as its built-in filters determine it."""
    for step in through.steps:
        if isinstance(step, Select):
            repeats = len(step.keep([""] * repeats))
    return repeats


def _check_patterns(settings: Mapping[str, Any]) -> None:
    for pattern in patterns_of(settings):
        check_ends(pattern)


def _located(where: str, function: Callable[..., Any], *arguments: Any) -> None:
    """Call a function that raises for bad input; prefix its error message with ``where`` if it is not there yet."""
    try:
        function(*arguments)
    except CalipersError as error:
        text = str(error) if str(error).startswith(where) else f"{where}: {error}"
        raise (UnknownName if isinstance(error, UnknownName) else InputError)(text) from None


@dataclass(frozen=True, slots=True)
class ResponseJudge:
    """Scores one response with a task's filters and metrics."""

    task: LoadedTask
    scorings: list[Scoring]

    def verify(self, task: Task, completion: Completion) -> Verdict:
        """The scores of the response by every pipeline and metric.

        If no metric can score a single response, as with a function that needs all repeats, every repeat is assumed to
        have the same response.
        """
        doc, repeats = self.task.docs[int(task.id)], self.task.config.repeats
        try:
            verdict = self._verdict(task.target, [completion.text], doc)
        except PluginError:
            if repeats == 1:
                raise
            verdict = Verdict(None)
        if repeats > 1 and not verdict.fields:
            return self._verdict(task.target, [completion.text] * repeats, doc)
        return verdict

    def _verdict(self, target: Any, responses: list[str], doc: Mapping[str, Any]) -> Verdict:
        columns: dict[str, float] = {}
        answer, outcome = None, ""
        for index, scoring in enumerate(self.scorings):
            try:
                filtered_answers = filtered(scoring.pipeline, [responses], [doc])
            except InputError:  # too few responses for this pipeline
                continue
            value, word = filtered_answers.values[0], filtered_answers.outcome(0)
            if index == 0:
                answer, outcome = _scalar(value), UNPARSED if word == UNPARSED else ""
                if word == STOPPED:
                    problem = f"pipeline {scoring.pipeline.name!r}: a pattern did not finish matching in time"
                    raise VerifierError(problem, outcome=STOPPED)
            scores: dict[str, Any] = {}
            if self.task.config.process_results is not None:
                scores = process(self.task.config.process_results, doc, [value])
            for entry in scoring.metrics if self.task.config.process_results is None else ():
                is_reduced = (entry.reduction or scoring.reduction) and isinstance(value, list) and value
                repeat = value[0] if is_reduced else value  # a metric with a reduction scores each repeat by itself
                options = {"multiple_targets": self.task.multiple_targets, "typed": scoring.typed}
                scores |= score_answer([entry], target, repeat, **options)
            aggregations = _aggregations(scoring)
            for name, score in scores.items():
                number = number_of(score, aggregations.get(name, "mean"))
                if number is not None:
                    columns[f"{name},{scoring.pipeline.name}"] = number
        first = next(iter(columns), "")
        if first and not math.isfinite(columns[first]):
            raise VerifierError(self._not_finite(first, columns[first]), blameless=True)
        return Verdict(columns.get(first), averaged(columns), answer, outcome, columns)

    def _not_finite(self, key: str, value: float) -> str:
        aggregations = {name: how for scoring in self.scorings for name, how in _aggregations(scoring).items()}
        sentence = f"{key} is {value} for this document, so it has no reward; lm-evaluation-harness' number"
        excluded = aggregations.get(key.rpartition(",")[0], "mean") == "nanmean" and math.isnan(value)
        return f"{sentence} excludes it, too" if excluded else f"{sentence} includes it"


def _aggregations(scoring: Scoring) -> dict[str, Any]:
    return {entry.name: entry.aggregation for entry in scoring.metrics}


def averaged(columns: Mapping[str, float]) -> dict[str, float]:
    """The scores that the dialect has a metric for, such as acc, by metric; from the first pipeline that has them."""
    by_metric: dict[str, float] = {}
    for key, value in columns.items():
        name = key.rpartition(",")[0]
        if name in AVERAGED and math.isfinite(value):
            by_metric.setdefault(name, value)
    return by_metric


def number_of(score: Any, how: Any) -> float | None:
    """A document's score as a number: the score itself, or its aggregate over only this document."""
    if isinstance(score, (bool, int, float)) and how != "perplexity":  # whose score is a log-likelihood
        return float(score)
    try:
        value = aggregate(how, [score])
    except CalipersError:
        return None
    return float(value) if isinstance(value, (int, float)) else None


def _scalar(value: Any) -> Any:
    """An answer as the verdict records it: a list of one answer as this answer; None for other types of values."""
    answer = value[0] if isinstance(value, list) and len(value) == 1 else value
    return answer if isinstance(answer, (str, int, float, bool, list)) else None


@dataclass(frozen=True, slots=True)
class LikelihoodJudge:
    """Scores the log-likelihoods of one document with a task's metrics."""

    task: LoadedTask
    scorings: list[Scoring]
    settings: ScoringSettings

    def verify(self, task: Task, completion: Completion) -> Verdict:
        """The scores of the document by every metric that is meaningful for one document."""
        try:
            lines = read_back(completion.text)
            document = answered_documents(self.task, {int(task.id): _likelihoods(self.settings.kind, lines)})
            scores = score_documents(document, self.scorings, self.settings)
        except CalipersError as error:
            raise VerifierError(str(error)) from error
        if self.settings.kind == CHOICE and self.settings.process_results is None:
            problem = _bad_target_index(self.task, int(task.id))
            if problem is not None:
                raise VerifierError(f"{problem}; lm-evaluation-harness' number counts this document as 0")
        columns: dict[str, float] = {}
        reward = None
        for scored in scores.pipelines:
            aggregations = _aggregations(scored.scoring)
            for name, score in scored.scores[0].items():
                how = aggregations.get(name, "mean")
                value = None if how in CORPUS_ONLY else number_of(score, how)
                if value is None or not math.isfinite(value):
                    continue  # such as the infinite perplexity of a very unlikely text
                columns[f"{name},{scored.scoring.pipeline.name}"] = value
                if reward is None and how == "mean":
                    reward = value
        metrics = averaged(columns)
        if self.settings.kind == CHOICE:
            choices = document[0].choices or ()
            likeliest = argmax([line.logprob for line in lines[: len(choices)]])
            answer = (choices or ("",))[likeliest]
            return Verdict(lines[likeliest].logprob if reward is None else reward, metrics, answer, fields=columns)
        line = lines[0]
        columns |= {"logprob": line.logprob, "scored_tokens": line.tokens, "bytes": line.bytes}
        logprob = line.logprob
        if self.settings.kind == ROLLING:
            columns["words"] = words(str(document[0].target))
            logprob /= max(1, line.bytes)
        return Verdict(logprob if reward is None else reward, metrics, fields=columns)


@dataclass(frozen=True, slots=True)
class ClassJudge:
    """Scores the results of one document with the task's own class."""

    task: LoadedTask
    scorings: list[Scoring]

    def verify(self, task: Task, completion: Completion) -> Verdict:
        """The class's scores of the document.

        The reward is the first score that is a number; if there is none, the first that its aggregation turns into one.
        """
        number = int(task.id)
        try:
            results = responses_of(self.task, number, [completion.text])
            scores = score_documents(
                answered_documents(self.task, {number: results}), self.scorings, scoring_settings(self.task)
            )
        except CalipersError as error:
            raise VerifierError(str(error)) from error
        columns: dict[str, float] = {}
        unaggregated: list[tuple[str, Any, Any]] = []  # (key, score, the class's own function, which may be slow)
        for scored in scores.pipelines:
            aggregations = _aggregations(scored.scoring)
            for name, score in scored.scores[0].items():
                key, how = f"{name},{scored.scoring.pipeline.name}", aggregations.get(name, "mean")
                if callable(how) and not isinstance(score, (bool, int, float)):
                    unaggregated.append((key, score, how))
                elif (value := number_of(score, how)) is not None and math.isfinite(value):
                    columns[key] = value
        for key, score, how in unaggregated:
            if columns:
                break
            if (value := number_of(score, how)) is not None and math.isfinite(value):
                columns[key] = value
        answer = _first_text(self.scorings[0], results, self.task.docs[number], request_kinds(self.task)[number])
        return Verdict(next(iter(columns.values()), None), averaged(columns), answer, fields=columns)


def _first_text(scoring: Scoring, results: list[list[Any]], doc: Mapping[str, Any], kinds: Sequence[str]) -> str | None:
    """The response to the first request for text, filtered by the pipeline; None if it is not text."""
    index = next((index for index, kind in enumerate(kinds) if kind == GENERATION), None)
    if index is None:
        return None
    value = filtered(scoring.pipeline, [results[index]], [doc]).values[0]
    return value if isinstance(value, str) else None


def scoring_notes(task: LoadedTask, plan: Sequence[Scoring]) -> Iterator[str]:
    """Notes on what lm-evaluation-harness does silently: it ignores metrics, and accepts targets that are no choice.

    InputError for a target or a choice of a type that it fails on.
    """
    kind = task.config.output_type
    if kind == GENERATION or task.config.process_results is not None or task.own is not None or not plan:
        return
    known = [entry for scoring in plan for entry in scoring.metrics if entry.name not in NEWER]
    for name in dict.fromkeys(silently_ignored(known, kind)):
        location = task.location("metric_list")
        yield f"{location}: {name} has no value for {kind}; it is skipped, as in lm-evaluation-harness"
    if kind != CHOICE:
        return
    no_choice = [number for number in range(len(task.docs)) if _is_no_choice(task, number)]
    bad_index = [number for number in no_choice if _bad_target_index(task, number) is not None]
    where = task.location("doc_to_target")
    if texts := [number for number in no_choice if number not in bad_index]:
        yield (
            f"{where}: {len(texts)} documents ({_first_three(texts)}) have a target "
            "that is not one of the choices, and count as 0"
        )
    if bad_index:
        sentence = f"{len(bad_index)} documents ({_first_three(bad_index)}) have a target index beyond their choices"
        yield f"{where}: {sentence}: they have no reward, and count as 0 in lm-evaluation-harness' numbers"


def _first_three(numbers: Sequence[int]) -> str:
    return ", ".join(map(str, numbers[:3])) + (", ..." if len(numbers) > 3 else "")


def _bad_target_index(task: LoadedTask, number: int) -> str | None:
    """The description of a target that is an index beyond the choices; None for any other target.

    Also None if at least one of several targets is the index of a choice.
    """
    target, choices = target_of(task, number), task.choices(task.docs[number], number) or []
    indices = list(target) if isinstance(target, (list, tuple)) else [target]
    valid = (*range(len(choices)), NO_CHOICE)  # with NO_CHOICE a task says that no choice is correct
    if not indices or not all(isinstance(index, int) and index not in valid for index in indices):
        return None
    return f"the target is choice {indices[0]} of {len(choices)}, counted from 0"


def _is_no_choice(task: LoadedTask, number: int) -> bool:
    """Whether a document's target, or one of its targets, is not one of its choices."""
    doc = task.docs[number]
    choices = task.choices(doc, number) or []
    for choice in choices:
        if not isinstance(choice, str):
            raise InputError.at(task.location("doc_to_choice", number), f"a choice is {choice!r}", "expected texts")
    target = target_of(task, number)
    try:
        gold = gold_of(target, choices)
    except InputError as error:
        raise InputError(f"{task.location('doc_to_target', number)}: {error}") from None
    return NO_CHOICE in gold if isinstance(gold, list) else gold == NO_CHOICE


def trial_notes(task: LoadedTask, plan: Sequence[Scoring]) -> Iterator[str]:
    """A note if a class's scoring fails in a trial on its first document, before the model is called."""
    if task.own is None or not plan:
        return
    results = [TRIAL_RESULTS.get(kind, TRIAL_LIKELIHOOD) for kind in request_kinds(task)[0]]
    where = task.location("class")
    try:
        scores = process(task.own.process, task.docs[0], results)
    except CalipersError as error:
        yield f"{where}: tried on the first document with an empty answer: {error}"
        return
    for entry in plan[0].metrics:
        if callable(entry.aggregation) and entry.name in scores:
            try:
                entry.aggregation([scores[entry.name]])
            except Exception as error:  # the task's code may raise anything, as when it downloads a metric
                first_line = str(error).strip().partition("\n")[0]
                sentence = f"the aggregation of {entry.name} failed ({type(error).__name__}: {first_line})"
                yield f"{where}: tried on the first document: {sentence}"
                return
