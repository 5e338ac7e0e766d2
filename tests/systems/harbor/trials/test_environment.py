"""Where trials are run when nobody says it."""

import json

import pytest

from calipers.errors import HarborError, InputError
from calipers.systems.harbor.trials.environment import (
    check_environment,
    choose_environment,
    recorded_environment,
    settle_environment,
)

HARBOR = "echo 0.25.0"
NO_COMPOSE = "[ $1 = version ] && echo 27.0"


@pytest.fixture
def path(tmp_path, monkeypatch):
    """Put programs on a path that has no others but the machine's shell."""

    def put(**scripts):
        folder = tmp_path / "programs"
        folder.mkdir()
        for name, script in scripts.items():
            (folder / name).write_text(f"#!/bin/sh\n{script}\n")
            (folder / name).chmod(0o755)
        monkeypatch.setenv("PATH", str(folder))

    monkeypatch.delenv("CALIPERS_HARBOR", raising=False)
    return put


@pytest.mark.parametrize(
    ("scripts", "environment", "why"),
    [
        ({"harbor": HARBOR, "docker": "echo 27.0"}, "docker", "Docker 27.0 answers"),
        ({"docker": "echo 27.0"}, "room", "Harbor is not installed"),
        ({"harbor": HARBOR}, "room", "no Docker engine answers"),
        ({"harbor": HARBOR, "docker": "exit 1"}, "room", "no Docker engine answers"),
        ({"harbor": HARBOR, "docker": "exit 0"}, "room", "no Docker engine answers"),  # it prints no version
        (
            {"harbor": HARBOR, "docker": NO_COMPOSE},
            "room",
            "Docker 27.0 answers, but has no compose plugin, which Harbor needs",
        ),
    ],
)
def test_docker_is_chosen_where_it_and_harbor_answer(path, scripts, environment, why):
    path(**scripts)
    assert choose_environment("oracle") == (environment, why)
    assert choose_environment("command:true")[0] == "room"


def test_a_harbor_that_was_named_must_be_there(path, monkeypatch):
    path(docker="echo 27.0")
    monkeypatch.setenv("CALIPERS_HARBOR", "/nonexistent/harbor")
    with pytest.raises(HarborError, match="there is no program"):
        choose_environment("oracle")


ROOM = {"import_path": "calipers_harbor.environment:RoomEnvironment", "type": None}


@pytest.mark.parametrize(
    ("settings", "environment"),
    [
        (ROOM, "room"),
        ({"import_path": "calipers.systems.harbor.trials.run"}, "room"),
        ({"type": "docker"}, "docker"),
        ({"type": "podman"}, "podman"),
        ({}, "docker"),  # Harbor's own default
        (None, "docker"),  # which it does not write down
    ],
)
def test_a_job_says_where_it_ran(tmp_path, path, settings, environment):
    path(harbor=HARBOR, docker="echo 27.0")
    assert recorded_environment(tmp_path) is None
    (tmp_path / "1").mkdir()
    (tmp_path / "1" / "config.json").write_text(json.dumps({} if settings is None else {"environment": settings}))
    assert recorded_environment(tmp_path) == environment
    assert settle_environment("oracle", [tmp_path]) == (environment, "this run began in it")
    check_environment(tmp_path, environment)
    with pytest.raises(InputError, match=f"environment: {environment} here, e2b requested"):
        check_environment(tmp_path, "e2b")
