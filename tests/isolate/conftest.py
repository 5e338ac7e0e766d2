"""Runs every test of the sandbox with each mechanism of this machine."""

from __future__ import annotations

import pytest

from calipers.isolate import Mechanism
from calipers.isolate.launch import NAMES, attempt


@pytest.fixture(params=NAMES)
def mechanism(request: pytest.FixtureRequest) -> Mechanism:
    found = attempt(request.param)
    if not isinstance(found, Mechanism):
        pytest.skip(found)
    return found
