"""A run that was stopped by its own results: the rule, how far the run came, and the bias of its numbers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

SEQUENCE: Final = "beta_mixture"
"""The interval of a stopped run: a confidence sequence, valid at any stopping time."""


@dataclass(frozen=True, slots=True)
class Stop:
    """A stopping rule that ended a run before its plan, and how far the run had come."""

    rule: str = ""  # as given, such as "lower(pass@1) > 0.6"; "" where the file does not have it
    metric: str = ""
    side: str = ""  # width, lower or upper
    tasks: int | None = None  # finished at the stop
    planned_tasks: int | None = None
    continued: bool = False  # a later start resumed the run and did not finish the plan

    @property
    def fact(self) -> str:
        """What happened."""
        if not self.rule:  # a file of rows shows only that some rollouts were not run
            return "a stopping rule ended the run early"
        far = "" if self.tasks is None else f" after {self.tasks:,} of {self.planned_tasks or 0:,} tasks"
        later = ", and a later start did not complete the plan" if self.continued else ""
        return f"--until {self.rule!r} stopped the run{far}{later}"

    @property
    def sentence(self) -> str:
        """What happened, and how the intervals allow for it."""
        return f"{self.fact}; its intervals ({SEQUENCE}) are valid at any stopping time"

    @property
    def notes(self) -> tuple[str, str]:
        """The notes for a reader, one sentence each."""
        return self.sentence, self.bias

    @property
    def bias(self) -> str:
        """In which direction the value is biased, in words."""
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


def not_said(notes: Sequence[str], sentences: Iterable[str]) -> list[str]:
    """The notes of readers without these sentences, which are shown elsewhere; a file name before them is ignored."""
    known = tuple(sentences)
    return [note for note in notes if not note.endswith(known)] if known else list(notes)
