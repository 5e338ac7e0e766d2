"""The readers of the files of verifiers and prime-rl.

From version 0.4, ``traces.jsonl`` has an episode per line, and a rollout for each agent's trace in it. Before 0.4,
``results.jsonl`` has a rollout per line, and ``metadata.json`` lies beside it.
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
from calipers.formats.own_numbers import numbers_in, pooled_mean
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
from calipers.rollouts.checks import Check, compared
from calipers.rollouts.column import Floats, Ints
from calipers.rollouts.table import Labels, Part
from calipers.typed import complete

SYSTEM: Final = "verifiers"
TOTAL: Final = "reward"
NO_TRACE: Final = "(no trace)"  # placeholder for the policy's agent and model until they are known
POLICY: Final = "policy "  # prefix of a count of traces; the agent and the model follow as JSON
TRUNCATED: Final = frozenset({"max_turns", "context_length"})
_FOLDERS: Final = re.compile(r"step_([0-9]+)[/\\](train|eval)[/\\]")


class Score(msgspec.Struct, gc=False):
    """A reward. Its value, score x weight, is not in the file."""

    score: Number = None
    weight: Number = 1.0


class EpisodeError(msgspec.Struct, gc=False):
    """An error; the errors of earlier attempts stay after a retry."""

    type: str | None = None


class Usage(msgspec.Struct, gc=False):
    """The token counts of a call; ``prompt_tokens`` excludes tokens read from a cache."""

    prompt_tokens: Number = None
    completion_tokens: Number = None
    cached_input_tokens: Number = None
    reasoning_tokens: Number = None
    cost: Number = None


class Call(msgspec.Struct, gc=False):
    """A request to the model."""

    model: str | None = None
    finish_reason: str | None = None
    usage: Usage | None = None


class TraceSpan(msgspec.Struct, gc=False):
    """A start and an end, in seconds."""

    start: Number = None
    end: Number = None


class Timing(msgspec.Struct, gc=False):
    """The times of a trace; ``agent`` is the time in which its agent ran."""

    agent: TraceSpan | None = None


class AgentConfig(msgspec.Struct, gc=False):
    """The configuration of an agent."""

    model: str | None = None


class Agent(msgspec.Struct, gc=False):
    """An agent of an episode; a judge is an agent that is not trainable."""

    name: str | None = None
    config: AgentConfig | None = None
    trainable: bool | None = True


class Trace(msgspec.Struct, gc=False):
    """The trace of one agent in an episode. The writer drops keys whose value is null."""

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
    """The task of an episode."""

    key: str | int | None = None
    hash: str | int | None = None
    data: Raw = NOTHING


class TaskData(msgspec.Struct, gc=False):
    """The fields of a task's data that identify a task without key and hash."""

    id: str | int | None = None
    idx: str | int | None = None


class PolicyRun(msgspec.Struct, gc=False):
    """The steps of the policy at the start and the end of an episode."""

    start: int | None = None
    end: int | None = None


class Work(msgspec.Struct, gc=False):
    """The purpose of an episode: train or eval, and the training step."""

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


_DATA: Final = msgspec.json.Decoder(complete(TaskData))
CACHED: Final = "cached_input_tokens"
_USAGE_COLUMNS: Final = {
    "prompt_tokens": "input_tokens",
    "completion_tokens": "output_tokens",
    CACHED: "cached_tokens",
    "reasoning_tokens": "reasoning_tokens",
    "cost": "cost_usd",
}


