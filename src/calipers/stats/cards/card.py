"""What a card of a statistical method holds."""

from __future__ import annotations

from dataclasses import dataclass

ONE_TASK = "No interval: one task, or one cluster, says nothing about others."


@dataclass(frozen=True, slots=True)
class IntervalCard:
    """What a reader should know of an interval before believing it."""

    one_line: str
    formula: str
    source: str
    use: str  # when to use it
    none: str  # at 0 %
    full: str  # at 100 %
    one_task: str = ONE_TASK
    mind: str = ""
    coverage: str = ""  # only what was measured
    on_request: bool = True  # whether --interval takes the name

    def parts(self) -> list[tuple[str, str]]:
        """The labelled texts in the order they are shown."""
        labelled = [
            ("formula", self.formula),
            ("source", self.source),
            ("when", self.use),
            ("at 0 %", self.none),
            ("at 100 %", self.full),
            ("one task", self.one_task),
            ("mind", self.mind),
            ("coverage", self.coverage),
            ("on request", "" if self.on_request else "no name of --interval: it comes by itself"),
        ]
        return [(label, text) for label, text in labelled if text]


@dataclass(frozen=True, slots=True)
class MethodCard:
    """What a reader should know of a test, an adjustment or an estimator before believing it."""

    one_line: str
    answers: str  # the question
    formula: str
    source: str
    use: str  # when to use it, and when it comes by itself
    limit: str  # what it cannot do
    measured: str = ""  # only what was simulated or enumerated
    option: str = ""  # how to ask for it

    def parts(self) -> list[tuple[str, str]]:
        """The labelled texts in the order they are shown."""
        labelled = [
            ("answers", self.answers),
            ("formula", self.formula),
            ("when", self.use),
            ("measured", self.measured),
            ("limit", self.limit),
            ("source", self.source),
            ("option", self.option),
        ]
        return [(label, text) for label, text in labelled if text]
