"""What a room can do of a task's ``environment/`` folder, and why it must decline the rest."""

from __future__ import annotations

import json
import platform
import re
import shlex
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from calipers.isolate.container import Container

DOCKERFILE, COMPOSE = "Dockerfile", ("docker-compose.yaml", "docker-compose.yml", "compose.yaml", "compose.yml")
WORKDIR = "/app"
BASES = frozenset({"alpine", "bash", "buildpack-deps", "busybox", "debian", "python", "scratch", "ubuntu"})
"""Images that bring little beyond a shell, the usual tools and Python, which this machine lends instead."""
MACHINES = {"x86_64": "amd64", "AMD64": "amd64", "aarch64": "arm64", "arm64": "arm64"}
"""How images call the processors that Python calls so."""
IGNORED = frozenset({"ARG", "CMD", "ENTRYPOINT", "EXPOSE", "HEALTHCHECK", "LABEL", "MAINTAINER", "SHELL", "STOPSIGNAL"})


@dataclass(frozen=True, slots=True)
class EnvironmentPlan:
    """How to furnish a room: where work is done, what is set, and what is copied whither."""

    workdir: str = WORKDIR
    env: dict[str, str] = field(default_factory=dict)
    copies: list[tuple[str, str]] = field(default_factory=list)  # (path within environment/, place in the room)
    declined: str | None = None  # why it takes an image


def read_environment(
    environment: Path, *, docker_image: str | None = None, workdir: str | None = None
) -> EnvironmentPlan:
    """The plan of a task's environment; ``declined`` says what only a container engine could do."""
    if docker_image:
        return EnvironmentPlan(declined=f"it needs the image {docker_image}")
    if any((environment / name).exists() for name in COMPOSE):
        return EnvironmentPlan(declined="it needs docker compose")
    dockerfile = environment / DOCKERFILE
    if not dockerfile.is_file():
        return EnvironmentPlan(workdir or WORKDIR, {}, [(".", workdir or WORKDIR)] if environment.is_dir() else [])
    plan = _followed(_instructions(dockerfile.read_text(errors="replace")), environment)
    return EnvironmentPlan(workdir or plan.workdir, plan.env, plan.copies, plan.declined)


def furnish(container: Container, environment: Path, plan: EnvironmentPlan) -> None:
    """Make the working directory of a container and copy in what the plan says."""
    container.run(f"mkdir -p {shlex.quote(plan.workdir)}", cwd="/")
    for source, target in plan.copies:
        container.put(environment / source, target)


def _followed(lines: list[str], environment: Path) -> EnvironmentPlan:
    workdir, env, copies = WORKDIR, dict[str, str](), list[tuple[str, str]]()
    for line in lines:
        word, _, rest = line.partition(" ")
        word, rest = word.upper(), rest.strip()
        if word == "FROM":
            image, foreign = _image(rest)
            if foreign:
                return EnvironmentPlan(declined=f"it is built for {foreign}, and this machine is another")
            if image.rpartition("/")[2].partition(":")[0].partition("@")[0] not in BASES:
                return EnvironmentPlan(declined=f"it needs the image {image}")
        elif word == "WORKDIR":
            workdir = str(PurePosixPath(workdir, _plain(rest)))
        elif word == "ENV":
            env.update(_settings(rest))
        elif word in ("COPY", "ADD"):
            sources = _copied(rest)
            if sources is None or any(not _inside(environment, source) for source in sources[:-1]):
                return EnvironmentPlan(declined=f"environment/{DOCKERFILE} says {_short(line)}")
            for source in sources[:-1]:
                copies.append((source, _target(environment / source, sources[-1], workdir, len(sources) > 2)))
        elif word not in IGNORED:
            return EnvironmentPlan(declined=f"environment/{DOCKERFILE} says {_short(line)}")
    return EnvironmentPlan(workdir, env, copies)


def _image(rest: str) -> tuple[str, str | None]:
    """The image of a FROM, and the platform that it asks for where this machine is another."""
    words = rest.split()
    platforms = [word.partition("=")[2] for word in words if word.startswith("--platform=")]
    image = next((word for word in words if not word.startswith("--")), "")
    for name in platforms:  # such as linux/amd64, linux/arm64/v8, amd64, or $BUILDPLATFORM, which is this machine's
        if "$" not in name and MACHINES.get(platform.machine()) not in name.lower().split("/"):
            return image, name
    return image, None


def _instructions(text: str) -> list[str]:
    joined = re.sub(r"\\[ \t]*\n", " ", text)
    return [line.strip() for line in joined.splitlines() if line.strip() and not line.strip().startswith("#")]


def _settings(rest: str) -> dict[str, str]:
    if "=" not in rest.split()[0]:  # the old form: ENV KEY some value
        key, _, value = rest.partition(" ")
        return {key: value.strip()}
    return dict(word.split("=", 1) for word in shlex.split(rest) if "=" in word)


def _copied(rest: str) -> list[str] | None:
    """Sources and target of a COPY; None for one with options, or from elsewhere."""
    words = json.loads(rest) if rest.startswith("[") else shlex.split(rest)
    if len(words) < 2 or any(str(word).startswith("--") or "://" in word or "*" in word for word in words):
        return None
    return [str(word) for word in words]


def _inside(environment: Path, source: str) -> bool:
    path = (environment / source.lstrip("/")).resolve()
    return path.exists() and path.is_relative_to(environment.resolve())


def _target(source: Path, target: str, workdir: str, several: bool) -> str:
    path = PurePosixPath(workdir, target)
    into = target.endswith(("/", "/.")) or target in (".", "./") or several
    return str(path / source.name) if into and not source.is_dir() else str(path)


def _plain(text: str) -> str:
    return text.strip().strip("\"'")


def _short(line: str) -> str:
    return line if len(line) <= 60 else line[:57] + "..."
