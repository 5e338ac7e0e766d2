"""promptfoo's results (version 3), as far as a score needs them."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from calipers.formats.format import Raw
from calipers.formats.lines import ABSENT, NOTHING
from calipers.formats.system_rows import Number


class Provider(msgspec.Struct, gc=False):
    """Who answered; two providers may share an id."""

    id: str | None = None
    label: str | None = None


class Prompt(msgspec.Struct, gc=False):
    """The template of the prompt."""

    label: str | None = None


class TestCase(msgspec.Struct, rename={"assertions": "assert"}, gc=False):
    """The test, the same in each of its repeats."""

    description: Raw = NOTHING
    assertions: Raw = NOTHING
    threshold: Raw = NOTHING


class Response(msgspec.Struct, gc=False):
    """What the provider returned."""

    cached: bool | None = None


class AssertionData(msgspec.Struct, rename="camel", gc=False):
    """What promptfoo noted of an assertion."""

    grader_error: bool | None = None


class Component(msgspec.Struct, gc=False):
    """The result of one assertion."""

    reason: str | None = None
    metadata: AssertionData | None = None


class Grading(msgspec.Struct, rename="camel", gc=False):
    """The results of all assertions."""

    component_results: list[Component | None] | None = None


class TokenUsage(msgspec.Struct, gc=False):
    """The tokens of a request."""

    prompt: Number = None
    completion: Number = None
    cached: Number = None


class ResultTable(msgspec.Struct, gc=False):
    """The rows of a results file."""

    results: list[Raw]


class ResultFile(msgspec.Struct, gc=False):
    """A results file in one piece."""

    results: ResultTable


ROW: Final[list[tuple[str, Any, Any]]] = [
    ("id", str | None, None),
    ("testIdx", int, msgspec.NODEFAULT),
    ("promptIdx", int, msgspec.NODEFAULT),
    ("provider", Provider | str | None, None),
    ("prompt", Prompt | None, None),
    ("vars", Raw, NOTHING),
    ("testCase", TestCase | None, None),
    ("response", Response | None, None),
    ("success", bool | None, None),
    ("score", Number, ABSENT),
    ("namedScores", dict[str, Any] | None, None),
    ("gradingResult", Grading | None, None),
    ("failureReason", int | None, None),
    ("latencyMs", Number, ABSENT),
    ("cost", Number, ABSENT),
    ("tokenUsage", TokenUsage | None, None),
    ("metadata", Raw, NOTHING),
]
