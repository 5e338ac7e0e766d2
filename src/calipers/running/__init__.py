"""Live runs: the loop that calls clients and verifiers, and the log it writes.

Only `perform`, which scores the log, and `watcher`, which follows a metric during the run, know metrics. A `Job` has
the settings of one run: every value resolved, with its origin.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Final, Literal, TypedDict, TypeVar

from calipers.clients import Price, is_local
from calipers.errors import InputError
from calipers.names import engine_of

Seeds = tuple[int, int, int, int]
"""The seeds of Python's random, numpy, torch, and the few-shot examples."""

IN_PROCESS = 2048  # requests in flight to a model in this process, whose batches are as large as its device allows
IN_PROCESS_UNTIL = 128  # the same with --until, because requests in flight are still answered after the rule is reached
LOAD_SEEDS: Final[Seeds] = (0, 1234, 1234, 1234)
MOST_SAMPLES: Final = 2**31 - 1  # a plan with more samples could not be read again
NATIVE: Final = "native"  # our own dialect
SEEDS_BELOW: Final = 2**32  # numpy's seeds are below this
EXPECTED_LIMIT = "expected a number of tasks, or a fraction below 1, such as 0.1"


def limit_of(origin: str, given: float | None) -> float | None:
    """A checked limit on tasks: an integer >= 1, or a share between 0 and 1; None for no limit.

    1.0 is one task, as in lm-evaluation-harness. 0 and 1.5 are errors here; in lm-evaluation-harness, 0 means all tasks
    and 1.5 means one.

    >>> limit_of("--limit", 20.0), limit_of("--limit", 0.1)
    (20, 0.1)
    """
    if given is None:
        return None
    if not 0 < given < math.inf or (given > 1 and given != int(given)):
        raise InputError.at(origin, f"is {given:g}", EXPECTED_LIMIT)
    return given if given < 1 else int(given)


def count_within(total: int, limit: float | None) -> int:
    """The number of tasks that a limit selects; a share is rounded up.

    >>> count_within(7, 0.3), count_within(7, 3), count_within(7, 99), count_within(7, None)
    (3, 3, 7, 7)
    """
    if limit is None:
        return total
    return min(math.ceil(total * limit) if limit < 1 else int(limit), total)


T = TypeVar("T")


def selected(tasks: Sequence[T], job: Job) -> list[T]:
    """The tasks that a job selects: the first tasks up to its limit, or those at its positions, in their order."""
    if job.documents is None:
        return list(tasks[: count_within(len(tasks), job.limit)])
    beyond = [number for number in job.documents if number >= len(tasks)]
    if beyond:
        problem = f"there is no document {beyond[0]} among the {len(tasks)} of {job.lm_eval or job.benchmark}"
        raise InputError.at(job.location("documents"), problem, f"expected numbers from 0 to {len(tasks) - 1}")
    return [tasks[number] for number in sorted({*job.documents})]


