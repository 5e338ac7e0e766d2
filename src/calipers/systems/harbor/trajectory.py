"""ATIF, the format of agents' trajectories: validates a trajectory and adds up its usage by model.

Unknown fields are errors at every level; custom fields belong in ``extra``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from datetime import datetime
from typing import Annotated, Any, Literal

import msgspec

from calipers.errors import InputError
from calipers.typed import complete

AGENT_ONLY = ("model_name", "reasoning_effort", "reasoning_content", "tool_calls", "metrics")  # fields of a step

Natural = Annotated[int, msgspec.Meta(ge=0)]
Extra = dict[str, Any] | None
Version = Literal[
    "ATIF-v1.0", "ATIF-v1.1", "ATIF-v1.2", "ATIF-v1.3", "ATIF-v1.4", "ATIF-v1.5", "ATIF-v1.6", "ATIF-v1.7", "ATIF-v1.8"
]


class StrictStruct(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    """A struct that rejects unknown fields."""


class TrajectoryAgent(StrictStruct):
    """The agent of a trajectory."""

    name: str
    version: str
    model_name: str | None = None
    tool_definitions: list[dict[str, Any]] | None = None
    extra: Extra = None


class MediaSource(StrictStruct):
    """An image or audio file."""

    media_type: str
    path: str
    duration_sec: float | None = None


class TrajectoryPart(StrictStruct):
    """A part of a message: text, an image or audio."""

    type: Literal["text", "image", "audio"]
    text: str | None = None
    source: MediaSource | None = None


class ToolCall(StrictStruct):
    """A call of a function by an agent."""

    tool_call_id: str
    function_name: str
    arguments: dict[str, Any]
    extra: Extra = None


class SubagentRef(StrictStruct):
    """A reference to a subagent's trajectory, by its id or its path."""

    trajectory_id: str | None = None
    trajectory_path: str | None = None
    session_id: str | None = None
    extra: Extra = None


class ToolResult(StrictStruct):
    """The result of a tool call."""

    source_call_id: str | None = None
    content: str | list[TrajectoryPart] | None = None
    subagent_trajectory_ref: list[SubagentRef] | None = None
    extra: Extra = None


class Observation(StrictStruct):
    """The results of a step's tool calls."""

    results: list[ToolResult]


class StepMetrics(StrictStruct):
    """The usage of one step; prompt tokens include the cached ones."""

    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    cached_tokens: int | None = None
    cost_usd: float | None = None
    prompt_token_ids: list[int] | None = None
    completion_token_ids: list[int] | None = None
    logprobs: list[float] | None = None
    extra: Extra = None


class FinalMetrics(StrictStruct):
    """The usage of the entire trajectory, as the agent counts it."""

    total_prompt_tokens: int | None = None
    total_completion_tokens: int | None = None
    total_cached_tokens: int | None = None
    total_cost_usd: float | None = None
    total_steps: Natural | None = None
    extra: Extra = None


class TrajectoryStep(StrictStruct):
    """One turn of the system, the user or the agent."""

    step_id: int
    source: Literal["system", "user", "agent"]
    message: str | list[TrajectoryPart]
    timestamp: str | None = None
    model_name: str | None = None
    reasoning_effort: str | float | None = None
    reasoning_content: str | None = None
    tool_calls: list[ToolCall] | None = None
    observation: Observation | None = None
    metrics: StepMetrics | None = None
    is_copied_context: bool | None = None
    llm_call_count: Natural | None = None
    extra: Extra = None


class AgentTrajectory(StrictStruct):
    """A trajectory file."""

    agent: TrajectoryAgent
    steps: Annotated[list[TrajectoryStep], msgspec.Meta(min_length=1)]
    schema_version: Version = "ATIF-v1.8"
    session_id: str | None = None
    trajectory_id: str | None = None
    notes: str | None = None
    final_metrics: FinalMetrics | None = None
    continued_trajectory_ref: str | None = None
    extra: Extra = None
    subagent_trajectories: list[AgentTrajectory] | None = None


class ModelUsage(msgspec.Struct):
    """One model's usage in a trajectory; the cost is None if it is missing for any step that used tokens."""

    n_input_tokens: int = 0
    n_cache_tokens: int = 0
    n_output_tokens: int = 0
    cost_usd: float | None = None


