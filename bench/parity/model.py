"""The mock model of both sides: every answer follows from a hash of the request."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

TARGETS = "CALIPERS_PARITY_TARGETS"  # variable with the file of correct answers
STYLES = (
    "{target}",
    " {target}",
    "The answer is {target}.",
    "So the final answer is ({target}).\n#### {target}",
    "Step 1. Think.\nThe final answer is $\\boxed{{{target}}}$. I hope it is correct.",
    "{target}\n\nQuestion: and then?",
    "The answer is (B).",
    "river 12 and stone 45",
    "no",
)


def lot(*parts: object) -> int:
    """A number that depends only on these texts."""
    return int.from_bytes(hashlib.sha256("\0".join(map(str, parts)).encode()).digest()[:8], "big")


def likelihood(context: str, continuation: str) -> tuple[float, bool]:
    """The likelihood of a text after another, and whether it is the greedy continuation."""
    number = lot("likelihood", context, continuation)
    return -(number % 1_000_003) / 50_000, number % 3 == 0


def rolling(text: str) -> float:
    """The likelihood of a whole text."""
    return -(lot("rolling", text) % 1_000_003) / 5_000


def answer(prompt: str, sample: int, targets: Mapping[str, str]) -> str:
    """A generated answer: the correct one, possibly changed, or something else."""
    number = lot("answer", prompt, sample)
    return STYLES[number % len(STYLES)].format(target=targets.get(prompt_key(prompt), "stone"))


def prompt_key(prompt: str) -> str:
    """A prompt as a key in the file of correct answers."""
    return hashlib.sha256(prompt.encode()).hexdigest()


class Mock:
    """The model on our side, as ``python/FILE.py:Mock``."""

    def __init__(self) -> None:
        self.targets: Mapping[str, str] = json.loads(Path(os.environ[TARGETS]).read_text(encoding="utf-8"))

    def complete(self, request: Any) -> str:
        """The answer to a request."""
        return answer(request.prompt, request.sample, self.targets)

    def score(self, requests: Sequence[Any]) -> list[Any]:
        """The likelihood of each text."""
        from calipers.clients import Continuation, Scored

        found = []
        for one in requests:
            if isinstance(one, Continuation):
                found.append(Scored(*likelihood(str(one.context), one.continuation), tokens=1))
            else:
                found.append(Scored(rolling(one.text), False, tokens=1))
        return found
