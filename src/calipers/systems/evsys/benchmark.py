"""EvSys' Benchmark: tasks in memory that are sent to a client one by one, and scored with EvSys' numbers.

``score.metrics``, ``per_task`` and ``breakdowns`` are as in EvSys; ``score.result`` is the same scoring as a Calipers
`Result`, with intervals and the ledger. Errors in the tasks, the metrics or the client are raised before the first
call.

The stand-in for ``evsys_sdk.benchmark``, and for ``harbor_eval``, ``harbor_engine`` and ``trajectory`` of
``evsys_sdk.training``.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import InitVar, dataclass, field, replace
from inspect import iscoroutinefunction
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from calipers.clients import Completion
from calipers.errors import CalipersError, InputError, UnknownName, VerifierError
from calipers.errors import HarborError as HarborError
from calipers.formats.read import begin
from calipers.formats.rewards import Trajectory, TrajectoryGroup, Turn, from_groups, from_rewards
from calipers.metrics import PASS_THRESHOLD, mean, task_mean
from calipers.names import BENCHMARK_ENGINE, VERIFIERS, is_code, load
from calipers.pipeline import score_rollouts
from calipers.reports.result import Result
from calipers.request import Plan, make_plan
from calipers.rollouts.record import ABSENT, GROUP, MISSING
from calipers.rollouts.table import Labels, Part, Places, Rollouts, assemble
from calipers.systems.evsys.cache import evsys_lookup, workspace
from calipers.systems.evsys.predictions import check_sink
from calipers.systems.evsys.predictions import eval_predictions as eval_predictions
from calipers.systems.evsys.predictions import upload_eval_rollouts as upload_eval_rollouts
from calipers.tally import quietly
from calipers.tasks.jsonl import (
    CommonVerifier,
    E2BVerifier,
    HarborTask,
    InProcessVerifier,
    LLMJudgeVerifier,
    NoObject,
    NotThere,
    WrongType,
    as_task,
    detect_format,
    from_task,
    harbor_task_from_dict,
    harbor_tasks,
    iter_jsonl,
    parse_rows,
    place_of,
    read_metadata,
    suite_name,
    tasks_file,
    to_dict,
)
from calipers.tasks.questions import Questions, questions_suite, roles_of
from calipers.tasks.store import lookup
from calipers.tasks.table import read_table, table_of
from calipers.verifiers import NamedVerifier, judged, user_code
from calipers.verifiers.reasoning import keeping

if TYPE_CHECKING:
    from calipers.systems.evsys.lent import TextGenerator

__all__ = [  # the names of ``evsys_sdk.benchmark``
    "Benchmark",
    "BenchmarkScore",
    "BenchmarkTaskResult",
    "E2BVerifier",
    "HarborTask",
    "InProcessVerifier",
    "LLMJudgeVerifier",
    "Trajectory",
    "TrajectoryGroup",
    "Turn",
    "detect_format",
    "eval_metrics",
    "harbor_task_from_dict",
    "iter_jsonl",
    "parse_rows",
    "run_benchmark",
    "to_dict",
]

Breakdowns = dict[str, dict[str, dict[str, float]]]  # key -> value -> n, mean_reward, pass_rate
ECONOMICS: Final = ("time_per_task", "tokens_per_task", "cost_per_task")


@dataclass(frozen=True)
class BenchmarkTaskResult:
    """A task with its mean reward and its last completion."""

    task_id: Any
    instruction: Any
    model_output: str
    expected: Any
    reward: float
    metadata: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class BenchmarkScore:
    """The score of a benchmark, with the fields that EvSys has.

    ``result``, the Calipers `Result` with the same numbers, is an argument and an attribute, but not a field: it is not
    part of `dataclasses.asdict`, equality or ``repr``, and `dataclasses.replace` keeps it.
    """

    metrics: dict[str, float]
    per_task: list[BenchmarkTaskResult]
    breakdowns: Breakdowns = field(default_factory=dict)
    rollouts: list[Any] = field(default_factory=list)
    result: InitVar[Result | None] = field(default=None, kw_only=True)

    def __post_init__(self, result: Result | None) -> None:
        object.__setattr__(self, "result", result)


def eval_metrics(groups: Iterable[TrajectoryGroup], *, metrics: list[str] | None = None) -> dict[str, float]:
    """The metrics of rollouts, and their cost. Tasks without a rollout are left out.

    ``time_per_task``, ``tokens_per_task`` and ``cost_per_task`` are included if any rollout reported them. They are
    means over a task's samples, and then over tasks.

    >>> eval_metrics([])
    {'n_tasks': 0.0, 'mean_reward': 0.0, 'pass_rate': 0.0}
    """
    plan = make_plan(metrics or None, dialect="evsys")
    kept = [group for group in groups if group.trajectories]
    (scored,) = score_rollouts(assemble([from_groups(kept)]), plan).groups
    costs = {name: scored.economics[name].value for name in ECONOMICS if name in scored.economics}
    numbers = {name: estimate.value for name, estimate in scored.metrics.items()}
    return {"n_tasks": float(len(kept)), **{name: _number(value) for name, value in (numbers | costs).items()}}


def break_down(tasks: Sequence[BenchmarkTaskResult], keys: Iterable[str]) -> Breakdowns:
    """For each metadata key and each of its values, as text, three numbers of the tasks with this value.

    They are the number of tasks, their mean reward, and the share of tasks whose mean reward passes.
    """
    breakdowns: Breakdowns = {}
    for key in keys:
        buckets: dict[str, list[float]] = {}
        for task in tasks:
            has_value, value = _at(task.metadata, key)
            buckets.setdefault(str(value) if has_value else ABSENT, []).append(task.reward)
        breakdowns[key] = {label: _bucket(np.array(rewards)) for label, rewards in buckets.items()}
    return breakdowns


def _bucket(rewards: np.ndarray[Any, np.dtype[np.float64]]) -> dict[str, float]:
    with quietly():
        passed = np.count_nonzero(rewards >= PASS_THRESHOLD)
        return {
            "n": float(len(rewards)),
            "mean_reward": float(mean(rewards)),
            "pass_rate": float(passed / len(rewards)),
        }


def score_judged(
    name: str, tasks: Sequence[HarborTask], rewards: list[list[float]], texts: Sequence[str], plan: Plan
) -> BenchmarkScore:
    """The score of judged completions, from ``rewards[task][sample]`` and each task's last completion."""
    table = _table(rewards, tasks, plan.by, name)
    result = score_rollouts(table, plan)
    with quietly():
        means = task_mean(table.rewards["reward"], table.by_task).values.tolist() if tasks else []
    per_task = [_task_result(*of_task) for of_task in zip(tasks, texts, means, strict=True)]
    numbers = {metric: _number(estimate.value) for metric, estimate in result.groups[0].metrics.items()}
    metrics = {"n_tasks": float(len(tasks)), **numbers}
    return BenchmarkScore(metrics, per_task, break_down(per_task, plan.by), result=result)


