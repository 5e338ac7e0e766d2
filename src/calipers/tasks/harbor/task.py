"""A task of Harbor: a directory with an instruction, an environment and a verifier."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from calipers.errors import InputError
from calipers.tasks.harbor.digest import TASK_TOML, task_digest
from calipers.tasks.harbor.manifest import checked_name
from calipers.tasks.harbor.paths import regular
from calipers.tasks.harbor.schema import Config, Step, config, modern
from calipers.tasks.harbor.toml import read_toml

INSTRUCTION: Final = "instruction.md"
BUILDS: Final = ("Dockerfile", "docker-compose.yaml")
_CANARY: Final = re.compile(r"\s*(?:<!--.*canary.*-->|#.*canary.*)\s*", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class TaskDirectory:
    """One task's directory. A task has either an instruction or steps that each have one."""

    path: Path
    name: str  # of [task], else the directory's
    config: Config
    instruction: str  # "" for a task in steps
    steps: Mapping[str, str] = field(default_factory=dict)  # a step's name -> its instruction, in order
    unknown: tuple[str, ...] = ()  # keys of task.toml that mean nothing, each with its place

    @property
    def needs_image(self) -> str:
        """Why its environment cannot be had without a container's image; "" when it can."""
        made = self.config.environment
        found = [name for name in BUILDS if os.path.isfile(self.path / "environment" / name)]
        return f"environment.docker_image is {made.docker_image!r}" if made.docker_image else " and ".join(found)

    @property
    def digest(self) -> str:
        """The digest of its content, taken now."""
        return task_digest(self.path)

    def step_path(self, step: Step) -> Path:
        """The directory of one of its steps."""
        return self.path / "steps" / step.name


def is_task(directory: Path) -> bool:
    """Whether a directory means to be a task: it has a task.toml, right or wrong."""
    return os.path.lexists(directory / TASK_TOML)


def read_task(directory: str | os.PathLike[str], verified: bool = True) -> TaskDirectory:
    """The task in a directory; InputError for what makes it no valid one.

    A valid task has a task.toml that can be read, an environment (or an image's name), an
    instruction and a test script for its system. ``verified=False`` is for a run without
    verification, which needs no test script.
    """
    root = Path(directory)
    if not is_task(root):
        raise InputError.at(str(root), f"is no task: it has no {TASK_TOML}", "expected a directory with one")
    toml = read_toml(root, root / TASK_TOML)
    made = config(toml)
    if made.task is not None:
        checked_name(made.task.name, toml.place(("task", "name")))
        if made.task.version == "":
            raise toml.fault(("task", "version"), "the version is empty", "expected one such as '1.0.0', or no key")
    _environment(root, made)
    unknown = replace(toml, values=modern(toml)).unknown(Config)
    if made.steps:
        told = {step.name: instruction(root, root / "steps" / step.name) for step in made.steps}
        task = TaskDirectory(root, _name(root, made), made, "", told, tuple(unknown))
    else:
        task = TaskDirectory(root, _name(root, made), made, instruction(root, root), {}, tuple(unknown))
    if verified:
        _scripts(task)
    return task


def instruction(root: Path, directory: Path) -> str:
    """The instruction.md of a task or of one of its steps, as an agent is given it."""
    path = directory / INSTRUCTION
    if not os.path.lexists(path):
        raise InputError.at(str(directory), f"has no {INSTRUCTION}", "expected what the agent is asked to do")
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


def verifier_script(task: TaskDirectory, step: Step | None = None) -> Path:
    """The script that judges a task, or one of its steps: the step's own, else the task's. It need not be there."""
    name = "test.bat" if task.config.environment.os == "windows" else "test.sh"
    own = task.step_path(step) / "tests" / name if step else task.path / "tests" / name
    return own if os.path.lexists(own) else task.path / "tests" / name


def solution_script(task: TaskDirectory, step: Step | None = None) -> Path | None:
    """The script that the oracle runs; None when a task, or a step, has none."""
    name = "solve.bat" if task.config.environment.os == "windows" else "solve.sh"
    path = (task.step_path(step) if step else task.path) / "solution" / name
    return path if os.path.lexists(path) and regular(task.path, path) else None


def _name(root: Path, made: Config) -> str:
    return made.task.name if made.task else Path(os.path.abspath(root)).name


def _environment(root: Path, made: Config) -> None:
    folder = root / "environment"
    if not made.environment.docker_image and not os.path.isdir(folder):
        right = f"expected a directory with a {' or a '.join(BUILDS)}, or environment.docker_image in {TASK_TOML}"
        raise InputError.at(str(folder), "is not there", right)


def _scripts(task: TaskDirectory) -> None:
    for step in task.config.steps or (None,):
        verifier = step.verifier if step else task.config.verifier
        script = verifier_script(task, step)
        if os.path.lexists(script):
            regular(task.path, script)
            _uploaded(task, script)
        elif not (verifier.separate and _has_image(task, script.parent, step)):
            raise InputError.at(str(script), "is not there", "expected the script that judges the task")


def _has_image(task: TaskDirectory, tests: Path, step: Step | None) -> bool:
    """Whether a separate verifier brings an image of its own, in which its tests may lie."""
    own = (step.verifier if step else task.config.verifier).environment
    return bool(own and own.docker_image) or any(os.path.isfile(tests / name) for name in BUILDS)


def _uploaded(task: TaskDirectory, script: Path) -> None:
    from calipers.tasks.harbor.upload import left_out

    if place := left_out(task.path, script):
        raise InputError.at(place, f"leaves out {script.name}, which judges the task", "expected it to be uploaded")
