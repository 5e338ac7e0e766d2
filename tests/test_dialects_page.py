"""The page about dialects shows numbers; here they are worked out again."""

import doctest
from pathlib import Path

import pytest

from calipers import compat
from calipers.systems.evsys.metrics import EVSYS

PAGE = Path(__file__).parents[1] / "docs" / "dialects.md"


@pytest.fixture(autouse=True)
def _nothing_lent():
    yield
    compat.deactivate()


def test_every_example_on_the_page_runs():
    failed, tried = doctest.testfile(str(PAGE), module_relative=False)
    assert failed == 0
    assert tried > 10


def test_every_name_is_in_the_table():
    rows = [line for line in PAGE.read_text().splitlines() if line.startswith("| `")]
    for name, ours in EVSYS.metrics.items():
        assert any(f"`{name}`" in row and f"| `{ours}` |" in row for row in rows)
