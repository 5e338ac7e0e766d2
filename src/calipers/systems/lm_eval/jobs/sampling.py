"""The sampling settings of lm-evaluation-harness, ``generation_kwargs``, in our words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from calipers.errors import InputError

MOST_TOKENS: Final = 256  # of a completion, where a task does not say: lm-evaluation-harness' own
LENGTHS: Final = ("max_gen_toks", "max_new_tokens", "max_tokens", "max_completion_tokens")  # the first given counts
DROPPED: Final = ("do_sample",)  # of generation_kwargs: says nothing to a server that temperature does not


def sampling(asked: Mapping[str, Any], place: str) -> dict[str, Any]:
    """Settings of a job for some ``generation_kwargs``; greedy unless they sample, whatever temperature they name.

    >>> sampling({"until": ["."], "max_gen_toks": 5, "top_p": 0.9}, "here")
    {'max_tokens': 5, 'temperature': 0.0, 'stop': ('.',), 'gen_kwargs': {'top_p': 0.9}}
    """
    given = dict(asked)
    until = given.pop("until", None)
    lengths = {name: given.pop(name) for name in LENGTHS if name in given}
    named, most = next(((name, one) for name, one in lengths.items() if one is not None), (LENGTHS[0], MOST_TOKENS))
    stops = [] if until is None else [until] if isinstance(until, str) else until
    if not isinstance(stops, list) or not all(isinstance(stop, str) for stop in stops):
        raise InputError.at(f"{place}.until", f"is {until!r}", "expected a text or a list of texts")
    if not isinstance(most, int) or most < 1:
        raise InputError.at(f"{place}.{named}", f"is {most!r}", "expected an integer >= 1")
    temperature, samples = given.pop("temperature", None), given.get("do_sample")
    if samples is False or (temperature is None and samples is not True):
        temperature = 0.0
    extra = {key: value for key, value in given.items() if key not in DROPPED}
    return {
        "max_tokens": most,
        "temperature": temperature,
        "stop": tuple(stop for stop in stops if stop),  # a server that stops at nothing says nothing
        "gen_kwargs": extra,
    }
