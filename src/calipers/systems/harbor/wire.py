"""What Harbor writes: trials, jobs, their locks and configurations, registries and trajectories.

A trial is one agent on one task, once; its ``result.json`` holds a map of rewards or none, an exception or
none, and what it cost. Other fields are ignored. An old ``verifier_result`` with one ``reward`` instead of
the map, and a file that spells NaN out, are read too.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Annotated, Any, Final, Literal, NamedTuple

import msgspec

from calipers.errors import InputError
from calipers.formats.format import BAD

Number = int | float
Rewards = Mapping[str, Number]

CAUSES: Final[Mapping[str, tuple[str, ...]]] = {  # cause -> the names Harbor, or a model's library, raises
    "sandbox_failed": (
        "AddTestsDirError",
        "AgentEnvironmentTimeoutError",
        "AgentSetupTimeoutError",
        "DownloadVerifierDirError",
        "EnvironmentStartTimeoutError",
        "HealthcheckError",
        "MemoryLimitExceededError",
        "RuntimeRequestError",
        "SandboxBuildFailedError",
    ),
    "model_provider_failed": (
        "APIConnectionError",
        "APIError",
        "AgentAuthenticationError",
        "AuthenticationError",
        "InternalServerError",
        "ModelNotFoundError",
        "NetworkConnectionError",
        "RateLimitError",
        "ServiceUnavailableError",
        "UnknownApiError",
        "UnsupportedModelParametersError",
    ),
    "harbor_failed": ("MissingExtraError", "RegradeError", "ServiceOperationsUnsupportedError"),
    "agent_exhausted_budget": (
        "AgentTimeoutError",
        "ContextLengthExceededError",
        "ContextWindowExceededError",
        "OutputLengthExceededError",
        "OutputTokenExceededError",
    ),
    "agent_refused_task": ("AgentSafetyRefusalError", "ContentPolicyViolationError"),
    "verifier_failed": ("VerifierOutputParseError", "VerifierRuntimeError", "VerifierTimeoutError"),
    "cancelled": ("CancelledError",),
}
FAMILIES: Final = (  # how a name begins, for what Harbor gives many names; every one of them ends in Error
    ("Api", "model_provider_failed"),
    ("RewardFile", "verifier_failed"),
    ("Sandbox", "sandbox_failed"),
)
VERIFIED: Final = "harbor.verified"
"""The label of what a trial was given: ``rewards``, ``empty`` (a map of none), ``nothing``; or it is `UNFINISHED`."""

EXCEPTION: Final = "harbor.exception"
"""The label of the exception that ended a trial; those of its steps are not in it."""

WRITTEN: Final = "harbor.written"
"""The label of a trial's rewards as its file writes them: JSON of when it began, its name, and name -> text."""

UNFINISHED: Final = "unfinished"
READ: Final = ("agent_info", "agent_result", "verifier_result", "exception_info", "step_results", "calipers")
"""The part of a trial's result that numbers are taken from: no key may appear twice in it."""

ADHOC: Final = "adhoc"  # the dataset of tasks and trials that come from none
SCRIPT: Final = "uv-script"  # the type of a metric that is a script
ORACLE: Final = "oracle"  # Harbor's default agent, which its config.json leaves out
AGENT_CAUSED: Final = ("agent_exhausted_budget", "agent_refused_task")  # a reward given all the same is valid
_CAUSE: Final = {name: cause for cause, names in CAUSES.items() for name in names}


class Model(msgspec.Struct, gc=False):
    """The model an agent asked, as Harbor resolved its name."""

    name: str
    provider: str | None = None


class TrialAgent(msgspec.Struct, gc=False):
    """The agent of a trial, as it called itself."""

    name: str
    version: str | None = None
    model_info: Model | None = None


class Spent(msgspec.Struct, gc=False):
    """What an agent used up; its input tokens include the cached ones."""

    n_input_tokens: int | None = None
    n_cache_tokens: int | None = None
    n_output_tokens: int | None = None
    cost_usd: float | None = None


class Verified(msgspec.Struct, gc=False):
    """What the verifier left: a map of rewards, or none; a value that is no number is kept to be told of."""

    rewards: dict[str, Any] | None = None
    reward: Any = None  # the only reward, in files older than the map


class TrialFailure(msgspec.Struct, gc=False):
    """The exception that ended a trial or a step, by its bare class name."""

    exception_type: str
    exception_message: str | None = None
    occurred_at: str | None = None


class Phase(msgspec.Struct, gc=False):
    """When a part of a trial began and ended."""

    started_at: str | None = None
    finished_at: str | None = None


