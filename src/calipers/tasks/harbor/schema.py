"""The keys of task.toml, with the values that stand where nothing is said."""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any, Final, Literal

from calipers.tasks.harbor.manifest import Author
from calipers.tasks.harbor.toml import Steps, Toml, named

Network = Literal["public", "no-network", "allowlist"]
User = str | int
MinReward = float | Mapping[str, float]

_SIZE: Final = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([KMGT])i?B?\s*", re.IGNORECASE)
_MEGABYTES: Final = {"K": 1 / 1024, "M": 1.0, "G": 1024.0, "T": 1024.0**2}
_DEVICES: Final = {"con", "prn", "aux", "nul", *(f"{kind}{digit}" for kind in ("com", "lpt") for digit in range(1, 10))}


@dataclass(frozen=True, slots=True)
class Artifact:
    """Something to bring back from the environment."""

    source: str
    destination: str | None = None
    exclude: tuple[str, ...] = ()
    service: str | None = None


@dataclass(frozen=True, slots=True)
class Identity:
    """The section ``[task]``: what the task is called when it travels."""

    name: str
    version: str | None = None
    description: str = ""
    authors: tuple[Author, ...] = ()
    keywords: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Healthcheck:
    """A command that succeeds once the environment is ready."""

    command: str
    interval_sec: float = 5.0
    timeout_sec: float = 30.0
    start_period_sec: float = 0.0
    start_interval_sec: float = 5.0
    retries: int = 3


@dataclass(frozen=True, slots=True)
class Tpu:
    """The accelerator that an environment asks for."""

    type: str
    topology: str | None = None


@dataclass(frozen=True, slots=True)
class Environment:
    """Where a trial happens. None is whatever the machine gives."""

    docker_image: str | None = None
    build_timeout_sec: float = 600.0
    os: Literal["linux", "windows"] = "linux"
    cpus: float | None = None
    memory_mb: int | None = None
    storage_mb: int | None = None
    gpus: int | None = None
    gpu_types: tuple[str, ...] = ()
    tpu: Tpu | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    workdir: str | None = None
    skills_dir: str | None = None
    mcp_servers: tuple[Mapping[str, Any], ...] = ()
    healthcheck: Healthcheck | None = None
    network_mode: Network | None = None
    allowed_hosts: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Agent:
    """How the agent is run; no time limit where none is given."""

    timeout_sec: float | None = None
    user: User | None = None
    network_mode: Network | None = None
    allowed_hosts: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Collect:
    """A command run before verification, to save what the verifier needs; its failure fails nothing."""

    command: str
    service: str = "main"
    timeout_sec: float = 60.0
    user: User | None = None


@dataclass(frozen=True, slots=True)
class Verifier:
    """How the outcome is judged."""

    timeout_sec: float = 600.0
    env: Mapping[str, str] = field(default_factory=dict)
    user: User | None = None
    environment_mode: Literal["shared", "separate"] | None = None
    environment: Environment | None = None
    collect: tuple[Collect, ...] = ()
    network_mode: Network | None = None
    allowed_hosts: tuple[str, ...] = ()

    @property
    def separate(self) -> bool:
        """Whether it judges in an environment of its own; having one described implies it."""
        return self.environment is not None or self.environment_mode == "separate"


@dataclass(frozen=True, slots=True)
class Solution:
    """The reference solution, which only the oracle runs."""

    env: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Step:
    """One of several instructions, each judged by itself, in one environment."""

    name: str
    agent: Agent = field(default_factory=Agent)
    verifier: Verifier = field(default_factory=Verifier)
    min_reward: MinReward | None = None  # less ends the trial
    healthcheck: Healthcheck | None = None
    artifacts: tuple[str | Artifact, ...] = ()


@dataclass(frozen=True, slots=True)
class Config:
    """All of task.toml."""

    schema_version: str = "1.4"
    source: str | None = None
    multi_step_reward_strategy: Literal["mean", "final"] | None = None  # None is mean
    artifacts: tuple[str | Artifact, ...] = ()
    task: Identity | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)
    agent: Agent = field(default_factory=Agent)
    verifier: Verifier = field(default_factory=Verifier)
    environment: Environment = field(default_factory=Environment)
    solution: Solution = field(default_factory=Solution)
    steps: tuple[Step, ...] = ()