def harvested(task: HarborTask, group: TrajectoryGroup) -> BenchmarkTaskResult:
    """The result of a task of a job: the mean reward of its successful trials, 0.0 without any, and the last text."""
    rewards = np.array(group.rewards)
    texts = [turn.text for trajectory in group.trajectories for turn in trajectory.turns]
    return _task_result(task, texts[-1] if texts else "", float(mean(rewards)) if len(rewards) else 0.0)


def _task_result(task: HarborTask, text: str, reward: float) -> BenchmarkTaskResult:
    expected = getattr(task.verifier, "expected", None)
    return BenchmarkTaskResult(task.task_id, task.instruction, text, expected, reward, dict(task.metadata))


def _score_directory(job: Path, names: Sequence[str], samples: int, plan: Plan) -> Result:
    """The score of a job's directory. Requested rollouts that are not in it count as missing."""
    parts: list[Part] = []
    rollouts, inputs = begin([str(job)], labels=plan.labels, kept=parts)
    counts = dict(zip(rollouts.tasks, np.bincount(rollouts.task, minlength=len(rollouts.tasks)).tolist(), strict=True))
    absent = [(number, sample) for number, name in enumerate(names) for sample in range(counts.get(name, 0), samples)]
    absent = absent[: max(0, len(names) * samples - len(rollouts))]  # rollouts of unknown tasks count as some of these
    if absent and len(rollouts.keys) == 1:
        task, sample = np.array(absent, dtype=np.int64).T
        group = {name: value for name, value in zip(GROUP, rollouts.keys[0], strict=True) if value is not None}
        missing = Part(
            places=Places(str(job), blocks=[(0, 0)]),
            tasks=list(names),
            task=task,
            sample=sample,
            attempt=np.ones(len(absent), dtype=np.int64),
            outcome=np.full(len(absent), MISSING, dtype=np.uint8),
            labels={name: Labels(np.zeros(len(absent), dtype=np.int64), [value]) for name, value in group.items()},
            turn=np.arange(len(absent), dtype=np.float64) + len(rollouts),
        )
        rollouts = assemble([replace(parts[0], planned_from="num_samples"), *parts[1:], missing])
    return replace(score_rollouts(rollouts, plan), inputs=inputs())


