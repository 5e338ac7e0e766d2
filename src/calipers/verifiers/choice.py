"""Multiple choice: the answer is the letter of a choice, in any form that models write, or the text of the choice.

Accepted are a letter alone (``B``, ``(b)``, ``B.``), the last ``answer is B`` or ``Answer: B``, a ``\\boxed{B}``, a
letter at the start of the text (``B) Rome``), a text that equals a choice, and a separate letter if it is the only one.
If two letters are possible, there is no answer.
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
LONGEST: Final = 20_000  # characters at the end of a text that are searched for the answer
_ALONE: Final = re.compile(r"[\s(\[*_`\"']*(?:option\s+|choice\s+)?([A-Za-z])[\s)\].:*_`\"']*", re.IGNORECASE)
_STATED: Final = re.compile(
    r"(?i:\banswer)(?i:\s+is)?[\s:=*_`]*(?i:option\s+|choice\s+)?[(\[\"'*_`]*([A-Z])(?=[)\].,:;*_`\"'\s]|$)"
)
_BOXED: Final = re.compile(r"\\boxed\{\s*(?:\\text(?:bf|rm)?\{)?\s*\(?([A-Z])\)?\s*\}")
_FIRST: Final = re.compile(r"\s*[(\[*_`]*([A-Z])[*_`]*[)\].:](?!\w)")
_WORD: Final = re.compile(r"\b[AI] (?!(?:or|and|nor|but|is|was|as|because|since|seems|would)\b)(?=[a-z])")  # an article
_SINGLE: Final = re.compile(r"(?<![\w'’])([A-Z])(?![\w'’])")


def chosen_letter(text: str, choices: Sequence[str]) -> str | None:
    """The letter of the choice that a text gives as its answer; None if it gives none, or several.

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
    """Reward 1 for the letter or the text of the right choice, else 0. The answer is the letter.

    If no letter is found, the outcome is `unparsed`.
    """

    name: str = "choice"
    rerunnable: bool = True

    def check(self, task: Task) -> None:
        """Reject a target that is not the letter of a choice, and choices that are not a list of texts."""
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
