"""What Harbor writes: trials, jobs, their locks and configurations, and registries; and the directories they are in.

A trial is one agent on one task, once; its ``result.json`` holds a map of rewards or none, an exception or
none, and what it cost. Other fields are ignored. An old ``verifier_result`` with one ``reward`` instead of
the map, and a file that spells NaN out, are read too.

A trial, a job of trials, and a directory of jobs are told apart by what lies in them. Links are never followed: a job
that came from elsewhere says nothing about the rest of this machine.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Final, Literal, NamedTuple, TypeVar

import msgspec

from calipers.errors import InputError
from calipers.formats import BAD

Number = int | float
Rewards = Mapping[str, Number]
T = TypeVar("T")

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


class TaskRef(msgspec.Struct, frozen=True, gc=False):
    """Where a task comes from, in a configuration or a lock; its own name may be another."""

    name: str | None = None
    path: str | None = None
    git_url: str | None = None
    source: str | None = None

    @property
    def key(self) -> tuple[str | None, str | None]:
        """What tells tasks apart that were asked for."""
        return self.git_url, self.path or self.name


class AgentRef(msgspec.Struct, frozen=True, gc=False):
    """The agent that was asked for; what it calls itself, only a finished trial says."""

    name: str | None = None
    import_path: str | None = None
    model_name: str | None = None

    @property
    def key(self) -> tuple[str, str | None]:
        """What tells agents apart that were asked for."""
        return self.import_path or self.name or ORACLE, self.model_name


class PlannedTrial(msgspec.Struct, frozen=True, gc=False):
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


class Totals(NamedTuple):
    """Tokens and money of a trial, or of many; None where nobody reported any."""

    n_input_tokens: int | None = None
    n_cache_tokens: int | None = None
    n_output_tokens: int | None = None
    cost_usd: float | None = None


_TRIAL: Final = msgspec.json.Decoder(Trial)
_RESULT: Final = msgspec.json.Decoder(TrialResult)


def decode_trial(raw: bytes, path: str) -> Trial:
    """The trial in a ``result.json``; `InputError` naming ``path`` when the bytes are not one."""
    try:
        return _TRIAL.decode(raw)
    except msgspec.ValidationError as error:
        raise InputError.at(path, f"not a trial's result: {error}", "expected a file that Harbor wrote") from error
    except BAD:
        try:  # NaN and Infinity, which strict JSON cannot say and Python's can
            return msgspec.convert(json.loads(raw), Trial)
        except (ValueError, RecursionError, msgspec.ValidationError) as error:
            raise InputError.at(path, f"not a trial's result: {error}", "expected a file that Harbor wrote") from error


def decode_result(raw: bytes, path: str) -> Trial:
    """A trial's result, with what it was asked for where that can be read; InputError when it is none."""
    try:
        return _RESULT.decode(raw)
    except BAD:
        return decode_trial(raw, path)


def decode_of_job(raw: bytes, kind: type[T], path: str) -> T:
    """One of a job's own files; `InputError` naming ``path`` when the bytes are not one."""
    try:
        return msgspec.json.decode(raw, type=kind)
    except BAD as error:
        what = "result" if path.endswith(RESULT) else os.path.basename(path)
        raise InputError.at(path, f"not a job's {what}: {error}", "expected a file that Harbor wrote") from error


def decode_blame(raw: bytes | None) -> TrialBlame | None:
    """What a file of ours beside a result says, where Harbor itself wrote the result; None for none."""
    try:
        return None if raw is None else msgspec.json.decode(raw, type=TrialBlame)
    except BAD:
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
    spent = (step.agent_result for step in trial.step_results or ())
    return added(msgspec.structs.astuple(usage) for usage in spent if usage is not None)


def added(spent: Iterable[Sequence[Any]]) -> Totals:
    """The sum of each of Totals, in the order given; None where nothing is known."""
    columns = ([value for value in column if value is not None] for column in zip(*spent, strict=True))
    return Totals(*(sum(known[1:], start=known[0]) if known else None for known in columns))


def seconds(phase: Trial | Phase | None) -> float | None:
    """How long a phase, or a whole trial, took; None when it did not begin or did not end."""
    if phase is None or phase.started_at is None or phase.finished_at is None:
        return None
    try:
        return (datetime.fromisoformat(phase.finished_at) - datetime.fromisoformat(phase.started_at)).total_seconds()
    except (ValueError, TypeError):  # no time at all, or one of the two without its zone
        return None


RESULT, CONFIG, LOCK, RETRIES = "result.json", "config.json", "lock.json", "_retries"
LARGEST: Final = 256 << 20  # bytes of one of these files; a trial's has some thousands
_DEEPEST: Final = 3  # directories below _retries

Kind = Literal["trial", "job", "jobs"]


class UnreadableFile(Exception):
    """A file that is there and cannot be used; its text says why."""


