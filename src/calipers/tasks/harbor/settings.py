"""What a task's settings come to on this machine: its time limits, and its environment variables."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from calipers.errors import InputError
from calipers.tasks.harbor.schema import Step
from calipers.tasks.harbor.task import TaskDirectory

_VARIABLE: Final = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-(.*))?\}", re.DOTALL)


def effective_timeout(
    given: float | None, override: float | None = None, most: float | None = None, multiplier: float = 1.0
) -> float | None:
    """Seconds: the task's own limit, or what a job puts in its place, at most ``most``, times ``multiplier``.

    None, for no limit, stays None unless ``most`` is given.

    >>> effective_timeout(120.0, most=60.0, multiplier=2.0)
    120.0
    """
    limit = given if override is None else override
    if most is not None:
        limit = most if limit is None else min(limit, most)
    return None if limit is None else limit * multiplier


def agent_timeout(task: TaskDirectory, step: Step | None = None) -> float | None:
    """The agent's limit in seconds: the step's own, else the task's; None is no limit."""
    own = step.agent.timeout_sec if step else None
    return task.config.agent.timeout_sec if own is None else own


def verifier_timeout(task: TaskDirectory, step: Step | None = None) -> float:
    """The verifier's limit in seconds. A step without one has 600: as in Harbor, it does not inherit the task's."""
    return (step.verifier if step else task.config.verifier).timeout_sec


def resolve_env(env: Mapping[str, str], host: Mapping[str, str], place: str = "env") -> dict[str, str]:
    """Environment variables with ``${VAR}`` and ``${VAR:-default}`` replaced by the host's values.

    Only a value that is nothing but such a reference is one. The default is for a variable that is not
    set; one that is set and empty stays empty. InputError names those that are neither set nor have a
    default, and no value of any.

    >>> resolve_env({"A": "${X}", "B": "${Y:-b}", "C": "c$"}, {"X": "x"})
    {'A': 'x', 'B': 'b', 'C': 'c$'}
    """
    found: dict[str, str] = {}
    absent: list[str] = []
    for name, value in env.items():
        reference = _VARIABLE.fullmatch(value)
        if reference is None:
            found[name] = value
        elif (known := host.get(reference[1], reference[2])) is not None:
            found[name] = known
        else:
            absent.append(reference[1])
    if absent:
        names = ", ".join(dict.fromkeys(absent))
        raise InputError.at(place, f"{names} not set here", "export it, or give a default as in ${NAME:-value}")
    return found
