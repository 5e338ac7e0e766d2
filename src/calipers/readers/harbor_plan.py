"""What a Harbor job set out to do: the trials in its lock, else their number, else the directories there are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final, TypeVar

import msgspec

from calipers.errors import InputError
from calipers.readers.harbor_folder import CONFIG, LOCK, RESULT, JobFolder, Unreadable, contents
from calipers.readers.harbor_rows import ADHOC, Who
from calipers.readers.harbor_trial import Job, Trial, decode_job, decode_trial

MOST_PLANNED: Final = 10_000_000  # trials; more is a slip of the pen
ORACLE: Final = "oracle"  # Harbor's default agent, which its config.json leaves out
NEVER_STARTED: Final = "(never started {})"
PROVIDERS: Final = frozenset(  # prefixes that Harbor takes off a model's name, of those in common use
    {
        *("anthropic", "azure", "bedrock", "cohere", "deepseek", "fireworks_ai", "gemini", "groq", "hosted_vllm"),
        *("mistral", "ollama", "openai", "openrouter", "sagemaker", "together_ai", "vertex_ai", "vllm", "xai"),
    }
)


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


class Wanted(msgspec.Struct, gc=False):
    """One trial as planned: a trial's ``config.json``, its ``lock.json``, or an entry of the job's lock."""

    task: TaskRef
    agent: AgentRef = msgspec.field(default_factory=AgentRef)


class Result(Trial, gc=False):
    """A trial's ``result.json`` with what it was asked for."""

    id: str | None = None
    config: Wanted | None = None


class _Lock(msgspec.Struct):
    trials: list[Wanted]


class _JobConfig(msgspec.Struct):
    n_attempts: int = 1
    agents: list[AgentRef] = []


T = TypeVar("T")

_RESULT: Final = msgspec.json.Decoder(Result)
_WANTED: Final = msgspec.json.Decoder(Wanted)
_LOCK: Final = msgspec.json.Decoder(_Lock)
_CONFIG: Final = msgspec.json.Decoder(_JobConfig)
_BAD: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


def decode_result(raw: bytes, place: str) -> Trial:
    """A trial's result, with what it was asked for where that can be read; InputError when it is none."""
    try:
        return _RESULT.decode(raw)
    except _BAD:
        try:
            return decode_trial(raw, place)
        except RecursionError:
            raise InputError.at(place, "it is nested too deeply", "expected what Harbor writes") from None


class Known:
    """The names that finished trials give to what was asked for."""

    def __init__(self) -> None:
        self._agents: dict[tuple[str, str | None], tuple[str, str | None]] = {}
        self._tasks: dict[tuple[str | None, str | None], str] = {}

    def learn(self, trial: Trial) -> None:
        """What a finished trial was asked for, and what it is called."""
        if isinstance(trial, Result) and trial.config is not None:
            model = trial.agent_info.model_info
            name = model.name if model else None
            self._agents.setdefault(trial.config.agent.key, (trial.agent_info.name, name))
            self._tasks.setdefault(trial.config.task.key, trial.task_name)

    def who(self, wanted: Wanted) -> Who:
        """The group and the task of a trial that nobody finished."""
        task, key = wanted.task, wanted.agent.key
        agent, model = self._agents.get(key) or (key[0], _model(key[1]))
        named = self._tasks.get(task.key) or task.name or (task.path or "").rstrip("/").rpartition("/")[2]
        return Who(agent, model, task.source or ADHOC, named or "(unnamed)")


class JobPlan:
    """What a job's own three files say."""

    def __init__(self, folder: JobFolder) -> None:
        self.notes: list[str] = []
        self.job = self._job(folder) if folder.is_job else Job()
        self._config = self._read(folder, CONFIG, _CONFIG) or _JobConfig() if folder.is_job else _JobConfig()
        lock = self._read(folder, LOCK, _LOCK) if folder.is_job else None
        self._wanted = Counter(
            (msgspec.structs.astuple(one.task), msgspec.structs.astuple(one.agent))
            for one in (lock.trials if lock else ())
        )
        self._locked = lock is not None
        total = self.job.n_total_trials
        self._total = None if self._locked or total is None else total
        if (total or 0) > MOST_PLANNED:
            place = f"{folder.path}/{RESULT}"
            raise InputError.at(place, f"{total} trials are planned", f"expected at most {MOST_PLANNED}")
        told = RESULT if self._total is not None else "trial directories"
        self.planned_from = LOCK if self._locked else told

    def owed(self, present: Counter[Who], known: Known) -> Iterator[Who]:
        """A trial for each that was planned and has no directory."""
        if self._locked:
            planned = Counter[Who]()
            for (task, agent), count in self._wanted.items():
                planned[known.who(Wanted(TaskRef(*task), AgentRef(*agent)))] += count
            yield from (planned - present).elements()
        elif self._total is not None:
            yield from self._unnamed(present, self._total - present.total(), known)

    def _unnamed(self, present: Counter[Who], left: int, known: Known) -> Iterator[Who]:
        """Of trials that are merely counted: what known tasks lack of their attempts, then tasks without a name."""
        attempts = max(self._config.n_attempts, 1)
        for who, count in sorted(present.items(), key=lambda item: tuple(part or "" for part in item[0])):
            for _ in range(min(attempts - count, left)):
                left -= 1
                yield who
        groups = sorted({who[:3] for who in present}, key=lambda group: tuple(part or "" for part in group))
        if not groups:
            agents: Sequence[AgentRef] = self._config.agents or [AgentRef()]
            groups = [known.who(Wanted(TaskRef(), agent))[:3] for agent in agents]
        for number in range(left):
            task, turn = divmod(number, attempts * len(groups))
            agent, model, dataset = groups[turn // attempts]
            yield Who(agent, model, dataset, NEVER_STARTED.format(task + 1))

    def _job(self, folder: JobFolder) -> Job:
        place = f"{folder.path}/{RESULT}"
        try:
            raw = contents(place)
            return Job() if raw is None else decode_job(raw, place)
        except (Unreadable, InputError, RecursionError):
            self.notes.append(f"{place}: cannot be read as a job's result, and says nothing of what was planned")
            return Job()

    def _read(self, folder: JobFolder, name: str, decoder: msgspec.json.Decoder[T]) -> T | None:
        """One of the job's files; None, and a note, when it cannot be read."""
        place = f"{folder.path}/{name}"
        try:
            raw = contents(place)
            return None if raw is None else decoder.decode(raw)
        except (Unreadable, *_BAD) as error:
            self.notes.append(f"{place}: cannot be read ({error})")
            return None


def asked_for(folder: JobFolder, trial: str) -> Wanted | None:
    """What a trial without a result was asked for, by its lock or its configuration."""
    for name in (LOCK, CONFIG):
        try:
            raw = contents(folder.of(trial, name))
            if raw is not None:
                return _WANTED.decode(raw)
        except (Unreadable, *_BAD):
            continue
    return None


def _model(name: str | None) -> str | None:
    """What Harbor would call a model: without the provider, where it knows that."""
    provider, slash, rest = (name or "").partition("/")
    return rest if slash and provider in PROVIDERS else name
