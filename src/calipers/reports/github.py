"""What GitHub's runner reads in a job's output: annotations, in which no text can become a command of its own."""

from __future__ import annotations

from collections.abc import Iterator

from calipers.reports.gate import Gate
from calipers.reports.junit import message
from calipers.reports.safe import clean


def annotated(gate: Gate) -> Iterator[str]:
    """A line for each check that is not met: an error where it stops the gate, else a warning."""
    for check in gate.checks:
        if check.word == "passed":
            continue
        level = "error" if gate.blocks(check) else "warning"
        where = " · ".join(part for part in (check.result, check.title) if part)
        title = _property(f"{check.tier} requirement {check.word}: {where}")
        yield f"::{level} title={title}::{_data(message(check))}"


def _data(text: str) -> str:
    return clean(text, None).replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A").replace("##[", "# #[")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
