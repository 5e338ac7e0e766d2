"""The files of verifiers and prime-rl as rollouts.

``traces.jsonl``, from 0.4 on, has an episode on each line, and a rollout for each agent's trace. ``results.jsonl``,
before 0.4, has a rollout on each line, and ``metadata.json`` beside it.
"""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any, Final

import msgspec
import numpy as np
from msgspec.structs import astuple

from calipers.formats import BAD, Beginning, Columns, Format, Progress, Raw, Text
from calipers.formats.lines import ABSENT, NOTHING, kind_of
from calipers.formats.source import Source
from calipers.formats.system_rows import (
    SPLIT,
    STEP,
    Layout,
    Number,
    RowBlock,
    SystemPart,
    beside,
    extra_columns,
    given,
    hashed,
    planned,
    raw_hash,
    read_rows,
    row_texts,
    with_notes,
)
from calipers.rollouts.column import Floats, Ints
from calipers.rollouts.table import Labels, Part

SYSTEM: Final = "verifiers"
TOTAL: Final = "reward"
NO_TRACE: Final = "(no trace)"  # stands for the policy's agent until that is known
POLICY: Final = "policy "  # what a count of traces is called, with the agent and the model as JSON
TRUNCATED: Final = frozenset({"max_turns", "context_length"})
_FOLDERS: Final = re.compile(r"step_([0-9]+)[/\\](train|eval)[/\\]")


class Score(msgspec.Struct, gc=False):
    """A reward: its value is score x weight, and is not in the file."""

    score: Number = None
    weight: Number = 1.0


class EpisodeError(msgspec.Struct, gc=False):
    """One error; a retry leaves those of earlier attempts."""

    type: str | None = None


class Usage(msgspec.Struct, gc=False):
    """The tokens of a call; ``prompt_tokens`` excludes those that were read from a cache."""

    prompt_tokens: Number = None
    completion_tokens: Number = None
    cached_input_tokens: Number = None
    reasoning_tokens: Number = None
    cost: Number = None


class Call(msgspec.Struct, gc=False):
    """One request to the model."""

    model: str | None = None
    finish_reason: str | None = None
    usage: Usage | None = None


class TraceSpan(msgspec.Struct, gc=False):
    """When something began and ended, in seconds."""

    start: Number = None
    end: Number = None


class Timing(msgspec.Struct, gc=False):
    """The times of a trace."""

    agent: TraceSpan | None = None


class AgentConfig(msgspec.Struct, gc=False):
    """How an agent was set up."""

    model: str | None = None


class Agent(msgspec.Struct, gc=False):
    """Who acted; a judge is an agent that is not trainable."""

    name: str | None = None
    config: AgentConfig | None = None
    trainable: bool | None = True


class Trace(msgspec.Struct, gc=False):
    """What one agent did in an episode; an absent key is a null that the writer dropped."""

    id: str | None = None
    agent: Agent | None = None
    rewards: dict[str, Score | Number] | None = None
    metrics: dict[str, Any] | None = None
    calls: list[Call] | None = None
    stop_condition: str | None = None
    ok: bool | None = None
    is_timeout: bool | None = None
    errors: list[EpisodeError] | None = None
    timing: Timing | None = None


class Env(msgspec.Struct, gc=False):
    """The environment."""

    id: str | None = None
    name: str | None = None


class TaskOf(msgspec.Struct, gc=False):
    """The task; ``data`` is what it is made of."""

    key: str | int | None = None
    hash: str | int | None = None
    data: Raw = NOTHING


class TaskData(msgspec.Struct, gc=False):
    """What names a task that has neither key nor hash."""

    id: str | int | None = None
    idx: str | int | None = None


class PolicyRun(msgspec.Struct, gc=False):
    """The steps of the policy at the start and the end of an episode."""

    start: int | None = None
    end: int | None = None


class Work(msgspec.Struct, gc=False):
    """What an episode was for: train or eval, and the training step."""

    type: str | None = None
    step: int | None = None
    policy: PolicyRun | None = None


class RunOf(msgspec.Struct, gc=False):
    """The run that an episode belongs to."""

    id: str | None = None
    name: str | None = None
    work: Work | None = None


