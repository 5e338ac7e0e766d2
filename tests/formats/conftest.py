"""What the tests of formats share."""

from __future__ import annotations

import pytest


@pytest.fixture
def shorter_lines(monkeypatch: pytest.MonkeyPatch) -> int:
    """The longest line, lowered from 64 MiB to 3, which are read in several blocks too."""
    for module in ("convert", "lines", "read", "source", "tables"):
        monkeypatch.setattr(f"calipers.formats.{module}.LONGEST_LINE", 3 << 20)
    return 3 << 20
