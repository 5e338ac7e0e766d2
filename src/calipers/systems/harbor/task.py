"""Reads Harbor's tasks: directories with an instruction, an environment, a verifier, and settings in task.toml."""

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
    KeyPath,
    Toml,
    checked_name,
    dotted,
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
# names that no file can have on Windows
_DEVICES: Final = {"con", "prn", "aux", "nul", *(f"{kind}{digit}" for kind in ("com", "lpt") for digit in range(1, 10))}


@dataclass(frozen=True, slots=True)
class Artifact:
    """A file or directory to copy out of the environment."""

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
    """A TPU that an environment needs."""

    type: str
    topology: str | None = None


@dataclass(frozen=True, slots=True)
class EnvironmentSettings:
    """The settings of a trial's environment; None means the machine's default."""

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
    """The settings of the agent's run; a timeout of None means no limit."""

    timeout_sec: float | None = None
    user: User | None = None
    network_mode: Network | None = None
    allowed_hosts: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Collect:
    """A command that runs before verification and saves what the verifier needs; its failure is not an error."""

    command: str
    service: str = "main"
    timeout_sec: float = 60.0
    user: User | None = None


@dataclass(frozen=True, slots=True)
class VerifierSettings:
    """The settings of the verification."""

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
        """Whether the verifier has its own environment; None if the settings do not say.

        Settings for such an environment imply that the verifier has one.
        """
        if self.environment_mode is not None:
            return self.environment_mode == "separate"
        return True if self.environment is not None else None


@dataclass(frozen=True, slots=True)
class Solution:
    """The settings of the reference solution, which only the oracle runs."""

    env: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class StepSettings:
    """The settings of one step; all steps share an environment, and each has an instruction and a verification."""

    name: str
    agent: AgentSettings = field(default_factory=AgentSettings)
    verifier: VerifierSettings = field(default_factory=VerifierSettings)
    min_reward: MinReward | None = None  # a lower reward ends the trial
    healthcheck: Healthcheck | None = None
    artifacts: tuple[str | Artifact, ...] = ()


class NetworkPolicies(NamedTuple):
    """The network access of a trial or a step in each phase: preparation, the agent's work, and verification."""

    environment: Network
    agent: Network
    verifier: Network


@dataclass(frozen=True, slots=True)
class TaskSettings:
    """The content of a task.toml."""

    schema_version: str = "1.4"
    source: str | None = None
    multi_step_reward_strategy: Literal["mean", "final"] | None = None  # None means "mean"
    artifacts: tuple[str | Artifact, ...] = ()
    task: Identity | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)
    agent: AgentSettings = field(default_factory=AgentSettings)
    verifier: VerifierSettings = field(default_factory=VerifierSettings)
    environment: EnvironmentSettings = field(default_factory=EnvironmentSettings)
    solution: Solution = field(default_factory=Solution)
    steps: tuple[StepSettings, ...] = ()


def task_settings(toml: Toml) -> TaskSettings:
    """The settings in a task.toml, with old keys renamed; InputError names the line of an invalid value."""
    settings = toml.convert(with_current_keys(toml), TaskSettings)
    _check_numbers(toml, settings, ())
    for keys, artifact in _artifacts(settings):
        _check_artifact(toml, keys, artifact)
    _check_step_names(toml, settings)
    for keys, part in _network_parts(settings):
        _check_network(toml, keys, part)
    return settings


def with_current_keys(toml: Toml) -> dict[str, Any]:
    """The values of a task.toml, with the old ``version``, ``memory``, ``storage`` and ``allow_internet`` replaced."""
    values = dict(toml.values)
    if "version" in values:
        values.setdefault("schema_version", values["version"])
        del values["version"]
    _update_environment(values, toml, ())
    _update_verifier(values, toml, ())
    if isinstance(steps := values.get("steps"), list):
        values["steps"] = steps = [dict(step) if isinstance(step, dict) else step for step in steps]
        for at, step in enumerate(steps):
            _update_verifier(step, toml, ("steps", at))
    return values