EPISODE: Final[list[tuple[str, Any, Any]]] = [
    ("id", str | None, None),
    ("env", Env | None, None),
    ("task", TaskOf, msgspec.NODEFAULT),
    ("run", RunOf | None, None),
    ("ok", bool | None, None),
    ("is_timeout", bool | None, None),
    ("errors", list[EpisodeError] | None, None),
    ("traces", list[Trace], msgspec.NODEFAULT),
]


_DATA: Final = msgspec.json.Decoder(TaskData)
CACHED: Final = "cached_input_tokens"
_SPENT: Final = {
    "prompt_tokens": "input_tokens",
    "completion_tokens": "output_tokens",
    CACHED: "cached_tokens",
    "reasoning_tokens": "reasoning_tokens",
    "cost": "cost_usd",
}


def take(rows: RowBlock) -> Ints:
    """A block of episodes: a rollout for each trace, and one for an episode that failed before an agent began."""
    episodes = list(zip(rows["task"], rows["env"], rows["run"], strict=True))
    origin, traces = _flat(rows["traces"])
    gather = rows.gather
    tasks = [_task(task) for task in rows["task"]]
    gather.tasks([tasks[row] for row in origin])
    who = [(NO_TRACE, NO_TRACE, False) if trace is None else _who(trace) for trace in traces]
    for (agent, model, trainable), count in Counter(who).items():
        if trainable:
            rows.counts[POLICY + json.dumps([agent or None, model or None])] += count
    gather.labels("agent", [agent for agent, _, _ in who])
    gather.labels("model", [model for _, model, _ in who])
    gather.labels("dataset", [_dataset(episodes[row][1]) for row in origin])
    _take_run(rows, [episodes[row][2] for row in origin])
    good = [trace is not None and _ok(trace) for trace in traces]
    if not all(good):
        each = list(zip(origin, traces, good, strict=True))
        rows.outcomes([None if ok else _outcome(rows, row, trace) for row, trace, ok in each])
        rows.error_kinds([None if ok else _kind(rows, row, trace) for row, trace, ok in each])
    counted = [trace if ok else None for trace, ok in zip(traces, good, strict=True)]
    _take_rewards(rows, [(trace.rewards if trace is not None else None) or {} for trace in counted])
    rows.named_numbers("column", [None if trace is None else trace.metrics for trace in counted])
    _take_usage(rows, traces)
    if "truncated" in rows.labels:
        rows.labelled.add("truncated")
        gather.labels("truncated", [None if trace is None else _truncated(trace) for trace in traces])
    rows.metadata([episodes[row][0].data for row in origin])
    ids = [rows["id"][row] if trace is None else trace.id for row, trace in zip(origin, traces, strict=True)]
    rows.ids.extend([-1 if each is None else hashed(each) for each in ids])
    return np.array(origin, dtype=np.int64)


def _flat(column: Sequence[Sequence[Trace]]) -> tuple[list[int], list[Trace | None]]:
    """The episode of each rollout, and its trace."""
    origin = [row for row, traces in enumerate(column) for _ in traces or (None,)]
    return origin, [trace for traces in column for trace in traces or (None,)]


def _task(task: TaskOf) -> str:
    if task.key is not None:
        return str(task.key)
    if task.hash is not None:
        return str(task.hash)
    try:
        data = _DATA.decode(task.data or b"{}")
    except BAD:
        data = TaskData()
    name = data.idx if data.id is None else data.id
    return "" if name is None else str(name)


def _who(trace: Trace) -> tuple[str | None, str | None, bool]:
    """The agent and the model of a trace, and whether it is one that learns."""
    agent = trace.agent
    model = agent.config.model if agent and agent.config else None
    if not model:
        model = trace.calls[0].model if trace.calls else None
    return agent.name if agent else None, model, agent is None or agent.trainable is not False


def _dataset(env: Any) -> str | None:
    return None if env is None else env.name or env.id


