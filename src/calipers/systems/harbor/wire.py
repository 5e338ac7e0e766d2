"""The files that Harbor writes: trials, jobs, their locks and configurations, registries, and their directories.

A trial is one run of one agent on one task. Its ``result.json`` may hold a map of rewards, may hold an exception, and
holds the cost; other fields are ignored. Two odd forms are read too: an old ``verifier_result`` with a single
``reward`` instead of the map, and JSON that contains NaN.

Whether a directory is a trial, a job of trials, or a directory of jobs is decided by the files in it. Links are never
followed, because a job that came from elsewhere must not read other files of this machine.
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
from calipers.typed import complete

Number = int | float
Rewards = Mapping[str, Number]
T = TypeVar("T")

CAUSES: Final[Mapping[str, tuple[str, ...]]] = {  # cause -> exceptions that Harbor or a model's library raises
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
CAUSE_BY_PREFIX: Final = (  # for groups of exceptions whose names share a prefix; all of them end in Error
    ("Api", "model_provider_failed"),
    ("RewardFile", "verifier_failed"),
    ("Sandbox", "sandbox_failed"),
)
VERIFIED: Final = "harbor.verified"
"""The label for the verifier's result: ``rewards``, ``empty`` (an empty map), ``nothing`` or `UNFINISHED`."""

EXCEPTION: Final = "harbor.exception"
"""The label for the exception that ended a trial; exceptions of its steps do not count."""

WRITTEN: Final = "harbor.written"
"""The label for a trial's rewards as its file writes them: JSON of its start, its name, and reward -> text."""

UNFINISHED: Final = "unfinished"
UNIQUE_KEYS: Final = ("agent_info", "agent_result", "verifier_result", "exception_info", "step_results", "calipers")
"""The parts of a trial's result that determine its numbers; no key may appear twice in them."""

ADHOC: Final = "adhoc"  # the dataset name for tasks and trials without a dataset
SCRIPT: Final = "uv-script"  # the type of a metric that is a script
ORACLE: Final = "oracle"  # Harbor's default agent, which its config.json leaves out
AGENT_CAUSED: Final = ("agent_exhausted_budget", "agent_refused_task")  # causes that leave a reward valid
_CAUSE: Final = {name: cause for cause, names in CAUSES.items() for name in names}


class Model(msgspec.Struct, gc=False):
    """The model that an agent used, with the name and provider that Harbor resolved."""

    name: str
    provider: str | None = None


class TrialAgent(msgspec.Struct, gc=False):
    """The agent of a trial, with the name and version that it reports."""

    name: str
    version: str | None = None
    model_info: Model | None = None


class AgentUsage(msgspec.Struct, gc=False):
    """An agent's token usage and cost; its input tokens include the cached ones."""

    n_input_tokens: int | None = None
    n_cache_tokens: int | None = None
    n_output_tokens: int | None = None
    cost_usd: float | None = None


class VerifierResult(msgspec.Struct, gc=False):
    """The verifier's result: a map of rewards, if any; a value that is not a number is kept so that it is reported."""

    rewards: dict[str, Any] | None = None
    reward: Any = None  # the only reward, in files from before the map existed


class TrialFailure(msgspec.Struct, gc=False):
    """The exception that ended a trial or a step; its type is the class name without the module."""

    exception_type: str
    exception_message: str | None = None
    occurred_at: str | None = None


class Phase(msgspec.Struct, gc=False):
    """The start and end of one part of a trial."""

    started_at: str | None = None
    finished_at: str | None = None


class TrialStep(msgspec.Struct, gc=False):
    """One step of a multi-step trial, with its own agent run and its own verification."""

    step_name: str = ""
    agent_result: AgentUsage | None = None
    verifier_result: VerifierResult | None = None
    exception_info: TrialFailure | None = None
    agent_execution: Phase | None = None
    verifier: Phase | None = None


class TrialBlame(msgspec.Struct, gc=False):
    """Our finding about a trial without a verdict: `broke_verifier` or `tampered` if its agent is to blame."""

    outcome: str | None = None


class Trial(msgspec.Struct, gc=False):
    """A trial's ``result.json``."""

    task_name: str
    trial_name: str
    agent_info: TrialAgent
    source: str | None = None
    task_checksum: str | None = None
    agent_result: AgentUsage | None = None
    verifier_result: VerifierResult | None = None
    exception_info: TrialFailure | None = None
    started_at: str | None = None
    finished_at: str | None = None
    environment_setup: Phase | None = None
    agent_setup: Phase | None = None
    agent_execution: Phase | None = None
    verifier: Phase | None = None
    step_results: list[TrialStep] | None = None
    calipers: TrialBlame | None = None


