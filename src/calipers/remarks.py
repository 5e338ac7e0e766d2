"""A remark: something that the reader of a number must know, as a code with numbers and names.

Code decides by the code and the values of a remark, never by its text. Only `calipers.reports.remark_texts` makes text
of it, so that every page says the same thing in the same words.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

Severity = Literal["note", "warning", "no_answer"]
"""A note explains, a warning may change how a number is used, and without an answer there is no conclusion."""

Value = int | float | str | None | Sequence[float | str]
"""A number, a name, an interval, or several names; never a sentence."""


@dataclass(frozen=True, slots=True)
class Remark:
    """One thing that the reader of a number must know.

    >>> Remark("missing_differs", {"run": "b", "missing": 51}, "warning").digested["values"]
    {'run': 'b', 'missing': 51}
    """

    code: str
    values: Mapping[str, Value] = field(default_factory=dict)
    severity: Severity = "note"

    @property
    def digested(self) -> dict[str, Any]:
        """The part of a remark that a digest covers: everything that it has, as its text is no part of it."""
        return {"code": self.code, "values": dict(self.values), "severity": self.severity}
