"""Tasks and completions made by hand, for tests of verifiers."""

from __future__ import annotations

import asyncio
from typing import Any

from calipers.clients import Completion
from calipers.tasks import Task
from calipers.verifiers import Verdict


def task(target: Any = None, verifier: str = "exact_match", **params: Any) -> Task:
    return Task("t1", "2 + 2?", verifier, target, params)


def judge(verifier: Any, text: str, target: Any = None, **params: Any) -> Verdict:
    """The verdict of a verifier on one text."""
    return asyncio.run(verifier.verify(task(target, verifier.name, **params), Completion(text)))
