"""Output for GitHub Actions: annotations, and a step summary in Markdown."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Literal

from calipers.reports.figures import whole_account
from calipers.reports.result import Result
from calipers.reports.untrusted_text import clean

Level = Literal["error", "warning", "notice"]


def annotation(level: Level, title: str, message: str) -> str:
    """A workflow command that shows an annotation; no text in it can start a second command.

    >>> annotation("warning", "missing: 3", "3 rollouts\\nare missing")
    '::warning title=missing%3A 3::3 rollouts are missing'
    """
    return f"::{level} title={_data(title).replace(':', '%3A').replace(',', '%2C')}::{_data(message)}"


def _data(text: str) -> str:
    return clean(text, None).replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A").replace("##[", "# #[")


def result_annotations(result: Result) -> Iterator[str]:
    """A warning for each group with missing rollouts, and for each reason why its numbers may mislead."""
    for group in result.groups:
        title = group.title or "score"
        if group.ledger.gaps:
            yield annotation("warning", f"missing rollouts: {title}", whole_account(group.ledger, result.missing))
        for words in group.warnings:
            yield annotation("warning", title, words)


def add_summary(markdown: str) -> str:
    """Append Markdown to the step summary, if the runner has one; return an error message, or "" on success."""
    path = os.environ.get("GITHUB_STEP_SUMMARY")
    if not path:
        return ""
    try:
        with open(path, "a", encoding="utf-8") as file:
            file.write(markdown + "\n")
    except OSError as error:
        return f"{path}: cannot be written ({error.strerror})"
    return ""
