"""Tasks, the files they are read from, and the store they are published to.

A `Task` is a prompt, and how its answer is verified; a `Suite` is the tasks of one benchmark.
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
    """One task. Its verifier is a name; its code is looked up when the run is planned."""

    id: str
    prompt: Prompt
    verifier: str | None = None  # None: answers are kept, nobody judges them
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
    sha256: str = ""  # of the file of tasks; "" when there is none
    notes: Sequence[str] = ()  # what its reader passed over, such as fields that mean nothing
    opening: Sequence[str] = ()  # what somebody should see before the first call, such as columns that were guessed
    places: Mapping[str, str] = field(default_factory=dict)  # of tasks by id, where their ids say nothing to a reader
    rewards: Sequence[str] = ()  # that their verifier can give; () where only its answers tell
