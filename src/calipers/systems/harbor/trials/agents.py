"""Agents that need no Harbor: the reference solution, nothing at all, and a command of the user's own."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, Protocol

from calipers.errors import InputError, nearest
from calipers.isolate.container import CommandResult, Container
from calipers.systems.harbor.tasks.task import (
    StepSettings,
    TaskDirectory,
    agent_user,
    resolve_env,
    solution_script,
    uploaded,
)

LOGS: Final = "/logs/agent"
COMMAND: Final = "command:"
NAMES: Final = ("oracle", "nop")
UNSOLVED: Final = "it has no solution for the oracle to run"


@dataclass(frozen=True, slots=True)
class AgentTurn:
    """One piece of work for an agent: a task, or a step of it, in a room."""

    container: Container
    task: TaskDirectory
    step: StepSettings | None
    instruction: str
    workdir: str
    env: Mapping[str, str]
    timeout: float | None
    image_user: str | None = None

    @property
    def user(self) -> str | int | None:
        """As whom the agent works: whom the task names, else the image's own user."""
        named = agent_user(self.task, self.step)
        return self.image_user if named is None else named


class ContainerAgent(Protocol):
    """Whoever works on a task inside a room."""

    @property
    def name(self) -> str:
        """What it is called in the job's papers."""
        ...

    @property
    def log(self) -> str:
        """The file of its logs that has what its command printed."""
        ...

    def work(self, turn: AgentTurn) -> CommandResult | None:
        """How its command ended; None when it had nothing to run."""
        ...


@dataclass(frozen=True, slots=True)
class Oracle:
    """Runs the task's own solution. FileNotFoundError for a task without one."""

    name: str = "oracle"
    log: str = "oracle.txt"

    def work(self, turn: AgentTurn) -> CommandResult | None:
        """Bring the solution in and run it."""
        script = solution_script(turn.task, turn.step) or solution_script(turn.task)
        if script is None:
            raise FileNotFoundError(f"{turn.task.path / 'solution'}: {UNSOLVED}")
        bring(turn.container, turn.task, script.parent, "/solution", script)
        env = {**turn.env, **resolve_env(turn.task.config.solution.env, os.environ, "solution.env")}
        run = f"/solution/{script.name} 2>&1"
        ran = turn.container.run(run, cwd=turn.workdir, env=env, user=turn.user, timeout=turn.timeout)
        if ran.code and not ran.timed_out:  # as in Harbor, what it solved is for the tests to say
            turn.container.run(f"echo {ran.code} > {LOGS}/exit-code.txt", cwd="/")
            return replace(ran, code=0)
        return ran


@dataclass(frozen=True, slots=True)
class Nop:
    """Does nothing: what a task gives to nobody is no measure of anyone."""

    name: str = "nop"
    log: str = "nop.txt"

    def work(self, turn: AgentTurn) -> CommandResult | None:
        """Nothing."""
        return None


@dataclass(frozen=True, slots=True)
class Command:
    """A shell command of the user's, run in the room; it finds the instruction in the file ``$INSTRUCTION``."""

    line: str
    name: str = "command"
    log: str = "stdout.txt"

    def work(self, turn: AgentTurn) -> CommandResult | None:
        """Write the instruction down and run the command."""
        with TemporaryDirectory() as scratch:
            note = Path(scratch, "instruction.md")
            note.write_text(turn.instruction, encoding="utf-8")
            note.chmod(0o644)
            turn.container.put(note, f"{LOGS}/instruction.md")
        env = {**turn.env, "INSTRUCTION": f"{LOGS}/instruction.md"}
        return turn.container.run(self.line, cwd=turn.workdir, env=env, user=turn.user, timeout=turn.timeout)


def unsolved(task: TaskDirectory) -> str | None:
    """Why the oracle cannot work on a task, or None: it needs the task's solution, or one for each of its steps."""
    if solution_script(task) or (task.config.steps and all(solution_script(task, step) for step in task.config.steps)):
        return None
    return UNSOLVED


def bring(container: Container, task: TaskDirectory, folder: Path, target: str, script: Path | None = None) -> None:
    """Copy what of a task's folder an environment is given to a place in the room; ``script`` is made executable."""
    with TemporaryDirectory() as scratch:
        for path in uploaded(task.path, folder):
            copy = Path(scratch, path.relative_to(folder))
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(path, copy)
            if script and path.name == script.name and path.parent == folder:
                copy.chmod(copy.stat().st_mode | 0o111)
        Path(scratch).chmod(0o755)
        container.put(scratch, target)


def find_agent(spec: str) -> ContainerAgent:
    """The agent that ``oracle``, ``nop`` or ``command:LINE`` names; InputError for one that only Harbor has."""
    if spec == "oracle":
        return Oracle()
    if spec == "nop":
        return Nop()
    if spec.startswith(COMMAND):
        if not spec.removeprefix(COMMAND).strip():
            raise InputError.at("--agent", f"{spec!r} has no command", "expected command:LINE, as a shell reads it")
        return Command(spec.removeprefix(COMMAND).strip())
    close = f" (did you mean {' or '.join(map(repr, nearest(spec, NAMES)))}?)" if nearest(spec, NAMES) else ""
    raise InputError.at(
        "--agent",
        f"{spec!r} is not an agent that works without Harbor{close}",
        "expected oracle, nop or command:LINE, or install Harbor, on the PATH or in CALIPERS_HARBOR",
    )
