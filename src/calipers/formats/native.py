"""Native JSON Lines: a record a line."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from calipers.formats.jsonl import JsonLines
from calipers.formats.parallel import Progress, read_lines
from calipers.formats.source import Source
from calipers.rollouts.part import Part


def read(source: Source, names: Mapping[str, str], labels: Collection[str], progress: Progress) -> list[Part]:
    """The rollouts of a JSON Lines source; one `Part` for each process that read some of it."""
    return read_lines("calipers.formats.native:lines", source, names, labels, progress)


def lines(path: str, names: Mapping[str, str], labels: Collection[str], start: int | None) -> JsonLines:
    """A reader of records, wherever in the file they stand."""
    return JsonLines(path, names, labels)