def take(rows: RowBlock) -> Ints:
    """Add a block of episodes: a rollout for each trace, and one for an episode that failed before any agent began."""
    # the episode's row and the trace of each rollout; an episode without traces is a rollout without one
    owned = [(row, trace) for row, own_traces in enumerate(rows["traces"]) for trace in own_traces or (None,)]
    origin, traces = [row for row, _ in owned], [trace for _, trace in owned]
    builder = rows.builder
    tasks = [_task(task) for task in rows["task"]]
    builder.tasks([tasks[row] for row in origin])
    actors = [(NO_TRACE, NO_TRACE, False) if trace is None else _actor(trace) for trace in traces]
    for (agent, model, trainable), count in Counter(actors).items():
        if trainable:
            rows.counts[POLICY + json.dumps([agent or None, model or None])] += count
    builder.labels("agent", [agent for agent, _, _ in actors])
    builder.labels("model", [model for _, model, _ in actors])
    datasets = [env and (env.name or env.id) for env in rows["env"]]
    builder.labels("dataset", [datasets[row] for row in origin])
    _take_run(rows, [rows["run"][row] for row in origin])
    succeeded = [trace is not None and _ok(trace) for trace in traces]
    if not all(succeeded):
        rollouts = list(zip(origin, traces, succeeded, strict=True))
        rows.outcomes([None if ok else _outcome(rows, row, trace) for row, trace, ok in rollouts])
        rows.error_kinds([None if ok else _error_type(rows, row, trace) for row, trace, ok in rollouts])
    scored = [trace if ok else None for trace, ok in zip(traces, succeeded, strict=True)]
    _take_rewards(rows, [(trace.rewards if trace is not None else None) or {} for trace in scored])
    rows.named_numbers("column", [None if trace is None else trace.metrics for trace in scored])
    _take_usage(rows, traces)
    if "truncated" in rows.labels:
        rows.labelled.add("truncated")
        builder.labels("truncated", [None if trace is None else _truncated(trace) for trace in traces])
    rows.metadata([rows["task"][row].data for row in origin])
    ids = [rows["id"][row] if trace is None else trace.id for row, trace in zip(origin, traces, strict=True)]
    rows.ids.extend([-1 if rollout_id is None else hashed(rollout_id) for rollout_id in ids])
    return np.array(origin, dtype=np.int64)


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


def _actor(trace: Trace) -> tuple[str | None, str | None, bool]:
    """The agent and the model of a trace, and whether the agent is trainable."""
    agent = trace.agent
    model = agent.config.model if agent and agent.config else None
    if not model:
        model = trace.calls[0].model if trace.calls else None
    return agent.name if agent else None, model, agent is None or agent.trainable is not False


def _take_run(rows: RowBlock, runs: Sequence[RunOf | None]) -> None:
    """Add the labels of an episode's run: its step and split, and on request its id and the policy's steps."""
    folder_work = rows.memory.setdefault("folder", _folder_work(rows.path))
    works = [run.work if run and run.work else folder_work for run in runs]
    labels: dict[str, list[Any]] = {
        STEP: [work.step if work else None for work in works],
        SPLIT: [work.type if work else None for work in works],
    }
    if "run" in rows.labels:
        labels["run"] = [run.id if run else None for run in runs]
    for name in {"policy_start", "policy_end"} & {*rows.labels}:
        policies = [work.policy if work else None for work in works]
        labels[name] = [getattr(policy, name.removeprefix("policy_")) if policy else None for policy in policies]
    for name, values in labels.items():
        rows.labelled.add(name)
        if any(value is not None for value in values):
            rows.builder.labels(name, values)


def _folder_work(path: str) -> Work | None:
    """The step and the split in the names of prime-rl's folders, for episodes without them."""
    match = _FOLDERS.search(os.path.abspath(path))
    return Work(type=match[2], step=int(match[1])) if match else None


def _ok(trace: Trace) -> bool:
    return not trace.errors if trace.ok is None else trace.ok


def _outcome(rows: RowBlock, row: int, trace: Trace | None) -> str:
    timed_out = rows["is_timeout"][row] if trace is None else trace.is_timeout
    return "timed_out" if timed_out else "client_failed"


def _error_type(rows: RowBlock, row: int, trace: Trace | None) -> str:
    """The type of the last error of a trace, or else of its episode; without one, the trace's stop condition."""
    errors = (trace.errors if trace is not None else None) or rows["errors"][row] or ()
    kinds = [error.type for error in errors if error.type]
    return kinds[-1] if kinds else (trace.stop_condition if trace is not None else None) or "error"


def _take_rewards(rows: RowBlock, objects: Sequence[Mapping[str, Score | Number]]) -> None:
    """Add the score of each reward under its name, and the total: the sum of score x weight over all rewards."""
    size = len(objects)
    total, has_total = np.zeros(size), np.zeros(size, dtype=np.bool_)
    for name in dict.fromkeys(chain.from_iterable(objects)):
        rewards = [rollout.get(name) for rollout in objects]
        scores, weights = _scores(rewards), _weights(rewards)
        given = ~np.isnan(scores)
        with np.errstate(over="ignore", invalid="ignore"):  # scores near the largest double overflow
            total[given] += (scores * weights)[given]
        has_total |= given
        if name != TOTAL:
            rows.builder.floats("reward", name, scores, given)
    if has_total.any():
        rows.builder.floats("reward", TOTAL, total, has_total)


def _scores(rewards: Sequence[Score | Number]) -> Floats:
    """The score of each reward. NaN stands for a missing score, because JSON has no NaN."""
    return np.array([reward.score if isinstance(reward, Score) else reward for reward in rewards], dtype=np.float64)


