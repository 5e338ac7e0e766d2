"""Which environment a run's trials have: the one it was given, the one it began in, or the best there is here."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from calipers.errors import HarborError, InputError, nearest
from calipers.systems.harbor.trials.agents import COMMAND
from calipers.systems.harbor.trials.engine import ROOM, clean_environment, find_engine, read_json

AUTO: Final = "auto"
ROOMS: Final = "room"
DOCKER: Final = "docker"
HERE: Final = "calipers.systems.harbor.trials.run"  # what a job that ran without Harbor says of its environment
KNOWN: Final = (AUTO, ROOMS, DOCKER, "podman")
ANSWER_WITHIN: Final = 10.0  # seconds, as long as Harbor itself waits for the engine


def check_name(environment: str) -> None:
    """InputError for a name close to one that is known; any other is for Harbor to judge, whose list grows."""
    close = [] if ":" in environment or environment in KNOWN else nearest(environment, KNOWN, 1)
    if close:
        raise InputError.at("--environment", f"there is no environment {environment!r}", f"did you mean {close[0]!r}?")


def choose_environment(agent: str) -> tuple[str, str]:
    """Where an agent's trials are best run here, and why: in Docker by Harbor where both answer, else in a room."""
    if agent.startswith(COMMAND):
        return ROOMS, "command agents always run in a room"
    try:
        find_engine()
    except HarborError:
        if os.environ.get("CALIPERS_HARBOR"):
            raise
        return ROOMS, "Harbor is not installed"
    version = _answer("version", "--format", "{{.Server.Version}}")
    if not version:
        return ROOMS, "no Docker engine answers"
    if not _answer("compose", "version"):
        return ROOMS, f"Docker {version} answers, but has no compose plugin, which Harbor needs"
    return DOCKER, f"Docker {version} answers"


def _answer(*words: str) -> str:
    """What docker prints, as Harbor would find it; nothing where it fails."""
    import subprocess

    environment = clean_environment()
    program = shutil.which("docker", path=environment["PATH"])
    if program is None:
        return ""
    try:
        done = subprocess.run(
            [program, *words], capture_output=True, text=True, timeout=ANSWER_WITHIN, env=environment, errors="replace"
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return "" if done.returncode else done.stdout.strip()


def recorded_environment(folder: Path) -> str | None:
    """The environment that a run's folder began in; None where no job has begun."""
    for path in sorted(folder.glob("[0-9]*/config.json")):
        config = read_json(path)
        settings = (config.get("environment") or {}) if isinstance(config, dict) else None
        if isinstance(settings, dict):
            named = str(settings.get("import_path") or settings.get("type") or DOCKER)  # which Harbor does not write
            return ROOMS if named in (ROOM, HERE) else named
    return None


def check_environment(folder: Path, environment: str) -> None:
    """InputError for a folder whose jobs began in another environment: their numbers are another run's."""
    there = recorded_environment(folder)
    if there is not None and there != environment:
        wrong = f"contains a different run: environment: {there} here, {environment} requested"
        raise InputError.at(str(folder), wrong, f"expected --environment {there}, or another --out")


def settle_environment(agent: str, folders: Sequence[Path]) -> tuple[str, str]:
    """The environment that ``auto`` means and why; ``folders`` are those in which the run may have begun."""
    begun = {there for folder in folders if (there := recorded_environment(folder))}
    if len(begun) == 1:
        return begun.pop(), "this run began in it"
    return choose_environment(agent)