def _table(rewards: list[list[float]], tasks: Sequence[HarborTask], keys: Sequence[str], name: str) -> Rollouts:
    """Rewards as rollouts. Tasks are identified by their number, which keeps their order, and tasks with equal ids."""
    part = from_rewards(rewards)
    labels = {"dataset": Labels(np.zeros(len(part), dtype=np.int64), [name])} if name else {}
    for key in keys:
        values = [_at(task.metadata, key) for task in tasks]
        code = np.array([number if has_value else -1 for number, (has_value, _) in enumerate(values)], dtype=np.int64)
        labels[f"metadata.{key}"] = Labels(code[part.task], [value for _, value in values])
    return assemble([replace(part, labels=labels)])


def _at(metadata: Any, path: str) -> tuple[bool, Any]:
    """Whether nested dicts have a value at a dotted path, and the value."""
    for step in path.split("."):
        if not isinstance(metadata, Mapping) or step not in metadata:
            return False, None
        metadata = metadata[step]
    return True, metadata


def _number(value: float | None) -> float:
    return float("nan") if value is None else value


MODEL_CLIENTS: Final = ("tinker", "litellm")


class CannotJudge(CalipersError, NotImplementedError):
    """A verifier that cannot run in this process, because it needs a container or another model.

    It is also a NotImplementedError, which is what EvSys raises for it.
    """


class RepeatedAnswer(UserWarning):
    """Several samples were requested with settings that usually repeat the same answer."""


