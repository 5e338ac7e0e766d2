"""What a benchmark's verifiers make of answers whose worth is known."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from calipers.reports.figures import counted, ends, figure, percent
from calipers.reports.safe import clean

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
        """Whether it says nothing against the verifier: a gold answer needs a verdict, any other must not pass."""
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
        return {"clean": self.clean, "confidence": self.confidence, "probes": [asdict(one) for one in self.probes]}


def render(test: SelfTest) -> str:
    """The test as plain lines."""
    return "".join(line.rstrip() + "\n" for line in _lines(test))


def _lines(test: SelfTest) -> Iterator[str]:
    rows = [("verifier", "answer", "tasks", "wrong", "", f"{percent(test.confidence)} interval")]
    for one in test.probes:
        judged = one.asked - len(one.failed)
        share = "–" if one.share is None else f"{figure(one.share)} {one.rate}"
        between = ends(one.interval, 4) if one.interval else one.why or ""
        rows.append((clean(one.verifier), one.what, f"{judged:,}", f"{len(one.wrong):,}", share, between))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for verifier, answer, *counts, share, between in rows:
        numbers = [count.rjust(wide) for count, wide in zip(counts, widths[2:4], strict=True)]
        yield "  ".join([verifier.ljust(widths[0]), answer.ljust(widths[1]), *numbers, share.ljust(widths[4]), between])
    yield ""
    for one in test.probes:
        if one.wrong:
            verb = "does not pass" if one.what == "gold" else "passes"
            yield f"{clean(one.verifier)}: {one.what} {verb}: {_named(one.wrong)}"
        if one.failed:
            why = f" ({clean(one.failed[0][1], 200)})"
            yield f"{clean(one.verifier)}: {one.what} cannot be judged: {_named([task for task, _ in one.failed])}{why}"
    wrong = sum(not one.clean for one in test.probes)
    yield f"{counted(wrong, 'probe')} of {len(test.probes)} found fault" if wrong else "clean"


def _named(tasks: Sequence[str]) -> str:
    shown = ", ".join(map(clean, tasks[:SHOWN]))
    return f"{shown} and {len(tasks) - SHOWN:,} more" if len(tasks) > SHOWN else shown