def decode_trajectory(document: Any, path: str = "trajectory") -> AgentTrajectory:
    """The trajectory in a JSON value; InputError with the location of the first error."""
    try:
        trajectory = msgspec.convert(document, complete(AgentTrajectory))
    except (msgspec.ValidationError, RecursionError) as error:
        raise InputError.at(path, str(error), "expected a trajectory as ATIF 1.8 defines it") from error
    for location, message in _faults(trajectory):
        raise InputError.at(path, f"{location}: {message}")
    return trajectory


def _faults(trajectory: AgentTrajectory) -> Iterator[tuple[str, str]]:
    """The errors that the types do not exclude, each with its location."""
    for number, step in enumerate(trajectory.steps, 1):
        for message in _step_faults(step, number):
            yield f"step {step.step_id}", message
    subagents = trajectory.subagent_trajectories or []
    for identity, count in Counter(subagent.trajectory_id for subagent in subagents).items():
        if identity is None or count > 1:
            yield "subagent_trajectories", f"trajectory_id {identity!r} appears {count} times; expected different ids"
    for subagent in subagents:
        for location, message in _faults(subagent):
            yield f"subagent {subagent.trajectory_id}: {location}", message


def _step_faults(step: TrajectoryStep, number: int) -> Iterator[str]:
    if step.step_id != number:
        yield f"step_id is {step.step_id}; expected {number}"
    if step.timestamp is not None and not _is_time(step.timestamp):
        yield f"timestamp is {step.timestamp!r}; expected one of ISO 8601"
    if step.source != "agent":
        yield from (f"only the agent may have {name}" for name in AGENT_ONLY if getattr(step, name) is not None)
    if step.llm_call_count == 0:
        for name in ("metrics", "reasoning_content"):
            if getattr(step, name) is not None:
                yield f"{name} without a model call"
    yield from _result_faults(step)
    yield from _part_faults(step)


def _result_faults(step: TrajectoryStep) -> Iterator[str]:
    calls = {call.tool_call_id for call in step.tool_calls or ()}
    for result in step.observation.results if step.observation else ():
        if result.source_call_id is not None and result.source_call_id not in calls:
            yield f"source_call_id {result.source_call_id!r} is not a tool call of this step"
        for reference in result.subagent_trajectory_ref or ():
            if reference.trajectory_id is None and reference.trajectory_path is None:
                yield "a reference to a subagent names neither trajectory_id nor trajectory_path"


def _part_faults(step: TrajectoryStep) -> Iterator[str]:
    contents = [step.message, *(result.content for result in (step.observation.results if step.observation else ()))]
    for part in (part for content in contents if isinstance(content, list) for part in content):
        required, forbidden = ("text", "source") if part.type == "text" else ("source", "text")
        if getattr(part, required) is None or getattr(part, forbidden) is not None:
            yield f"a part of type {part.type} must have {required} and no {forbidden}"


def _is_time(text: str) -> bool:
    try:
        datetime.fromisoformat(text)
    except ValueError:
        return False
    return True


def usage_by_model(trajectory: AgentTrajectory) -> dict[str, ModelUsage]:
    """The usage of each model, subagents included; a step without a model counts for the agent's model.

    Steps that were copied from another context count too, as in Harbor.
    """
    by_model: dict[str, ModelUsage] = {}
    without_cost: set[str] = set()
    for model, metrics in _step_metrics(trajectory):
        usage = by_model.setdefault(model, ModelUsage())
        tokens = (metrics.prompt_tokens, metrics.cached_tokens, metrics.completion_tokens)
        usage.n_input_tokens += tokens[0] or 0
        usage.n_cache_tokens += tokens[1] or 0
        usage.n_output_tokens += tokens[2] or 0
        if metrics.cost_usd is not None:
            usage.cost_usd = (usage.cost_usd or 0.0) + metrics.cost_usd
        elif any(tokens):
            without_cost.add(model)
    for model in without_cost:
        by_model[model].cost_usd = None
    return by_model


def _step_metrics(trajectory: AgentTrajectory) -> Iterator[tuple[str, StepMetrics]]:
    """The model and the metrics of each step that has both, subagents included."""
    for step in trajectory.steps:
        model = step.model_name or trajectory.agent.model_name
        if step.metrics is not None and model is not None:
            yield model, step.metrics
    for inner in trajectory.subagent_trajectories or ():
        yield from _step_metrics(inner)
