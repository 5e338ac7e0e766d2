"""The environment of a run's trials: as requested, as the run started, or the best available on this machine.

Also says why a task cannot run on this machine, builds the images of those that can, counts the tasks of a dataset that
can run, and removes what a killed run left in a container engine.
"""

from __future__ import annotations

import os
import re
import shutil
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

from calipers.errors import HarborError, InputError, nearest
from calipers.isolate.container import Container, ContainerError, lacking
from calipers.isolate.tamper_check import scripts
from calipers.systems.harbor.lent.dockerfile import EnvironmentPlan, dockerfile_fault, read_environment
from calipers.systems.harbor.lent.image import (
    Builder,
    ImageError,
    ImagePlan,
    build,
    failed_before,
    is_built,
    unbuildable,
)
from calipers.systems.harbor.task import (
    EnvironmentSettings,
    JudgeEnvironment,
    StepSettings,
    TaskDirectory,
    TaskSettings,
    judge_environment,
    network_policies,
    resolve_env,
)
from calipers.systems.harbor.trials import ROOM, clean_environment, find_engine, read_json

AUTO: Final = "auto"
ROOMS: Final = "room"
DOCKER: Final = "docker"
PODMAN: Final = "podman"
COMMAND: Final = "command:"  # the prefix of an agent that is a user's command
MAIN: Final = "main"  # the only service that a room has
HERE: Final = "calipers.systems.harbor.trials.run"  # the environment in the config of a job without Harbor
KNOWN: Final = (AUTO, ROOMS, DOCKER, PODMAN)
SERVER: Final = "{{.Server.Version}} {{range .Server.Components}}{{.Name}} {{end}}"
PROJECT: Final = "com.docker.compose.project"  # compose's label for its own containers
REMOVE_WITHIN: Final = 300.0  # seconds
ANSWER_WITHIN: Final = 10.0  # seconds, as long as Harbor itself waits for the engine
KINDS: Final = (
    (re.compile(r"it needs the image (?P<detail>\S+)"), "needs an image that a room does not have"),
    (
        re.compile(r"\w+/Dockerfile contains .*, and (?P<detail>\S+) does not exist"),
        "copies a file that does not exist",
    ),
    (re.compile(r"\w+/Dockerfile contains (?P<detail>\w+).*"), "has a Dockerfile instruction that a room cannot run"),
    (re.compile(r"\w+/Dockerfile:\d+: (?P<detail>.*)"), "has an image whose build failed here"),
    (re.compile(r"\S+/Dockerfile:\d+: (?P<detail>.*)"), "has a Dockerfile with an error"),
    (
        re.compile(r"its tests fetch something from (?P<detail>\S+),.*"),
        "has tests that fetch from a host that this machine cannot find",
    ),
    (re.compile(r"it works as user (?P<detail>\S+), and"), "works as another user, which needs root"),
)
"""Patterns of reasons that differ only in a detail, and the text for all of them."""
EXAMPLES: Final = 3


def check_name(environment: str) -> None:
    """InputError for a name that looks like a misspelt known name; Harbor checks all other names."""
    close = [] if ":" in environment or environment in KNOWN else nearest(environment, KNOWN, 1)
    if close:
        raise InputError.at("--environment", f"there is no environment {environment!r}", f"did you mean {close[0]!r}?")


def choose_environment(agent: str) -> tuple[str, str]:
    """The best environment for an agent's trials here, and why: Docker or Podman with Harbor, else a room."""
    if agent.startswith(COMMAND):
        return ROOMS, "command agents always run in a room"
    try:
        find_engine()
    except HarborError:
        if os.environ.get("CALIPERS_HARBOR"):
            raise
        return ROOMS, "Harbor is not installed"
    reasons = []
    for name, ask in ((DOCKER, ask_docker), (PODMAN, ask_podman)):
        usable, why = ask()
        if usable:
            return name, why
        reasons.append(why)
    return ROOMS, "; ".join(reason for reason in reasons if reason) or "neither Docker nor Podman answers"


def ask_docker() -> tuple[bool, str]:
    """Whether Harbor can use Docker here, and the reason; an empty text if no engine answers."""
    version, _, parts = _answer("docker", "version", "--format", SERVER).partition(" ")
    if not version:
        return False, ""
    if "Podman" in parts:  # Docker's compose waits forever for its healthchecks
        return False, "the docker command uses Podman's engine"
    if not _answer("docker", "compose", "version"):
        return False, f"Docker {version} answers, but has no compose plugin, which Harbor needs"
    return True, f"Docker {version} answers"


