"""A task of Harbor: a directory with an instruction, an environment and a verifier, and the keys of its task.toml."""

from __future__ import annotations

import os
import re
import unicodedata
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, is_dataclass, replace
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple

from calipers.errors import InputError
from calipers.systems.harbor.manifest import (
    TASK_TOML,
    Identity,
    Steps,
    Toml,
    checked_name,
    named,
    read_toml,
    regular,
    task_digest,
)
from calipers.systems.harbor.wire import finite

Network = Literal["public", "no-network", "allowlist"]
User = str | int
MinReward = float | Mapping[str, float]

_SIZE: Final = re.compile(r"\s*(\d{1,15}(?:\.\d+)?)\s*([KMGT])i?B?\s*", re.IGNORECASE)
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
class EnvironmentSettings:
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
class AgentSettings:
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
class VerifierSettings:
    """How the outcome is judged."""

    timeout_sec: float = 600.0
    env: Mapping[str, str] = field(default_factory=dict)
    user: User | None = None
    environment_mode: Literal["shared", "separate"] | None = None
    environment: EnvironmentSettings | None = None
    collect: tuple[Collect, ...] = ()
    network_mode: Network | None = None
    allowed_hosts: tuple[str, ...] = ()

    @property
    def separate(self) -> bool | None:
        """Whether it judges in an environment of its own; having one described implies it. None: it does not say."""
        if self.environment_mode is not None:
            return self.environment_mode == "separate"
        return True if self.environment is not None else None


@dataclass(frozen=True, slots=True)
class Solution:
    """The reference solution, which only the oracle runs."""

    env: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class StepSettings:
    """One of several instructions, each judged by itself, in one environment."""

    name: str
    agent: AgentSettings = field(default_factory=AgentSettings)
    verifier: VerifierSettings = field(default_factory=VerifierSettings)
    min_reward: MinReward | None = None  # less ends the trial
    healthcheck: Healthcheck | None = None
    artifacts: tuple[str | Artifact, ...] = ()


class NetworkPolicies(NamedTuple):
    """What a trial, or one of its steps, may reach: while it is prepared, while the agent works, while it is judged."""

    environment: Network
    agent: Network
    verifier: Network


@dataclass(frozen=True, slots=True)
class TaskSettings:
    """All of task.toml."""

    schema_version: str = "1.4"
    source: str | None = None
    multi_step_reward_strategy: Literal["mean", "final"] | None = None  # None is mean
    artifacts: tuple[str | Artifact, ...] = ()
    task: Identity | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)
    agent: AgentSettings = field(default_factory=AgentSettings)
    verifier: VerifierSettings = field(default_factory=VerifierSettings)
    environment: EnvironmentSettings = field(default_factory=EnvironmentSettings)
    solution: Solution = field(default_factory=Solution)
    steps: tuple[StepSettings, ...] = ()


def config(toml: Toml) -> TaskSettings:
    """What a task.toml says, older keys under their present names; InputError names the line of what cannot be."""
    made = toml.convert(modern(toml), TaskSettings)
    _numbers(toml, made, ())
    for steps, artifact in _artifacts(made):
        _artifact(toml, steps, artifact)
    _step_names(toml, made)
    for steps, part in _parts(made):
        _network(toml, steps, part)
    return made


def modern(toml: Toml) -> dict[str, Any]:
    """The values of a task.toml with ``version``, ``memory``, ``storage`` and ``allow_internet`` as they are today."""
    values = dict(toml.values)
    if "version" in values:
        values.setdefault("schema_version", values["version"])
        del values["version"]
    _replace(values, "environment", toml, ())
    _replace_inside(values, toml, ())
    if isinstance(steps := values.get("steps"), list):
        values["steps"] = steps = [dict(step) if isinstance(step, dict) else step for step in steps]
        for at, step in enumerate(steps):
            _replace_inside(step, toml, ("steps", at))
    return values


def _replace_inside(values: Any, toml: Toml, steps: Steps) -> None:
    """Put the modern form of the verifier's own environment in the place of the old one."""
    if isinstance(values, dict) and isinstance(values.get("verifier"), dict):
        values["verifier"] = verifier = dict(values["verifier"])
        _replace(verifier, "environment", toml, (*steps, "verifier"))