class JobFolder:
    """One job, or a single trial: the directories of its trials, listed once; what comes later is not seen."""

    format = "harbor"

    def __init__(self, path: str, kind: Kind = "job") -> None:
        self.path = path
        self.is_job = kind == "job"
        self.root = path if self.is_job else os.path.dirname(os.path.abspath(path))
        self.name = os.path.basename(os.path.abspath(self.root))
        self.finished: list[str] = []  # trials with a result.json, by name
        self.unfinished: list[str] = []  # those with a config.json alone
        self.links: list[str] = []
        self.size = 0  # bytes of all results
        self._hash = hashlib.sha256()
        for name in self._names() if self.is_job else [os.path.basename(os.path.abspath(path))]:
            self._list(name)

    def close(self) -> None:
        """Nothing is held open."""

    def of(self, trial: str, name: str) -> str:
        """The path of a trial's file."""
        return f"{self.root}/{trial}/{name}"

    def result(self, trial: str) -> bytes | None:
        """A trial's result, hashed as it passes; None when it is gone."""
        data = contents(self.of(trial, RESULT))
        self._hash.update(b"%s\0%s\n" % (os.fsencode(trial), hashlib.sha256(data or b"").digest()))
        return data

    def held(self, trial: str, name: str, largest: int = LARGEST) -> bytes | None:
        """A file that an agent left in a trial; None when it is not there, cannot be read, or lies behind a link."""
        path = self.of(trial, name)
        above = [path[: -len(name)] + name[:at] for at, letter in enumerate(name) if letter == "/"]
        try:
            return None if any(map(os.path.islink, above)) else contents(path, largest)
        except (UnreadableFile, ValueError):  # ValueError: a NUL in the name
            return None

    def retries(self) -> list[str]:
        """The directories of attempts that later ones replaced, relative to the job, in their order."""
        if not self.is_job or not _is_directory(f"{self.root}/{RETRIES}"):
            return []
        return sorted(_results_below(self.root, RETRIES, _DEEPEST), key=_by_number)

    def start_hashing(self) -> None:
        """Nothing more to do: results are hashed as they are read."""

    def sha256(self) -> str:
        """The hash of the names and the bytes of all results that were read."""
        return self._hash.hexdigest()

    def _names(self) -> list[str]:
        names = []
        with os.scandir(self.path) as entries:
            for entry in entries:
                if entry.is_symlink():
                    if entry.is_dir():
                        self.links.append(entry.name)
                elif entry.is_dir() and entry.name != RETRIES:
                    names.append(entry.name)
        self.links.sort()
        return sorted(names)

    def _list(self, name: str) -> None:
        try:
            self.size += os.lstat(self.of(name, RESULT)).st_size
            self.finished.append(name)
        except OSError:
            if os.path.lexists(self.of(name, CONFIG)):
                self.unfinished.append(name)


def contents(path: str, largest: int = LARGEST) -> bytes | None:
    """The bytes of a file, None when it is not there; Unreadable for a link, a device, or too large a file."""
    try:
        number = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        linked = os.path.islink(path)
        raise UnreadableFile("it is a link, and links are not followed" if linked else f"{error.strerror}") from None
    try:
        status = os.fstat(number)
        if not stat.S_ISREG(status.st_mode):
            raise UnreadableFile("it is not a file")
        if status.st_size > largest:
            raise UnreadableFile(f"it is larger than {largest >> 20} MiB")
        with open(number, "rb", buffering=0, closefd=False) as file:
            return file.read(status.st_size + 1)  # of one that grows meanwhile, a part, which is told of
    except OSError as error:
        raise UnreadableFile(f"{error.strerror}") from None
    finally:
        os.close(number)


def kind_of(path: str) -> Kind | None:
    """What a directory is to Harbor; None when it is nothing of Harbor's."""
    if _is_trial(path):
        return "trial"
    if _is_job(path):
        return "job"
    return "jobs" if any(_is_job(f"{path}/{name}") for name in _folders(path)) else None


def jobs_in(path: str) -> list[JobFolder]:
    """The jobs that a directory stands for: a job, a trial alone, or a directory of jobs; none when it is neither."""
    kind = kind_of(path)
    if kind == "jobs":
        return [JobFolder(inside) for inside in jobs_inside(path)]
    return [JobFolder(path, kind)] if kind else []


def jobs_inside(path: str) -> list[str]:
    """The jobs in a directory of jobs."""
    inside = (f"{path.rstrip('/')}/{name}" for name in _folders(path))
    return [folder for folder in inside if _is_job(folder)]


def _is_trial(path: str) -> bool:
    result, config = _marks(f"{path}/{RESULT}"), _marks(f"{path}/{CONFIG}")
    return _of_trial(result) or bool(config and config.task and config.trial_name)


def is_job_by_its_files(path: str) -> bool:
    """Whether a directory is a job by its own result or lock."""
    result = _marks(f"{path}/{RESULT}")
    if result and result.stats and not _of_trial(result):
        return True
    lock = _marks(f"{path}/{LOCK}")
    return bool(lock and lock.trials)


def _is_job(path: str) -> bool:
    """Whether a directory is a job: by its own files, else by a trial in it."""
    return is_job_by_its_files(path) or any(_is_trial(f"{path}/{name}") for name in _folders(path))


def _of_trial(result: FileMarks | None) -> bool:
    return bool(result and result.task_name and result.trial_name)


def _marks(path: str) -> FileMarks | None:
    try:
        return msgspec.json.decode(contents(path) or b"", type=FileMarks)
    except (UnreadableFile, *BAD):
        return None


def _folders(path: str) -> list[str]:
    """The directories in a directory, no links, sorted."""
    try:
        with os.scandir(path) as entries:
            return sorted(entry.name for entry in entries if entry.is_dir(follow_symlinks=False))
    except OSError:
        return []


def _is_directory(path: str) -> bool:
    return os.path.isdir(path) and not os.path.islink(path)


def _results_below(root: str, folder: str, deep: int) -> Iterator[str]:
    for name in _folders(f"{root}/{folder}") if deep else ():
        inner = f"{folder}/{name}"
        if os.path.lexists(f"{root}/{inner}/{RESULT}"):
            yield inner
        else:
            yield from _results_below(root, inner, deep - 1)


def _by_number(folder: str) -> tuple[str, int, str]:
    """``retry-2`` before ``retry-10``."""
    above, _, name = folder.rpartition("/")
    digits = name[len(name.rstrip("0123456789")) :]
    return above, int(digits[-9:] or 0), name
