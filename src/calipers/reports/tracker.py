"""A tracker of experiments: its client library, which gets a run for each group of a result.

A group is flat names and numbers there, as trackers keep nothing else: ``pass_at_1/low`` 0.41.
"""

from __future__ import annotations

import importlib.util
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

from calipers.errors import InputError
from calipers.reports.result import Group, Result, Slice
from calipers.reports.untrusted_text import clean
from calipers.stats.estimate import Estimate

BY: Final = "by"  # the folder of the slices, so that no key of a slice can be called as a number is
_SIGNS: Final = {"@": "_at_", "^": "_hat_"}
_UNSAFE: Final = re.compile(r"[^A-Za-z0-9_.-]+")


def flat_metrics(group: Group) -> dict[str, float]:
    """Every number of a group: its value, the ends of its interval, its standard error, its tasks and samples.

    What does not exist, or is no finite number, is left out.
    """
    names = _FlatNames()
    numbers: dict[str, float | None] = {
        "rollouts/planned": group.ledger.planned,
        "rollouts/scored": group.ledger.scored,
        "rollouts/missing": group.ledger.gaps,
    }
    for name, estimate in {**group.metrics, **group.economics}.items():
        numbers |= _numbers(names.of(name), estimate)
    for key, slices in group.breakdowns.items():
        for value, part in slices.items():
            for name, number in _slice(part):
                numbers |= _numbers(f"{names.of(name)}/{BY}/{names.of(key)}/{names.of(value)}", number)
    return {name: float(value) for name, value in numbers.items() if value is not None and math.isfinite(value)}


def _slice(part: Slice) -> Iterator[tuple[str, Estimate]]:
    yield from part.metrics.items()


def _numbers(name: str, estimate: Estimate) -> dict[str, float | None]:
    low, high = estimate.interval or (None, None)
    return {
        f"{name}/value": estimate.value,
        f"{name}/low": low,
        f"{name}/high": high,
        f"{name}/stderr": estimate.stderr,
        f"{name}/n": estimate.tasks,
        f"{name}/samples": estimate.samples,
    }


def plain_name(name: str) -> str:
    """A name that every tracker takes: letters, digits, ``_``, ``-`` and dots.

    >>> plain_name("pass@1"), plain_name("pass^4"), plain_name("mean_reward(reward=a/b)")
    ('pass_at_1', 'pass_hat_4', 'mean_reward_reward_a_b')
    """
    for sign, word in _SIGNS.items():
        name = name.replace(sign, word)
    return _UNSAFE.sub("_", name).strip("_.")[:100] or "unnamed"


class _FlatNames:
    """Plain names, no two alike for two different names."""

    def __init__(self) -> None:
        self._taken: dict[str, str] = {}  # plain -> the name that it stands for

    def of(self, name: str) -> str:
        plain, number = plain_name(name), 1
        while self._taken.setdefault(plain, name) != name:
            number += 1
            plain = f"{plain_name(name)}-{number}"
        return plain


def described(result: Result, group: Group) -> dict[str, str]:
    """What a group's numbers are of, as short texts."""
    facts: Mapping[str, Any] = {
        "dataset": group.dataset,
        "model": group.model,
        "agent": group.agent,
        "dialect": result.dialect,
        "missing": result.missing,
        "confidence": result.confidence,
        "seed": result.seed,
        "digest": result.digest,
    }
    return {name: str(value) for name, value in facts.items() if value is not None}


RESULT: Final = "result.json"
PROJECT: Final = "calipers"
LONGEST: Final = 200  # characters of a client's message

Log = Callable[[Result, str | None], Iterator[str]]
"""``log(result, target)``: hand a result to the client; a note for each run."""


class Tracker:
    """``--export NAME[=TARGET]`` for a client library that may not be installed."""

    def __init__(self, name: str, target: str | None, paths: Sequence[str], log: Log) -> None:
        if importlib.util.find_spec(name) is None:
            raise InputError.at(f"--export {name}", f"the package {name} is not installed", f"pip install {name}")
        self.paths, self.files = paths, list[str]()
        self._name, self._target, self._log = name, target, log

    def begin(self) -> None:
        """It needs nothing of the files but the result."""

    def contents(self, result: Result) -> tuple[list[Any], list[str]]:
        """Log every group; notes say where."""
        with _explained(self._name):
            return [], list(self._log(result, self._target))


@contextmanager
def _explained(name: str) -> Iterator[None]:
    """An error of the client, which may be of any kind, as one line."""
    try:
        yield
    except InputError:
        raise
    except Exception as error:
        first = clean((str(error).strip() or "no message").splitlines()[0], LONGEST)
        wrong = f"its client failed ({type(error).__name__}: {first})"
        raise InputError.at(f"--export {name}", wrong, "is it set up on this machine?") from error
