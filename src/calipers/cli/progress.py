"""A bar on standard error, for a person who has waited two seconds; nothing for anybody else."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import TYPE_CHECKING, TextIO

from calipers.reports.untrusted_text import is_terminal

if TYPE_CHECKING:
    from rich.progress import Progress as Bar
    from rich.progress import TaskID

PATIENCE = 2.0  # seconds


class Progress:
    """Told how many bytes of how many are read, or trials run; it shows them only when that takes long."""

    def __init__(self, patience: float = PATIENCE, stream: TextIO | None = None, unit: str = "") -> None:
        self._stream = stream or sys.stderr  # None where somebody closed it
        self.wanted = self._stream is not None and is_terminal(self._stream)
        self._patience = patience
        self._unit = unit  # "" for bytes
        self._since = time.monotonic()
        self._bar: Bar | None = None
        self._task: TaskID | None = None

    def __enter__(self) -> Progress:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def __call__(self, done: int, total: int) -> None:
        """So many bytes are read, of so many; 0 when nobody knows how many there are."""
        if self._bar is None:
            if not self.wanted or time.monotonic() - self._since < self._patience:
                return
            self._bar = _bar(self._stream, self._unit)
            self._task = self._bar.add_task(self._unit or "reading", total=total or None)
            self._bar.start()
        if self._task is not None:
            self._bar.update(self._task, completed=done, total=total or None)


def _bar(stream: TextIO, unit: str) -> Bar:
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    count = MofNCompleteColumn() if unit else DownloadColumn()
    columns = (TextColumn("{task.description}"), BarColumn(), count, TimeRemainingColumn())
    return Bar(*columns, console=Console(file=stream), transient=True)
