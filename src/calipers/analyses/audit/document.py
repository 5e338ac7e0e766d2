"""An audit as a page: findings with a p value or an expected count, then lists, then what nobody can know."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from functools import partial
from typing import Any

from calipers.analyses.audit.audit import Audit
from calipers.reports.document import Blank, Block, Document, Sentence, Title, plain_table
from calipers.reports.figures import counted
from calipers.reports.untrusted_text import clean

FIELDS = ("rule", "kind", "count", "of", "expected", "p", "says", "examples")


def document(audit: Audit) -> Document:
    """The page of an audit."""
    return Document(partial(_blocks, audit), audit.to_dict, FIELDS, partial(rows, audit))


def rows(audit: Audit) -> list[dict[str, Any]]:
    """A flat row for each finding and each list."""
    nothing = dict.fromkeys(FIELDS)
    flat = [{**nothing, **asdict(each)} for each in audit.findings]
    flat += [{**nothing, "kind": "list", **asdict(each)} for each in audit.lists]
    return [{**row, "examples": "; ".join(row["examples"])} for row in flat]


def _blocks(audit: Audit) -> Iterator[Block]:
    count = counted(audit.rollouts, "rollout")
    if audit.findings:
        yield Sentence(f"{count}: {counted(len(audit.findings), 'finding')}", "strong")
    else:
        yield Sentence(f"{count}: nothing found that an honest run does not show", "strong")
    if audit.findings:
        yield Blank()
        cells = [
            [each.rule, f"{each.count:,}", _expected(each.expected), _p(each.p), _said(each.says, each.examples)]
            for each in audit.findings
        ]
        yield plain_table(["finding", "count", "expected", "p", ""], cells, numbers={1, 2, 3}, strong={0})
    if audit.lists:
        yield Blank()
        yield Title("To look at, which proves nothing")
        cells = [
            [each.rule, f"{each.count:,}", f"{each.of:,}", _said(each.says, each.examples)] for each in audit.lists
        ]
        yield plain_table(["list", "count", "of", ""], cells, numbers={1, 2})
    yield Blank()
    if audit.tried:
        yield Sentence(f"Tried without a finding: {', '.join(audit.tried)}.", "note")
    for each in audit.unknown:
        yield Sentence(f"Not known: {each}.", "note")
    yield Sentence(
        "A retry on few tasks cannot be seen from outcomes; at most 5 % of honest runs have a finding.", "note"
    )


def _expected(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}" if value % 1 else f"{value:.0f}"


def _p(value: float | None) -> str:
    return "-" if value is None else f"{value:.4f}" if value >= 0.0001 else "<0.0001"


def _said(says: str, examples: Any) -> str:
    shown = f" ({clean('; '.join(examples[:2]), 160)})" if examples else ""
    return clean(says, 300) + shown