def _take_run(rows: RowBlock, runs: Sequence[RunOf | None]) -> None:
    """What says when and for what an episode was run, as labels."""
    unsaid = rows.memory.setdefault("folder", _work_of(rows.path))
    works = [run.work if run and run.work else unsaid for run in runs]
    labels: dict[str, list[Any]] = {
        STEP: [work.step if work else None for work in works],
        SPLIT: [work.type if work else None for work in works],
    }
    if "run" in rows.labels:
        labels["run"] = [run.id if run else None for run in runs]
    for end in {"policy_start", "policy_end"} & {*rows.labels}:
        policies = [work.policy if work else None for work in works]
        labels[end] = [getattr(policy, end.removeprefix("policy_")) if policy else None for policy in policies]
    for name, values in labels.items():
        rows.labelled.add(name)
        if any(value is not None for value in values):
            rows.gather.labels(name, values)


def _work_of(path: str) -> Work | None:
    """The step and the split that prime-rl's folders name, for episodes that do not say them."""
    found = _FOLDERS.search(os.path.abspath(path))
    return Work(type=found[2], step=int(found[1])) if found else None


def _ok(trace: Trace) -> bool:
    return not trace.errors if trace.ok is None else trace.ok


def _outcome(rows: RowBlock, row: int, trace: Trace | None) -> str:
    late = rows["is_timeout"][row] if trace is None else trace.is_timeout
    return "timed_out" if late else "client_failed"


def _kind(rows: RowBlock, row: int, trace: Trace | None) -> str:
    errors = (trace.errors if trace is not None else None) or rows["errors"][row] or ()
    kinds = [error.type for error in errors if error.type]
    return kinds[-1] if kinds else (trace.stop_condition if trace is not None else None) or "error"


def _take_rewards(rows: RowBlock, objects: Sequence[Mapping[str, Score | Number]]) -> None:
    """The score of each reward by its name, and their total: the sum of score x weight over those that are there."""
    size = len(objects)
    total, some = np.zeros(size), np.zeros(size, dtype=np.bool_)
    for name in dict.fromkeys(chain.from_iterable(objects)):
        given = [each.get(name) for each in objects]
        scores, weights = _scores(given), _weights(given)
        there = ~np.isnan(scores)
        with np.errstate(over="ignore", invalid="ignore"):  # of numbers near the largest
            total[there] += (scores * weights)[there]
        some |= there
        if name != TOTAL:
            rows.gather.floats("reward", name, scores, there)
    if some.any():
        rows.gather.floats("reward", TOTAL, total, some)


def _scores(rewards: Sequence[Score | Number]) -> Floats:
    """The score of each reward, NaN where there is none: JSON has no NaN."""
    return np.array([each.score if isinstance(each, Score) else each for each in rewards], dtype=np.float64)


def _weights(rewards: Sequence[Score | Number]) -> Floats:
    """The weight of each reward, 1 where it says none."""
    weights = np.array([each.weight if isinstance(each, Score) else None for each in rewards], dtype=np.float64)
    return np.where(np.isnan(weights), 1.0, weights)


def _take_usage(rows: RowBlock, traces: Sequence[Trace | None]) -> None:
    """The tokens, the cost and the time of each trace, as far as it says."""
    calls = [
        (row, call.usage)
        for row, trace in enumerate(traces)
        if trace is not None and trace.calls
        for call in trace.calls
        if call.usage is not None
    ]
    owners, used = np.array([row for row, _ in calls], dtype=np.int64), [usage for _, usage in calls]
    spent: dict[str, Floats] = {}
    for key, column in zip(Usage.__struct_fields__, zip(*map(astuple, used), strict=True), strict=False):
        if set(column) != {None}:
            spent[key] = np.array(column, dtype=np.float64)  # None becomes NaN, which JSON has not
    if {"prompt_tokens", CACHED} <= spent.keys():  # the file's prompt tokens are without those of the cache
        spent["prompt_tokens"] = spent["prompt_tokens"] + np.nan_to_num(spent[CACHED])
    for key, counted in spent.items():
        name = _SPENT[key]
        there = ~np.isnan(counted)
        sums: Floats = np.bincount(owners[there], counted[there], len(traces)).astype(np.float64, copy=False)
        rows.gather.floats("column", name, sums, np.bincount(owners[there], minlength=len(traces)) > 0)
    rows.gather.numbers("column", "latency_s", [_seconds(trace) for trace in traces])


