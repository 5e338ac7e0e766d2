"""Log-likelihoods of texts: what a document contributes to perplexities, by lm-eval's names."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

from calipers.errors import InputError

_BLANKS: Final = re.compile(r"\s+")


def words(text: str) -> int:
    """How many pieces blanks cut a text into: one more for a blank at either end, one for no text at all.

    >>> words("Hello wide world"), words(" lead"), words("")
    (3, 2, 1)
    """
    return len(_BLANKS.split(text))


def score_loglikelihood(result: Sequence[Any], names: Sequence[str]) -> dict[str, Any]:
    """The scores of a continuation, from ``[log-likelihood, is_greedy]``; other names are passed by."""
    ll, greedy = _pair(result)
    found = {"perplexity": ll, "acc": int(greedy)}
    return {name: value for name, value in found.items() if name in names}


def score_rolling(ll: float, text: str, names: Sequence[str]) -> dict[str, Any]:
    """The scores of a whole text: its log-likelihood, alone or with its words or its bytes."""
    size = len(text.encode("utf-8", "surrogatepass"))
    found: dict[str, Any] = {"perplexity": ll}
    found |= {"word_perplexity": (ll, words(text)), "byte_perplexity": (ll, size), "bits_per_byte": (ll, size)}
    return {name: value for name, value in found.items() if name in names}


def _pair(result: Sequence[Any]) -> tuple[float, bool]:
    try:
        ll, greedy = result
        return float(ll), bool(greedy)
    except (TypeError, ValueError):
        right = "expected [log-likelihood, is_greedy]"
        raise InputError.at("loglikelihood", f"a result is {result!r}", right) from None
