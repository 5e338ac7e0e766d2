"""Every test of the sandbox runs with each mechanism there is."""

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