def _weights(rewards: Sequence[Score | Number]) -> Floats:
    """The weight of each reward, 1 by default."""
    weights = np.array([reward.weight if isinstance(reward, Score) else None for reward in rewards], dtype=np.float64)
    return np.where(np.isnan(weights), 1.0, weights)


def _take_usage(rows: RowBlock, traces: Sequence[Trace | None]) -> None:
    """Add the tokens and the cost of each trace, summed over its calls, and its time."""
    calls = [
        (row, call.usage)
        for row, trace in enumerate(traces)
        if trace is not None and trace.calls
        for call in trace.calls
        if call.usage is not None
    ]
    owners, usages = np.array([row for row, _ in calls], dtype=np.int64), [usage for _, usage in calls]
    amounts: dict[str, Floats] = {}
    for key, column in zip(Usage.__struct_fields__, zip(*map(astuple, usages), strict=True), strict=False):
        if set(column) != {None}:
            amounts[key] = np.array(column, dtype=np.float64)  # None becomes NaN, which JSON does not have
    if {"prompt_tokens", CACHED} <= amounts.keys():  # the file's prompt tokens exclude cached ones; ours include them
        amounts["prompt_tokens"] = amounts["prompt_tokens"] + np.nan_to_num(amounts[CACHED])
    for key, amount in amounts.items():
        given = ~np.isnan(amount)
        sums: Floats = np.bincount(owners[given], amount[given], len(traces)).astype(np.float64, copy=False)
        has_sum = np.bincount(owners[given], minlength=len(traces)) > 0
        rows.builder.floats("column", _USAGE_COLUMNS[key], sums, has_sum)
    rows.builder.numbers("column", "latency_s", [_seconds(trace) for trace in traces])


def _seconds(trace: Trace | None) -> float | None:
    span = trace.timing.agent if trace is not None and trace.timing else None
    if span is None or not span.start or not span.end:  # 0 means that the agent never began
        return None
    return span.end - span.start


def _truncated(trace: Trace) -> bool:
    stop = trace.stop_condition or ""
    last = trace.calls[-1].finish_reason if trace.calls else None
    return stop in TRUNCATED or (stop.startswith("max_") and stop.endswith("_tokens")) or last == "length"


LAYOUT: Final = Layout(SYSTEM, EPISODE, take)


def read(source: Source, names: Columns, labels: Collection[str], progress: Progress) -> list[Part]:
    """Read the rollouts of a file, and add `not_run` rollouts for those that verifiers planned and the file lacks."""
    rows = read_rows("calipers.systems.verifiers_rl:LAYOUT", source, names, labels, progress)
    parts, agent, model = _with_policy(rows)
    notes = []
    if _is_effective(source.path):
        notes.append(
            f"{source.path}: 'effective' is a filtered copy without failed rollouts: "
            "its failures are not counted; 'all' has them"
        )
    noted = with_notes(parts, source.path, notes)
    config = beside(source.path, "configs/resolved/eval.json", "configs/eval.json")
    datasets = {value for part in parts if len(part) for value in part.labels["dataset"].values} if config else set()
    if config and len(datasets) < 2:
        group = {"agent": agent, "model": model, "dataset": next(iter(datasets), None)}
        return planned(noted, source.path, config.get("num_tasks"), config.get("num_rollouts"), group)
    return noted


def _with_policy(parts: Sequence[SystemPart]) -> tuple[list[SystemPart], str | None, str | None]:
    """Label episodes without a trace with the policy's agent and model; also return these two.

    The policy is the trainable agent and model with the most traces.
    """
    counts = Counter[str]()
    for part in parts:
        counts.update({key: count for key, count in part.counts.items() if key.startswith(POLICY)})
    names = json.loads(counts.most_common(1)[0][0].removeprefix(POLICY)) if counts else (None, None)
    policy = dict(zip(("agent", "model"), names, strict=True))
    labelled = []
    for part in parts:
        policy_labels = {
            name: _without_placeholder(part.labels[name], value)
            for name, value in policy.items()
            if name in part.labels  # an empty file has none
        }
        labelled.append(replace(part, labels={**part.labels, **policy_labels}))
    return labelled, policy["agent"], policy["model"]


def _without_placeholder(labels: Labels, value: str | None) -> Labels:
    """Labels with ``value`` in place of `NO_TRACE`."""
    if NO_TRACE not in labels.values:
        return labels
    placeholder = labels.values.index(NO_TRACE)
    if value is None:
        return Labels(np.where(labels.code == placeholder, -1, labels.code), labels.values)
    values = list(labels.values)
    if value not in values:
        values[placeholder] = value
        return Labels(labels.code, values)
    return Labels(np.where(labels.code == placeholder, values.index(value), labels.code), values)


