"""What a record says beside its numbers: the prompt it answers, and the answer."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import msgspec

Raw = msgspec.Raw
BAD = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""What is raised by JSON that is none, or that is nested too deeply."""


COMPARED: Final = "shown by calipers score --dialect lm_eval --format md, compared by calipers compare"


class Text(NamedTuple):
    """What one rollout says; a value may be JSON that nobody has decoded yet, as most of it is never looked at."""

    agent: str | None  # these three as far as the record says
    model: str | None
    dataset: str | None
    task: str
    sample: float  # of several rollouts of a task, the one with the least comes first
    document: str = ""  # the hash of what the task is made of
    completion: Any = None  # all that was said
    prompt: Any = None  # text, or messages
    answer: Any = None  # what was taken for the answer; where it says nothing, the completion is shown
