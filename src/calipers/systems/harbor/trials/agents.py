"""The agents that work without Harbor: the reference solution, an agent that does nothing, and a user's command."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from calipers.errors import InputError, nearest
from calipers.isolate.container import CommandResult, Container
from calipers.systems.harbor.task import StepSettings, TaskDirectory, resolve_env, solution_script, uploaded
from calipers.systems.harbor.trials.environment import COMMAND

LOGS: Final = "/logs/agent"
UNSOLVED: Final = "it has no solution for the oracle to run"


@dataclass(frozen=True, slots=True)
class AgentTurn:
    """The work that an agent gets: a task or a step of it, in a container."""

    container: Container
    task: TaskDirectory
    step: StepSettings | None
    instruction: str
    workdir: str
    env: Mapping[str, str]
    timeout: float | None
    user: str | int | None


@dataclass(frozen=True, slots=True)
class Oracle:
    """The agent that runs the task's own solution; FileNotFoundError for a task without a solution."""

    name: str = "oracle"  # in the job's files
    log: str = "oracle.txt"  # the file for the output of its command

    def work(self, turn: AgentTurn) -> CommandResult:
        """Copy the solution into the container and run it."""
        script = solution_script(turn.task, turn.step) or solution_script(turn.task)
        if script is None:
            raise FileNotFoundError(f"{turn.task.path / 'solution'}: {UNSOLVED}")
        copy_in(turn.container, turn.task, script.parent, "/solution", script)
        env = {**turn.env, **resolve_env(turn.task.config.solution.env, os.environ, "solution.env")}
        command = f"/solution/{script.name} 2>&1"
        result = turn.container.run(command, cwd=turn.workdir, env=env, user=turn.user, timeout=turn.timeout)
        if result.code and not result.timed_out:  # as in Harbor, the tests decide, not the exit code
            turn.container.run(f"echo {result.code} > {LOGS}/exit-code.txt", cwd="/")
            return replace(result, code=0)
        return result


@dataclass(frozen=True, slots=True)
class Nop:
    """The agent that does nothing; a task that rewards it measures nothing."""

    name: str = "nop"
    log: str = "nop.txt"

    def work(self, turn: AgentTurn) -> None:
        """Do nothing."""


@dataclass(frozen=True, slots=True)
class CommandAgent:
    """The agent that is a user's shell command; the file ``$INSTRUCTION`` contains the instruction."""

    line: str
    name: str = "command"
    log: str = "stdout.txt"

    def work(self, turn: AgentTurn) -> CommandResult:
        """Write the instruction to a file and run the command."""
        with TemporaryDirectory() as scratch:
            file = Path(scratch, "instruction.md")
            file.write_text(turn.instruction, encoding="utf-8")
            file.chmod(0o644)
            turn.container.put(file, f"{LOGS}/instruction.md")
        env = {**turn.env, "INSTRUCTION": f"{LOGS}/instruction.md"}
        return turn.container.run(self.line, cwd=turn.workdir, env=env, user=turn.user, timeout=turn.timeout)


ContainerAgent = Oracle | Nop | CommandAgent
AGENTS: Final[Mapping[str, type[Oracle | Nop]]] = {"oracle": Oracle, "nop": Nop}


def unsolved(task: TaskDirectory) -> str | None:
    """The reason why the oracle cannot work on a task; None if it can.

    It needs a solution for the task or for each of its steps, and the environment variables that the solution uses.
    """
    each_step = bool(task.config.steps) and all(solution_script(task, step) for step in task.config.steps)
    if not solution_script(task) and not each_step:
        return UNSOLVED
    try:
        resolve_env(task.config.solution.env, os.environ, "solution.env")
    except InputError as error:
        return str(error)
    return None


def copy_in(container: Container, task: TaskDirectory, folder: Path, target: str, script: Path | None = None) -> None:
    """Copy the `uploaded` files of a task's folder into a container; ``script`` is made executable."""
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
    """The agent ``oracle``, ``nop`` or ``command:LINE``; InputError for any other, which needs Harbor."""
    if spec in AGENTS:
        return AGENTS[spec]()
    if spec.startswith(COMMAND):
        if not spec.removeprefix(COMMAND).strip():
            raise InputError.at("--agent", f"{spec!r} has no command", "expected command:LINE, as a shell reads it")
        return CommandAgent(spec.removeprefix(COMMAND).strip())
    similar = " or ".join(map(repr, nearest(spec, AGENTS)))
    close = f" (did you mean {similar}?)" if similar else ""
    raise InputError.at(
        "--agent",
        f"{spec!r} is not an agent that works without Harbor{close}",
        "expected oracle, nop or command:LINE, or install Harbor, on the PATH or in CALIPERS_HARBOR",
    )