def _seconds(trace: Trace | None) -> float | None:
    span = trace.timing.agent if trace is not None and trace.timing else None
    if span is None or not span.start or not span.end:  # 0: it never began
        return None
    return span.end - span.start


def _truncated(trace: Trace) -> bool:
    stop = trace.stop_condition or ""
    last = trace.calls[-1].finish_reason if trace.calls else None
    return stop in TRUNCATED or (stop.startswith("max_") and stop.endswith("_tokens")) or last == "length"


LAYOUT: Final = Layout(SYSTEM, EPISODE, take)


def read(source: Source, names: Columns, labels: Collection[str], progress: Progress) -> list[Part]:
    """The rollouts of a file, and `not_run` for those that verifiers planned and the file does not have."""
    maker = "calipers.systems.verifiers_rl:LAYOUT"
    parts, agent, model = _with_policy(read_rows(maker, source, names, labels, progress))
    notes = []
    if _is_effective(source.path):
        notes.append(
            f"{source.path}: 'effective' is a filtered copy without failed rollouts: "
            "its failures are not counted; 'all' has them"
        )
    config = beside(source.path, "configs/resolved/eval.json", "configs/eval.json")
    datasets = {value for part in parts for value in part.labels["dataset"].values} if config else set()
    if config and len(datasets) < 2:
        group = {"agent": agent, "model": model, "dataset": next(iter(datasets), None)}
        own = planned(parts, source.path, config.get("num_tasks"), config.get("num_rollouts"), group)
        return [*with_notes(own[: len(parts)], source.path, notes), *own[len(parts) :]]  # type: ignore[arg-type]  # a part stays of its kind
    return with_notes(parts, source.path, notes)


def _with_policy(parts: Sequence[SystemPart]) -> tuple[list[SystemPart], str | None, str | None]:
    """The parts with the policy's agent and model for episodes without a trace; and these two."""
    counts = Counter[str]()
    for part in parts:
        counts.update({key: count for key, count in part.counts.items() if key.startswith(POLICY)})
    names = json.loads(counts.most_common(1)[0][0].removeprefix(POLICY)) if counts else (None, None)
    who = dict(zip(("agent", "model"), names, strict=True))
    named = []
    for part in parts:
        labels = {**part.labels, **{name: _instead(part.labels[name], value) for name, value in who.items()}}
        named.append(replace(part, labels=labels))
    return named, who["agent"], who["model"]


def _instead(labels: Labels, value: str | None) -> Labels:
    """Labels with a value in the place of `NO_TRACE`."""
    if NO_TRACE not in labels.values:
        return labels
    at = labels.values.index(NO_TRACE)
    if value is None:
        return Labels(np.where(labels.code == at, -1, labels.code), labels.values)
    values = list(labels.values)
    if value not in values:
        values[at] = value
        return Labels(labels.code, values)
    return Labels(np.where(labels.code == at, values.index(value), labels.code), values)


def _is_effective(path: str) -> bool:
    return os.path.basename(os.path.dirname(os.path.abspath(path))) == "effective"


def of_folder(paths: Sequence[str]) -> tuple[Sequence[str], Sequence[str]]:
    """Of the files in a folder, all but the filtered copies of others; and a note on these."""
    there = {os.path.realpath(path) for path in paths}
    copies = [path for path in paths if _is_effective(path) and os.path.realpath(_all_of(path)) in there]
    kept = [path for path in paths if path not in copies]
    note = f"'all' is read, and not 'effective', its filtered copy without failed rollouts ({len(copies)} files)"
    return kept, [note] if copies else []


def _all_of(path: str) -> str:
    folder, name = os.path.split(os.path.abspath(path))
    return os.path.join(os.path.dirname(folder), "all", name)


def said(row: Mapping[str, Raw]) -> list[dict[str, Any]]:
    """The messages of each trace of an episode, and what its task says of itself."""
    task = msgspec.json.decode(row["task"]).get("data")
    data = {key: value for key, value in task.items() if key != "prompt"} if isinstance(task, dict) else {}
    about = {"metadata": data} if data else {}
    return [{**about, **_messages(trace.get("nodes"))} for trace in msgspec.json.decode(row["traces"])] or [about]