def _update_verifier(values: Any, toml: Toml, keys: KeyPath) -> None:
    """Replace the old keys in the environment of the verifier of a task or a step."""
    if isinstance(values, dict) and isinstance(values.get("verifier"), dict):
        values["verifier"] = verifier = dict(values["verifier"])
        _update_environment(verifier, toml, (*keys, "verifier"))


def _update_environment(values: dict[str, Any], toml: Toml, keys: KeyPath) -> None:
    """Replace the old keys in the environment among some values."""
    if not isinstance(old := values.get("environment"), dict):
        return
    values["environment"] = new = dict(old)
    keys = (*keys, "environment")
    for name in ("memory", "storage"):
        if name in new:
            new.setdefault(f"{name}_mb", _megabytes(new[name], toml, (*keys, name)))
            del new[name]
    if "allow_internet" in new:
        allowed = toml.convert(new.pop("allow_internet"), bool, (*keys, "allow_internet"))
        new.setdefault("network_mode", "public" if allowed else "no-network")
    if isinstance(new.get("os"), str):
        new["os"] = new["os"].lower()


def _megabytes(size: Any, toml: Toml, keys: KeyPath) -> int:
    match = _SIZE.fullmatch(size) if isinstance(size, str) else None
    if match is None:
        raise toml.error_at(keys, f"{dotted(keys)} is {size!r}", "expected a size such as '2G' or '512M'")
    return round(float(match[1]) * _MEGABYTES[match[2].upper()])


def _check_numbers(toml: Toml, value: Any, keys: KeyPath) -> None:
    """InputError for a time, size or count that is negative, 0 where it must not be, or not finite."""
    if isinstance(value, tuple):
        for at, item in enumerate(value):
            _check_numbers(toml, item, (*keys, at))
    if not is_dataclass(value):
        return
    for key in (item.name for item in fields(value)):
        number = getattr(value, key)
        if isinstance(number, (int, float)) and key not in ("user", "min_reward"):
            least = ">=" if key in ("start_period_sec", "retries", "gpus") else ">"
            if not finite(number) or number < 0 or (number == 0 and least == ">"):
                raise toml.error_at((*keys, key), f"{dotted((*keys, key))} is {number}", f"expected a number {least} 0")
        else:
            _check_numbers(toml, number, (*keys, key))


def _levels(settings: TaskSettings) -> Iterator[tuple[KeyPath, TaskSettings | StepSettings]]:
    """The settings of a task and of its steps, each with its key path."""
    yield (), settings
    yield from ((("steps", at), step) for at, step in enumerate(settings.steps))


def _artifacts(settings: TaskSettings) -> Iterator[tuple[KeyPath, Artifact]]:
    """The artifacts of a task and of its steps, each with its key path."""
    for keys, level in _levels(settings):
        for at, artifact in enumerate(level.artifacts):
            yield (*keys, "artifacts", at), Artifact(artifact) if isinstance(artifact, str) else artifact


def _check_artifact(toml: Toml, keys: KeyPath, artifact: Artifact) -> None:
    source, target = artifact.source, artifact.destination
    if ".." in source.replace("\\", "/").split("/") or not source:
        raise toml.error_at(keys, f"the artifact {source!r} points outside", "expected a path without '..'")
    if target is not None and (
        not target or ".." in re.split(r"[/\\]", target) or target.startswith(("/", "\\")) or target == "manifest.json"
    ):
        expected = "expected a relative path without '..', other than manifest.json"
        raise toml.error_at(keys, f"the artifact's destination is {target!r}", expected)


NetworkPart = EnvironmentSettings | AgentSettings | VerifierSettings


def _network_parts(settings: TaskSettings) -> Iterator[tuple[KeyPath, NetworkPart]]:
    """The parts of a task.toml that have network settings, each with its key path."""
    yield ("environment",), settings.environment
    for keys, level in _levels(settings):
        yield (*keys, "agent"), level.agent
        yield (*keys, "verifier"), level.verifier
        if level.verifier.environment:
            yield (*keys, "verifier", "environment"), level.verifier.environment


