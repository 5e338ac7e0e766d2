"""What Harbor writes about one trial and about one job, as far as a number depends on it.

A trial is one agent on one task, once; its ``result.json`` holds a map of rewards or none, an exception or
none, and what it cost. Other fields are ignored. An old ``verifier_result`` with one ``reward`` instead of
the map, and a file that spells NaN out, are read too.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any, Final, NamedTuple

import msgspec

from calipers.errors import InputError

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
"""What of a trial's result numbers are taken from: no key stands twice in it."""

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


class Own(msgspec.Struct, gc=False):
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
    calipers: Own | None = None


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


class Totals(NamedTuple):
    """Tokens and money of a trial, or of many; None where nobody reported any."""

    n_input_tokens: int | None = None
    n_cache_tokens: int | None = None
    n_output_tokens: int | None = None
    cost_usd: float | None = None


_TRIAL: Final = msgspec.json.Decoder(Trial)
_JOB: Final = msgspec.json.Decoder(JobFile)


def decode_trial(raw: bytes, path: str) -> Trial:
    """The trial in a ``result.json``; `InputError` naming ``path`` when the bytes are not one."""
    try:
        return _TRIAL.decode(raw)
    except msgspec.ValidationError as error:
        raise InputError.at(path, f"not a trial's result: {error}", "expected what Harbor writes") from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return _with_nan(raw, path)


def _with_nan(raw: bytes, path: str) -> Trial:
    """A trial whose JSON says NaN or Infinity, which strict JSON cannot and Python's can."""
    try:
        return msgspec.convert(json.loads(raw), Trial)
    except (ValueError, RecursionError, msgspec.ValidationError) as error:
        raise InputError.at(path, f"not a trial's result: {error}", "expected what Harbor writes") from error


def decode_job(raw: bytes, path: str) -> JobFile:
    """The job in a ``result.json``; `InputError` naming ``path`` when the bytes are not one."""
    try:
        return _JOB.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InputError.at(path, f"not a job's result: {error}", "expected what Harbor writes") from error


def own_word(raw: bytes | None) -> Own | None:
    """What a file of ours beside a result says, where Harbor itself wrote the result; None for none."""
    try:
        return None if raw is None else msgspec.json.decode(raw, type=Own)
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
    numbers = {name: float(x) if isinstance(x, bool) else x for name, x in given.items() if _finite(x)}
    return numbers if numbers or not given else None


def odd_rewards(verified: Trial | TrialStep) -> Mapping[str, Any]:
    """The rewards that are no finite number, by name: text, null, a list, NaN."""
    return {name: value for name, value in (_given(verified) or {}).items() if not _finite(value)}


def _given(verified: Trial | TrialStep) -> dict[str, Any] | None:
    result = verified.verifier_result
    if result is None:
        return None
    if result.rewards is None and result.reward is not None:
        return {"reward": result.reward}
    return result.rewards


def _finite(value: object) -> bool:
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
    raised = list(exceptions(trial))
    return next((name for name in raised if failure_cause(name) not in AGENT_CAUSED), next(iter(raised), None))


def trial_failure_cause(trial: Trial) -> str | None:
    """Whose fault it is that a trial went wrong, be it in one of its steps only; None of one that did not."""
    return failure_cause(deciding_exception(trial))


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
        return added([trial.agent_result])
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
