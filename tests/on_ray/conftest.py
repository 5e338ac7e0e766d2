"""A real Ray cluster, or no test; ``make test-ray`` brings Ray."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from pathlib import Path

import pytest
from ray_runs import LocalCluster, ModelServer, questions_in


@pytest.fixture(autouse=True, scope="session")
def _ray() -> None:
    if importlib.util.find_spec("ray") is None:
        pytest.skip("ray is not installed; make test-ray brings it")


@pytest.fixture(scope="session")
def cluster() -> Iterator[LocalCluster]:
    """Three nodes; a test that ends one adds another."""
    started = LocalCluster(3)
    yield started
    started.end()


@pytest.fixture
def server() -> Iterator[ModelServer]:
    started = ModelServer()
    yield started
    started.go_on()
    started.close()


@pytest.fixture
def questions(tmp_path: Path) -> Path:
    return questions_in(tmp_path)
