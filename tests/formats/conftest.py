"""Fixtures for the tests of formats."""

from __future__ import annotations

import pytest


@pytest.fixture
def shorter_lines(monkeypatch: pytest.MonkeyPatch) -> int:
    """Lower the maximum length of a line from 64 MiB to 3 MiB, which is still more than one block."""
    for module in ("convert", "lines", "read", "source", "tables"):
        monkeypatch.setattr(f"calipers.formats.{module}.LONGEST_LINE", 3 << 20)
    return 3 << 20
