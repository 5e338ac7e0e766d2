"""The answers of a model to tasks, as both sides of the benchmark write them, and their times.

An answer is a text, or [log-likelihood, whether it is the greedy one]; that is None if it is unknown.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

Answers = Mapping[str, Sequence[Any]]  # document -> its requests' answers
CLOSE = 1e-5  # log-likelihoods agree within this, relatively and absolutely


def timed(tasks: Sequence[str], one: Callable[[str], Answers]) -> tuple[dict[str, float], dict[str, Answers]]:
    """The answers of each task, and its wall-clock and CPU seconds."""
    figures, found = {}, {}
    for name in tasks:
        clock, cpu = time.perf_counter(), time.process_time()
        found[name] = one(name)
        figures[f"{name} clock"] = time.perf_counter() - clock
        figures[f"{name} cpu"] = time.process_time() - cpu
    return figures, found


def device_memory(device: str) -> dict[str, float]:
    """The peak of an accelerator's memory in GB, as torch counts it; empty for a CPU."""
    if device == "cpu":
        return {}
    import torch

    return {"device GB": torch.cuda.max_memory_allocated() / 1e9}


def compared(ours: Mapping[str, Answers], theirs: Mapping[str, Answers]) -> dict[str, tuple[int, float]]:
    """By task, the number of answers and their largest difference; ValueError for the first that is too large."""
    found = {}
    for task, documents in theirs.items():
        if ours[task].keys() != documents.keys():
            raise ValueError(f"{task}: not the same documents were asked")
        pairs = [
            (f"{task}, document {doc}, request {place}", mine, other)
            for doc, answers in documents.items()
            for place, (mine, other) in enumerate(zip(ours[task][doc], answers, strict=True))
        ]
        found[task] = len(pairs), max((_difference(*pair) for pair in pairs), default=0.0)
    return found


def _difference(where: str, ours: Any, theirs: Any) -> float:
    if isinstance(theirs, str) or isinstance(ours, str):
        if ours != theirs:
            raise ValueError(f"{where}: {ours!r} is not {theirs!r}")
        return 0.0
    likely, greedy = float(theirs[0]), theirs[1]
    if not math.isclose(ours[0], likely, rel_tol=CLOSE, abs_tol=CLOSE):
        raise ValueError(f"{where}: the log-likelihood is {ours[0]!r}, and {likely!r} in lm-eval")
    if greedy is not None and ours[1] != greedy:
        raise ValueError(f"{where}: greedy is {ours[1]!r}, and {greedy!r} in lm-eval")
    return abs(float(ours[0]) - likely) / max(1.0, abs(likely))