@dataclass
class Benchmark:
    """A benchmark in memory."""

    name: str
    tasks: list[HarborTask]
    metadata: dict[str, Any] = field(default_factory=dict)
    root: Path | None = None  # the directory from which it was read

    def __post_init__(self) -> None:
        # the verifiers that were given with the tasks, by name; not a field, because EvSys' class has no such field
        self.verifiers: dict[str, NamedVerifier] = {}

    @classmethod
    def from_dir(cls, path: str | Path) -> Benchmark:
        """The benchmark in a directory with ``tasks.jsonl`` and, optionally, ``metadata.yaml``."""
        root = Path(path)
        if not root.is_dir():
            raise NotThere(f"benchmark dir not found: {root}; expected a directory with tasks.jsonl")
        metadata = read_metadata(root)
        tasks = list(harbor_tasks(tasks_file(root), CommonVerifier(root, metadata)))
        return cls(suite_name(root, metadata), tasks, metadata, root)

    @classmethod
    def from_iterable(
        cls, name: str, rows: Iterable[Mapping[str, Any] | HarborTask], *, metadata: Mapping[str, Any] | None = None
    ) -> Benchmark:
        """A benchmark from rows, each a dict or a task. Tasks are kept as they are."""
        tasks: list[Any] = [row if hasattr(row, "task_id") else harbor_task_from_dict(row) for row in rows]
        return cls(name, tasks, dict(metadata or {}))

    @classmethod
    def from_table(
        cls,
        table: Any,
        *,
        prompt: str | None = None,
        target: str | None = None,
        verifier: str | Callable[..., Any] | None = None,
        id: str | None = None,
        metadata: str | Sequence[str] = (),
        template: str | None = None,
        choices: str | Sequence[str] = (),
        shuffle_choices: bool = False,
        index_from: int | None = None,
        params: Mapping[str, Any] | None = None,
        seed: int = 0,
        name: str = "table",
    ) -> Benchmark:
        """A benchmark from a table of questions, as in ``calipers run qa.csv``.

        The table is a polars or pandas frame, an Arrow table, a list of dicts, a dict of columns, or the path of a
        file. Columns that are not named are guessed from common names. A verifier is a name, ``FILE.py:FUNCTION``, or
        a function ``grade(task, completion)``. ``calipers.evaluate(benchmark, model)`` runs it.

        >>> Benchmark.from_table([{"question": "2 + 2?", "answer": 4}], verifier="numeric_match").tasks[0].instruction
        '2 + 2?'
        """
        verifiers: dict[str, NamedVerifier] = {}
        verifier_name: str | None
        if verifier is None or isinstance(verifier, str):
            verifier_name = verifier
            if verifier is not None and is_code(verifier):
                verifiers = {verifier: user_code.code_verifier(verifier)}
        else:
            verifier_name = str(getattr(verifier, "__name__", type(verifier).__name__))
            verifiers = {verifier_name: user_code.wrap(verifier_name, verifier)}
        questions = Questions(
            prompt=prompt,
            target=target,
            id=id,
            metadata=_listed(metadata),
            template=template,
            choices=_listed(choices),
            shuffle_choices=shuffle_choices,
            index_from=index_from,
            verifier=verifier_name,
            params=params or {},
            seed=seed,
        )
        is_path = isinstance(table, (str, os.PathLike))
        rows = read_table(os.fspath(table)) if is_path else table_of(table, name)
        suite = questions_suite(rows, questions)
        chosen = roles_of(rows, questions).verifier
        if not verifiers and chosen is not None and chosen in VERIFIERS.entries and chosen not in user_code.BUILT_IN:
            verifiers = {chosen: VERIFIERS.load(chosen)}
        benchmark = cls(suite.name, [from_task(task) for task in suite.tasks])
        benchmark.verifiers = verifiers
        return benchmark

    @classmethod
    def load(cls, spec: Mapping[str, Any], *, store: Any = None) -> Benchmark | None:
        """The benchmark named by ``path``, ``id`` or ``name`` in a mapping, in this order; None without any of them.

        ``store`` is where ids and names are looked up: None for the store of this project, the path of another store,
        an object with ``find(name) -> id`` and ``pull(id) -> path``, or a store of EvSys (see `evsys_lookup`).
        """
        if not isinstance(spec, Mapping):
            raise WrongType(f"the benchmark is {spec!r}; expected a mapping with path, id or name")
        if spec.get("path"):
            return cls.from_dir(spec["path"])
        key, name = spec.get("id"), spec.get("name")
        if not key and not name:
            return None
        find, pull = evsys_lookup(store) or lookup(store)
        root = Path(pull(str(key or find(str(name)))))
        if root.is_dir():
            return replace(cls.from_dir(root), name=str(name or key))
        return cls(str(name or key), list(harbor_tasks(root)))

    def score(
        self,
        client: TextGenerator,
        *,
        max_tokens: int = 512,
        temperature: float = 0.0,
        stop: list[str] | None = None,
        prompt_builder: Callable[[HarborTask], str] | None = None,
        breakdown_keys: list[str] | None = None,
        limit: int | None = None,
        metrics: list[str] | None = None,
        num_samples: int = 1,
    ) -> BenchmarkScore:
        """Request the completions of each task from the client, verify them, and score the rewards.

        The client is called sequentially, in the order of tasks and samples, in the calling thread. Exceptions of the
        client are raised unchanged. ``limit`` restricts the run to the first tasks; less than one sample means one. For
        ``metrics`` and ``breakdown_keys``, a string means a list of one.
        """
        tasks = self._first(limit)
        samples = max(1, int(num_samples))
        plan = make_plan(metrics or None, by=_listed(breakdown_keys), dialect="evsys")
        judges = self._judges(tasks)
        if tasks:
            _check_client(client)
        if tasks and samples > 1 and temperature == 0:
            problem = f"{samples} samples at temperature 0 are usually the same answer {samples} times"
            warnings.warn(f"{problem}; give a temperature above 0", RepeatedAnswer, stacklevel=2)
        rewards: list[list[float]] = []
        last: list[str] = []
        for task, judge in zip(tasks, judges, strict=True):
            prompt = task.instruction if prompt_builder is None else prompt_builder(task)
            rewards.append([])
            for _ in range(samples):
                text = client.generate(prompt=prompt, max_tokens=max_tokens, temperature=temperature, stop=stop)
                rewards[-1].append(judge(text))
            last.append(text)
        return score_judged(self.name, tasks, rewards, last, plan)

    async def score_via_harbor(
        self,
        *,
        model_name: str,
        model_path: str | None = None,
        model_client: str = "tinker",
        workspace_dir: Path,
        renderer_name: str | None = None,
        num_samples: int = 1,
        max_tokens: int = 512,
        temperature: float = 0.0,
        system_prompt: str | None = None,
        limit: int | None = None,
        breakdown_keys: list[str] | None = None,
        metrics: list[str] | None = None,
        n_concurrent: int = 8,
        agent_import_path: str | None = None,
        max_retries: int = 2,
        _job_factory: Any | None = None,
    ) -> BenchmarkScore:
        """Run each task ``num_samples`` times with Harbor, verify the completions in this process, and score them.

        ``metrics``, ``per_task`` and ``rollouts`` cover only trials with a verdict, as in EvSys; ``result`` covers the
        whole job, with failures in its ledger. `HarborError` if Harbor is missing or fails.

        ``_job_factory`` runs the job instead of Harbor. It is called with the job's configuration, and returns, also as
        an awaitable, the directory of a job or an object with Harbor's ``trial_results``.
        """
        if not isinstance(workspace_dir, Path):
            raise WrongType(f"workspace_dir is {workspace_dir!r}; expected a pathlib.Path")
        if model_client not in MODEL_CLIENTS:
            raise UnknownName.of("model_client", model_client, MODEL_CLIENTS)
        if model_client == "tinker" and not model_path and _job_factory is None:
            raise InputError("model_client is 'tinker' but model_path is missing; expected the path of a checkpoint")
        plan = make_plan(metrics or None, dialect="evsys")
        tasks = self._first(limit)
        judges = self._judges(tasks)
        if not tasks:
            return score_judged(self.name, [], [], [], plan)  # Harbor refuses a job of no tasks
        job, names, groups = await load(BENCHMARK_ENGINE)(
            tasks,
            judges,
            _job_factory,
            model_name=model_name,
            model_client=model_client,
            workspace=workspace_dir,
            samples=int(num_samples),
            sampling={"max_tokens": max_tokens, "temperature": temperature, "system_prompt": system_prompt},
            concurrent=n_concurrent,
            retries=max_retries,
            agent=agent_import_path,
        )
        per_task = [harvested(task, group) for task, group in zip(tasks, groups, strict=True)]
        if isinstance(job, Path):
            result = _score_directory(job, names, int(num_samples), plan)
        else:
            result = score_rollouts(assemble([job]), plan)
        numbers = eval_metrics(groups, metrics=metrics)
        return BenchmarkScore(numbers, per_task, break_down(per_task, _listed(breakdown_keys)), groups, result=result)

    def _first(self, limit: int | None) -> list[HarborTask]:
        return self.tasks if limit is None else self.tasks[: max(0, int(limit))]

    def _judges(self, tasks: Sequence[HarborTask]) -> list[Callable[[str], float]]:
        """The function that judges completions of each task. The error for a task without one names its location."""
        judges = []
        for number, task in enumerate(tasks):
            try:
                name = getattr(task.verifier, "fn_name", None)
                given = self.verifiers.get(name) if isinstance(name, str) else None
                judges.append(_judge(task) if given is None else _judge_with(task, given))
            except CalipersError as error:
                location = place_of(self.root, number, task.task_id) if self.root else None
                if location is None:
                    raise
                raise type(error)(f"{location}: {error}") from None
        return judges


