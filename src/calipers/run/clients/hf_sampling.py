"""One token drawn from a model's scores, by a draw that belongs to one sample alone."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from calipers.errors import ClientError
from calipers.run.client import Request

TAKEN = ("do_sample", "min_p", "top_k", "top_p", "truncate")  # what --gen-kwargs may say to hf/


@dataclass(frozen=True, slots=True)
class Sampling:
    """How tokens are drawn: scores over the temperature, then the unlikely ones left out."""

    temperature: float
    seed: int | None = None
    top_k: int = 0  # so many of the likeliest; 0: all
    top_p: float = 1.0  # the likeliest that together reach this chance
    min_p: float = 0.0  # those at least this fraction as likely as the likeliest

    def dice(self) -> random.Random:
        """The draws of one sample: the same for a seed whatever else is in the batch; other ones without."""
        return random.Random(self.seed)


def sampling_of(request: Request) -> Sampling | None:
    """How a request wants its tokens drawn; None where the likeliest is taken: no temperature, or 0.

    ``do_sample`` is transformers' switch: false takes the likeliest, true alone means temperature 1.
    """
    extra = dict(request.extra)
    if unknown := sorted(set(extra) - set(TAKEN)):
        raise _wrong(f"hf/ models take no {unknown[0]!r}; they take {', '.join(TAKEN)}")
    asked = extra.pop("do_sample", None)
    if asked not in (None, True, False):
        raise _wrong(f"do_sample is {asked!r}; expected true or false")
    temperature = request.temperature
    if asked and temperature == 0:
        raise _wrong("do_sample is true and the temperature 0; expected one or the other")
    if asked and temperature is None:
        temperature = 1.0
    found = Sampling(
        temperature or 0.0,
        request.seed,
        int(_number(extra, "top_k", 0, math.inf, 0)),
        _number(extra, "top_p", 0, 1, 1.0),
        _number(extra, "min_p", 0, 1, 0.0),
    )
    return found if found.temperature and asked is not False else None


def truncates(request: Request) -> bool:
    """Whether a prompt that leaves its answer too little room loses its beginning, as in lm-evaluation-harness."""
    asked = request.extra.get("truncate")
    if asked not in (None, "left"):
        raise _wrong(f"truncate is {asked!r}; expected left, or nothing")
    return asked == "left"


def drawn(scores: Any, sampling: Sampling, chance: float) -> Any:
    """The token (a tensor of one index) at a chance in [0, 1), for the scores [V] of all tokens.

    The tokens stand in the order of their numbers, each as wide as it is likely, and the chance points
    at one of them; so scores that differ in their last digit give the same token but at the very edge.
    """
    import torch

    exact = torch.float32 if scores.device.type == "mps" else torch.float64
    chances = (scores.to(exact) / sampling.temperature).softmax(0)
    if 0 < sampling.top_k < len(chances):
        chances = torch.where(chances < chances.topk(sampling.top_k).values[-1], 0, chances)
        chances = chances / chances.sum()
    if sampling.top_p < 1:
        ordered, tokens = chances.sort(descending=True, stable=True)
        reached = ordered.cumsum(0) - ordered  # by those likelier
        beyond = reached >= sampling.top_p
        beyond[0] = False  # top_p 0 leaves the likeliest
        chances = chances.index_fill(0, tokens[beyond], 0)
    if sampling.min_p:
        chances = torch.where(chances < sampling.min_p * chances.max(), 0, chances)
    edges = chances.cumsum(0)
    return torch.searchsorted(edges, chance * edges[-1:], right=True).clamp(max=len(edges) - 1)


def _number(extra: Mapping[str, Any], name: str, least: float, most: float, default: float) -> float:
    value = extra.get(name, default)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not least <= value <= most:
        right = f"a number from {least:g} to {most:g}" if most < math.inf else f"an integer >= {least:g}"
        raise _wrong(f"{name} is {value!r}; expected {right}")
    return value


def _wrong(message: str) -> ClientError:
    return ClientError(message, kind="setting", hopeless=True)