def _check_network(toml: Toml, keys: KeyPath, part: NetworkPart) -> None:
    """InputError for what Harbor refuses: hosts without the mode "allowlist", and a shared verifier's environment."""
    if part.allowed_hosts and part.network_mode != "allowlist":
        message = f"{dotted((*keys, 'allowed_hosts'))} is set, but network_mode is {part.network_mode!r}"
        raise toml.error_at((*keys, "allowed_hosts"), message, "expected network_mode = 'allowlist', or no hosts")
    if isinstance(part, VerifierSettings) and part.environment and part.environment_mode == "shared":
        message = f"{dotted((*keys, 'environment_mode'))} is 'shared', but the verifier has its own environment"
        raise toml.error_at((*keys, "environment_mode"), message, "expected 'separate', or no environment")


def _check_step_names(toml: Toml, settings: TaskSettings) -> None:
    """InputError for a step's name that is not a valid directory name on every system, or that appears twice."""
    seen: dict[str, str] = {}  # normalised name -> name
    for at, step in enumerate(settings.steps):
        keys, name = ("steps", at, "name"), step.name
        bad = not name or name in (".", "..") or re.search(r'[\x00-\x1f<>:"/\\|?*]', name) or name[-1] in " ."
        if bad or len(name.encode(errors="replace")) > 255 or name.partition(".")[0].casefold() in _DEVICES:
            expected = "expected a directory name that is valid on every system, of at most 255 bytes"
            raise toml.error_at(keys, f"the step's name is {name!r}", expected)
        plain = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", name).casefold())
        if plain in seen:
            raise toml.error_at(
                keys, f"the step {name!r} and the step {seen[plain]!r} are the same name on some systems"
            )
        seen[plain] = name


HARBORIGNORE: Final = ".harborignore"


def uploaded(task: Path, folder: Path) -> list[Path]:
    """The files of a folder such as tests/ that are copied into an environment, sorted; none if it does not exist."""
    paths: list[Path] = []
    for here, folders, files in os.walk(folder):
        links = [name for name in folders if os.path.islink(os.path.join(here, name))]
        paths += [Path(here, name) for name in (*files, *links)]
    return sorted(path for path in paths if not left_out(task, path) and regular(task, path))


def left_out(task: Path, path: Path) -> str:
    """The path of the .harborignore that excludes a file, such as ``tests/.harborignore``; "" if none does.

    Such a file can be in the task's directory or in any directory between that and the file. Its patterns are relative
    to its own directory, and the nearest one with a matching pattern decides.
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
    """The directory of one task, which has either one instruction or steps that each have one."""

    path: Path
    name: str  # from [task], else the directory's
    config: TaskSettings
    instruction: str  # "" for a task with steps
    steps: Mapping[str, str] = field(default_factory=dict)  # a step's name -> its instruction, in order
    unknown: tuple[str, ...] = ()  # notes on unknown keys of task.toml

    @property
    def needs_image(self) -> str:
        """The reason why the environment needs a container image; "" if it does not need one."""
        image = self.config.environment.docker_image
        builds = [name for name in BUILDS if os.path.isfile(self.path / "environment" / name)]
        return f"environment.docker_image is {image!r}" if image else " and ".join(builds)

    @property
    def digest(self) -> str:
        """The digest of the task's content, computed anew at each access."""
        return task_digest(self.path)

    def step_path(self, step: StepSettings) -> Path:
        """The directory of one of the task's steps."""
        return self.path / "steps" / step.name


def is_task(directory: Path) -> bool:
    """Whether a directory is meant to be a task: it has a task.toml, valid or not."""
    return os.path.lexists(directory / TASK_TOML)