Metrics = Sequence[str | Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class Job:
    """One benchmark against one model. None means the default of the server or of the dialect."""

    benchmark: str  # a path, an id or a name in the store
    model: str  # kind/name
    samples: int = 1
    limit: float | None = None  # only the first tasks: their number, or a share below 1
    documents: tuple[int, ...] | None = None  # only the tasks at these positions, counted from 0
    # the request
    max_tokens: int | None = None
    temperature: float | None = None
    stop: tuple[str, ...] = ()
    system_prompt: str | None = None
    user_template: str = "{prompt}"
    gen_kwargs: Mapping[str, Any] = field(default_factory=dict)
    # a table of questions: the roles of its columns; None: guessed from common names
    prompt: str | None = None
    target: str | None = None
    id: str | None = None  # "#": the hash of the prompt
    metadata: tuple[str, ...] = ()
    template: str | None = None  # a text with columns in braces, or a Jinja file
    choices: tuple[str, ...] = ()
    shuffle_choices: bool = False
    index_from: Literal[0, 1] | None = None  # the number of the first choice
    # the verifier, which replaces those of the tasks
    verifier: str | None = None  # its name, or FILE.py:OBJECT
    params: Mapping[str, Any] = field(default_factory=dict)
    # whether it sees completions without their reasoning; None: split, but keep with another system's dialect
    reasoning: Literal["split", "keep"] | None = None
    # a task of lm-evaluation-harness
    lm_eval: str | None = None  # the task's name, one of those in the group or tag `benchmark`; None: not such a task
    num_fewshot: int | None = None
    include_path: tuple[str, ...] = ()
    apply_chat_template: bool | str = False  # make its prompts chats; a text is the name of a local model's template
    fewshot_as_multiturn: bool | None = None  # None: true for a chat
    system_instruction: str | None = None  # text before its description
    trust: bool = False  # run code that comes with the data
    load_seeds: Seeds = LOAD_SEEDS  # the seeds for loading it
    task_metadata: Mapping[str, Any] = field(default_factory=dict)  # overrides its own metadata
    # for a task without metrics: those of lm-evaluation-harness' release, or of its guide
    default_metrics: Literal["release", "guide"] = "release"
    # the connection to the model
    base_url: str | None = None
    model_args: Mapping[str, Any] = field(default_factory=dict)  # options for loading a model in this process
    same_model: bool = False  # resume a run that began at another endpoint
    api: Literal["chat", "completions"] = "chat"
    timeout: float = 600.0
    price: Price | None = None
    concurrency: int = 32
    retries: int = 8
    engine: str | None = None  # where requests and verdicts are made: "ray" or "ray=ADDRESS"; None: in this process
    # when the run ends
    max_cost: float | None = None
    max_time: float | None = None
    until: str | None = None
    retry_failed: bool = False
    predict_only: bool = False
    # scoring
    metrics: Metrics = ()
    dialect: str | None = None
    by: tuple[str, ...] = ()
    cluster: str | None = None
    reward: str | None = None
    threshold: float | None = None
    missing: str | None = None
    interval: str | None = None
    confidence: float = 0.95
    seed: int = 0
    out: Path | None = None  # the run's folder; with `among`, its parent folder
    among: bool = False  # the job is one of several runs
    origins: Mapping[str, str] = field(default_factory=dict)  # setting -> where its value was given

    def __post_init__(self) -> None:
        least = {"samples": 1, "max_tokens": 1, "concurrency": 1, "retries": 0, "seed": 0, "num_fewshot": 0}
        for name, lowest in least.items():
            value = getattr(self, name)
            if value is not None and value < lowest:
                raise InputError.at(self.location(name), f"is {value}", f"expected an integer >= {lowest}")
        engine_of(self.location("engine"), self.engine)
        object.__setattr__(self, "limit", limit_of(self.location("limit"), self.limit))
        if self.documents is not None and self.limit is not None:
            problem = "--limit and a choice of documents exclude each other"
            raise InputError.at(self.location("documents"), problem, "expected one of the two")
        if self.documents is not None and not (self.documents and min(self.documents) >= 0):
            raise InputError.at(self.location("documents"), f"is {self.documents}", "expected integers >= 0: 0,3,6-9")
        for name in ("timeout", "max_cost", "max_time"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise InputError.at(self.location(name), f"is {value:g}", "expected a number > 0")
        if self.samples > MOST_SAMPLES:
            raise InputError.at(
                self.location("samples"), f"is {self.samples}", f"expected an integer <= {MOST_SAMPLES}"
            )
        if self.temperature is not None and not 0 <= self.temperature < math.inf:
            raise InputError.at(self.location("temperature"), f"is {self.temperature}", "expected >= 0")
        if "{prompt}" not in self.user_template:
            raise InputError.at(
                self.location("user_template"), "it has no {prompt}", "expected a text such as 'Q: {prompt}'"
            )

    @property
    def in_flight(self) -> int:
        """The maximum number of requests in flight; by default, a model in this process gets enough for its batches."""
        if not is_local(self.model) or "concurrency" in self.origins:
            return self.concurrency
        return IN_PROCESS if self.until is None else IN_PROCESS_UNTIL

    @property
    def from_library(self) -> bool:
        """Whether the benchmark is a task of the task library, which another system's files describe."""
        return self.lm_eval is not None

    @property
    def splits_reasoning(self) -> bool:
        """Whether reasoning is split off before verification; another system verifies the whole completion."""
        if self.from_library or self.predict_only:
            return False
        if self.reasoning is None:
            return self.dialect in (None, NATIVE)
        return self.reasoning == "split"

    @property
    def chats(self) -> bool:
        """Whether the prompts of a task of lm-evaluation-harness are chats."""
        return self.apply_chat_template not in (False, None)

    def location(self, name: str) -> str:
        """The place where a setting was given, for an error: ``--samples``, or ``config.yaml: samples``."""
        origin = self.origins.get(name, "")
        return f"{origin}: {name}" if origin and origin != "command line" else f"--{name.replace('_', '-')}"

    def settings(self) -> dict[str, dict[str, Any]]:
        """Every setting with its value and its origin, as in the run's plan."""
        names = (setting.name for setting in fields(self) if setting.name not in ("origins", "out", "among"))
        return {
            name: {"value": _plain(getattr(self, name)), "from": self.origins.get(name, "default")} for name in names
        }


OF_AGENTS: Final = ("agent", "environment", "registry")
"""Settings of a run of agents, which a `Job` does not have."""


class RunSettings(TypedDict, total=False):
    """The options of ``calipers run`` as keywords of `run` and `evaluate`; one that is absent or None has its default.

    Those for agents are `agent`, `environment` and `registry`; `num_fewshot` to `default_metrics` are for tasks of
    lm-evaluation-harness.
    """

    samples: int | None
    limit: float | None
    documents: str | int | Sequence[int] | None
    max_tokens: int | None
    temperature: float | None
    stop: str | Sequence[str] | None
    system_prompt: str | None
    user_template: str | None
    gen_kwargs: str | Mapping[str, Any] | None
    prompt: str | None
    target: str | None
    id: str | None
    metadata: str | Sequence[str] | None
    template: str | Path | None
    choices: str | Sequence[str] | None
    shuffle_choices: bool | None
    index_from: Literal[0, 1] | None
    verifier: str | None
    params: Mapping[str, Any] | None
    reasoning: Literal["split", "keep"] | None
    num_fewshot: int | None
    include_path: str | Path | Sequence[str | Path] | None
    apply_chat_template: bool | str | None
    fewshot_as_multiturn: bool | None
    system_instruction: str | None
    trust: bool | None
    load_seeds: str | int | Sequence[int] | None
    fewshot_seed: int | None
    task_metadata: Mapping[str, Any] | None
    default_metrics: Literal["release", "guide"] | None
    base_url: str | None
    model_args: str | Mapping[str, Any] | None
    same_model: bool | None
    api: Literal["chat", "completions"] | None
    timeout: float | None
    price: str | Price | tuple[float, float] | None
    concurrency: int | None
    retries: int | None
    engine: str | None
    max_cost: float | None
    max_time: float | None
    until: str | None
    retry_failed: bool | None
    predict_only: bool | None
    agent: str | None
    environment: str | None
    registry: str | Path | None
    metrics: str | Metrics | None
    dialect: str | None
    by: str | Sequence[str] | None
    cluster: str | None
    reward: str | None
    threshold: float | None
    missing: Literal["gap", "zero", "fail"] | None
    interval: str | None
    confidence: float | None
    seed: int | None
    out: str | Path | None


def _plain(value: Any) -> Any:
    """A value as a JSON value."""
    if isinstance(value, Price):
        return [value.input, value.output]
    if isinstance(value, tuple):
        return list(value)
    return dict(value) if isinstance(value, Mapping) else value
