"""``pytest tests/golden --golden DIR``: other systems' own numbers, run through our public functions.

A vector marked as a quirk records an accident of the other system: it is run and reported apart, and
cannot fail the run. What we answer to each stands in docs/dialects.md.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

HERE = Path(__file__).parent
collect_ignore = ["harbor", "lm_eval", "nemo_gym"]  # data, even where it looks like tests
KIND = "golden kind"
QUIRK = "golden quirk"


def pytest_addoption(parser):
    parser.addoption(
        "--golden",
        type=Path,
        default=HERE,
        metavar="DIR",
        help="A folder with lm_eval, nemo_gym and harbor in it.  [default: the vectors beside the runner]",
    )


def pytest_terminal_summary(terminalreporter):
    """Passed and failed per kind; quirks apart."""
    counts, quirks = Counter(), Counter()
    for word in ("passed", "failed", "xfailed"):
        for report in terminalreporter.stats.get(word, []):
            marks = dict(report.user_properties)
            if KIND in marks:
                (quirks if QUIRK in marks else counts)[marks[KIND], word] += 1
    for title, found in (("golden vectors", counts), ("quirks, which cannot fail", quirks)):
        if found:
            terminalreporter.section(title)
        for kind in sorted({kind for kind, _ in found}):
            passed, failed = found[kind, "passed"], found[kind, "failed"]
            if found is quirks:
                terminalreporter.line(
                    f"{kind}: {passed} as they are there, {found[kind, 'xfailed']} answered otherwise"
                )
            else:
                terminalreporter.line(f"{kind}: {passed} passed, {failed} failed")


@pytest.fixture
def golden(request, record_property):
    """Called with a vector's kind and whether it is a quirk: puts both in the report."""

    def note(kind, quirk):
        record_property(KIND, kind)
        if quirk:
            record_property(QUIRK, True)

    return note