def _is_effective(path: str) -> bool:
    return os.path.basename(os.path.dirname(os.path.abspath(path))) == "effective"


def of_folder(paths: Sequence[str]) -> tuple[Sequence[str], Sequence[str]]:
    """The files of a folder without the filtered copies of other files, and a note if there are such copies."""
    real_paths = {os.path.realpath(path) for path in paths}
    copies = [path for path in paths if _is_effective(path) and os.path.realpath(_unfiltered(path)) in real_paths]
    kept = [path for path in paths if path not in copies]
    note = f"'all' is read, and not 'effective', its filtered copy without failed rollouts ({len(copies)} files)"
    return kept, [note] if copies else []


def _unfiltered(path: str) -> str:
    """The file in ``all`` that a file in ``effective`` is a filtered copy of."""
    folder, name = os.path.split(os.path.abspath(path))
    return os.path.join(os.path.dirname(folder), "all", name)


def line_extras(row: Mapping[str, Raw]) -> list[dict[str, Any]]:
    """The messages of each trace of an episode, and the task's data as metadata."""
    data = msgspec.json.decode(row["task"]).get("data")
    described = {key: value for key, value in data.items() if key != "prompt"} if isinstance(data, dict) else {}
    metadata = {"metadata": described} if described else {}
    return [{**metadata, **_messages(trace.get("nodes"))} for trace in msgspec.json.decode(row["traces"])] or [metadata]


def _messages(nodes: Any) -> dict[str, Any]:
    """The prompt and the completion; the completion begins with the first message that the model wrote."""
    if not isinstance(nodes, list) or not all(isinstance(node, dict) for node in nodes):
        return {}
    first = next((at for at, node in enumerate(nodes) if node.get("sampled")), len(nodes))
    messages = [node.get("message") for node in nodes]
    parts = {"prompt": messages[:first], "completion": messages[first:]}
    return {name: part for name, part in parts.items() if part}


def recognise(start: Beginning) -> bool:
    """Whether the first row is an episode: ``traces`` is a list, and ``task`` is an object."""
    row = start.row
    if row is None or not {"traces", "task"} <= row.keys():
        return False
    return kind_of(row["traces"]) == "list" and kind_of(row["task"]) == "object"


TRACES: Final = Format(SYSTEM, read, recognise, in_folders=True, of_folder=of_folder, line_extras=line_extras)

# -- the results of verifiers before 0.4

OLDER: Final = "verifiers_v0"
BOOKKEEPING: Final = frozenset({"num_turns", "total_tool_calls"})  # metrics that verifiers itself adds
OURS: Final = frozenset({"sample", "attempt", "outcome", "rewards"})  # keys that only records of Calipers have
NO_ERROR: Final = (b"", b"null", b'""')
COMPANION: Final = "metadata.json"


class ResultTiming(msgspec.Struct, gc=False):
    """The duration of a rollout before 0.4, in seconds."""

    total: Number = None


class ResultUsage(msgspec.Struct, gc=False):
    """The token counts of a rollout before 0.4."""

    input_tokens: Number = None
    output_tokens: Number = None


class TextResult(msgspec.Struct, gc=False):
    """The texts of a row before 0.4, and its task."""

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
    ("is_truncated", bool | None, None),
    ("stop_condition", str | None, ABSENT),
    ("metrics", dict[str, Any] | None, ABSENT),
    ("tool_defs", Raw, NOTHING),
    ("token_usage", ResultUsage | None, None),
    ("generation_ms", Number, ABSENT),
    ("scoring_ms", Number, ABSENT),
    ("total_ms", Number, ABSENT),
]
"""A row of verifiers before 0.4. Any other key is a metric, or a column of the environment's state."""


class _Failure(msgspec.Struct, gc=False):
    error: str | None = None


_FAILURE: Final = msgspec.json.Decoder(complete(_Failure | str | None))