def _messages(nodes: Any) -> dict[str, Any]:
    """The prompt, and from the first message on that the model wrote, the completion."""
    if not isinstance(nodes, list) or not all(isinstance(node, dict) for node in nodes):
        return {}
    first = next((at for at, node in enumerate(nodes) if node.get("sampled")), len(nodes))
    messages = [node.get("message") for node in nodes]
    parts = {"prompt": messages[:first], "completion": messages[first:]}
    return {name: part for name, part in parts.items() if part}


def recognise(start: Beginning) -> bool:
    """Whether the first row is an episode: ``traces`` is a list and ``task`` an object."""
    row = start.row
    if row is None or not {"traces", "task"} <= row.keys():
        return False
    return kind_of(row["traces"]) == "list" and kind_of(row["task"]) == "object"


TRACES: Final = Format(SYSTEM, read, recognise, in_folders=True, of_folder=of_folder, line_extras=said)

# -- the results of verifiers before 0.4

OLDER: Final = "verifiers_v0"
BOOKKEEPING: Final = frozenset({"num_turns", "total_tool_calls"})  # metrics that verifiers adds by itself
OURS: Final = frozenset({"sample", "attempt", "outcome", "rewards"})  # keys that only our own records have
NO_ERROR: Final = (b"", b"null", b'""')
COMPANION: Final = "metadata.json"


class ResultTiming(msgspec.Struct, gc=False):
    """The time of a rollout before 0.4, in seconds."""

    total: Number = None


class ResultUsage(msgspec.Struct, gc=False):
    """The tokens of a rollout before 0.4."""

    input_tokens: Number = None
    output_tokens: Number = None


class TextResult(msgspec.Struct, gc=False):
    """A row before 0.4, as far as it says something."""

    example_id: int | str
    prompt: Raw = NOTHING
    completion: Raw = NOTHING
    answer: Raw = NOTHING


RESULT: Final[list[tuple[str, Any, Any]]] = [
    ("example_id", int | str, msgspec.NODEFAULT),
    ("prompt", Raw, NOTHING),
    ("completion", Raw, NOTHING),
    ("answer", Raw, NOTHING),
    ("info", Raw, NOTHING),
    ("task", Raw, NOTHING),
    ("reward", Number, ABSENT),
    ("error", Raw, NOTHING),
    ("error_chain", Raw, NOTHING),
    ("timing", ResultTiming | None, None),
    ("is_completed", bool | None, ABSENT),
    ("is_truncated", bool | None, ABSENT),
    ("stop_condition", str | None, ABSENT),
    ("metrics", dict[str, Any] | None, ABSENT),
    ("tool_defs", Raw, NOTHING),
    ("token_usage", ResultUsage | None, None),
    ("generation_ms", Number, ABSENT),
    ("scoring_ms", Number, ABSENT),
    ("total_ms", Number, ABSENT),
]
"""A row of verifiers before 0.4; every other key is a metric, or a column of the state."""


class _Failure(msgspec.Struct, gc=False):
    error: str | None = None


_FAILURE: Final = msgspec.json.Decoder(_Failure | str | None)


def take_results(rows: RowBlock) -> None:
    """A block of rows, each a rollout."""
    gather = rows.gather
    gather.tasks(rows["example_id"])
    gather.numbers("reward", "reward", rows["reward"])
    failed = [bytes(raw) not in NO_ERROR for raw in rows["error"]]
    rows.outcomes(["client_failed" if failure else None for failure in failed])
    rows.error_kinds(
        [_error_kind(raw) if failure else None for raw, failure in zip(rows["error"], failed, strict=True)]
    )
    _take_metrics(rows)
    for name in ("input_tokens", "output_tokens"):
        gather.numbers("column", name, [getattr(used, name) if used else None for used in rows["token_usage"]])
    times = [times.total if times else None for times in rows["timing"]]
    if any(isinstance(each, float) for each in rows["total_ms"]):  # as they were before 0.1.10
        times = [each / 1000 if isinstance(each, float) else None for each in rows["total_ms"]]
    gather.numbers("column", "latency_s", times)
    if "env_task" in rows.labels:
        rows.labelled.add("env_task")
        gather.labels("env_task", [_env_task(raw) for raw in rows["task"]])
    if "truncated" in rows.labels:
        rows.labelled.add("truncated")
        gather.labels("truncated", [None if cut is ABSENT else cut for cut in rows["is_truncated"]])
    rows.metadata(rows["info"])
    for role, name in rows.memory.setdefault("group", _group(beside(rows.path, COMPANION))).items():
        if name is not None:
            rows.constant(role, name)


