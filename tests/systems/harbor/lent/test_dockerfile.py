"""The parts of a Dockerfile that a room provides, and those that need an image."""

import platform

import pytest

from calipers.systems.harbor.lent.dockerfile import MACHINES, dockerfile_fault, read_environment

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
        ("FROM\tdebian\nWORKDIR\t/w\nENV\tA=1\nENV B\ttwo\n", "/w", {"A": "1", "B": "two"}, []),
        ("FROM debian\nCOPY run.sh /x\nENV A=1\nFROM debian\nENV B=2\n", "/app", {"B": "2"}, []),  # the last stage
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
        ("FROM --platform=linux/s390x debian\n", "it is built for linux/s390x, which is not this machine's platform"),
        ("FROM ghcr.io/org/tool@sha256:ab\n", "it needs the image ghcr.io/org/tool@sha256:ab"),
        ("FROM alpine\nRUN apk add jq\n", "it needs the image alpine"),
        ("FROM someone/ubuntu\nRUN make\n", "it needs the image someone/ubuntu"),
        ("FROM debian\nRUN a\nFROM debian\nRUN b\n", "environment/Dockerfile has several stages"),
        ("RUN make\n", "environment/Dockerfile has no FROM"),
        (
            "FROM debian\nRUN --mount=type=secret,id=x make\n",
            "environment/Dockerfile contains RUN --mount=type=secret,id=x make",
        ),
        ("FROM debian\nONBUILD RUN make\n", "environment/Dockerfile contains ONBUILD RUN make"),
        ("FROM debian\nCOPY --from=build /x /x\n", "environment/Dockerfile contains COPY --from=build /x /x"),
        ("FROM debian\nRUN a\nCOPY ../x /x\n", "environment/Dockerfile contains COPY ../x /x, and ../x does not exist"),
        ("FROM debian\nCOPY gone /x\n", "environment/Dockerfile contains COPY gone /x, and gone does not exist"),
        ("FROM debian\nADD https://example.org/x /x\n", "environment/Dockerfile contains ADD https://example.org/x /x"),
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


@pytest.mark.parametrize(
    ("text", "commands"),
    [
        ("RUN apt-get install -y jq", ["/bin/sh -c 'apt-get install -y jq'"]),
        ("RUN a && \\\n  # why\n\n  b", ["/bin/sh -c 'a &&    b'"]),
        ('RUN ["make", "a b"]', ["make 'a b'"]),
        ('RUN ["not json]', ["/bin/sh -c '[\"not json]'"]),  # as Docker: then it is a line for a shell
        ('SHELL ["/bin/bash", "-ec"]\nRUN a', ["/bin/bash -ec a"]),
        ("RUN <<EOF\na\n# b\nEOF\nRUN c", ["/bin/sh -c 'a\n# b\n'", "/bin/sh -c c"]),
        ("RUN cat <<-'E' > x\n\ta\n\tE\nRUN c", ["/bin/sh -c 'cat <<-'\"'\"'E'\"'\"' > x\na\nE'", "/bin/sh -c c"]),
        ("RUN echo '<<EOF' $((1 << 2)) <<< x", ["/bin/sh -c 'echo '\"'\"'<<EOF'\"'\"' $((1 << 2)) <<< x'"]),
        ("RUN --mount=type=cache,target=/var/cache a", ["/bin/sh -c a"]),
        ("RUN a \f b \u2028 c", ["/bin/sh -c 'a \f b \u2028 c'"]),  # only a newline ends a line
    ],
)
def test_commands_of_a_build(tmp_path, text, commands):
    found = recipe(tmp_path, f"FROM debian\n{text}\n")
    assert found.declined is None
    assert [step.command for step in found.image.steps] == commands


def test_what_a_step_finds(tmp_path):
    text = """ARG TAG=12
FROM debian:${TAG}-slim
ARG NAME=app OTHER
ENV A=1 B="$NAME-${NONE:-none}" C='$NAME'
ENV PATH=/opt/bin:$PATH
WORKDIR /w
WORKDIR $B
RUN useradd $NAME
USER $NAME:users
RUN make
"""
    found = recipe(tmp_path, text)
    workdir, _, useradd, make = found.image.steps
    assert found.image.base.image == "debian:12-slim"
    assert (workdir.workdir, useradd.workdir, found.workdir) == ("/w", "/w/app-none", "/w/app-none")
    assert found.env == {
        "A": "1",
        "B": "app-none",
        "C": "$NAME",
        "PATH": "/opt/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    }
    assert make.env == {**found.env, "TAG": "12", "NAME": "app", "OTHER": ""}
    assert (useradd.user, make.user, found.user) == (None, "app", "app")


def test_files_of_a_build(tmp_path):
    text = """FROM debian
RUN true
WORKDIR /w
COPY --chown=a:b --chmod=755 run.sh bin/
COPY data/*.csv /in
COPY data /in/
COPY --chown=a --chmod=755 <<A <<'B' /texts/
$HOME ${X:-y}
A
$HOME
B
"""
    _, _, *steps = recipe(tmp_path, text).image.steps
    copies = [(copied.source, copied.target, copied.owner, copied.mode) for step in steps for copied in step.copies]
    assert copies == [
        ("run.sh", "/w/bin/run.sh", "a:b", "755"),
        ("data/in.csv", "/in", "", ""),
        ("data", "/in", "", ""),
    ]
    assert steps[-1].files == {"/texts/A": " y\n", "/texts/B": "$HOME\n"}
    assert steps[-1].command == "chown a -- /texts/A /texts/B && chmod 755 -- /texts/A /texts/B"


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("FROM debian\nENV A='1\n", "2: ENV has a ' that is not closed; expected another '"),
        ('FROM debian\n\nCOPY "run.sh /x\n', '3: COPY has a " that is not closed; expected another "'),
        ("FROM debian\nRUN a\nWORKDIR /it's\n", "3: WORKDIR has a ' that is not closed; expected another '"),
        ("FROM debian\nRUN <<EOF\na\n", "2: <<EOF is not closed; expected a line EOF"),
        ("FROM debian\nRUN echo 'a\nb'\n", "3: B' is not an instruction; expected for example RUN"),
        ("FROM debian\nENV\n", "2: ENV sets nothing; expected NAME=VALUE"),
    ],
)
def test_what_nobody_can_read_has_a_place(tmp_path, text, place):
    declined = recipe(tmp_path, text).declined
    assert declined == f"{tmp_path}/environment/Dockerfile:{place}"
    assert dockerfile_fault(tmp_path / "environment") == declined


def test_two_stars_are_one_as_in_docker(tmp_path):
    (step,) = recipe(tmp_path, "FROM debian\nCOPY data/**.csv /in/\n").image.steps
    assert [(copied.source, copied.target) for copied in step.copies] == [("data/in.csv", "/in/in.csv")]


@pytest.mark.parametrize("name", ["x" * 300, "a\0b", "loop"])
def test_a_source_that_cannot_be_is_one_that_is_not_there(tmp_path, name):
    (tmp_path / "environment").mkdir()
    (tmp_path / "environment" / "loop").symlink_to("loop")
    (tmp_path / "environment" / "Dockerfile").write_text(f"FROM debian\nCOPY {name} /in/\n")
    assert read_environment(tmp_path / "environment").declined.endswith(f", and {name} does not exist")
