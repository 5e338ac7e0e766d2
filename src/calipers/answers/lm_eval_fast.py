"""lm-evaluation-harness' regex filter over many responses at once, where the pattern is plain.

A plain pattern (`plain`) runs in Rust, at hundreds of thousands of responses a second and in linear time. What it
finds is what the filter finds one by one; a response on which the engines may differ is left to that.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from calipers.answers.plain import WORTH, Plain, plain
from calipers.rollouts.column import Bools, Ints

if TYPE_CHECKING:
    import polars as pl

ENDS: Final = (0, -1)  # the matches that can be had without listing all: the first, the last


@dataclass(frozen=True, slots=True)
class Searched:
    """What a pattern found in N texts."""

    answers: list[Any]  # [N] the fallback where there is none
    found: Bools  # [N]
    left: Ints  # the places of texts that have to be looked at singly


def searched(pattern: str, select: int, fallback: Any, texts: Sequence[str]) -> Searched | None:
    """The answers in many texts; None when they have to be looked at singly, all of them.

    That is when the pattern is not plain, another match than the first or last is asked for, or there
    are too few texts for it to pay.

    >>> searched("#### ([0-9]+)", 0, "[invalid]", ["#### 12", "none"] * 50).answers[:2]
    ['12', '[invalid]']
    """
    rust = plain(pattern) if len(texts) >= WORTH and select in ENDS else None
    if rust is None:
        return None
    odd = np.array([not text.isascii() for text in texts]) if rust.ascii_only else np.zeros(len(texts), dtype=bool)
    try:
        answers, found = _found(rust, texts, fallback, last=select == ENDS[1])
    except UnicodeEncodeError:  # half of a surrogate pair, which is no text to Rust
        return None
    return Searched(answers, found, np.flatnonzero(odd))


def _found(rust: Plain, texts: Sequence[str], fallback: Any, *, last: bool) -> tuple[list[Any], Bools]:
    import polars as pl

    series = pl.Series(texts, dtype=pl.String)
    if last:  # a match is found again in itself, groups and all, as nothing plain looks beyond it
        series = series.str.extract_all(rust.pattern).list.last()
    if not rust.groups:
        whole = series if last else series.str.extract(rust.pattern, 0)
        return _filled(whole, fallback), whole.is_not_null().to_numpy()
    there = series.is_not_null() if last else series.str.contains(rust.pattern)
    groups = [series.str.extract(rust.pattern, group) for group in range(1, rust.groups + 1)]
    if rust.groups == 1:  # one that has no part in the match is an empty answer
        one = pl.select(pl.when(there).then(groups[0].fill_null(""))).to_series()
        return _filled(one, fallback), there.to_numpy()
    filled = pl.select(pl.coalesce([pl.when(group != "").then(group) for group in groups])).to_series()
    answers = _filled(filled, fallback)
    found = filled.is_not_null().to_numpy()
    if isinstance(fallback, str) and fallback.strip() != fallback:  # which lm-eval strips where all groups are empty
        for place in np.flatnonzero(there.to_numpy() & ~found).tolist():
            answers[place] = fallback.strip()
    return answers, found


def _filled(series: pl.Series, fallback: Any) -> list[Any]:
    """Answers stripped as Python strips, the fallback in the gaps."""
    stripped = series.str.strip_chars(_blanks())
    if isinstance(fallback, str):
        return stripped.fill_null(fallback).to_list()
    return [fallback if one is None else one for one in stripped.to_list()]


@cache
def _blanks() -> str:
    """Every character that `str.strip` takes for a blank; Rust's list is another."""
    return "".join(filter(str.isspace, map(chr, range(sys.maxunicode + 1))))
