"""The test of a benchmark's verifiers on known answers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, Literal

from calipers.reports.document import Blank, Block, Document, Name, Row, Sentence, Table, TableColumn
from calipers.reports.figures import counted, ends, figure, percent
from calipers.reports.plain_words import plain_why
from calipers.reports.untrusted_text import clean

SHOWN = 5  # ids of a kind that are named in a table

Rate = Literal["false negatives", "false positives"]


@dataclass(frozen=True, slots=True)
class Probe:
    """One kind of answer, given to every task of one verifier."""

    verifier: str
    what: str  # gold, empty, echo, random, another's
    rate: Rate  # what a wrong verdict on it is
    asked: int  # tasks
    wrong: Sequence[str]  # ids of the tasks where the verdict is wrong
    failed: Sequence[tuple[str, str]]  # ids of the tasks where there was none, and why
    share: float | None  # of the verdicts that are wrong; None without any verdict
    interval: tuple[float, float] | None
    why: str | None = None  # why there is no interval

    @property
    def clean(self) -> bool:
        """Whether the verifier is right: every gold answer has a verdict and passes, and no other answer passes."""
        return not self.wrong and not (self.what == "gold" and self.failed)


@dataclass(frozen=True, slots=True)
class SelfTest:
    """All probes of a benchmark."""

    confidence: float
    probes: Sequence[Probe]
    notes: Sequence[str] = ()

    @property
    def clean(self) -> bool:
        """Whether every gold answer passed and nothing else did."""
        return all(probe.clean for probe in self.probes)

    def to_dict(self) -> dict[str, Any]:
        """The test, ready for strict JSON."""
        return {"clean": self.clean, "confidence": self.confidence, "probes": [asdict(probe) for probe in self.probes]}


def document(test: SelfTest) -> Document:
    """A test as a page: a row for each probe, then the tasks with a wrong verdict."""
    return Document(partial(_blocks, test), test.to_dict)


def _blocks(test: SelfTest) -> Iterator[Block]:
    columns = [
        TableColumn("verifier"),
        TableColumn("answer"),
        TableColumn("tasks", "right"),
        TableColumn("wrong", "right"),
        TableColumn(),
    ]
    rows = []
    for probe in test.probes:
        judged = f"{probe.asked - len(probe.failed):,}"
        share = "–" if probe.share is None else f"{figure(probe.share)} {probe.rate}"
        interval = ends(probe.interval, 4) or plain_why(probe.why or "")
        rows.append(Row([Name(probe.verifier), probe.what, judged, f"{len(probe.wrong):,}", share, interval]))
    yield Table([*columns, TableColumn(f"{percent(test.confidence)} interval")], rows, ruled=False)
    yield Blank()
    for probe in test.probes:
        if probe.wrong:
            verb = "does not pass" if probe.what == "gold" else "passes"
            yield Sentence((Name(probe.verifier), f": {probe.what} answer {verb}: {_named(probe.wrong)}"), whole=True)
        if probe.failed:
            tasks, why = _named([task for task, _ in probe.failed]), clean(probe.failed[0][1], 200)
            unjudged = f": {probe.what} answer cannot be verified: {tasks} ({why})"
            yield Sentence((Name(probe.verifier), unjudged), whole=True)
    wrong = sum(not probe.clean for probe in test.probes)
    fault = f"{wrong:,} of {counted(len(test.probes), 'probe')} found wrong verdicts"
    yield Sentence(fault if wrong else "clean: all verdicts are right", whole=True)


def _named(tasks: Sequence[str]) -> str:
    shown = ", ".join(map(clean, tasks[:SHOWN]))
    return f"{shown} and {len(tasks) - SHOWN:,} more" if len(tasks) > SHOWN else shown
