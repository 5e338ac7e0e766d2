"""The texts of remarks, from the TOML files in ``reports/remarks``: a line for each code.

A field of a text is the name of a value, and after a colon how it is shown::

    {run}                 a name, a number, or several names
    {missing:rollout}     a number with its noun: 1 rollout, 51 rollouts
    {missing:is|are}      the word for 1, and the word for other numbers
    {missing:none}        a number, or "none" for 0
    {share:%}             a share in per cent
    {delta:+}             a number with its sign
    {ends:to}             an interval in words; {ends:+to} with signs
    {value:.3}            a number with that many decimals
    {p:p}                 a p value: p = 0.12, p < 0.0001
    {value:g}             a number with the decimals that it has, such as 7.5
    {value:4g}            the same, with four digits at most
    {value:exact}         the same, with two decimals at least if it is below 10
    {value:full}          a number with all its digits
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import resources
from string import Formatter
from typing import Any, Final

from calipers.remarks import Remark
from calipers.reports.figures import NONE, counted, figure
from calipers.reports.sentences import minus, p_value, percent, signed, signed_to, to
from calipers.reports.untrusted_text import clean

FOLDER = "remarks"
UNNAMED: Final[Mapping[str, str]] = {"first": "the first run", "second": "the second run"}
"""The names of the two runs of a comparison where a text stands without them."""


def text_of(remark: Remark, names: Mapping[str, str] = UNNAMED) -> str:
    """The text of a remark, with harmful characters of names replaced.

    ``names`` gives names to the roles of a remark, such as the first and the second run of a comparison.
    """
    return _FORMATTER.vformat(texts()[remark.code], (), {**UNNAMED, **remark.values, **names})


def note_of(remark: Remark) -> str:
    """The text of a remark as a note: a warning says that it is one."""
    return f"warning: {text_of(remark)}" if remark.severity == "warning" else text_of(remark)


def documents_of(remarks: Sequence[Remark], names: Mapping[str, str] = UNNAMED) -> list[dict[str, Any]]:
    """Remarks as JSON documents have them."""
    return [{**remark.digested, "text": text_of(remark, names)} for remark in remarks]


@cache
def texts() -> dict[str, str]:
    """Every code with its text. A code that two files have is an error."""
    known: dict[str, str] = {}
    for file in sorted(resources.files("calipers.reports").joinpath(FOLDER).iterdir(), key=lambda file: file.name):
        if not file.name.endswith(".toml"):
            continue
        for code, text in tomllib.loads(file.read_text(encoding="utf-8")).items():
            if code in known:
                raise ValueError(f"{file.name}: the code {code!r} is in another file, too; expected each code once")
            known[code] = text
    return known


class _Formatter(Formatter):
    """Formats the values of remarks by the rules at the top of this module."""

    def format_field(self, value: Any, format_spec: str) -> str:
        if value is None:
            return NONE
        if isinstance(value, str):
            return clean(value, None)
        if isinstance(value, (int, float)):
            return _number(value, format_spec)
        return _several(value, format_spec)


def _several(values: Sequence[Any], spec: str) -> str:
    """An interval, or names separated by commas."""
    if spec == "to":
        return to((values[0], values[1]))
    if spec == "+to":
        return signed_to((values[0], values[1]))
    return ", ".join(clean(str(value), None) for value in values)


def _number(value: float, spec: str) -> str:
    if spec == "+":
        return signed(value)
    if spec == "%":
        return percent(value)
    if spec == "full":
        return minus(f"{value:.15g}")
    if spec.startswith("."):
        return minus(figure(value, int(spec[1:])))
    if spec == "p":
        return p_value(value)
    if spec == "4g":
        return minus(f"{value:,.4g}" if abs(value) < 1e4 else figure(value, 0))
    if spec == "g":
        return minus(f"{value:,.0f}" if 1e6 <= abs(value) < 1e15 else f"{value:,.6g}")
    if spec == "exact":
        decimals = len(f"{value:.12f}".rstrip("0").partition(".")[2])
        return minus(figure(value, max(decimals, 2) if abs(value) < 10 else decimals))
    if spec == "none":
        return f"{value:,}" if value else "none"
    if "|" in spec:
        one, other = spec.split("|")
        return one if value == 1 else other
    if spec:
        return counted(int(value), spec)
    return f"{value:,}" if isinstance(value, int) else minus(figure(value, 3))


_FORMATTER = _Formatter()