class JobStats(msgspec.Struct, gc=False):
    """The part of a job's ``stats`` that cannot be counted from its trial directories, and its own numbers."""

    n_retries: int = 0
    evals: Any = None


class JobFile(msgspec.Struct, gc=False):
    """A job's ``result.json``, old or new: the fields that its trial directories do not already contain."""

    id: str | None = None
    started_at: str | None = None
    updated_at: str | None = None
    finished_at: str | None = None
    n_total_trials: int | None = None
    stats: JobStats = msgspec.field(default_factory=JobStats)


class TaskRef(msgspec.Struct, frozen=True, gc=False):
    """A task as a configuration or a lock names it; the task itself may use another name."""

    name: str | None = None
    path: str | None = None
    git_url: str | None = None
    source: str | None = None

    @property
    def key(self) -> tuple[str | None, str | None]:
        """The key that identifies a requested task."""
        return self.git_url, self.path or self.name


class AgentRef(msgspec.Struct, frozen=True, gc=False):
    """The agent as it was requested; only a finished trial contains the name that the agent reports itself."""

    name: str | None = None
    import_path: str | None = None
    model_name: str | None = None

    @property
    def key(self) -> tuple[str, str | None]:
        """The key that identifies a requested agent."""
        return self.import_path or self.name or ORACLE, self.model_name


class PlannedTrial(msgspec.Struct, frozen=True, gc=False):
    """One planned trial: a trial's ``config.json``, its ``lock.json``, or an entry of the job's lock."""

    task: TaskRef
    agent: AgentRef = msgspec.field(default_factory=AgentRef)


class TrialResult(Trial, gc=False):
    """A trial's ``result.json`` together with its id and the trial as it was planned."""

    id: str | None = None
    config: PlannedTrial | None = None


class JobLock(msgspec.Struct):
    """A job's ``lock.json``: the planned trials."""

    trials: list[PlannedTrial]


class JobLockSize(msgspec.Struct):
    """A job's ``lock.json``, when only the number of planned trials matters."""

    trials: list[msgspec.Raw] = []


class JobConfig(msgspec.Struct):
    """The agents and the number of attempts in a job's ``config.json``; errors elsewhere in the file are ignored."""

    n_attempts: int = 1
    agents: list[AgentRef] = []


class MetricEntry(msgspec.Struct):
    """A metric that a job or a registry requests."""

    type: str = "mean"
    kwargs: dict[str, Any] = {}


class JobMetrics(msgspec.Struct):
    """The metrics in a job's ``config.json``."""

    metrics: list[MetricEntry] = []


class DatasetRef(msgspec.Struct):
    """A dataset of a job."""

    path: str | None = None
    name: str | None = None


class JobScripts(JobMetrics):
    """The parts of a job's ``config.json`` that can lead to a metric script."""

    datasets: list[DatasetRef] = []


_ABSENT: Final = msgspec.Raw()


class FileMarks(msgspec.Struct):
    """The keys that distinguish the files of a job from those of a trial."""

    task_name: msgspec.Raw = _ABSENT
    trial_name: msgspec.Raw = _ABSENT
    stats: msgspec.Raw = _ABSENT
    trials: msgspec.Raw = _ABSENT
    task: msgspec.Raw = _ABSENT


class RegistryTask(msgspec.Struct, omit_defaults=True):
    """A task of a registry entry; its path is below the registry or in a git repository."""

    name: str
    path: str
    git_url: str | None = None
    git_commit_id: str | None = None


class RegistryEntry(msgspec.Struct):
    """One version of one dataset. The last two keys are ours; Harbor ignores them."""

    name: str
    version: str
    description: str = ""
    tasks: list[RegistryTask] = []
    metrics: list[dict[str, Any]] = []
    digest: str = ""  # of the whole content: see `manifest_digest`
    files: str = ""  # the directory of its dataset.toml and its files


class LooseStep(msgspec.Struct, gc=False):
    """The author and the message of a trajectory's step, not validated."""

    source: Any = None
    message: Any = None


class LooseTrajectory(msgspec.Struct, gc=False):
    """The messages of a trajectory of any version, valid or not."""

    steps: list[LooseStep] = msgspec.field(default_factory=list)
    continued_trajectory_ref: Any = None


