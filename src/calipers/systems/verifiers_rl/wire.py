"""The lines of verifiers' and prime-rl's files, as far as a score needs them."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from calipers.formats.format import Raw
from calipers.formats.lines import ABSENT, NOTHING
from calipers.formats.system_rows import Number


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


class ResultTiming(msgspec.Struct, gc=False):
    """The time of a rollout before 0.4, in seconds."""

    total: Number = None


class ResultUsage(msgspec.Struct, gc=False):
    """The tokens of a rollout before 0.4."""

    input_tokens: Number = None
    output_tokens: Number = None


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