def _replace(values: dict[str, Any], key: str, toml: Toml, steps: Steps) -> None:
    """Put the modern form of an environment in the place of the old one."""
    if not isinstance(old := values.get(key), dict):
        return
    values[key] = new = dict(old)
    way = (*steps, key)
    for name in ("memory", "storage"):
        if name in new:
            new.setdefault(f"{name}_mb", _megabytes(new[name], toml, (*way, name)))
            del new[name]
    if "allow_internet" in new:
        allowed = toml.convert(new.pop("allow_internet"), bool, (*way, "allow_internet"))
        new.setdefault("network_mode", "public" if allowed else "no-network")
    if isinstance(new.get("os"), str):
        new["os"] = new["os"].lower()


def _megabytes(size: Any, toml: Toml, steps: Steps) -> int:
    match = _SIZE.fullmatch(size) if isinstance(size, str) else None
    if match is None:
        raise toml.fault(steps, f"{named(steps)} is {size!r}", "expected a size such as '2G' or '512M'")
    return round(float(match[1]) * _MEGABYTES[match[2].upper()])


def _numbers(toml: Toml, value: Any, steps: Steps) -> None:
    """Refuse a time, a size or a count that cannot be one; TOML has nan and inf."""
    if isinstance(value, tuple):
        for at, item in enumerate(value):
            _numbers(toml, item, (*steps, at))
    if not is_dataclass(value):
        return
    for key in (item.name for item in fields(value)):
        number = getattr(value, key)
        if isinstance(number, (int, float)) and key not in ("user", "min_reward"):
            least = ">=" if key in ("start_period_sec", "retries", "gpus") else ">"
            if not finite(number) or number < 0 or (number == 0 and least == ">"):
                raise toml.fault((*steps, key), f"{named((*steps, key))} is {number}", f"expected a number {least} 0")
        else:
            _numbers(toml, number, (*steps, key))


def _artifacts(made: TaskSettings) -> Iterator[tuple[Steps, str | Artifact]]:
    yield from ((("artifacts", at), artifact) for at, artifact in enumerate(made.artifacts))
    for number, step in enumerate(made.steps):
        yield from ((("steps", number, "artifacts", at), artifact) for at, artifact in enumerate(step.artifacts))


def _artifact(toml: Toml, steps: Steps, artifact: str | Artifact) -> None:
    whole = artifact if isinstance(artifact, Artifact) else Artifact(artifact)
    target = whole.destination
    if ".." in whole.source.replace("\\", "/").split("/") or not whole.source:
        raise toml.fault(steps, f"the artifact {whole.source!r} points outside", "expected a path without '..'")
    if target is not None and (
        not target or ".." in re.split(r"[/\\]", target) or target.startswith(("/", "\\")) or target == "manifest.json"
    ):
        right = "expected a relative path without '..', other than manifest.json"
        raise toml.fault(steps, f"the artifact's destination is {target!r}", right)


def _parts(made: TaskSettings) -> Iterator[tuple[Steps, EnvironmentSettings | AgentSettings | VerifierSettings]]:
    """What of a task.toml has a word on the network, each with the way to it."""
    yield ("environment",), made.environment
    levels: list[tuple[Steps, TaskSettings | StepSettings]] = [((), made)]
    levels += [(("steps", at), step) for at, step in enumerate(made.steps)]
    for steps, level in levels:
        yield (*steps, "agent"), level.agent
        yield (*steps, "verifier"), level.verifier
        if level.verifier.environment:
            yield (*steps, "verifier", "environment"), level.verifier.environment


def _network(toml: Toml, steps: Steps, part: EnvironmentSettings | AgentSettings | VerifierSettings) -> None:
    """Refuse what Harbor refuses: hosts without a list of allowed ones, and a shared environment of one's own."""
    if part.allowed_hosts and part.network_mode != "allowlist":
        wrong = f"{named((*steps, 'allowed_hosts'))} is set, but network_mode is {part.network_mode!r}"
        raise toml.fault((*steps, "allowed_hosts"), wrong, "expected network_mode = 'allowlist', or no hosts")
    if isinstance(part, VerifierSettings) and part.environment and part.environment_mode == "shared":
        wrong = f"{named((*steps, 'environment_mode'))} is 'shared', but the verifier has its own environment"
        raise toml.fault((*steps, "environment_mode"), wrong, "expected 'separate', or no environment")