class Totals(NamedTuple):
    """The tokens and cost of one or more trials; None for a number that no trial reports."""

    n_input_tokens: int | None = None
    n_cache_tokens: int | None = None
    n_output_tokens: int | None = None
    cost_usd: float | None = None


_RESULT: Final = msgspec.json.Decoder(complete(TrialResult))


def decode_lenient(raw: bytes, kind: type[T]) -> T:
    """A JSON value as a ``kind``, with what Python writes beyond JSON: NaN, Infinity and half surrogate pairs.

    Half a surrogate pair becomes a question mark. ValueError, RecursionError or msgspec.ValidationError for bad input.
    """
    try:
        return msgspec.json.decode(raw, type=complete(kind))
    except msgspec.ValidationError:
        raise
    except BAD:
        text = json.dumps(json.loads(raw), ensure_ascii=False).encode(errors="replace")
        return msgspec.convert(json.loads(text), complete(kind))


def decode_trial(raw: bytes, path: str) -> Trial:
    """The trial in a ``result.json``; `InputError` naming ``path`` if the bytes are not a trial's result."""
    try:
        return decode_lenient(raw, Trial)
    except (ValueError, RecursionError, msgspec.ValidationError) as error:
        raise InputError.at(path, f"not a trial's result: {error}", "expected a file that Harbor wrote") from error


def decode_result(raw: bytes, path: str) -> Trial:
    """A trial's result, with the planned trial if that part is valid; InputError if it is not a trial's result."""
    try:
        return _RESULT.decode(raw)
    except BAD:
        return decode_trial(raw, path)


def decode_of_job(raw: bytes, kind: type[T], path: str) -> T:
    """One of a job's own files as a ``kind``; `InputError` naming ``path`` if the bytes do not fit it."""
    try:
        return msgspec.json.decode(raw, type=complete(kind))
    except BAD as error:
        name = "result" if path.endswith(RESULT) else os.path.basename(path)
        raise InputError.at(path, f"not a job's {name}: {error}", "expected a file that Harbor wrote") from error


def decode_blame(raw: bytes | None) -> TrialBlame | None:
    """The finding in our own file beside a result that Harbor wrote; None if there is no such file or it is invalid."""
    try:
        return None if raw is None else msgspec.json.decode(raw, type=complete(TrialBlame))
    except BAD:
        return None


def rewards(verified: Trial | TrialStep) -> Rewards | None:
    """The rewards from the verifier, by name; None if there are no rewards, ``{}`` for an empty map.

    Booleans count as 1.0 and 0.0. Values that are not finite numbers are excluded (see `odd_rewards`); a map of
    only such values counts as no rewards.
    """
    raw = _raw_rewards(verified)
    if raw is None:
        return None
    numbers = {name: float(x) if isinstance(x, bool) else x for name, x in raw.items() if finite(x)}
    return numbers if numbers or not raw else None


def odd_rewards(verified: Trial | TrialStep) -> Mapping[str, Any]:
    """The rewards that are not finite numbers, by name: text, null, a list, NaN."""
    return {name: value for name, value in (_raw_rewards(verified) or {}).items() if not finite(value)}


def _raw_rewards(verified: Trial | TrialStep) -> dict[str, Any] | None:
    result = verified.verifier_result
    if result is None:
        return None
    if result.rewards is None and result.reward is not None:
        return {"reward": result.reward}
    return result.rewards


def finite(value: object) -> bool:
    """Whether a value is a finite number that fits in a float."""
    try:
        return isinstance(value, (int, float)) and math.isfinite(value)
    except OverflowError:  # an integer too large for a float
        return False


def failure_cause(exception_type: str | None) -> str | None:
    """The cause of an exception, by its class name; None for no exception, ``unclassified`` for an unknown one.

    >>> failure_cause("AgentTimeoutError"), failure_cause("KeyError")
    ('agent_exhausted_budget', 'unclassified')
    """
    if exception_type is None:
        return None
    if exception_type not in _CAUSE and exception_type.endswith("Error"):
        causes = (cause for prefix, cause in CAUSE_BY_PREFIX if exception_type.startswith(prefix))
        return next(causes, "unclassified")
    return _CAUSE.get(exception_type, "unclassified")


def exceptions(trial: Trial) -> Iterator[str]:
    """The class names of all exceptions that a trial recorded: its own first, then those of its steps."""
    for holder in (trial, *(trial.step_results or ())):
        if holder.exception_info is not None:
            yield holder.exception_info.exception_type


