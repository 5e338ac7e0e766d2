"""Differences that docs/dialects.md lists: each is named and counted, and fails nothing."""

from __future__ import annotations

from collections.abc import Sequence

from bench.parity.one import Outcome


def settled(found: Sequence[Outcome]) -> None:
    """Name what is a known quirk."""
