"""The text verifiers over many completions at once: the same rewards, no event loop, no object for each verdict."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from calipers import regexes
from calipers.answers.plain import WORTH, first_matches, plain
from calipers.errors import VerifierError
from calipers.regexes import RegexTimeout
from calipers.run.verifiers.text import CONTAINS, EXACT_MATCH, REGEX_MATCH
from calipers.tasks.task import Task

Rewards = list[float | VerifierError]
Quick = Callable[[Sequence[Task], Sequence[str]], tuple[Rewards, list[Any]]]


def _exact(tasks: Sequence[Task], texts: Sequence[str]) -> tuple[Rewards, list[Any]]:
    """`exact_match`, many at once."""
    rewards: Rewards = []
    answers = []
    for task, text in zip(tasks, texts, strict=True):
        answer, target = text.strip(), str(task.target or "").strip()
        if task.params and task.params.get("ignore_case"):
            answer, target = answer.lower(), target.lower()
        rewards.append(1.0 if answer == target else 0.0)
        answers.append(answer or None)  # an empty text is no answer
    return rewards, answers


def _contained(tasks: Sequence[Task], texts: Sequence[str]) -> tuple[Rewards, list[Any]]:
    """`contains`, many at once."""
    rewards: Rewards = []
    for task, text in zip(tasks, texts, strict=True):
        needle = str(task.target or "")
        if task.params and task.params.get("ignore_case"):
            needle, text = needle.lower(), text.lower()
        rewards.append(1.0 if needle and needle in text else 0.0)
    return rewards, [str(task.target) if reward else None for task, reward in zip(tasks, rewards, strict=True)]


def _matched(tasks: Sequence[Task], texts: Sequence[str]) -> tuple[Rewards, list[Any]]:
    """`regex_match`, many at once: patterns that many rows share are given to Rust, where that is the same."""
    by_pattern: defaultdict[tuple[str, bool], list[int]] = defaultdict(list)
    for row, task in enumerate(tasks):
        by_pattern[str(task.target or ""), bool(task.params.get("ignore_case"))].append(row)
    answers: list[str | VerifierError | None] = [None] * len(texts)
    for (pattern, ignore_case), rows in by_pattern.items():
        rust = plain(pattern) if len(rows) >= WORTH and not ignore_case else None
        fit = [row for row in rows if rust.fits(texts[row])] if rust else []
        if rust:
            for row, answer in zip(fit, first_matches(rust, [texts[row] for row in fit]), strict=True):
                answers[row] = answer
        for row in rows if not fit else sorted(set(rows) - set(fit)):
            answers[row] = _search(pattern, texts[row], ignore_case)
    rewards: Rewards = [
        answer if isinstance(answer, VerifierError) else float(answer is not None) for answer in answers
    ]
    return rewards, [None if isinstance(answer, VerifierError) else answer for answer in answers]


def _search(pattern: str, text: str, ignore_case: bool) -> str | VerifierError | None:
    if not pattern:
        return None
    try:
        found = regexes.search(pattern, text, ignore_case=ignore_case)
    except RegexTimeout as error:
        return VerifierError(str(error), outcome="filter_timeout")
    return None if found is None else found[0]


QUICK: Final[Mapping[int, Quick]] = {id(EXACT_MATCH): _exact, id(CONTAINS): _contained, id(REGEX_MATCH): _matched}