def deciding_exception(trial: Trial) -> str | None:
    """The exception that decides a trial's outcome, its own or one of its steps; None if nothing was raised.

    It is the first exception that the agent did not cause, because such an exception makes the reward invalid;
    otherwise the first one.
    """
    raised = list(exceptions(trial))
    return next((name for name in raised if failure_cause(name) not in AGENT_CAUSED), next(iter(raised), None))


def reward_valid(trial: Trial) -> bool:
    """Whether a trial's rewards are valid: there are rewards, and the agent caused all exceptions, if any."""
    return bool(rewards(trial)) and all(failure_cause(name) in AGENT_CAUSED for name in exceptions(trial))


def primary_reward(trial: Trial) -> Number | None:
    """The reward named ``reward``, otherwise the only reward; None if neither exists."""
    by_name = rewards(trial) or {}
    if "reward" in by_name:
        return by_name["reward"]
    return next(iter(by_name.values())) if len(by_name) == 1 else None


def totals(trial: Trial) -> Totals:
    """A trial's tokens and cost: its own numbers, otherwise (for a multi-step trial) the sum over its steps."""
    if trial.agent_result is not None:
        return Totals(*msgspec.structs.astuple(trial.agent_result))
    usages = (step.agent_result for step in trial.step_results or ())
    return added(msgspec.structs.astuple(usage) for usage in usages if usage is not None)


def added(usages: Iterable[Sequence[Any]]) -> Totals:
    """The sums of several `Totals`, field by field, added in the order given; None for a field that none reports."""
    columns = ([value for value in column if value is not None] for column in zip(*usages, strict=True))
    return Totals(*(sum(known[1:], start=known[0]) if known else None for known in columns))


def seconds(phase: Trial | Phase | None) -> float | None:
    """The duration of a phase or a whole trial; None if it did not start or did not end."""
    if phase is None or phase.started_at is None or phase.finished_at is None:
        return None
    try:
        return (datetime.fromisoformat(phase.finished_at) - datetime.fromisoformat(phase.started_at)).total_seconds()
    except (ValueError, TypeError):  # not a time, or only one of the two has a time zone
        return None


RESULT, CONFIG, LOCK, RETRIES = "result.json", "config.json", "lock.json", "_retries"
LARGEST: Final = 256 << 20  # bytes per file; a trial's file has a few thousand
_DEEPEST: Final = 3  # levels of directories below _retries

Kind = Literal["trial", "job", "jobs"]


class UnreadableFile(Exception):
    """An existing file that cannot be read; the message says why."""


class JobFolder:
    """The directory of a job or of a single trial; its trials are listed once, when it is opened."""

    format = "harbor"

    def __init__(self, path: str, kind: Kind = "job") -> None:
        self.path = path
        self.is_job = kind == "job"
        self.root = path if self.is_job else os.path.dirname(os.path.abspath(path))
        self.name = os.path.basename(os.path.abspath(self.root))
        self.finished: list[str] = []  # names of the trials with a result.json
        self.unfinished: list[str] = []  # names of the trials with only a config.json
        self.links: list[str] = []
        self.size = 0  # bytes of all results
        self._hash = hashlib.sha256()
        for name in self._names() if self.is_job else [os.path.basename(os.path.abspath(path))]:
            self._list(name)

    def close(self) -> None:
        """Do nothing: no file stays open."""

    def path_in(self, trial: str, name: str) -> str:
        """The path of a file of a trial."""
        return f"{self.root}/{trial}/{name}"

    def result(self, trial: str) -> bytes | None:
        """The bytes of a trial's result, which are also added to the hash; None if the file no longer exists."""
        data = contents(self.path_in(trial, RESULT))
        self._hash.update(b"%s\0%s\n" % (os.fsencode(trial), hashlib.sha256(data or b"").digest()))
        return data

    def file_in(self, trial: str, name: str, largest: int = LARGEST) -> bytes | None:
        """The bytes of another file in a trial; None if it is missing, unreadable, too large, or behind a link."""
        path = self.path_in(trial, name)
        parents = [path[: -len(name)] + name[:at] for at, letter in enumerate(name) if letter == "/"]
        try:
            return None if any(map(os.path.islink, parents)) else contents(path, largest)
        except (UnreadableFile, ValueError):  # ValueError: a NUL in the name
            return None

    def retries(self) -> list[str]:
        """The directories of attempts that later attempts replaced, relative to the job, in order."""
        if not self.is_job or os.path.islink(f"{self.root}/{RETRIES}"):
            return []
        return sorted(_results_below(self.root, RETRIES, _DEEPEST), key=_by_number)

    def start_hashing(self) -> None:
        """Do nothing: results are hashed while they are read."""

    def sha256(self) -> str:
        """The hash of the names and bytes of all results that were read."""
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
            self.size += os.lstat(self.path_in(name, RESULT)).st_size
            self.finished.append(name)
        except OSError:
            if os.path.lexists(self.path_in(name, CONFIG)):
                self.unfinished.append(name)