def take_results(rows: RowBlock) -> None:
    """Add a block of rows; each row is a rollout."""
    builder = rows.builder
    builder.tasks(rows["example_id"])
    builder.numbers("reward", "reward", rows["reward"])
    failed = [bytes(raw) not in NO_ERROR for raw in rows["error"]]
    rows.outcomes(["client_failed" if failure else None for failure in failed])
    rows.error_kinds(
        [_error_kind(raw) if failure else None for raw, failure in zip(rows["error"], failed, strict=True)]
    )
    _take_metrics(rows)
    for name in ("input_tokens", "output_tokens"):
        builder.numbers("column", name, [getattr(usage, name) if usage else None for usage in rows["token_usage"]])
    times = [timing.total if timing else None for timing in rows["timing"]]
    if any(isinstance(total, float) for total in rows["total_ms"]):  # the key before version 0.1.10
        times = [total / 1000 if isinstance(total, float) else None for total in rows["total_ms"]]
    builder.numbers("column", "latency_s", times)
    if "env_task" in rows.labels:
        rows.labelled.add("env_task")
        builder.labels("env_task", [_env_task(raw) for raw in rows["task"]])
    if "truncated" in rows.labels:
        rows.labelled.add("truncated")
        builder.labels("truncated", rows["is_truncated"])
    rows.metadata(rows["info"])
    for role, name in rows.memory.setdefault("group", _group(beside(rows.path, COMPANION))).items():
        if name is not None:
            rows.constant(role, name)


def _group(companion: Mapping[str, Any]) -> dict[str, str | None]:
    """The model and the dataset, which are only named in ``metadata.json`` beside the file."""
    names = {"model": companion.get("model"), "dataset": companion.get("env_id")}
    return {role: name if isinstance(name, str) else None for role, name in names.items()}


def _take_metrics(rows: RowBlock) -> None:
    """Add the metrics as rewards under their names: the values in ``metrics``, or in older rows, those of the row.

    Newer rows have them in both places, and they are read once. Metrics of `BOOKKEEPING` are columns instead.
    """
    metrics = [{} if row is ABSENT or row is None else row for row in rows["metrics"]]
    known = rows.memory.setdefault("metrics", set())
    known.update(name for row in metrics for name in row)
    has_metrics = rows.memory.setdefault("has metrics", any(row is not ABSENT for row in rows["metrics"]))
    rows.table("reward", metrics, BOOKKEEPING)
    if bookkeeping := BOOKKEEPING & known:
        rows.table("column", [{name: row.get(name) for name in bookkeeping} for row in metrics])
    extras = {key: values for key, values in rows.extras.items() if key not in known}
    rows.extras = {key: values for key, values in extras.items() if key in BOOKKEEPING}
    extra_columns(rows)
    rows.extras = {key: values for key, values in extras.items() if key not in BOOKKEEPING}
    extra_columns(rows, "column" if has_metrics else "reward")


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
    """Read the rollouts of a file, and add `not_run` rollouts for those that verifiers planned and the file lacks."""
    parts = read_rows("calipers.systems.verifiers_rl:RESULT_LAYOUT", source, names, labels, progress)
    companion = beside(source.path, COMPANION)
    if any(map(len, parts)):
        parts = [replace(parts[0], checks=own_checks(parts, companion)), *parts[1:]]
    examples, samples = companion.get("num_examples"), companion.get("rollouts_per_example")
    return planned(with_notes(parts, source.path), source.path, examples, samples, _group(companion))


def own_checks(parts: Sequence[SystemPart], companion: Mapping[str, Any]) -> list[Check]:
    """The mean reward in ``metadata.json``, and ours: over all rollouts of the file, where a failed one counts as 0."""
    ours = pooled_mean(parts, "reward", missing_is_zero=True)
    return compared(
        OLDER, [("avg_reward", companion.get("avg_reward"), ours)], numbers_in(companion.get("avg_metrics"))
    )


def texts(path: str, columns: Columns, wanted: Collection[str]) -> Iterator[Text]:
    """The texts of a file's rows.

    They are needed to compare the tasks of two files, because an example_id is only an index into a dataset.
    """
    group = _group(beside(path, COMPANION))

    def text_of(row: TextResult) -> Text:
        keys = None, group["model"], group["dataset"], str(row.example_id)
        return Text(*keys, 0, target=raw_hash(row.answer), completion=row.completion, prompt=row.prompt)

    return row_texts(path, TextResult, text_of, wanted)


def result_line_extras(row: Mapping[str, Raw]) -> list[dict[str, Any]]:
    """The texts of a row, and the dataset's ``info`` on the task as metadata."""
    metadata = given(row, metadata="info") if kind_of(row.get("info", NOTHING)) == "object" else {}
    return [{**metadata, **given(row, prompt="prompt", completion="completion")}]


def is_result(start: Beginning) -> bool:
    """Whether the first row has the keys of verifiers before 0.4: ``example_id prompt completion reward``."""
    keys = {"example_id", "prompt", "completion", "reward"}
    return start.row is not None and keys <= start.row.keys() and not OURS & start.row.keys()


RESULTS: Final = Format(OLDER, read_results, is_result, texts, in_folders=True, line_extras=result_line_extras)
