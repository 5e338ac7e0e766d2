"""The environment that ``auto`` means."""

import json

import pytest

from calipers.errors import HarborError, InputError
from calipers.systems.harbor.trials.environment import (
    check_environment,
    check_podman,
    choose_environment,
    recorded_environment,
    remove_leftovers,
    settle_environment,
)

HARBOR = "echo 0.25.0"
NO_COMPOSE = "[ $1 = version ] && echo 27.0"
INFO_ALONE = "[ $1 = info ] && echo 4.3"  # as Podman before 4.7
PODMAN = 'case "$1 $2" in info*) echo 5.0 ;; "compose up") echo --detach ;; "compose ls") echo NAME ;; esac'
NO_SOCKET = 'case "$1 $2" in info*) echo 4.3 ;; "compose up") echo --detach ;; *) exit 1 ;; esac'
HANDS_OVER = 'case "$1 $2" in info*) echo 5.0 ;; "compose up") echo usage: podman-compose up ;; *) echo 1.3 ;; esac'
NO_PODMAN_COMPOSE = "Podman 4.3 answers, but neither podman compose nor podman-compose works, and Harbor needs one"


@pytest.fixture
def path(tmp_path, monkeypatch):
    """Put programs on a PATH that contains nothing else but the machine's shell."""

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
        ({"harbor": HARBOR}, "room", "neither Docker nor Podman answers"),
        ({"harbor": HARBOR, "docker": "exit 1"}, "room", "neither Docker nor Podman answers"),
        ({"harbor": HARBOR, "docker": "exit 0"}, "room", "neither Docker nor Podman answers"),  # it prints no version
        (
            {"harbor": HARBOR, "docker": NO_COMPOSE},
            "room",
            "Docker 27.0 answers, but has no compose plugin, which Harbor needs",
        ),
        ({"harbor": HARBOR, "podman": PODMAN}, "podman", "Podman 5.0 answers"),
        ({"harbor": HARBOR, "docker": "echo 27.0", "podman": PODMAN}, "docker", "Docker 27.0 answers"),
        ({"harbor": HARBOR, "podman": INFO_ALONE, "podman-compose": "echo 1.3"}, "podman", "Podman 4.3 answers"),
        (
            {"harbor": HARBOR, "podman": INFO_ALONE},
            "room",
            NO_PODMAN_COMPOSE,
        ),
        ({"harbor": HARBOR, "podman": INFO_ALONE, "podman-compose": "exit 2"}, "room", NO_PODMAN_COMPOSE),
        ({"harbor": HARBOR, "podman": NO_SOCKET, "podman-compose": "echo 1.3"}, "room", NO_PODMAN_COMPOSE),
        ({"harbor": HARBOR, "podman": HANDS_OVER}, "podman", "Podman 5.0 answers"),
        ({"harbor": HARBOR, "docker": "echo 5.0 Podman Engine", "podman": PODMAN}, "podman", "Podman 5.0 answers"),
        ({"harbor": HARBOR, "docker": "echo 5.0 Podman Engine"}, "room", "the docker command uses Podman's engine"),
    ],
)
def test_an_engine_is_chosen_where_it_and_harbor_answer(path, scripts, environment, why):
    path(**scripts)
    assert choose_environment("oracle") == (environment, why)
    assert choose_environment("command:true")[0] == "room"


@pytest.mark.parametrize(
    ("scripts", "why"),
    [
        ({}, "podman: podman does not answer ('podman info'); expected podman with podman-compose"),
        ({"podman": INFO_ALONE}, "podman: Podman 4.3 answers, but neither podman compose nor podman-compose"),
    ],
)
def test_a_podman_that_harbor_cannot_use_is_no_environment(path, scripts, why):
    path(**scripts)
    with pytest.raises(InputError) as refused:
        check_podman()
    assert f"--environment: {why}" in str(refused.value)


ENGINE = r"""echo "$@" >> {log}
case "$1 $2" in
ps*) echo "a__xyz__env-main-1 a__xyz__env"; echo "named a__xyz__verifier__trial"; echo "c c__xyz__env"; echo other ;;
network\ ls) echo a__xyz__env_default; echo bridge; echo a__xyz ;;
image\ ls) echo localhost/a__xyz__env_main; echo python ;;
esac"""


def test_what_a_killed_run_left_is_removed_and_nothing_else(tmp_path, path):
    log = tmp_path / "log"
    path(docker=ENGINE.format(log=log), podman=ENGINE.format(log=log))
    (tmp_path / "job" / "A__xYz").mkdir(parents=True)
    (tmp_path / "job" / "b__xYz").mkdir()
    for name, force in (("docker", "rm --force"), ("podman", "rm --force --time 0")):
        remove_leftovers(name, tmp_path / "job")
        removed = [line for line in log.read_text().splitlines() if "rm" in line.split()]
        assert removed == [
            f"{force} a__xyz__env-main-1 named",
            "network rm a__xyz__env_default",
            "image rm localhost/a__xyz__env_main",
        ]
        log.unlink()
    remove_leftovers("room", tmp_path / "job")
    remove_leftovers("docker", tmp_path / "nothing")
    assert not log.exists()


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
    assert settle_environment("oracle", [tmp_path]) == (environment, "this run was started in it")
    check_environment(tmp_path, environment)
    with pytest.raises(InputError, match=f"environment: {environment} here, e2b requested"):
        check_environment(tmp_path, "e2b")