def read_task(directory: str | os.PathLike[str]) -> TaskDirectory:
    """The task in a directory; InputError if it is not valid.

    A valid task has a valid task.toml, an environment (or an image's name), an instruction and a test script for its
    operating system.
    """
    root = Path(directory)
    if not is_task(root):
        raise InputError.at(str(root), f"is not a task: it has no {TASK_TOML}", "expected a directory with one")
    try:
        str(root).encode()
    except UnicodeEncodeError:  # no file of a job could contain it
        raise InputError.at(str(root), "its name is not UTF-8", "expected text in UTF-8") from None
    toml = read_toml(root, root / TASK_TOML)
    settings = task_settings(toml)
    if settings.task is not None:
        checked_name(settings.task.name, toml.location(("task", "name")))
        if settings.task.version == "":
            raise toml.error_at(("task", "version"), "the version is empty", "expected one such as '1.0.0', or no key")
    folder = root / "environment"
    if not settings.environment.docker_image and not os.path.isdir(folder):
        expected = f"expected a directory with a {' or a '.join(BUILDS)}, or environment.docker_image in {TASK_TOML}"
        raise InputError.at(str(folder), "is not there", expected)
    name = settings.task.name if settings.task else Path(os.path.abspath(root)).name
    unknown = replace(toml, values=with_current_keys(toml)).unknown(TaskSettings)
    steps = {step.name: instruction(root, root / "steps" / step.name) for step in settings.steps}
    task = TaskDirectory(root, name, settings, "" if steps else instruction(root, root), steps, tuple(unknown))
    _check_scripts(task)
    return task


def instruction(root: Path, directory: Path) -> str:
    """The instruction.md of a task or of one of its steps, as the agent gets it."""
    path = directory / INSTRUCTION
    if not os.path.lexists(path):
        raise InputError.at(str(directory), f"has no {INSTRUCTION}", "expected the agent's instruction")
    regular(root, path)
    try:
        return without_canary(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise InputError.at(str(path), f"cannot be read ({error})", "expected UTF-8 text") from None


def without_canary(text: str) -> str:
    """A text without its leading canary comments, which mark it as benchmark data, and the blank lines after them.

    A canary comment is an HTML comment or starts with ``#``, and contains the word canary.

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
    """The path of the test script of a task or a step: the step's own, else the task's, which need not exist."""
    name = "test.bat" if task.config.environment.os == "windows" else "test.sh"
    script = task.step_path(step) / "tests" / name if step else task.path / "tests" / name
    return script if os.path.lexists(script) else task.path / "tests" / name


def solution_script(task: TaskDirectory, step: StepSettings | None = None) -> Path | None:
    """The script that the oracle runs for a task or a step; None if it does not exist."""
    name = "solve.bat" if task.config.environment.os == "windows" else "solve.sh"
    path = (task.step_path(step) if step else task.path) / "solution" / name
    return path if os.path.lexists(path) and regular(task.path, path) else None


def _check_scripts(task: TaskDirectory) -> None:
    """InputError if a test script is missing or is not copied, unless the tests are in the verifier's image."""
    for step in task.config.steps or (None,):
        script = verifier_script(task, step)
        if os.path.lexists(script):
            regular(task.path, script)
            if ignore_file := left_out(task.path, script):
                message = f"excludes {script.name}, which verifies the task"
                raise InputError.at(ignore_file, message, "expected it to be uploaded")
        elif not ((judge := judge_environment(task, step)) and judge.bundled):
            raise InputError.at(str(script), "is not there", "expected the script that verifies the task")


_VARIABLE: Final = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-(.*))?\}", re.DOTALL)


def agent_user(task: TaskDirectory, step: StepSettings | None = None) -> User | None:
    """The user that the agent works as: the step's, else the task's."""
    step_user = step.agent.user if step else None
    return task.config.agent.user if step_user is None else step_user


def verifier_user(task: TaskDirectory, step: StepSettings | None = None) -> User | None:
    """The user that the tests run as: the step's, else the task's."""
    step_user = step.verifier.user if step else None
    return task.config.verifier.user if step_user is None else step_user


