"""The libraries that exports are for, or no test; ``make test-exports`` brings them."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from waiting import PATIENCE

Reads = Callable[..., Any]


def needed(package: str) -> None:
    """Skip the test where a package is not installed."""
    if importlib.util.find_spec(package) is None:
        pytest.skip(f"{package} is not installed; make test-exports brings it")


@pytest.fixture
def reads(tmp_path: Path) -> Reads:
    """What a program that uses one of the libraries prints, as JSON; it runs in a process of its own."""

    def run(package: str, program: str, **environment: str) -> Any:
        needed(package)
        command = [sys.executable, "-W", "ignore", "-c", program]
        environment = {**os.environ, **environment}
        done = subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, timeout=PATIENCE, check=False
        )
        assert done.returncode == 0, done.stderr.decode()
        return json.loads(done.stdout.decode().splitlines()[-1])

    return run
