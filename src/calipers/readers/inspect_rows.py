"""A sample of inspect as a record of ours: what became of it, its rewards, and what it cost.

A value that a scorer gave counts, whatever else happened: that an error or a limit was scored is the doing of
who wrote the eval. A value that is none (NaN, null, a word that is no grade) is a gap and never a 0, unless the
scorer says that the model is to blame for it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from calipers.readers.inspect_log import Sample, Score, Spec

GRADES: Final[Mapping[str, float]] = {"C": 1.0, "I": 0.0, "P": 0.5, "N": 0.0}
WORDS: Final[Mapping[str, float]] = {"yes": 1.0, "true": 1.0, "no": 0.0, "false": 0.0}
OF_REASON: Final[Mapping[str, str]] = {
    "refusal": "refused",
    "no_response": "empty",
    "invalid_response_format": "unparsed",
    "grader_failed": "judge_failed",
    "scoring_failed": "verifier_failed",
}
FAULT: Final = frozenset({"judge_failed", "verifier_failed"})  # of the measurement: no word on a sample with a value
OF_LIMIT: Final[Mapping[str, str]] = {"time": "timed_out", "working": "timed_out", "operator": "cancelled"}
OF_STOP: Final[Mapping[str, str]] = {
    "max_tokens": "truncated",
    "model_length": "truncated",
    "content_filter": "refused",
}
_KIND: Final = re.compile(r"([A-Za-z_][\w.]*)\(")


def record(sample: Sample, spec: Spec, *, labelled: bool) -> dict[str, Any]:
    """The record of a sample; with its metadata where labels were asked for."""
    scores = sample.scores or {}
    rewards = dict(_rewards(scores))
    answer = next((score.answer for score in scores.values() if isinstance(score.answer, (str, int, float))), None)
    found: dict[str, Any] = {
        "task": str(sample.id),
        "sample": sample.epoch - 1,
        "outcome": _outcome(sample, bool(rewards)),
        "rewards": rewards,
        "answer": answer,
        "usage": _usage(sample),
        **({} if sample.working_time is None else {"working_s": sample.working_time}),
        **group(spec),
    }
    if labelled and isinstance(sample.metadata, dict):
        found["metadata"] = sample.metadata
    return found


def group(spec: Spec) -> dict[str, str | None]:
    """Whose samples these are: the solver is the agent, the task is the dataset."""
    return {"agent": spec.solver, "model": spec.model, "dataset": spec.task or None}


def number(value: Any) -> float | None:
    """What one value of a score is worth; None where it is no grade and no finite number.

    >>> number("P"), number(True), number("0.5"), number(float("nan")), number("maybe")
    (0.5, 1.0, 0.5, None, None)
    """
    if isinstance(value, str):
        if value in GRADES:
            return GRADES[value]
        if value.lower() in WORDS:
            return WORDS[value.lower()]
    if not isinstance(value, (str, int, float)):
        return None
    try:
        found = float(value)
    except (ValueError, OverflowError):
        return None
    return found if math.isfinite(found) else None


def error_kind(sample: Sample) -> str | None:
    """The word for what went wrong: the exception's name, where the message begins with it."""
    if sample.error is None:
        return None
    named = _KIND.match(sample.error.message)
    return named[1] if named else "error"


def unread(sample: Sample) -> list[str]:
    """The scorers whose value is a word that is no grade."""
    return [
        name
        for name, score in (sample.scores or {}).items()
        if any(isinstance(value, str) and number(value) is None for _, value in _values(name, score))
    ]


def _values(name: str, score: Score) -> Iterator[tuple[str, Any]]:
    """Each value of a score, by the reward it becomes: ``scorer``, or ``scorer.key`` where there are several."""
    if isinstance(score.value, dict):
        yield from ((f"{name}.{key}", value) for key, value in score.value.items())
    elif isinstance(score.value, list):
        yield from ((f"{name}.{place}", value) for place, value in enumerate(score.value))
    else:
        yield name, score.value


def _rewards(scores: Mapping[str, Score]) -> Iterator[tuple[str, float]]:
    for name, score in scores.items():
        for key, value in _values(name, score):
            if (worth := number(value)) is not None:
                yield key, worth


def _outcome(sample: Sample, valued: bool) -> str:
    if sample.invalidation is not None:
        return "cancelled"  # somebody declared it void
    if sample.error is not None and not valued:
        return "client_failed"
    limit = None if sample.limit is None else OF_LIMIT.get(sample.limit.type, "truncated")
    if limit is not None and not (valued and limit == "cancelled"):
        return limit
    reasons = [OF_REASON.get(reason) for score in (sample.scores or {}).values() if (reason := _reason(score))]
    said = next((word for word in reasons if word and not (valued and word in FAULT)), None)
    stopped = sample.output.choices[0].stop_reason if sample.output and sample.output.choices else None
    word = OF_STOP.get(stopped or "") or said
    if word:
        return word
    if valued:
        return "scored"
    return "verifier_failed" if unread(sample) else "missing"


def _reason(score: Score) -> str | None:
    """Why a score is not what it should be; older logs say so in its metadata."""
    older = score.metadata.get("unscored_reason") if isinstance(score.metadata, dict) else None
    return score.reason or (older if isinstance(older, str) else None)


def _usage(sample: Sample) -> dict[str, float]:
    """What all models together used up, graders too; only what some of them reported."""
    found: dict[str, float] = {}
    names = ("input_tokens", "output_tokens", "cached_tokens", "reasoning_tokens", "cost_usd")
    for used in (sample.model_usage or {}).values():
        counts = (
            used.input_tokens,
            used.output_tokens,
            used.input_tokens_cache_read,
            used.reasoning_tokens,
            used.total_cost,
        )
        for name, count in zip(names, counts, strict=True):
            if count is not None and math.isfinite(count):
                found[name] = found.get(name, 0.0) + count
    if sample.total_time is not None and math.isfinite(sample.total_time):
        found["latency_s"] = sample.total_time
    return found