def _step_names(toml: Toml, made: TaskSettings) -> None:
    seen: dict[str, str] = {}
    for at, step in enumerate(made.steps):
        steps, name = ("steps", at, "name"), step.name
        bad = not name or name in (".", "..") or re.search(r'[\x00-\x1f<>:"/\\|?*]', name) or name[-1] in " ."
        if bad or len(name.encode(errors="replace")) > 255 or name.partition(".")[0].casefold() in _DEVICES:
            right = "expected a directory name that is valid on every system, of at most 255 bytes"
            raise toml.fault(steps, f"the step's name is {name!r}", right)
        plain = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", name).casefold())
        if plain in seen:
            raise toml.fault(steps, f"the step {name!r} and the step {seen[plain]!r} are the same name on some systems")
        seen[plain] = name


HARBORIGNORE: Final = ".harborignore"


def uploaded(task: Path, folder: Path) -> list[Path]:
    """The files below tests/ or solution/ that an environment is given, sorted; none where the folder is not there."""
    paths: list[Path] = []
    for here, folders, files in os.walk(folder):
        links = [name for name in folders if os.path.islink(os.path.join(here, name))]
        paths += [Path(here, name) for name in (*files, *links)]
    return sorted(path for path in paths if not left_out(task, path) and regular(task, path))


def left_out(task: Path, path: Path) -> str:
    """The place of the .harborignore that keeps a file out, such as ``tests/.harborignore``; "" when none does.

    One lies in the task's directory or in any directory on the way to the file, speaks of names
    below itself, and the nearest that has an opinion decides.
    """
    from pathspec import GitIgnoreSpec

    for folder in path.parents:
        ignore = folder / HARBORIGNORE
        if os.path.lexists(ignore):
            regular(task, ignore)
            try:
                spec = GitIgnoreSpec.from_lines(ignore.read_text(encoding="utf-8").splitlines())
            except (OSError, ValueError) as error:
                raise InputError.at(str(ignore), f"cannot be read ({error})", "expected gitignore's patterns") from None
            result = spec.check_file(path.relative_to(folder).as_posix())
            if result.include is not None:
                return str(ignore) if result.include else ""
        if folder == task:
            break
    return ""


