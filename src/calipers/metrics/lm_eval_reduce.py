"""Reductions: the scores of a document's repeats to one, by the names of lm-evaluation-harness' guide."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np

from calipers.errors import InputError, PluginError, UnknownName
from calipers.scores.entries import Entry

STEPS: Final = (1, 3, 5, 10, 20, 50, 100)
NAMES: Final = ("take_first", "mean", "pass_at_k", "pass@k", "majority")

Reduction = str | Callable[..., Any]


def pass_at_k(scores: Sequence[Any], k: int | Sequence[int] | None = None) -> dict[str, float]:
    """Chance that k of a document's n repeats include a pass, for each k; a score that is not 0 is a pass.

    ``1 - C(n - c, k) / C(n, k)`` for c passes (Chen et al. 2021). Without k: 1, 3, 5, 10, 20, 50 and 100 as
    far as they go, n itself, and points between 100 and n. A k beyond n is an error where nothing passed:
    then nobody knows.

    >>> pass_at_k([1, 0, 0, 1], 1)
    {'pass@1': 0.5}
    """
    n, passes = len(scores), sum(map(bool, scores))
    asked = default_ks(n) if k is None else [k] if isinstance(k, int) else list(k)
    for one in asked:
        if not isinstance(one, int) or isinstance(one, bool) or one < 1:
            raise InputError.at("pass_at_k", f"k is {one!r}", "expected a positive integer")
        if one > n and not passes:
            raise InputError.at("pass_at_k", f"k is {one}, and there are {n} repeats", f"expected at most {n}")
    return {f"pass@{one}": _chance(n, passes, one) for one in asked}


def default_ks(n: int) -> list[int]:
    """The k that are worth a number for n repeats.

    >>> default_ks(12)
    [1, 3, 5, 10, 12]
    """
    found = {step for step in STEPS if step <= n} | ({n} if n else set())
    if n > STEPS[-1]:
        decades = math.log10(n) - 2
        pieces = max(2, 3 * int(decades))
        found |= {int(10 ** (2 + i * decades / pieces)) for i in range(1, pieces)}
    return sorted(found)


def reduced(name: str, values: Sequence[Any], how: Reduction, k: Any = None, reference: Any = None) -> dict[str, Any]:
    """One document's scores of a metric as one number, or as several under ``part(metric)``.

    A single value is passed on as it is.

    >>> reduced("exact_match", [1, 0], "pass_at_k")
    {'pass@1(exact_match)': 0.5, 'pass@2(exact_match)': 1.0}
    """
    if len(values) == 1 and k is None:
        return {name: values[0]}
    found = _found(name, values, how, k, reference)
    return {f"{part}({name})": one for part, one in found.items()} if isinstance(found, Mapping) else {name: found}


def check(entry: Entry, repeats: int | None = None, place: str = "metric_list") -> None:
    """Refuse a reduction that does not exist, and a k that no document could have."""
    how = entry.reduction
    if isinstance(how, str) and how not in NAMES:
        raise UnknownName.of("reduction", how, NAMES)
    if entry.k is not None:
        if how not in ("pass_at_k", "pass@k"):
            raise InputError.at(place, f"metric {entry.name!r} has k", "expected it with reduction: pass_at_k")
        pass_at_k([1] * (repeats or 1), entry.k)
        most = entry.k if isinstance(entry.k, int) else max(entry.k)
        if repeats is not None and most > repeats:
            raise InputError.at(place, f"k is {most}, and repeats {repeats}", f"expected repeats: {most} or more")


def base(key: str) -> str:
    """The metric that a key of a reduction belongs to: ``pass@1(exact_match)`` to exact_match."""
    head, opened, rest = key.partition("(")
    return rest.removesuffix(")") if opened and head and rest.endswith(")") else key


def _found(name: str, values: Sequence[Any], how: Reduction, k: Any, reference: Any) -> Any:
    if not values:
        raise InputError(f"metric {name!r}: a document has no repeats; expected at least one")
    if callable(how):
        try:
            return how(reference, list(values))
        except Exception as error:
            raise PluginError(f"the reduction of {name!r} failed: {type(error).__name__}: {error}") from error
    if how == "take_first":
        return values[0]
    if how == "mean":
        return math.fsum(values) / len(values)
    if how in ("pass_at_k", "pass@k"):
        return pass_at_k(values, k)
    if how == "majority":
        return Counter(values).most_common(1)[0][0]
    raise UnknownName.of("reduction", how, NAMES)


def _chance(n: int, passes: int, k: int) -> float:
    if n - passes < k:
        return 1.0
    return float(1.0 - np.prod(1.0 - k / np.arange(n - passes + 1, n + 1)))