def _group(companion: Mapping[str, Any]) -> dict[str, str | None]:
    """The model and the dataset, which only the companion of a file names."""
    names = {"model": companion.get("model"), "dataset": companion.get("env_id")}
    return {role: name if isinstance(name, str) else None for role, name in names.items()}


def _take_metrics(rows: RowBlock) -> None:
    """The metrics as rewards by their names: from ``metrics``, and before there was one, from the row itself.

    Newer rows have them in both places; they are read once.
    """
    inside = [{} if metrics is ABSENT or metrics is None else metrics for metrics in rows["metrics"]]
    known = rows.memory.setdefault("metrics", set())
    known.update(name for metrics in inside for name in metrics)
    given = rows.memory.setdefault("has metrics", any(metrics is not ABSENT for metrics in rows["metrics"]))
    rows.table("reward", inside, BOOKKEEPING)
    counted_here = BOOKKEEPING & known
    if counted_here:
        rows.table("column", [{name: each.get(name) for name in counted_here} for each in inside])
    rows.extras = {key: values for key, values in rows.extras.items() if key not in known}
    counted = {key: values for key, values in rows.extras.items() if key in BOOKKEEPING}
    others = {key: values for key, values in rows.extras.items() if key not in BOOKKEEPING}
    rows.extras = counted
    extra_columns(rows)
    rows.extras = others
    extra_columns(rows, "column" if given else "reward")


def _error_kind(raw: Raw) -> str:
    try:
        failure = _FAILURE.decode(raw)
    except BAD:
        return "error"
    return (failure.error if isinstance(failure, _Failure) else failure) or "error"


def _env_task(raw: Raw) -> str | None:
    try:
        value = msgspec.json.decode(raw) if len(raw) else None
    except BAD:
        return None
    return value if isinstance(value, str) else None


RESULT_LAYOUT: Final = Layout(OLDER, RESULT, take_results, extras=True)


def read_results(source: Source, names: Columns, labels: Collection[str], progress: Progress) -> list[Part]:
    """The rollouts of a file, and `not_run` for those that were planned and are not in it."""
    parts = read_rows("calipers.systems.verifiers_rl:RESULT_LAYOUT", source, names, labels, progress)
    companion = beside(source.path, COMPANION)
    examples, samples = companion.get("num_examples"), companion.get("rollouts_per_example")
    own = planned(parts, source.path, examples, samples, _group(companion))
    return [*with_notes(own[: len(parts)], source.path), *own[len(parts) :]]  # type: ignore[arg-type]  # a part stays of its kind


def texts(path: str, columns: Columns, wanted: Collection[str]) -> Iterator[Text]:
    """What the rows of a file say; an example_id is a place in the dataset, so prompts tell whether tasks are equal."""
    group = _group(beside(path, COMPANION))

    def text_of(row: TextResult) -> Text:
        who = None, group["model"], group["dataset"], str(row.example_id)
        return Text(*who, 0, target=raw_hash(row.answer), completion=row.completion, prompt=row.prompt)

    return row_texts(path, TextResult, text_of, wanted)


def said_result(row: Mapping[str, Raw]) -> list[dict[str, Any]]:
    """The texts of a row, and what the dataset knows of the task."""
    metadata = given(row, metadata="info") if kind_of(row.get("info", NOTHING)) == "object" else {}
    return [{**metadata, **given(row, prompt="prompt", completion="completion")}]


def is_result(start: Beginning) -> bool:
    """Whether the first row is one of verifiers' before 0.4: ``example_id prompt completion reward``."""
    keys = {"example_id", "prompt", "completion", "reward"}
    return start.row is not None and keys <= start.row.keys() and not OURS & start.row.keys()


RESULTS: Final = Format(OLDER, read_results, is_result, texts, in_folders=True, line_extras=said_result)
