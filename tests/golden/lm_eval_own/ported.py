"""How a case of ours names the test of lm-evaluation-harness that its numbers are taken from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

CASES: dict[str, str] = {}
"""The id of every case to the test that it is taken from."""


def ported(
    file: str, names: str, table: Mapping[str, Sequence[tuple[Any, ...]]], *, first: int = 0
) -> pytest.MarkDecorator:
    """Cases from a table: a test of theirs, ``Class::test``, to rows of values for the ``names``.

    A test whose rows stand in two tables counts on in the second: ``first`` is the number of its first row there.
    """
    params = []
    for test, rows in table.items():
        for number, row in enumerate(rows, first):
            name = f"{file}::{test}.{number}"
            CASES[name] = f"{file}::{test}"
            params.append(pytest.param(*row, id=name))
    return pytest.mark.parametrize(names, params)
