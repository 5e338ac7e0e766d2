"""These tests run the real Harbor, which ``make test-harbor`` installs."""

import os

import pytest


def pytest_collection_modifyitems(items):
    if not os.environ.get("CALIPERS_HARBOR"):
        for item in items:
            if "tests/harbor/" in item.path.as_posix():
                item.add_marker(pytest.mark.skip(reason="Harbor is not here: make test-harbor installs it"))


@pytest.fixture(autouse=True)
def no_container_engine(monkeypatch):
    """Runs without an environment use a room, even if the machine has an engine."""
    monkeypatch.setenv("DOCKER_HOST", "unix:///nonexistent/docker.sock")
    monkeypatch.setenv("CONTAINERS_CONF", "/nonexistent/containers.conf")