INSTRUCTION: Final = "instruction.md"
BUILDS: Final = ("Dockerfile", "docker-compose.yaml")
_CANARY: Final = re.compile(r"\s*(?:<!--.*canary.*-->|#.*canary.*)\s*", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class TaskDirectory:
    """One task's directory. A task has either an instruction or steps that each have one."""

    path: Path
    name: str  # of [task], else the directory's
    config: TaskSettings
    instruction: str  # "" for a task in steps
    steps: Mapping[str, str] = field(default_factory=dict)  # a step's name -> its instruction, in order
    unknown: tuple[str, ...] = ()  # keys of task.toml that mean nothing, each with its place

    @property
    def needs_image(self) -> str:
        """Why its environment cannot be had without a container's image; "" when it can."""
        made = self.config.environment
        builds = [name for name in BUILDS if os.path.isfile(self.path / "environment" / name)]
        return f"environment.docker_image is {made.docker_image!r}" if made.docker_image else " and ".join(builds)

    @property
    def digest(self) -> str:
        """The digest of its content, taken now."""
        return task_digest(self.path)

    def step_path(self, step: StepSettings) -> Path:
        """The directory of one of its steps."""
        return self.path / "steps" / step.name


def is_task(directory: Path) -> bool:
    """Whether a directory means to be a task: it has a task.toml, right or wrong."""
    return os.path.lexists(directory / TASK_TOML)


def read_task(directory: str | os.PathLike[str]) -> TaskDirectory:
    """The task in a directory; InputError for what makes it no valid one.

    A valid task has a task.toml that can be read, an environment (or an image's name), an
    instruction and a test script for its system.
    """
    root = Path(directory)
    if not is_task(root):
        raise InputError.at(str(root), f"is not a task: it has no {TASK_TOML}", "expected a directory with one")
    toml = read_toml(root, root / TASK_TOML)
    made = config(toml)
    if made.task is not None:
        checked_name(made.task.name, toml.place(("task", "name")))
        if made.task.version == "":
            raise toml.fault(("task", "version"), "the version is empty", "expected one such as '1.0.0', or no key")
    folder = root / "environment"
    if not made.environment.docker_image and not os.path.isdir(folder):
        right = f"expected a directory with a {' or a '.join(BUILDS)}, or environment.docker_image in {TASK_TOML}"
        raise InputError.at(str(folder), "is not there", right)
    name = made.task.name if made.task else Path(os.path.abspath(root)).name
    unknown = replace(toml, values=modern(toml)).unknown(TaskSettings)
    steps = {step.name: instruction(root, root / "steps" / step.name) for step in made.steps}
    task = TaskDirectory(root, name, made, "" if steps else instruction(root, root), steps, tuple(unknown))
    _scripts(task)
    return task


def instruction(root: Path, directory: Path) -> str:
    """The instruction.md of a task or of one of its steps, as an agent is given it."""
    path = directory / INSTRUCTION
    if not os.path.lexists(path):
        raise InputError.at(str(directory), f"has no {INSTRUCTION}", "expected the agent's instruction")
    regular(root, path)
    try:
        return without_canary(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise InputError.at(str(path), f"cannot be read ({error})", "expected UTF-8 text") from None


def without_canary(text: str) -> str:
    """A text without the comments that mark it for data hunters: leading ones, and the blank lines after them.

    Such a line is an HTML comment or starts with ``#``, and holds the word canary.

    >>> without_canary("<!-- CANARY 26b5 -->\\n\\nSort the file.\\n")
    'Sort the file.\\n'
    """
    lines = text.splitlines(keepends=True)
    first = 0
    while first < len(lines) and _CANARY.fullmatch(lines[first]):
        first += 1
    while first and first < len(lines) and not lines[first].strip():
        first += 1
    return "".join(lines[first:])


def verifier_script(task: TaskDirectory, step: StepSettings | None = None) -> Path:
    """The script that judges a task, or one of its steps: the step's own, else the task's. It need not be there."""
    name = "test.bat" if task.config.environment.os == "windows" else "test.sh"
    script = task.step_path(step) / "tests" / name if step else task.path / "tests" / name
    return script if os.path.lexists(script) else task.path / "tests" / name


def solution_script(task: TaskDirectory, step: StepSettings | None = None) -> Path | None:
    """The script that the oracle runs; None when a task, or a step, has none."""
    name = "solve.bat" if task.config.environment.os == "windows" else "solve.sh"
    path = (task.step_path(step) if step else task.path) / "solution" / name
    return path if os.path.lexists(path) and regular(task.path, path) else None


def _scripts(task: TaskDirectory) -> None:
    for step in task.config.steps or (None,):
        script = verifier_script(task, step)
        if os.path.lexists(script):
            regular(task.path, script)
            if ignore_file := left_out(task.path, script):
                wrong = f"excludes {script.name}, which verifies the task"
                raise InputError.at(ignore_file, wrong, "expected it to be uploaded")
        elif not ((judge := judge_environment(task, step)) and judge.bundled):
            raise InputError.at(str(script), "is not there", "expected the script that verifies the task")


_VARIABLE: Final = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-(.*))?\}", re.DOTALL)


def agent_user(task: TaskDirectory, step: StepSettings | None = None) -> User | None:
    """As whom the agent works: the step's own user, else the task's."""
    step_user = step.agent.user if step else None
    return task.config.agent.user if step_user is None else step_user


def verifier_user(task: TaskDirectory, step: StepSettings | None = None) -> User | None:
    """As whom the tests run: the step's own user, else the task's."""
    step_user = step.verifier.user if step else None
    return task.config.verifier.user if step_user is None else step_user