def contents(path: str, largest: int = LARGEST) -> bytes | None:
    """The bytes of a file; None if it does not exist, `UnreadableFile` for a link, a device, or too large a file."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        linked = os.path.islink(path)
        raise UnreadableFile("it is a link, and links are not followed" if linked else f"{error.strerror}") from None
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise UnreadableFile("it is not a file")
        if status.st_size > largest:
            raise UnreadableFile(f"it is larger than {largest >> 20} MiB")
        with open(descriptor, "rb", buffering=0, closefd=False) as file:
            return file.read(status.st_size + 1)  # a file that grows meanwhile is cut off, and reported as invalid
    except OSError as error:
        raise UnreadableFile(f"{error.strerror}") from None
    finally:
        os.close(descriptor)


def kind_of(path: str) -> Kind | None:
    """Whether a directory is a trial, a job or a directory of jobs; None if it is none of these."""
    if _is_trial(path):
        return "trial"
    if _is_job(path):
        return "job"
    return "jobs" if any(_is_job(f"{path}/{name}") for name in _folders(path)) else None


def jobs_in(path: str) -> list[JobFolder]:
    """The jobs at a path: the job or single trial itself, or the jobs in a directory of jobs; otherwise none."""
    kind = kind_of(path)
    if kind == "jobs":
        return [JobFolder(folder) for folder in jobs_inside(path)]
    return [JobFolder(path, kind)] if kind else []


def jobs_inside(path: str) -> list[str]:
    """The paths of the jobs in a directory of jobs."""
    folders = (f"{path.rstrip('/')}/{name}" for name in _folders(path))
    return [folder for folder in folders if _is_job(folder)]


def _is_trial(path: str) -> bool:
    result, config = _marks(f"{path}/{RESULT}"), _marks(f"{path}/{CONFIG}")
    return _is_trial_result(result) or bool(config and config.task and config.trial_name)


def is_job_by_its_files(path: str) -> bool:
    """Whether a directory's own result or lock shows that it is a job."""
    result = _marks(f"{path}/{RESULT}")
    if result and result.stats and not _is_trial_result(result):
        return True
    lock = _marks(f"{path}/{LOCK}")
    return bool(lock and lock.trials)


def _is_job(path: str) -> bool:
    """Whether a directory is a job, by its own files or because it contains a trial."""
    return is_job_by_its_files(path) or any(_is_trial(f"{path}/{name}") for name in _folders(path))


def _is_trial_result(result: FileMarks | None) -> bool:
    return bool(result and result.task_name and result.trial_name)


def _marks(path: str) -> FileMarks | None:
    try:
        return msgspec.json.decode(contents(path) or b"", type=complete(FileMarks))
    except (UnreadableFile, *BAD):
        return None


def _folders(path: str) -> list[str]:
    """The names of the subdirectories of a directory, sorted, without links."""
    try:
        with os.scandir(path) as entries:
            return sorted(entry.name for entry in entries if entry.is_dir(follow_symlinks=False))
    except OSError:
        return []


def _results_below(root: str, folder: str, levels: int) -> Iterator[str]:
    """The directories with a result below a folder, at most ``levels`` levels down."""
    for name in _folders(f"{root}/{folder}") if levels else ():
        subfolder = f"{folder}/{name}"
        if os.path.lexists(f"{root}/{subfolder}/{RESULT}"):
            yield subfolder
        else:
            yield from _results_below(root, subfolder, levels - 1)


def _by_number(folder: str) -> tuple[str, int, str]:
    """The sort key that puts ``retry-2`` before ``retry-10``."""
    parent, _, name = folder.rpartition("/")
    digits = name[len(name.rstrip("0123456789")) :]
    return parent, int(digits[-9:] or 0), name
