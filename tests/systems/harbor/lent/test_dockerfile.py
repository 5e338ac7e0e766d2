"""What a Dockerfile asks of a room, and what only an image can give."""

import platform

import pytest

from calipers.systems.harbor.lent.dockerfile import MACHINES, read_environment

OWN = MACHINES[platform.machine()]


def recipe(tmp_path, text, **more):
    folder = tmp_path / "environment"
    (folder / "data").mkdir(parents=True)
    (folder / "data" / "in.csv").write_text("1\n")
    (folder / "run.sh").write_text("#!/bin/sh\n")
    if text is not None:
        (folder / "Dockerfile").write_text(text)
    return read_environment(folder, **more)


@pytest.mark.parametrize(
    ("text", "workdir", "env", "copies"),
    [
        ("FROM python:3.12-slim\nWORKDIR /app\n", "/app", {}, []),
        ("FROM docker.io/library/ubuntu:24.04\n", "/app", {}, []),
        ("FROM --platform=$BUILDPLATFORM debian AS base\n", "/app", {}, []),
        (f"FROM --platform=linux/{OWN} python:3.12\n", "/app", {}, []),
        ("FROM debian\nWORKDIR /srv\nWORKDIR work\n", "/srv/work", {}, []),  # a relative one is below the last
        (
            "FROM debian\nENV A=1 B='two words'\nENV C three words\n",
            "/app",
            {"A": "1", "B": "two words", "C": "three words"},
            [],
        ),
        ("FROM debian\nWORKDIR /w\nCOPY . .\n", "/w", {}, [(".", "/w")]),
        ("FROM debian\nCOPY run.sh /usr/local/bin/go\n", "/app", {}, [("run.sh", "/usr/local/bin/go")]),
        (
            "FROM debian\nCOPY run.sh data/in.csv /in/\n",
            "/app",
            {},
            [("run.sh", "/in/run.sh"), ("data/in.csv", "/in/in.csv")],
        ),
        ('FROM debian\nCOPY ["run.sh", "."]\n', "/app", {}, [("run.sh", "/app/run.sh")]),
        ('# a comment\nFROM debian\nLABEL a=b \\\n  c=d\nCMD ["bash"]\n', "/app", {}, []),
        (None, "/app", {}, [(".", "/app")]),  # no recipe at all: what lies there is brought along
    ],
)
def test_what_is_followed(tmp_path, text, workdir, env, copies):
    found = recipe(tmp_path, text)
    assert (found.workdir, found.env, found.copies, found.declined) == (workdir, env, copies, None)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("FROM postgres:16\n", "it needs the image postgres:16"),
        (f"FROM --platform=linux/{OWN} postgres:16 AS db\n", "it needs the image postgres:16"),
        ("FROM --platform=linux/s390x debian\n", "it is built for linux/s390x, and this machine is another"),
        ("FROM ghcr.io/org/tool@sha256:ab\n", "it needs the image ghcr.io/org/tool@sha256:ab"),
        ("FROM debian\nRUN apt-get install -y jq\n", "environment/Dockerfile says RUN apt-get install -y jq"),
        ("FROM debian\nUSER app\n", "environment/Dockerfile says USER app"),
        ("FROM debian\nCOPY --from=build /x /x\n", "environment/Dockerfile says COPY --from=build /x /x"),
        ("FROM debian\nCOPY ../secret /x\n", "environment/Dockerfile says COPY ../secret /x"),
        ("FROM debian\nADD https://example.org/x /x\n", "environment/Dockerfile says ADD https://example.org/x /x"),
    ],
)
def test_what_needs_an_image(tmp_path, text, why):
    assert recipe(tmp_path, text).declined == why


def test_an_image_by_name(tmp_path):
    assert recipe(tmp_path, None, docker_image="org/image:1").declined == "it needs the image org/image:1"


def test_compose(tmp_path):
    (tmp_path / "environment").mkdir()
    (tmp_path / "environment" / "docker-compose.yaml").write_text("services: {}\n")
    assert read_environment(tmp_path / "environment").declined == "it needs docker compose"


def test_the_task_has_the_last_word_on_where(tmp_path):
    assert recipe(tmp_path, "FROM debian\nWORKDIR /a\n", workdir="/b").workdir == "/b"