def run_benchmark(
    benchmark: Benchmark | None = None,
    *,
    model: str,
    path: str | Path | None = None,
    id: str | None = None,
    name: str | None = None,
    num_samples: int = 1,
    max_tokens: int = 512,
    temperature: float = 0.0,
    system_prompt: str | None = None,
    limit: int | None = None,
    n_concurrent: int = 8,
    workspace_dir: str | Path | None = None,
    store: Any = None,
    run_id: str | None = None,
    eval_id: str | None = None,
) -> dict[str, float]:
    """Run a benchmark, given as an object or by path, id or name, with an API model in Harbor. Returns its metrics.

    Errors are those of `Benchmark.score_via_harbor`. With a ``store`` and a ``run_id``, the predictions are uploaded to
    the store (see `upload_eval_rollouts`); whether it supports this is checked before the first call.
    """
    upload = store is not None and bool(run_id)
    if upload:
        check_sink(store)
    chosen = benchmark or Benchmark.load({"path": path, "id": id, "name": name}, store=store)
    if chosen is None:
        raise InputError("benchmark is missing; expected a Benchmark, or path=, id= or name=")
    scoring = chosen.score_via_harbor(
        model_name=model,
        model_client="litellm",
        workspace_dir=_writable(Path(workspace_dir) if workspace_dir else _workspace(chosen.name, model)),
        num_samples=num_samples,
        max_tokens=max_tokens,
        temperature=temperature,
        system_prompt=system_prompt,
        limit=limit,
        n_concurrent=n_concurrent,
    )
    with ThreadPoolExecutor(1) as thread:  # a thread, because the caller may be in an event loop, and loops do not nest
        score = thread.submit(asyncio.run, scoring).result()
    if upload:
        tasks = chosen.tasks[: len(score.rollouts)]
        upload_eval_rollouts(store, run_id, eval_predictions(tasks, score.rollouts, eval_id=eval_id))
    return score.metrics


