"""A real Ray cluster, or no test; ``make test-ray`` brings Ray."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from pathlib import Path

import pytest
from ray_runs import Commands, LocalCluster, ModelServer, digest, questions_in, run_of


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
def commands() -> Iterator[Commands]:
    """What starts commands; whatever becomes of the test, they end with it."""
    started = Commands()
    yield started
    started.end()


@pytest.fixture(scope="session")
def questions(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return questions_in(tmp_path_factory.mktemp("questions"))


@pytest.fixture(scope="session")
def local_digest(questions: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The digest of a run over the questions in one process."""
    server, commands, out = ModelServer(), Commands(), tmp_path_factory.mktemp("run") / "local"
    try:
        code, _, err = commands.done(*run_of(questions, server, out))
    finally:
        commands.end()
        server.close()
    assert code == 0, err
    return digest(out)
