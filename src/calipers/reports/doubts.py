"""The runs of a comparison, leaderboard or matrix of which a number of their own system differs from ours."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from calipers.reports.document import Block, Sentence
from calipers.reports.remark_texts import text_of
from calipers.rollouts.checks import Check, disagreements

Doubts = Mapping[str, Sequence[Check]]
"""The name of a run -> its checks, of which those that agree are no doubts."""


def doubts_about(doubts: Doubts) -> list[str]:
    """The warnings that numbers differ, with the name of the run."""
    warnings = []
    for name, checks in doubts.items():
        warnings += [f"warning: {name}: {text_of(remark)}" for remark in disagreements(checks)]
    return warnings


def doubts_document(doubts: Doubts) -> list[dict[str, Any]]:
    """The checks as JSON documents have them: each with its source."""
    documents = []
    for source, checks in doubts.items():
        documents += [{"source": source, **asdict(check)} for check in checks]
    return documents


def doubt_blocks(doubts: Doubts) -> Iterator[Block]:
    """The warnings on a page that has them as notes where it is Markdown."""
    for line in doubts_about(doubts):
        yield Sentence(line, markdown="")