def agent_timeout(task: TaskDirectory, step: StepSettings | None = None) -> float | None:
    """The agent's limit in seconds: the step's own, else the task's; None is no limit."""
    step_limit = step.agent.timeout_sec if step else None
    return task.config.agent.timeout_sec if step_limit is None else step_limit


def separate_verifier(made: TaskSettings, step: StepSettings | None = None) -> bool:
    """Whether a verifier judges in an environment of its own: as its step says, else as the task does."""
    by_step = step.verifier.separate if step else None
    return bool(made.verifier.separate if by_step is None else by_step)


class JudgeEnvironment(NamedTuple):
    """Where a separate verifier judges: its settings, the folder it is made from, and whether its tests lie in it."""

    settings: EnvironmentSettings
    folder: Path
    bundled: bool


def judge_environment(task: TaskDirectory, step: StepSettings | None = None) -> JudgeEnvironment | None:
    """A separate verifier's environment as Harbor resolves it, or None for a verifier in the agent's.

    Image or build: of the step's tests, else of the task's, else the agent's own environment, into which the tests are
    brought. The rest of its settings: the step's, else the task's verifier's, else the task's.
    """
    made = task.config
    if not separate_verifier(made, step):
        return None
    levels = [(made.verifier.environment, task.path / "tests")]
    if step:
        levels.insert(0, (step.verifier.environment, task.step_path(step) / "tests"))
    settings = _judge_settings(made, step)
    for environment, folder in levels:
        image = environment.docker_image if environment else None
        if image or any((folder / name).is_file() for name in BUILDS):
            return JudgeEnvironment(replace(settings, docker_image=image), folder, True)
    settings = replace(settings, docker_image=made.environment.docker_image)
    return JudgeEnvironment(settings, task.path / "environment", False)


def _judge_settings(made: TaskSettings, step: StepSettings | None) -> EnvironmentSettings:
    """What a separate verifier's environment is like."""
    by_step = step.verifier.environment if step else None
    return by_step or made.verifier.environment or made.environment


def network_policies(made: TaskSettings, step: StepSettings | None = None) -> NetworkPolicies:
    """What each phase may reach, as Harbor resolves it: the step's word, else the task's, else the environment's."""
    environment = made.environment.network_mode or "public"
    judging = _judge_settings(made, step) if separate_verifier(made, step) else made.environment
    agents = [step.agent.network_mode if step else None, made.agent.network_mode, environment]
    verifiers = [step.verifier.network_mode if step else None, made.verifier.network_mode, judging.network_mode]
    return NetworkPolicies(
        environment,
        next(mode for mode in agents if mode is not None),
        next((mode for mode in verifiers if mode is not None), "public"),
    )


def verifier_timeout(task: TaskDirectory, step: StepSettings | None = None) -> float:
    """The verifier's limit in seconds. A step without one has 600: as in Harbor, it does not inherit the task's."""
    return (step.verifier if step else task.config.verifier).timeout_sec


def resolve_env(env: Mapping[str, str], host: Mapping[str, str], location: str = "env") -> dict[str, str]:
    """Environment variables with ``${VAR}`` and ``${VAR:-default}`` replaced by the host's values.

    Only a value that is nothing but such a reference is one. The default is for a variable that is not
    set; one that is set and empty stays empty. InputError names those that are neither set nor have a
    default, and no value of any.

    >>> resolve_env({"A": "${X}", "B": "${Y:-b}", "C": "c$"}, {"X": "x"})
    {'A': 'x', 'B': 'b', 'C': 'c$'}
    """
    resolved: dict[str, str] = {}
    absent: list[str] = []
    for name, value in env.items():
        reference = _VARIABLE.fullmatch(value)
        if reference is None:
            resolved[name] = value
        elif (known := host.get(reference[1], reference[2])) is not None:
            resolved[name] = known
        else:
            absent.append(reference[1])
    if absent:
        names = ", ".join(dict.fromkeys(absent))
        raise InputError.at(location, f"{names} not set here", "export it, or give a default as in ${NAME:-value}")
    return resolved
