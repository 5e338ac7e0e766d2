"""A report on standard output: as a sheet of tables, or as data."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from calipers.cli.output import standard_output, tell, write
from calipers.reports.safe import clean, safe_json

if TYPE_CHECKING:
    from calipers.reports.sheet import Block


class Report(Protocol):
    """What can be printed in every shape."""

    def to_json(self) -> str:
        """The whole document."""

    def rows(self) -> list[dict[str, Any]]:
        """Its numbers, flat."""

    @property
    def fields(self) -> Sequence[str]:
        """The keys of a row, in order."""

    @property
    def notes(self) -> Sequence[str]:
        """What the reader should know beside the numbers."""


Some = TypeVar("Some", bound=Report)


def show_report(report: Some, shape: str, sheet: Callable[[Some], Sequence[Block]]) -> None:
    """Print a report as a table, JSON, CSV or Markdown, and its notes to standard error."""
    from calipers.reports.sheet import as_csv, markdown, show

    if shape == "json":
        write(safe_json(report.to_json()))
    elif shape == "csv":
        write(as_csv(report.fields, report.rows()))
    elif shape == "md":
        write(markdown(sheet(report)))
    else:
        with standard_output() as stream:
            show(sheet(report), stream)
    for note in report.notes:
        tell(f"note: {clean(note, None)}")
