"""How many examples a test draws: a few that are the same every time, and many when somebody explores."""

from __future__ import annotations

from hypothesis import settings

EXPLORED = 2_000  # what the profile "explore" draws, where a number of a test's own would hold it back


def examples(count: int) -> settings:
    """So many for every change; with ``HYPOTHESIS_PROFILE=explore`` as many as it has."""
    default = settings.default
    exploring = default is not None and default.max_examples >= EXPLORED
    return settings(max_examples=max(count, EXPLORED) if exploring else count)
