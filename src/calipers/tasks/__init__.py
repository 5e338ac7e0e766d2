"""Tasks, the files they are read from, and the store they are published to.

A `Task` is a prompt with the verifier of its answers; a `Suite` is the tasks of one benchmark.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

Message = Mapping[str, Any]
"""One turn of a chat: ``{"role": "user", "content": ...}``."""

Prompt = str | Sequence[Message]
"""The model's input: text, which a chat model receives as one user message, or a list of messages."""


@dataclass(frozen=True, slots=True)
class Task:
    """One task. Its verifier is given by name; the verifier's code is looked up when the run is planned."""

    id: str
    prompt: Prompt
    verifier: str | None = None  # None: answers are logged and not verified
    target: Any = None  # what the verifier compares with: any JSON value
    params: Mapping[str, Any] = field(default_factory=dict)  # of the verifier
    metadata: Mapping[str, Any] = field(default_factory=dict)  # for --by and --cluster


@dataclass(frozen=True, slots=True)
class Suite:
    """The tasks of one benchmark, in the order of their file."""

    name: str
    tasks: Sequence[Task]
    metadata: Mapping[str, Any] = field(default_factory=dict)
    root: Path | None = None  # the directory it was read from
    sha256: str = ""  # of the file of tasks; "" if there is no file
    notes: Sequence[str] = ()  # what its reader ignored, such as unknown fields
    opening: Sequence[str] = ()  # notes to show before the first request, such as the guessed roles of columns
    places: Mapping[str, str] = field(default_factory=dict)  # task id -> file and line, if the ids mean little to users
    rewards: Sequence[str] = ()  # the names of the rewards of its verifier; () if they are not known in advance
