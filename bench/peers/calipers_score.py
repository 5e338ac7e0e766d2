"""``calipers.score``, from a file to the numbers."""

from __future__ import annotations

from typing import Any

from bench.peer import Numbers, Peer, Work

PEER = Peer("calipers_score", "`calipers.score`", packages=("calipers", "numpy", "msgspec"))


def prepare(path: str, metrics: list[str]) -> Work:
    """Compute all metrics in one call."""
    import calipers

    score = calipers.score  # using the name imports the pipeline
    return lambda: (score(path, metrics), metrics)


def numbers(answer: Any) -> Numbers:
    """The value of every metric, by its requested name."""
    result, metrics = answer
    return {name: result[name].value for name in metrics}
