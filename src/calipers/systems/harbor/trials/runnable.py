"""The number of tasks of a dataset that can run on this machine, and why the others cannot."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from calipers.errors import HarborError
from calipers.systems.harbor.lent.dockerfile import dockerfile_fault
from calipers.systems.harbor.tasks.task import TaskDirectory
from calipers.systems.harbor.trials.environment import PODMAN, ROOMS, choose_environment
from calipers.systems.harbor.trials.trial import declined, to_build, unbuilt_before

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
            shown = ", ".join(group.details[:EXAMPLES])
            more = ", ..." if len(group.details) > EXAMPLES else ""
            names = ", ".join(group.tasks[:EXAMPLES])
            detail = f": {shown}{more}" if shown else ""
            others = ", ..." if len(group.tasks) > EXAMPLES else ""
            lines.append(f"  {len(group.tasks):,} cannot run: {group.reason}{detail} ({names}{others})")
        if self.environment == ROOMS and self.able < self.with_docker:
            lines.append(f"with Harbor and a Docker engine: {self.with_docker:,} of {self.tasks:,}")
        return lines


def runnable(tasks: Sequence[TaskDirectory]) -> Runnable:
    """Which tasks the environment that ``auto`` means here can run; nothing is built or started."""
    try:
        environment, why = choose_environment("oracle")
    except HarborError as error:  # it would stop a run; the count is still printed
        environment, why = ROOMS, str(error)
    refuse = {ROOMS: declined_by_room, PODMAN: declined_by_podman}.get(environment, declined_by_docker)
    with_docker = sum(declined_by_docker(task) is None for task in tasks)
    groups = _grouped(tasks, refuse)
    left_out = {name for group in groups for name in group.tasks}
    able = [task for task in tasks if task.name not in left_out] if environment == ROOMS else []
    return Runnable(environment, why, len(tasks), groups, with_docker, sum(map(to_build, able)))


def declined_by_room(task: TaskDirectory) -> str | None:
    """Why a room cannot run a task, or None; no image is built, but an earlier failed build counts."""
    return declined(task) or unbuilt_before(task)


def declined_by_docker(task: TaskDirectory) -> str | None:
    """Why a Docker engine on Linux cannot run a task, or None; whether images exist is not checked."""
    wanted = task.config.environment
    if wanted.os != "linux":
        return f"it is for {wanted.os}"
    if wanted.tpu:
        return "it needs an accelerator that Docker cannot provide"
    return None if wanted.docker_image else dockerfile_fault(task.path / "environment")


def declined_by_podman(task: TaskDirectory) -> str | None:
    """Why Harbor cannot run a task in Podman on Linux, or None."""
    if task.config.environment.gpus:
        return "it needs an accelerator that Harbor does not give to Podman"
    return declined_by_docker(task)


def _grouped(
    tasks: Sequence[TaskDirectory], refuse: Callable[[TaskDirectory], str | None]
) -> tuple[DeclinedTasks, ...]:
    names: dict[str, list[str]] = {}
    details: dict[str, dict[str, int]] = {}
    for task in tasks:
        reason = refuse(task)
        if reason is None:
            continue
        kind, detail = kind_of(reason)
        names.setdefault(kind, []).append(task.name)
        counts = details.setdefault(kind, {})
        if detail:
            counts[detail] = counts.get(detail, 0) + 1
    groups = [DeclinedTasks(kind, tuple(group), _frequent(details[kind])) for kind, group in names.items()]
    return tuple(sorted(groups, key=lambda group: -len(group.tasks)))


def _frequent(counts: Mapping[str, int]) -> tuple[str, ...]:
    return tuple(sorted(counts, key=lambda detail: -counts[detail]))


def kind_of(reason: str) -> tuple[str, str | None]:
    """The text for all reasons of a kind, and the detail of this one.

    >>> kind_of("it needs the image postgres:16")
    ('needs an image that a room does not have', 'postgres:16')
    >>> kind_of("it needs docker compose")
    ('it needs docker compose', None)
    """
    for pattern, kind in KINDS:
        if match := pattern.match(reason):
            return kind, match["detail"]
    return reason, None
