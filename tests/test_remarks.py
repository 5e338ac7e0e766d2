"""Remarks and their texts: every code has one text, and no value of a remark is a sentence."""

from __future__ import annotations

import re
import string
from typing import get_args

import pytest
from source import SOURCE

from calipers.remarks import Remark
from calipers.reports import remark_texts
from calipers.reports.remark_texts import documents_of, text_of, texts
from calipers.stats.counts import Rule

MADE = re.compile(r"Remark\(\s*\"(?P<code>[a-z_.]+)\"")


def made_codes():
    """The codes of the remarks that the source makes."""
    literal = {match["code"] for path in SOURCE.rglob("*.py") for match in MADE.finditer(path.read_text())}
    return literal | set(get_args(Rule))  # each rule by which a number of samples follows results is a code


def test_every_remark_of_the_source_has_a_text_and_every_text_a_remark():
    assert made_codes() == set(texts())


@pytest.mark.parametrize("code", sorted(texts()))
def test_a_text_is_a_template_of_named_values(code):
    fields = [name for _, name, _, _ in string.Formatter().parse(texts()[code]) if name is not None]
    assert all(name.isidentifier() for name in fields)


@pytest.mark.parametrize(
    ("template", "value", "expected"),
    [
        ("{x}", 1234, "1,234"),
        ("{x}", 0.5, "0.500"),
        ("{x}", None, "–"),
        ("{x}", "a\x1b[31m", "a�[31m"),
        ("{x}", ["a", "b"], "a, b"),
        ("{x:rollout}", 1, "1 rollout"),
        ("{x:rollout}", 51, "51 rollouts"),
        ("{x:is|are}", 1, "is"),
        ("{x:is|are}", 0, "are"),
        ("{x:none}", 0, "none"),
        ("{x:none}", 51, "51"),
        ("{x:%}", 0.25, "25\xa0%"),
        ("{x:+}", -0.168, "−0.168"),
        ("{x:.1}", -2.25, "−2.2"),
        ("{x:p}", 0.034, "p = 0.03"),
        ("{x:g}", 0.58, "0.58"),
        ("{x:g}", 2500.0, "2,500"),
        ("{x:exact}", 0.5, "0.50"),
        ("{x:exact}", 0.5312, "0.5312"),
        ("{x:exact}", 1340.0, "1,340"),
        ("{x:g}", -7.5, "−7.5"),
        ("{x:g}", 4.0, "4"),
        ("{x:to}", (0.1, 0.25), "0.100 to 0.250"),
        ("{x:+to}", (-0.1, 0.25), "−0.100 to +0.250"),
    ],
)
def test_values_are_shown_by_their_format(monkeypatch, template, value, expected):
    monkeypatch.setattr(remark_texts, "texts", lambda: {"code": template})
    assert text_of(Remark("code", {"x": value})) == expected


def test_a_document_has_code_values_severity_and_text(monkeypatch):
    monkeypatch.setattr(remark_texts, "texts", lambda: {"code": "{n:task} left"})
    assert documents_of([Remark("code", {"n": 2}, "warning")]) == [
        {"code": "code", "values": {"n": 2}, "severity": "warning", "text": "2 tasks left"}
    ]
