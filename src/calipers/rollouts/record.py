"""The record of one rollout: its keys, its outcomes, and the errors for a malformed one.

`Stop` describes a run that a stopping rule ended: the rule, how far the run came, and the bias of its numbers.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, get_args

Outcome = Literal[
    "scored",
    "refused",
    "truncated",
    "empty",
    "timed_out",
    "unparsed",
    "broke_verifier",
    "tampered",
    "filter_timeout",
    "verifier_failed",
    "judge_failed",
    "client_failed",
    "cancelled",
    "not_run",
    "missing",
    "stopped_early",
]
"""Outcomes of a planned rollout. The first eight contribute a number; the others are missing, except for the last.

The last, "stopped_early", is not missing: a stopping rule ended the run before this rollout, as planned.
"""

OUTCOMES: Final[tuple[str, ...]] = get_args(Outcome)
CODE: Final[Mapping[str, int]] = {word: code for code, word in enumerate(OUTCOMES)}
SCORED, MISSING, STOPPED_EARLY = CODE["scored"], CODE["missing"], CODE["stopped_early"]
CLIENT_FAILED, NOT_RUN = CODE["client_failed"], CODE["not_run"]
FIRST_NIL = CODE["broke_verifier"]
"""Outcomes from this code up to (excluding) FIRST_GAP count as 0, even with a reward."""

FIRST_GAP = CODE["filter_timeout"]
"""Outcomes from this code on contribute no number, even with a reward; all but the last are gaps."""

UNSTATED = 255
"""The code of a record without an outcome, which becomes `scored` with a reward and `missing` without."""

NOTHING_CAME: Final = frozenset({"client_failed", "cancelled", "not_run", "stopped_early"})
"""Outcomes without a completion."""

WITHOUT_TEXT: Final = frozenset({"empty", "refused"})
"""Outcomes for which an absent completion is read as the text ""."""

ABSENT = "__missing__"
"""The slice of rollouts that have no value for a ``--by`` key."""

USAGE: Final = ("input_tokens", "output_tokens", "cached_tokens", "reasoning_tokens", "cost_usd", "latency_s")
BEFORE_ANSWER: Final = "before_answer"
"""The key of an error that is true if no request for the rollout was accepted, so that no answer can be the cause."""

ASKED_AGAIN: Final = "asked_again"  # column: the number of workers of a cluster lost before the rollout was done
GROUP: Final = ("agent", "model", "dataset")
TEXTS: Final = ("prompt", "completion")
REASONING_TEXT: Final = "reasoning"  # the reasoning that a server returned apart from the completion
ROLES: Final = (
    *("task", "sample", "attempt", "outcome", "reward", "rewards", "answer"),
    *(*TEXTS, "usage", "error", "metadata", *GROUP),
)
"""The keys with a special meaning. Any other key is a column, or a label for ``--by``."""


NUMBER_DIGITS: Final = 18  # ids of at most this many digits are sorted as numbers; more do not fit 63 bits
COMMON_WORDS: Final = {  # words used as rewards -> their opposites
    "yes": "no", "pass": "fail", "passed": "failed", "correct": "incorrect", "right": "wrong", "y": "n",
    "success": "failure", "solved": "unsolved", "resolved": "unresolved", "correct answer": "wrong answer",
}  # fmt: skip


def id_order(task: str) -> tuple[int, int, str]:
    """The sort key of a task id: numbers by size, before all other text."""
    return (0, int(task), task) if task.isdecimal() and len(task) <= NUMBER_DIGITS else (1, 0, task)


def words_hint(value: object) -> str:
    """A hint to use ``--truth``, for the error about a reward that is a common word; "" for any other value.

    >>> words_hint("No")
    '; words become rewards with --truth yes=1,no=0'
    """
    word = value.strip().lower() if isinstance(value, str) else ""
    for good, bad in COMMON_WORDS.items():
        if word in (good, bad):
            return f"; words become rewards with --truth {good}=1,{bad}=0"
    return ""


def meant(names: Mapping[str, str]) -> dict[str, str]:
    """The role of each key of a file. ``names`` maps a role to its key, for roles that the file calls otherwise.

    A key that is used for a role has no other meaning: with ``{"task": "prompt"}`` no key is the prompt.
    """
    unchanged = {role: role for role in ROLES if role not in names and role not in names.values()}
    return unchanged | {key: role for role, key in names.items() if role in ROLES}


def label(value: Any) -> str:
    """The name of the slice for a JSON value: text itself, ABSENT for null, and JSON for other values.

    >>> label("easy"), label(1), label(True), label(None)
    ('easy', '1', 'true', '__missing__')
    """
    if isinstance(value, str):
        return value
    return ABSENT if value is None else json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def fault(row: Any, names: Mapping[str, str]) -> tuple[str, str] | None:
    """What is wrong with a decoded record, and what was expected; None for a valid record.

    ``names`` maps roles to the file's keys (``--columns task=id``). This check is slow and thorough; it is used only
    for rows that the fast decoder refused.
    """
    if not isinstance(row, dict):
        return f"a rollout is {_kind(row)}", "expected a JSON object"
    task = names.get("task", "task")
    if task not in row:
        return f"no key {task!r}", _advice(row)
    keys = {role: key for key, role in meant(names).items()}
    for role, (expected, is_valid) in _RULES.items():
        key = keys.get(role)
        if key in row and not is_valid(row[key]):
            hint = words_hint(row[key]) if role == "reward" else ""
            return f"{key} is {shown(row[key])}", f"expected {expected}{hint}"
    for role in ("rewards", "usage"):
        for key, value in (row.get(keys.get(role)) or {}).items():
            if not (value is None or _number(value)):
                return f"{role}.{named(key)} is {shown(value)}", "expected a number or null"
    for name in USAGE:
        key = names.get(name, name)
        if name in names and key in row and not (row[key] is None or _number(row[key])):
            return f"{key} is {shown(row[key])}", "expected a number or null"
    return None


def _number(value: Any) -> bool:
    return isinstance(value, (int, float))  # True and False are the ints 1 and 0


def _integer(value: Any, least: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and least <= value < 2**53


_RULES: Final[Mapping[str, tuple[str, Any]]] = {
    "task": ("text or an integer", lambda v: isinstance(v, (str, int)) and not isinstance(v, bool)),
    "sample": ("an integer >= 0", lambda v: _integer(v, 0)),
    "attempt": ("an integer >= 1", lambda v: _integer(v, 1)),
    "outcome": (f"one of {', '.join(OUTCOMES)}", lambda v: v is None or v in OUTCOMES),
    "reward": ("a number or null", lambda v: v is None or _number(v)),
    "rewards": ("an object of numbers", lambda v: v is None or isinstance(v, dict)),
    "answer": ("a JSON scalar or a list", lambda v: not isinstance(v, dict)),
    "prompt": ("text, a list of messages, or null", lambda v: v is None or isinstance(v, (str, list, dict))),
    "completion": ("text, a list of messages, or null", lambda v: v is None or isinstance(v, (str, list, dict))),
    "usage": ("an object of numbers", lambda v: v is None or isinstance(v, dict)),
    "error": ("text or an object", lambda v: v is None or isinstance(v, (str, dict))),
    "metadata": ("an object", lambda v: v is None or isinstance(v, dict)),
    **{key: ("text or null", lambda v: v is None or isinstance(v, str)) for key in GROUP},
}


def _kind(value: Any) -> str:
    names = {list: "a list", str: "text", bool: "a boolean", type(None): "null"}
    return names.get(type(value), "a number")


def completion_text(completion: Any, outcome: str | None) -> str | None:
    """The text of a stored completion (the last of several turns); None if there was no completion."""
    if outcome in NOTHING_CAME:
        return None
    if isinstance(completion, list):
        completion = completion[-1] if completion and isinstance(completion[-1], dict) else None
    if isinstance(completion, dict):
        completion = completion.get("content")
    return completion if isinstance(completion, str) else "" if outcome in WITHOUT_TEXT else None


def named(key: str) -> str:
    """A key as shown in errors: unchanged if it is printable, else as JSON."""
    return key if key.isprintable() else shown(key)


def shown(value: Any) -> str:
    """A value as shown in errors: the first characters of its JSON."""
    try:
        text = json.dumps(value, default=str)
    except RecursionError:
        return "nested too deeply"
    return text if len(text) <= 60 else text[:57] + "..."


def _advice(row: Mapping[str, Any]) -> str:
    keys = ", ".join(map(named, list(row)[:8])) or "none"
    return f"name it with --columns task=KEY (keys here: {keys[:120]})"


SEQUENCE: Final = "beta_mixture"
"""The interval of a stopped run: a confidence sequence, valid at any stopping time."""


@dataclass(frozen=True, slots=True)
class Stop:
    """A stopping rule that ended a run before its plan, and how far the run had come."""

    rule: str = ""  # as the user gave it, such as "lower(pass@1) > 0.6"; "" if the file does not have it
    metric: str = ""
    side: str = ""  # width, lower or upper
    tasks: int | None = None  # finished at the stop
    planned_tasks: int | None = None
    continued: bool = False  # a later start resumed the run and did not finish the plan

    @property
    def fact(self) -> str:
        """The fact of the stop, as a clause."""
        if not self.rule:  # a file of rows shows only that some rollouts were not run
            return "a stopping rule ended the run early"
        far = "" if self.tasks is None else f" after {self.tasks:,} of {self.planned_tasks or 0:,} tasks"
        later = ", and a later start did not complete the plan" if self.continued else ""
        return f"--until {self.rule!r} stopped the run{far}{later}"

    @property
    def sentence(self) -> str:
        """The fact of the stop, and how the intervals allow for it."""
        return f"{self.fact}; its intervals ({SEQUENCE}) are valid at any stopping time"

    @property
    def notes(self) -> tuple[str, str]:
        """The notes for a report, one sentence each."""
        return self.sentence, self.bias

    @property
    def bias(self) -> str:
        """A sentence about the direction in which the value is biased."""
        if self.side not in ("lower", "upper"):
            return BY_WIDTH if self.side == "width" else UNKNOWN
        word = "high" if self.side == "lower" else "low"
        return (
            f"the value of {self.metric}, and of metrics that rise and fall with it, is too {word} on average: a run "
            f"that stops on {self.side}({self.metric}) stops more often after tasks with {word} values; report the "
            "interval"
        )


BY_WIDTH: Final = "its values are at most slightly biased: the width depends little on whether the value is high or low"
UNKNOWN: Final = "its values may be biased: the rule that stopped the run is not known"


def without_sentences(notes: Sequence[str], sentences: Iterable[str]) -> list[str]:
    """The notes without those that end with one of these sentences, which are shown elsewhere."""
    known = tuple(sentences)
    return [note for note in notes if not note.endswith(known)] if known else list(notes)