def config(toml: Toml) -> Config:
    """What a task.toml says, older keys under their present names; InputError names the line of what cannot be."""
    made = toml.convert(modern(toml), Config)
    _numbers(toml, made, ())
    for steps, artifact in _artifacts(made):
        _artifact(toml, steps, artifact)
    _step_names(toml, made)
    return made


def modern(toml: Toml) -> dict[str, Any]:
    """The values of a task.toml with ``version``, ``memory``, ``storage`` and ``allow_internet`` as they are today."""
    values = dict(toml.values)
    if "version" in values:
        values.setdefault("schema_version", values["version"])
        del values["version"]
    for way in (("environment",), ("verifier", "environment")):
        _replace(values, way, toml)
    return values


def _replace(values: dict[str, Any], way: tuple[str, ...], toml: Toml) -> None:
    """Put the modern form of an environment in the place of the old one."""
    for key in way[:-1]:
        if not isinstance(values.get(key), dict):
            return
        values[key] = dict(values[key])
        values = values[key]
    if isinstance(old := values.get(way[-1]), dict):
        new = dict(old)
        for name in ("memory", "storage"):
            if name in new:
                new.setdefault(f"{name}_mb", _megabytes(new[name], toml, (*way, name)))
                del new[name]
        if isinstance(new.get("allow_internet"), bool):
            new.setdefault("network_mode", "public" if new["allow_internet"] else "no-network")
            del new["allow_internet"]
        values[way[-1]] = new


def _megabytes(size: Any, toml: Toml, steps: Steps) -> int:
    found = _SIZE.fullmatch(size) if isinstance(size, str) else None
    if found is None:
        raise toml.fault(steps, f"{named(steps)} is {size!r}", "expected a size such as '2G' or '512M'")
    return round(float(found[1]) * _MEGABYTES[found[2].upper()])


def _numbers(toml: Toml, value: Any, steps: Steps) -> None:
    """Refuse a time, a size or a count that cannot be one; TOML has nan and inf."""
    if isinstance(value, tuple):
        for at, one in enumerate(value):
            _numbers(toml, one, (*steps, at))
    if not is_dataclass(value):
        return
    for key in (one.name for one in fields(value)):
        number = getattr(value, key)
        if isinstance(number, (int, float)) and key not in ("user", "min_reward"):
            least = 0 if key in ("start_period_sec", "retries", "gpus") else None
            if not math.isfinite(number) or (number < 0 if least == 0 else number <= 0):
                right = "expected a number >= 0" if least == 0 else "expected a number > 0"
                raise toml.fault((*steps, key), f"{named((*steps, key))} is {number}", right)
        else:
            _numbers(toml, number, (*steps, key))


def _artifacts(made: Config) -> Iterator[tuple[Steps, str | Artifact]]:
    yield from ((("artifacts", at), one) for at, one in enumerate(made.artifacts))
    for number, step in enumerate(made.steps):
        yield from ((("steps", number, "artifacts", at), one) for at, one in enumerate(step.artifacts))


def _artifact(toml: Toml, steps: Steps, artifact: str | Artifact) -> None:
    whole = artifact if isinstance(artifact, Artifact) else Artifact(artifact)
    target = whole.destination
    if ".." in whole.source.replace("\\", "/").split("/") or not whole.source:
        raise toml.fault(steps, f"the artifact {whole.source!r} leads elsewhere", "expected a path without '..'")
    if target is not None and (
        not target or ".." in re.split(r"[/\\]", target) or target.startswith(("/", "\\")) or target == "manifest.json"
    ):
        right = "expected a relative path without '..', other than manifest.json"
        raise toml.fault(steps, f"the artifact's destination is {target!r}", right)


def _step_names(toml: Toml, made: Config) -> None:
    seen: dict[str, str] = {}
    for at, step in enumerate(made.steps):
        steps, name = ("steps", at, "name"), step.name
        bad = not name or name in (".", "..") or re.search(r'[\x00-\x1f<>:"/\\|?*]', name) or name[-1] in " ."
        if bad or len(name.encode(errors="replace")) > 255 or name.partition(".")[0].casefold() in _DEVICES:
            right = "expected the name of a directory that any system can hold, of at most 255 bytes"
            raise toml.fault(steps, f"the step's name is {name!r}", right)
        plain = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", name).casefold())
        if plain in seen:
            raise toml.fault(steps, f"the step {name!r} and the step {seen[plain]!r} are one name to some systems")
        seen[plain] = name
