"""The tiny checkpoints, built once; tests are skipped with a reason if they cannot be built."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

import pytest
from hf import tiny

os.environ.setdefault("OMP_NUM_THREADS", "1")  # of torch: with models this small, more threads only wait for each other


@pytest.fixture(scope="session")
def packages() -> None:
    """Skip the test unless torch and transformers are installed."""
    for package in ("torch", "transformers"):
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"{package} is not installed; make test-hf brings it")


@pytest.fixture(scope="session")
def checkpoints(packages: None, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Paths by kind: those of `tiny.LENGTH`, and "chatty", a llama with a chat template."""
    home: Path = tmp_path_factory.mktemp("checkpoints")
    found = {kind: tiny.build(home / kind, kind) for kind in tiny.LENGTH}
    return found | {"chatty": tiny.build(home / "chatty", "llama", chats=True)}