class TrialStep(msgspec.Struct, gc=False):
    """One step of a multi-step trial, with an agent run and a verification of its own."""

    step_name: str = ""
    agent_result: Spent | None = None
    verifier_result: Verified | None = None
    exception_info: TrialFailure | None = None
    agent_execution: Phase | None = None
    verifier: Phase | None = None


class TrialBlame(msgspec.Struct, gc=False):
    """What we found out about a trial without a verdict: `broke_verifier` or `tampered` where its agent is to blame."""

    outcome: str | None = None


class Trial(msgspec.Struct, gc=False):
    """A trial's ``result.json``."""

    task_name: str
    trial_name: str
    agent_info: TrialAgent
    source: str | None = None
    task_checksum: str | None = None
    agent_result: Spent | None = None
    verifier_result: Verified | None = None
    exception_info: TrialFailure | None = None
    started_at: str | None = None
    finished_at: str | None = None
    environment_setup: Phase | None = None
    agent_setup: Phase | None = None
    agent_execution: Phase | None = None
    verifier: Phase | None = None
    step_results: list[TrialStep] | None = None
    calipers: TrialBlame | None = None


class TrialCounts(msgspec.Struct, gc=False):
    """What a job's ``stats`` say that its trial directories cannot."""

    n_retries: int = 0


class JobFile(msgspec.Struct, gc=False):
    """A job's ``result.json``, old or new, as far as its trial directories do not say it better."""

    id: str | None = None
    started_at: str | None = None
    updated_at: str | None = None
    finished_at: str | None = None
    n_total_trials: int | None = None
    stats: TrialCounts = msgspec.field(default_factory=TrialCounts)


class TaskRef(msgspec.Struct, gc=False):
    """Where a task comes from, in a configuration or a lock; its own name may be another."""

    name: str | None = None
    path: str | None = None
    git_url: str | None = None
    source: str | None = None

    @property
    def key(self) -> tuple[str | None, str | None]:
        """What tells tasks apart that were asked for."""
        return self.git_url, self.path or self.name


class AgentRef(msgspec.Struct, gc=False):
    """The agent that was asked for; what it calls itself, only a finished trial says."""

    name: str | None = None
    import_path: str | None = None
    model_name: str | None = None

    @property
    def key(self) -> tuple[str, str | None]:
        """What tells agents apart that were asked for."""
        return self.import_path or self.name or ORACLE, self.model_name


class PlannedTrial(msgspec.Struct, gc=False):
    """One trial as planned: a trial's ``config.json``, its ``lock.json``, or an entry of the job's lock."""

    task: TaskRef
    agent: AgentRef = msgspec.field(default_factory=AgentRef)


class TrialResult(Trial, gc=False):
    """A trial's ``result.json`` with what it was asked for."""

    id: str | None = None
    config: PlannedTrial | None = None


class JobLock(msgspec.Struct):
    """A job's ``lock.json``: the trials that were planned."""

    trials: list[PlannedTrial]


class JobLockSize(msgspec.Struct):
    """The same, when only their number matters."""

    trials: list[msgspec.Raw] = []


class JobConfig(msgspec.Struct):
    """A job's ``config.json``: who was to do what, how often. What is wrong elsewhere in the file is no matter here."""

    n_attempts: int = 1
    agents: list[AgentRef] = []


class MetricEntry(msgspec.Struct):
    """A metric as a job or a registry asks for it."""

    type: str = "mean"
    kwargs: dict[str, Any] = {}


class JobMetrics(msgspec.Struct):
    """A job's ``config.json``: the metrics it asks for."""

    metrics: list[MetricEntry] = []


class DatasetRef(msgspec.Struct):
    """A dataset that a job ran."""

    path: str | None = None
    name: str | None = None


class JobScripts(JobMetrics):
    """A job's ``config.json``, as far as it says where a metric script could be."""

    datasets: list[DatasetRef] = []


_NONE: Final = msgspec.Raw()


class FileMarks(msgspec.Struct):
    """The keys that tell the files of a job from those of a trial."""

    task_name: msgspec.Raw = _NONE
    trial_name: msgspec.Raw = _NONE
    stats: msgspec.Raw = _NONE
    trials: msgspec.Raw = _NONE
    task: msgspec.Raw = _NONE


class Located(msgspec.Struct, omit_defaults=True):
    """A task of an entry: where it lies, below the registry or in a repository."""

    name: str
    path: str
    git_url: str | None = None
    git_commit_id: str | None = None