def ask_podman() -> tuple[bool, str]:
    """Whether Harbor can use Podman here, and the reason; an empty text if it does not answer."""
    version = _answer("podman", "info", "--format", "{{.Version.Version}}")
    if not version:
        return False, ""
    if not _composes():
        return (
            False,
            f"Podman {version} answers, but neither podman compose nor podman-compose works, and Harbor needs one",
        )
    return True, f"Podman {version} answers"


def _composes() -> bool:
    """Whether Podman can run a compose file for Harbor; Harbor uses the first of three ways."""
    usage = _answer("podman", "compose", "up", "--help")
    if "usage: podman-compose" in usage:  # it calls podman-compose
        return bool(_answer("podman", "compose", "--in-pod=false", "version"))
    if "--detach" in usage:
        return bool(_answer("podman", "compose", "ls"))  # which needs Podman's socket
    return bool(_answer("podman-compose", "--in-pod=false", "version"))


def check_podman() -> None:
    """InputError if Harbor cannot use Podman: Harbor's own message suggests the wrong fix."""
    usable, why = ask_podman()
    if not usable:
        message = why or "podman does not answer ('podman info')"
        raise InputError.at("--environment", f"podman: {message}", "expected podman with podman-compose 1.3 or newer")


def _answer(program: str, *words: str, within: float = ANSWER_WITHIN) -> str:
    """The output of a program on Harbor's path; an empty text if it fails or does not end in time."""
    import subprocess

    environment = clean_environment()
    path = shutil.which(program, path=environment["PATH"])
    if path is None:
        return ""
    try:
        process = subprocess.run(
            [path, *words], capture_output=True, text=True, timeout=within, env=environment, errors="replace"
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return "" if process.returncode else process.stdout.strip()


def job_configs(folder: Path) -> list[Path]:
    """The paths of the configurations of a run's jobs; none if the folder cannot be read."""
    try:
        return sorted(folder.glob("[0-9]*/config.json"))
    except OSError:  # a name that is too long, for example
        return []


def recorded_environment(folder: Path) -> str | None:
    """The environment in which a run's folder was started; None if no job was started."""
    for path in job_configs(folder):
        config = read_json(path)
        settings = (config.get("environment") or {}) if isinstance(config, dict) else None
        if isinstance(settings, dict):
            name = str(settings.get("import_path") or settings.get("type") or DOCKER)  # Harbor omits its default
            return ROOMS if name in (ROOM, HERE) else name
    return None


def check_environment(folder: Path, environment: str) -> None:
    """InputError for a folder with jobs of another environment: they are a different run."""
    recorded = recorded_environment(folder)
    if recorded is not None and recorded != environment:
        message = f"contains a different run: environment: {recorded} here, {environment} requested"
        raise InputError.at(str(folder), message, f"expected --environment {recorded}, or another --out")


def settle_environment(agent: str, folders: Sequence[Path]) -> tuple[str, str]:
    """The environment that ``auto`` means and why: that of a run already started in ``folders``, else the best one."""
    started = {recorded for folder in folders if (recorded := recorded_environment(folder))}
    if len(started) == 1:
        return started.pop(), "this run was started in it"
    return choose_environment(agent)


def remove_leftovers(environment: str, job: Path) -> None:
    """Remove what a job's trials left in a container engine: their containers, networks, volumes and images.

    Harbor does so after each trial, unless it is killed or its podman-compose lacks ``down --rmi``. Compose projects
    are named after their trial, and trial names belong to one job: nothing of other jobs is removed.
    """
    prefixes = tuple(f"{_project(folder.name)}__" for folder in job.glob("*__*") if folder.is_dir())
    if environment not in (DOCKER, PODMAN) or not prefixes:
        return
    label, at_once = ("index .Labels", ["--time", "0"]) if environment == PODMAN else (".Label", [])
    for listing, removing in (
        (["ps", "--all", "--format", f'{{{{.Names}}}} {{{{{label} "{PROJECT}"}}}}'], ["rm", "--force", *at_once]),
        (["network", "ls", "--format", "{{.Name}}"], ["network", "rm"]),
        (["volume", "ls", "--format", "{{.Name}}"], ["volume", "rm"]),
        (["image", "ls", "--format", "{{.Repository}}"], ["image", "rm"]),
    ):
        lines = [line.split() for line in _answer(environment, *listing).splitlines() if line.strip()]
        leftovers = [words[0] for words in lines if words[-1].removeprefix("localhost/").startswith(prefixes)]
        if leftovers:
            _answer(environment, *removing, *dict.fromkeys(leftovers), within=REMOVE_WITHIN)


def _project(trial: str) -> str:
    """The prefix of a trial's compose projects, as Harbor makes it from the trial's name."""
    name = re.sub(r"[^a-z0-9_-]", "-", trial.lower())
    return name if name[0].isalnum() else f"0{name}"


@dataclass(frozen=True, slots=True)
class DeclinedTasks:
    """Tasks that do not run here for reasons of one kind."""

    reason: str
    tasks: Sequence[str]
    details: Sequence[str]  # such as the images, the most frequent first


@dataclass(frozen=True, slots=True)
class Runnable:
    """The tasks of a dataset that can run here."""

    environment: str
    why: str  # the reason for this environment
    tasks: int
    declined: Sequence[DeclinedTasks]
    with_docker: int  # tasks that Harbor and a Docker engine can run
    to_build: int = 0  # runnable tasks with images that are built first

    @property
    def able(self) -> int:
        """The number of tasks that can run here."""
        return self.tasks - sum(len(group.tasks) for group in self.declined)

    def lines(self) -> list[str]:
        """The count, then a line for each kind of reason, the most frequent first."""
        lines = [f"runs here: {self.able:,} of {self.tasks:,}, in environment {self.environment} ({self.why})"]
        if self.to_build:
            lines.append(f"  {self.to_build:,} of them need an image; `run` builds it, and the build may fail")
        for group in self.declined:
            details = f": {examples(group.details)}" if group.details else ""
            lines.append(f"  {len(group.tasks):,} cannot run: {group.reason}{details} ({examples(group.tasks)})")
        if self.environment == ROOMS and self.able < self.with_docker:
            lines.append(f"with Harbor and a Docker engine: {self.with_docker:,} of {self.tasks:,}")
        return lines


def examples(names: Sequence[str], most: int = EXAMPLES) -> str:
    """The first few names."""
    return ", ".join(names[:most]) + (", ..." if len(names) > most else "")


def runnable(tasks: Sequence[TaskDirectory]) -> Runnable:
    """Which tasks the environment that ``auto`` means here can run; nothing is built or started."""
    try:
        environment, why = choose_environment("oracle")
    except HarborError as error:  # it would stop a run; the count is still printed
        environment, why = ROOMS, str(error)
    refuse = {ROOMS: declined_by_room, PODMAN: declined_by_podman}.get(environment, declined_by_docker)
    with_docker = sum(declined_by_docker(task) is None for task in tasks)
    groups = _grouped(tasks, refuse)
    declined_names = {name for group in groups for name in group.tasks}
    able = [task for task in tasks if task.name not in declined_names] if environment == ROOMS else []
    return Runnable(environment, why, len(tasks), groups, with_docker, sum(map(to_build, able)))


def declined_by_room(task: TaskDirectory) -> str | None:
    """Why a room cannot run a task, or None; no image is built, but an earlier failed build counts."""
    return declined(task) or unbuilt_before(task)


def declined_by_docker(task: TaskDirectory) -> str | None:
    """Why a Docker engine on Linux cannot run a task, or None; whether images exist is not checked."""
    settings = task.config.environment
    if settings.os != "linux":
        return f"it is for {settings.os}"
    if settings.tpu:
        return "it needs an accelerator that Docker cannot provide"
    fault = None if settings.docker_image else dockerfile_fault(task.path / "environment")
    return fault or _unset(task)


def declined_by_podman(task: TaskDirectory) -> str | None:
    """Why Harbor cannot run a task in Podman on Linux, or None."""
    if task.config.environment.gpus:
        return "it needs an accelerator that Harbor does not give to Podman"
    return declined_by_docker(task)


def _grouped(
    tasks: Sequence[TaskDirectory], refuse: Callable[[TaskDirectory], str | None]
) -> tuple[DeclinedTasks, ...]:
    """The tasks that an environment cannot run, by kind of reason, the most frequent kind first."""
    by_kind: dict[str, list[tuple[str, str | None]]] = {}
    for task in tasks:
        if (reason := refuse(task)) is not None:
            kind, detail = kind_of(reason)
            by_kind.setdefault(kind, []).append((task.name, detail))
    groups = []
    for kind, group in by_kind.items():
        details = Counter(detail for _, detail in group if detail).most_common()
        groups.append(DeclinedTasks(kind, tuple(name for name, _ in group), tuple(detail for detail, _ in details)))
    return tuple(sorted(groups, key=lambda group: -len(group.tasks)))


def kind_of(reason: str) -> tuple[str, str | None]:
    """The text for all reasons of this kind, and the detail of this reason.

    >>> kind_of("it needs the image postgres:16")
    ('needs an image that a room does not have', 'postgres:16')
    >>> kind_of("it needs docker compose")
    ('it needs docker compose', None)
    """
    for pattern, kind in KINDS:
        if match := pattern.match(reason):
            return kind, match["detail"]
    return reason, None


def declined(task: TaskDirectory) -> str | None:
    """Why a task cannot run in a room, or None."""
    steps = task.config.steps or (None,)
    if reason := lacking() or _unavailable(task.config.environment) or _unset(task):
        return reason
    for judge in filter(None, (judge_environment(task, step) for step in steps)):
        plan = judge_plan(judge)
        image_fault = unbuildable(plan.image) if plan.image else None
        if reason := _unavailable(judge.settings) or plan.declined or image_fault:
            return reason.replace("environment/", f"{judge.folder.name}/", 1)
    levels: tuple[TaskSettings | StepSettings, ...] = (task.config, *task.config.steps)
    hooks = [hook for level in levels for hook in level.verifier.collect]
    if others := sorted({hook.service for hook in hooks} - {MAIN}):
        return f"it collects from the service {others[0]}, and a room has only {MAIN}"
    policies = [network_policies(task.config, step) for step in steps]
    if any("allowlist" in policy for policy in policies):
        return "it allows only some hosts, and a room allows all or none"
    users = {part.user for level in levels for part in (level.agent, level.verifier)} | {hook.user for hook in hooks}
    if (users := users - {None, 0, "root"}) and os.geteuid():
        return f"it works as user {min(map(str, users))}, and only root can switch users"
    plan = environment_plan(task)
    if plan.declined or plan.image is None:
        return plan.declined
    tests_have_network = all(policy.verifier == "public" for policy in policies)
    return unbuildable(plan.image) or (_out_of_reach(task) if tests_have_network else None)


def _unset(task: TaskDirectory) -> str | None:
    """The variables that the environment or the tests take from this machine and that are not set, or None."""
    try:
        resolve_env(task.config.environment.env, os.environ, "environment.env")
        for step in task.config.steps or (None,):
            if judge := judge_environment(task, step):
                resolve_env(judge.settings.env, os.environ, "verifier.environment.env")
            variables = {**task.config.verifier.env, **(step.verifier.env if step else {})}
            resolve_env(variables, os.environ, "verifier.env")
    except InputError as error:
        return str(error)
    return None


FETCHED: Final = re.compile(r"^[^#\n]*\b(?:curl|wget)\b[^\n]*?https?://([\w.-]+)", re.MULTILINE)


def _out_of_reach(task: TaskDirectory) -> str | None:
    """The reason why tests that download files give wrong verdicts here: this machine cannot find their host; or None.

    With a proxy, hosts are not checked.
    """
    if any(os.environ.get(name) for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY")):
        return None
    hosts = FETCHED.findall("\n".join(scripts(task.path / "tests")))
    unknown = next((host for host in hosts if not _resolves(host)), None)
    return unknown and f"its tests fetch something from {unknown}, which this machine cannot find"


@cache
def _resolves(host: str) -> bool:
    import socket

    try:
        return bool(socket.getaddrinfo(host, 443))
    except UnicodeError:  # not a valid name, as in "usage: curl https://..."
        return True
    except OSError:
        return False


BUILDER: Final = Builder(Container, ContainerError)


def _images(task: TaskDirectory) -> list[ImagePlan]:
    """The images that a task needs: the agent's, and those of separate verifiers."""
    judges = (judge_environment(task, step) for step in task.config.steps or (None,))
    plans = [environment_plan(task), *(judge_plan(judge) for judge in judges if judge)]
    return [plan.image for plan in plans if plan.image is not None]


def unbuilt(task: TaskDirectory) -> str | None:
    """Why an image of a task cannot be built now, or None: it has no image, or all are built."""
    try:
        for plan in _images(task):
            build(plan, BUILDER, task.config.environment.build_timeout_sec)
    except ImageError as error:
        return str(error)
    return None


def to_build(task: TaskDirectory) -> bool:
    """Whether a task has an image that is not built yet."""
    return not all(map(is_built, _images(task)))


def unbuilt_before(task: TaskDirectory) -> str | None:
    """Why the last build of an image of a task failed, or None."""
    return next(filter(None, map(failed_before, _images(task))), None)


def _unavailable(settings: EnvironmentSettings) -> str | None:
    """What an environment needs and a room cannot provide, or None."""
    if settings.os != "linux":
        return f"it is for {settings.os}"
    if settings.gpus or settings.tpu:
        return "it needs an accelerator"
    return "it needs tool servers" if settings.mcp_servers else None


def judge_plan(judge: JudgeEnvironment) -> EnvironmentPlan:
    """The plan for the container of a separate verifier."""
    return read_environment(judge.folder, docker_image=judge.settings.docker_image, workdir=judge.settings.workdir)


def environment_plan(task: TaskDirectory) -> EnvironmentPlan:
    """The plan for the container of a task."""
    settings = task.config.environment
    return read_environment(task.path / "environment", docker_image=settings.docker_image, workdir=settings.workdir)
