"""Answers that can be asserted: a gate, a verified certificate, an audit."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Self

from calipers.errors import NotPassed
from calipers.reports.document import Document


class Asserted(ABC):
    """An answer that passed or did not: ``assert answer``, or ``answer.check()``. Without an answer it did not."""

    __slots__ = ()

    @property
    @abstractmethod
    def exit_code(self) -> int:
        """The exit code of its command."""

    @abstractmethod
    def page(self) -> Document:
        """The page of its command."""

    @property
    def passed(self) -> bool:
        """Whether its command exits with 0."""
        return self.exit_code == 0

    def __bool__(self) -> bool:
        return self.passed

    def check(self) -> Self:
        """Itself if it passed; else NotPassed, whose text is the page."""
        if not self.passed:
            from calipers.reports.terminal import render

            raise NotPassed(render(self.page()).rstrip("\n"))
        return self