class RegistryEntry(msgspec.Struct):
    """One version of one dataset. The last two keys are ours; Harbor has no need of them."""

    name: str
    version: str
    description: str = ""
    tasks: list[Located] = []
    metrics: list[dict[str, Any]] = []
    digest: str = ""  # of the whole content, as `manifest_digest` has it
    files: str = ""  # the directory of its dataset.toml and its files


class SpokenStep(msgspec.Struct, gc=False):
    """A step of a trajectory, as far as somebody says something in it; nothing is checked."""

    source: Any = None
    message: Any = None


class SpokenTrajectory(msgspec.Struct, gc=False):
    """A trajectory of any age, right or wrong, as far as it says something."""

    steps: list[SpokenStep] = msgspec.field(default_factory=list)
    continued_trajectory_ref: Any = None


Natural = Annotated[int, msgspec.Meta(ge=0)]
Extra = dict[str, Any] | None
Version = Literal[
    "ATIF-v1.0", "ATIF-v1.1", "ATIF-v1.2", "ATIF-v1.3", "ATIF-v1.4", "ATIF-v1.5", "ATIF-v1.6", "ATIF-v1.7", "ATIF-v1.8"
]


class StrictStruct(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    """An object that holds nothing but its own fields."""


class TrajectoryAgent(StrictStruct):
    """Who acted."""

    name: str
    version: str
    model_name: str | None = None
    tool_definitions: list[dict[str, Any]] | None = None
    extra: Extra = None


class MediaSource(StrictStruct):
    """An image or a sound, by its path."""

    media_type: str
    path: str
    duration_sec: float | None = None


class TrajectoryPart(StrictStruct):
    """A piece of a message: text, or an image or sound."""

    type: Literal["text", "image", "audio"]
    text: str | None = None
    source: MediaSource | None = None


class ToolCall(StrictStruct):
    """A function an agent called."""

    tool_call_id: str
    function_name: str
    arguments: dict[str, Any]
    extra: Extra = None


class SubagentRef(StrictStruct):
    """Another trajectory, by its id or by its path."""

    trajectory_id: str | None = None
    trajectory_path: str | None = None
    session_id: str | None = None
    extra: Extra = None


class ToolResult(StrictStruct):
    """What came back from a call."""

    source_call_id: str | None = None
    content: str | list[TrajectoryPart] | None = None
    subagent_trajectory_ref: list[SubagentRef] | None = None
    extra: Extra = None


class Observation(StrictStruct):
    """All that came back in a step."""

    results: list[ToolResult]


class StepMetrics(StrictStruct):
    """What one step used; prompt tokens include the cached ones."""

    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    cached_tokens: int | None = None
    cost_usd: float | None = None
    prompt_token_ids: list[int] | None = None
    completion_token_ids: list[int] | None = None
    logprobs: list[float] | None = None
    extra: Extra = None


class FinalMetrics(StrictStruct):
    """What the whole trajectory used, as the agent counts it."""

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
    """The whole file."""

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


class Totals(NamedTuple):
    """Tokens and money of a trial, or of many; None where nobody reported any."""

    n_input_tokens: int | None = None
    n_cache_tokens: int | None = None
    n_output_tokens: int | None = None
    cost_usd: float | None = None


_TRIAL: Final = msgspec.json.Decoder(Trial)
_RESULT: Final = msgspec.json.Decoder(TrialResult)
_JOB: Final = msgspec.json.Decoder(JobFile)


def decode_trial(raw: bytes, path: str) -> Trial:
    """The trial in a ``result.json``; `InputError` naming ``path`` when the bytes are not one."""
    try:
        return _TRIAL.decode(raw)
    except msgspec.ValidationError as error:
        raise InputError.at(path, f"not a trial's result: {error}", "expected a file that Harbor wrote") from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return _with_nan(raw, path)


def _with_nan(raw: bytes, path: str) -> Trial:
    """A trial whose JSON says NaN or Infinity, which strict JSON cannot and Python's can."""
    try:
        return msgspec.convert(json.loads(raw), Trial)
    except (ValueError, RecursionError, msgspec.ValidationError) as error:
        raise InputError.at(path, f"not a trial's result: {error}", "expected a file that Harbor wrote") from error


def decode_result(raw: bytes, path: str) -> Trial:
    """A trial's result, with what it was asked for where that can be read; InputError when it is none."""
    try:
        return _RESULT.decode(raw)
    except BAD:
        try:
            return decode_trial(raw, path)
        except RecursionError:
            raise InputError.at(path, "it is nested too deeply", "expected a file that Harbor wrote") from None


def decode_job(raw: bytes, path: str) -> JobFile:
    """The job in a ``result.json``; `InputError` naming ``path`` when the bytes are not one."""
    try:
        return _JOB.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InputError.at(path, f"not a job's result: {error}", "expected a file that Harbor wrote") from error


def decode_blame(raw: bytes | None) -> TrialBlame | None:
    """What a file of ours beside a result says, where Harbor itself wrote the result; None for none."""
    try:
        return None if raw is None else msgspec.json.decode(raw, type=TrialBlame)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def rewards(verified: Trial | TrialStep) -> Rewards | None:
    """The rewards a verifier gave, by name; None when it gave none, ``{}`` when it gave an empty map.

    Booleans count 1.0 and 0.0. A value that is no finite number is left out, and a map of nothing else is
    none: `odd_rewards` tells of them.
    """
    given = _given(verified)
    if given is None:
        return None
    numbers = {name: float(x) if isinstance(x, bool) else x for name, x in given.items() if finite(x)}
    return numbers if numbers or not given else None


def odd_rewards(verified: Trial | TrialStep) -> Mapping[str, Any]:
    """The rewards that are no finite number, by name: text, null, a list, NaN."""
    return {name: value for name, value in (_given(verified) or {}).items() if not finite(value)}


def _given(verified: Trial | TrialStep) -> dict[str, Any] | None:
    result = verified.verifier_result
    if result is None:
        return None
    if result.rewards is None and result.reward is not None:
        return {"reward": result.reward}
    return result.rewards


def finite(value: object) -> bool:
    """Whether a value is a number that a float can hold."""
    try:
        return isinstance(value, (int, float)) and math.isfinite(value)
    except OverflowError:  # an integer that no float can hold
        return False


def failure_cause(exception_type: str | None) -> str | None:
    """Whose fault an exception is, by its class name; None of none, ``unclassified`` of an unknown one.

    >>> failure_cause("AgentTimeoutError"), failure_cause("KeyError")
    ('agent_exhausted_budget', 'unclassified')
    """
    if exception_type is None:
        return None
    if exception_type not in _CAUSE and exception_type.endswith("Error"):
        return next((cause for head, cause in FAMILIES if exception_type.startswith(head)), "unclassified")
    return _CAUSE.get(exception_type, "unclassified")


def exceptions(trial: Trial) -> Iterator[str]:
    """The class names of all exceptions a trial recorded, its own before those of its steps."""
    for holder in (trial, *(trial.step_results or ())):
        if holder.exception_info is not None:
            yield holder.exception_info.exception_type


def deciding_exception(trial: Trial) -> str | None:
    """The exception that says what became of a trial, its own or one of its steps; None where none was raised.

    The first that is not the agent's doing, as it makes the reward not valid; else the first.
    """
    if trial.exception_info is None and not trial.step_results:
        return None
    raised = list(exceptions(trial))
    return next((name for name in raised if failure_cause(name) not in AGENT_CAUSED), next(iter(raised), None))


def reward_valid(trial: Trial) -> bool:
    """Whether a trial's rewards may be believed: there are some, and only the agent is to blame for exceptions."""
    return bool(rewards(trial)) and all(failure_cause(name) in AGENT_CAUSED for name in exceptions(trial))


def primary_reward(trial: Trial) -> Number | None:
    """The reward called ``reward``, else the only one, else None."""
    given = rewards(trial) or {}
    if "reward" in given:
        return given["reward"]
    return next(iter(given.values())) if len(given) == 1 else None


def totals(trial: Trial) -> Totals:
    """What a trial used up; the sum over its steps where it says nothing itself, as one of many steps does."""
    if trial.agent_result is not None:
        return Totals(*msgspec.structs.astuple(trial.agent_result))
    return added([step.agent_result for step in trial.step_results or ()])


def added(spent: list[Spent | None]) -> Totals:
    """Sums of what is known, in the order given; None where nothing is."""
    sums: list[Any] = []
    for field in Totals._fields:
        known = [value for usage in spent if usage is not None and (value := getattr(usage, field)) is not None]
        sums.append(sum(known[1:], start=known[0]) if known else None)
    return Totals(*sums)


def seconds(phase: Trial | Phase | None) -> float | None:
    """How long a phase, or a whole trial, took; None when it did not begin or did not end."""
    if phase is None or phase.started_at is None or phase.finished_at is None:
        return None
    try:
        return (datetime.fromisoformat(phase.finished_at) - datetime.fromisoformat(phase.started_at)).total_seconds()
    except (ValueError, TypeError):  # no time at all, or one of the two without its zone
        return None