async def run_harbor_rollouts(
    tasks: Sequence[HarborTask],
    *,
    workspace_dir: Path,
    max_turns: int = 1,
    temperature: float = 1.0,
    n_concurrent: int = 4,
    **settings: Any,
) -> list[TrajectoryGroup]:
    """The successful rollouts of each task, in the order of the tasks; see `Benchmark.score_via_harbor`.

    ``max_turns`` and ``renderer_name`` are accepted but have no effect, because the agent has one turn.
    """
    score = await Benchmark("", list(tasks)).score_via_harbor(
        workspace_dir=workspace_dir, temperature=temperature, n_concurrent=n_concurrent, **settings
    )
    return score.rollouts


async def score_via_harbor(
    tasks: Sequence[HarborTask], *, temperature: float = 0.0, n_concurrent: int = 8, **settings: Any
) -> list[TrajectoryGroup]:
    """`run_harbor_rollouts` with the default temperature and concurrency of an evaluation."""
    return await run_harbor_rollouts(tasks, temperature=temperature, n_concurrent=n_concurrent, **settings)


def _listed(names: str | Iterable[str] | None) -> tuple[str, ...]:
    """Names as a tuple; a string is one name."""
    return (names,) if isinstance(names, str) else tuple(names or ())


def _check_client(client: Any) -> None:
    generate = getattr(client, "generate", None)
    if not callable(generate):
        raise NoObject(f"the client is a {type(client).__name__} without generate(); expected EvSys' InferenceClient")
    if iscoroutinefunction(generate):  # `Benchmark.score` calls it synchronously
        raise WrongType(f"generate() of {type(client).__name__} is async; expected EvSys' own, which returns the text")


def _judge(task: HarborTask) -> Callable[[str], float]:
    """The function from a completion of a task to its reward; an error for a verifier that cannot be called here."""
    verifier: Any = task.verifier
    kind = getattr(verifier, "kind", None)
    if kind == "in_process":
        if not isinstance(verifier.fn_name, str):
            raise WrongType(f"task {task.task_id!r}: fn_name is {verifier.fn_name!r}; expected the name of a verifier")
        judge = _function(verifier.fn_name)
        return lambda text: float(judge(text, verifier.expected, verifier.params))
    type_name = type(verifier).__name__
    if kind in ("e2b", "llm_judge"):
        problem = f"task {task.task_id!r}: {type_name} cannot verify in this process"
        raise CannotJudge(f"{problem}; expected an in_process verifier")
    raise WrongType(f"task {task.task_id!r}: unknown verifier type: {type_name}; expected an InProcessVerifier")


def _judge_with(task: HarborTask, verifier: NamedVerifier) -> Callable[[str], float]:
    """The function from a completion of a task to its reward, by a verifier that was given with the benchmark."""
    calipers_task = keeping(as_task(task))  # as EvSys, which verifies the whole completion
    verifier.check(calipers_task)

    def judge(text: str) -> float:
        with ThreadPoolExecutor(1) as thread:  # a thread, because the caller may be in an event loop
            verdict = thread.submit(asyncio.run, judged(verifier, calipers_task, Completion(text))).result()
        if verdict.reward is None:
            raise VerifierError(f"task {calipers_task.id!r}: verifier {verifier.name!r} gave no reward")
        return float(verdict.reward)

    return judge


def _function(name: str) -> user_code.VerifierFn:
    """The registered function of a name. The error for a built-in verifier, which is not one, says where it works."""
    try:
        return user_code.get(name)
    except UnknownName as error:
        if name not in VERIFIERS.entries:
            raise
        raise UnknownName(f"{error} ({name} works in calipers run and calipers.evaluate)") from None


def _workspace(benchmark: str, model: str) -> Path:
    name = f"{benchmark}_{model}".replace("/", "_").replace(" ", "_")
    return workspace() / "outputs" / "benchmark_runs" / name


def _writable(folder: Path) -> Path:
    """Create the folder and return it; if this fails, return a new temporary folder, as in EvSys."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return Path(tempfile.mkdtemp(prefix="evsys_bench_"))
    return folder