def agent_timeout(task: TaskDirectory, step: StepSettings | None = None) -> float | None:
    """The agent's time limit in seconds: the step's, else the task's; None means no limit."""
    step_limit = step.agent.timeout_sec if step else None
    return task.config.agent.timeout_sec if step_limit is None else step_limit


def separate_verifier(settings: TaskSettings, step: StepSettings | None = None) -> bool:
    """Whether the verifier has its own environment: as the step says, else as the task says."""
    by_step = step.verifier.separate if step else None
    return bool(settings.verifier.separate if by_step is None else by_step)


class JudgeEnvironment(NamedTuple):
    """A separate verifier's environment: its settings, its build folder, and whether it already contains the tests."""

    settings: EnvironmentSettings
    folder: Path
    bundled: bool


def judge_environment(task: TaskDirectory, step: StepSettings | None = None) -> JudgeEnvironment | None:
    """A separate verifier's environment as Harbor resolves it; None if the verifier uses the agent's environment.

    The image, or the build folder, is that of the step's tests, else that of the task's tests, else that of the agent's
    environment, into which the tests are then copied. The other settings are those of the step's verifier, else of the
    task's verifier, else of the task.
    """
    if not separate_verifier(task.config, step):
        return None
    levels = [(task.config.verifier.environment, task.path / "tests")]
    if step:
        levels.insert(0, (step.verifier.environment, task.step_path(step) / "tests"))
    settings = _judge_settings(task.config, step)
    for environment, folder in levels:
        image = environment.docker_image if environment else None
        if image or any((folder / name).is_file() for name in BUILDS):
            return JudgeEnvironment(replace(settings, docker_image=image), folder, True)
    settings = replace(settings, docker_image=task.config.environment.docker_image)
    return JudgeEnvironment(settings, task.path / "environment", False)


def _judge_settings(settings: TaskSettings, step: StepSettings | None) -> EnvironmentSettings:
    """The settings of a separate verifier's environment."""
    by_step = step.verifier.environment if step else None
    return by_step or settings.verifier.environment or settings.environment


def network_policies(settings: TaskSettings, step: StepSettings | None = None) -> NetworkPolicies:
    """The network access of each phase as Harbor resolves it: the step's, else the task's, else the environment's."""
    environment = settings.environment.network_mode or "public"
    judge = _judge_settings(settings, step) if separate_verifier(settings, step) else settings.environment
    return NetworkPolicies(
        environment,
        (step.agent.network_mode if step else None) or settings.agent.network_mode or environment,
        (step.verifier.network_mode if step else None)
        or settings.verifier.network_mode
        or judge.network_mode
        or "public",
    )


def verifier_timeout(task: TaskDirectory, step: StepSettings | None = None) -> float:
    """The verifier's time limit in seconds. A step's default is 600, not the task's limit, as in Harbor."""
    return (step.verifier if step else task.config.verifier).timeout_sec


def resolve_env(env: Mapping[str, str], host: Mapping[str, str], location: str = "env") -> dict[str, str]:
    """Environment variables with ``${VAR}`` and ``${VAR:-default}`` replaced by the host's values.

    Only a value that consists entirely of such a reference is replaced. The default applies if the variable is not set;
    an empty variable stays empty. InputError names the variables that are not set and have no default, but shows no
    values.

    >>> resolve_env({"A": "${X}", "B": "${Y:-b}", "C": "c$"}, {"X": "x"})
    {'A': 'x', 'B': 'b', 'C': 'c$'}
    """
    resolved: dict[str, str] = {}
    missing: list[str] = []
    for name, value in env.items():
        reference = _VARIABLE.fullmatch(value)
        if reference is None:
            resolved[name] = value
        elif (replacement := host.get(reference[1], reference[2])) is not None:
            resolved[name] = replacement
        else:
            missing.append(reference[1])
    if missing:
        names = ", ".join(dict.fromkeys(missing))
        raise InputError.at(location, f"{names} not set here", "export it, or give a default as in ${NAME:-value}")
    return resolved
