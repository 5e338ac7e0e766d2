"""The answer as one of several choices: its letter, in the ways that models write it, or the choice's own text.

Read are a letter alone (``B``, ``(b)``, ``B.``), the last ``answer is B`` or ``Answer: B``, a ``\\boxed{B}``, a letter
that begins the text (``B) Rome``), a text that is a choice word for word, and a single letter that stands somewhere by
itself.
Where two letters could be meant, there is no answer.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from calipers.clients.client import Completion
from calipers.errors import VerifierError
from calipers.tasks.task import Task
from calipers.verifiers.verifier import Verdict, check_names, fault

LETTERS: Final = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
LONGEST: Final = 20_000  # characters at the end of a text, in which its answer is looked for
_ALONE: Final = re.compile(r"[\s(\[*_`\"']*(?:option\s+|choice\s+)?([A-Za-z])[\s)\].:*_`\"']*", re.IGNORECASE)
_STATED: Final = re.compile(
    r"(?i:\banswer)(?i:\s+is)?[\s:=*_`]*(?i:option\s+|choice\s+)?[(\[\"'*_`]*([A-Z])(?=[)\].,:;*_`\"'\s]|$)"
)
_BOXED: Final = re.compile(r"\\boxed\{\s*(?:\\text(?:bf|rm)?\{)?\s*\(?([A-Z])\)?\s*\}")
_FIRST: Final = re.compile(r"\s*[(\[*_`]*([A-Z])[*_`]*[)\].:](?!\w)")
_WORD: Final = re.compile(r"\b[AI] (?!(?:or|and|nor|but|is|was|as|because|since|seems|would)\b)(?=[a-z])")  # an article
_SINGLE: Final = re.compile(r"(?<![\w'’])([A-Z])(?![\w'’])")


def chosen_letter(text: str, choices: Sequence[str]) -> str | None:
    """The letter of the choice that a text settles on; None when it settles on none, or on several.

    >>> chosen_letter("So the answer is (B).", ["Paris", "Rome"]), chosen_letter("rome", ["Paris", "Rome"])
    ('B', 'B')
    """
    text = text[-LONGEST:].strip()
    known = LETTERS[: len(choices)] if choices else LETTERS
    if (alone := _ALONE.fullmatch(text)) and alone[1].upper() in known:
        return alone[1].upper()
    plain = _plain(text)
    same = [letter for letter, choice in zip(LETTERS, choices, strict=False) if _plain(choice) == plain]
    if len(same) == 1:
        return same[0]
    for pattern in (_STATED, _BOXED):
        letters = [letter for letter in pattern.findall(text) if letter in known]
        if letters:
            return str(letters[-1])
    if (first := _FIRST.match(text)) and first[1] in known:
        return first[1]
    single = {letter for letter in _SINGLE.findall(_WORD.sub("", text)) if letter in known}
    return single.pop() if len(single) == 1 else None


def _plain(text: str) -> str:
    return " ".join(text.lower().split()).strip(" .\"'`*")


@dataclass(frozen=True, slots=True)
class ChoiceMatch:
    """Reward 1 for the letter or the text of the right choice, else 0; the answer is the letter, `unparsed` without."""

    name: str = "choice"
    rerunnable: bool = True

    def check(self, task: Task) -> None:
        """Refuse a target that is no letter of a choice, and choices that are no list of texts."""
        check_names(task, ("choices",))
        choices = task.params.get("choices", [])
        if not isinstance(choices, list) or not all(isinstance(choice, str) for choice in choices):
            raise fault(task, f"choices is {choices!r:.60}", "expected a list of texts")
        known = LETTERS[: len(choices)] if choices else LETTERS
        if not isinstance(task.target, str) or task.target.strip() not in [*known]:
            raise fault(task, f"target is {task.target!r}", f"expected a letter from A to {known[-1]}")

    def gold(self, task: Task) -> str | None:
        """An answer that must pass: the letter."""
        return str(task.target).strip()

    async def verify(self, task: Task, completion: Completion) -> Verdict:
        """The verdict on one completion."""
        choices: Any = task.params.get("choices", [])
        if not isinstance(task.target, str):
            raise VerifierError(f"target is {task.target!r}; expected the letter of a choice")
        letter = chosen_letter(completion.text, choices)
        if letter is None:
            return Verdict(0.0, outcome="unparsed")
        return Verdict(float(letter == task.target.strip()), answer=letter)


CHOICE: Final = ChoiceMatch()
