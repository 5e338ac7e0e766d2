"""``calipers check`` on a dataset of Harbor's, as a user runs it."""

from __future__ import annotations

import json
import shutil

import pytest
from cli.running import calipers, lines, refused
from cli.test_rescore import task as row
from rooms import needs_rooms
from systems.harbor.given import ARITH, dataset, task, write


@pytest.fixture
def place(tmp_path):
    dataset(tmp_path / "d", "a", "b", toml=None)
    assert calipers("init", "--dataset", "acme/d", "-o", "d", cwd=tmp_path).returncode == 0
    return tmp_path


def test_harbors_own_dataset(tmp_path):
    shutil.copytree(ARITH, tmp_path / "arith")
    done = calipers("check", "arith", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("arith: 6 tasks, no errors, digest ")
    one = calipers("check", "arith/fizz-buzz", cwd=tmp_path)
    assert one.stdout.startswith("acme/fizz-buzz: 1 task, no errors, digest sha256:")


def test_everything_wrong_is_listed_and_the_exit_code_says_so(place):
    task(place / "d" / "c", "agent = 1", **{"tests/x": ""})
    write(place / "d" / "a" / "instruction.md", "Other.\n")
    (place / "d" / "b" / "tests" / "leak").symlink_to("/etc/passwd")
    done = calipers("check", "d", cwd=place)
    assert done.returncode == 1
    found = done.stdout.splitlines()
    assert found[0] == "acme/d 1.0.0: 1 task, 3 errors:"
    assert [line.partition(";")[0].partition(" is ")[0] for line in found[1:4]] == [
        "d/c/task.toml:1: agent: expected a table, got an integer",
        "d/b/tests/leak:",
        "d/dataset.toml:12: the digest of acme/a",
    ]
    document = json.loads(calipers("check", "d", "--format", "json", cwd=place).stdout)
    assert (document["tasks"], len(document["faults"]), document["digest"]) == (1, 3, "")


WINDOWS = '[environment]\nos = "windows"\n'
NO_HARBOR = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "CALIPERS_HARBOR": ""}
GROUPS = """runs here: 1 of 6, in environment room (Harbor is not installed)
  3 cannot run: its image must be built, and CALIPERS_IMAGES is none (d, e, f)
  1 cannot run: needs an image that a room does not have: postgres:16 (b)
  1 cannot run: it is for windows (c)
with Harbor and a Docker engine: 5 of 6
"""


@needs_rooms
def test_it_says_how_many_tasks_run_here_and_why_not_the_others(tmp_path):
    install = {"environment/Dockerfile": "FROM ubuntu\nRUN apt-get install -y jq\n"}
    task(tmp_path / "d" / "a")
    task(tmp_path / "d" / "b", **{"environment/Dockerfile": "FROM postgres:16\n"})
    task(tmp_path / "d" / "c", WINDOWS, **{"tests/test.bat": ""})
    task(tmp_path / "d" / "d", **{"environment/Dockerfile": "FROM ubuntu\nRUN make\n"})
    task(tmp_path / "d" / "e", **install)
    task(tmp_path / "d" / "f", **install)
    done = calipers("check", "d", cwd=tmp_path, **NO_HARBOR)
    assert done.returncode == 0
    assert done.stdout.partition("\n")[2] == GROUPS
    document = json.loads(calipers("check", "d", "--format", "json", cwd=tmp_path, **NO_HARBOR).stdout)["runs_here"]
    assert (document["tasks"], document["with_docker"], document["environment"]) == (1, 5, "room")
    assert [group["tasks"] for group in document["declined"]] == [["d", "e", "f"], ["b"], ["c"]]
    named = calipers("check", "d", cwd=tmp_path, **{**NO_HARBOR, "CALIPERS_HARBOR": "/nonexistent/harbor"})
    assert "runs here: 1 of 6, in environment room (there is no program '/nonexistent/harbor'" in named.stdout


def test_with_docker_all_but_what_docker_cannot_do_runs_here(tmp_path):
    task(tmp_path / "d" / "a", **{"environment/Dockerfile": "FROM postgres:16\n"})
    task(tmp_path / "d" / "b", WINDOWS, **{"tests/test.bat": ""})
    for name, script in (("harbor", "echo 0.25.0"), ("docker", "echo 27.0")):
        write(tmp_path / "bin" / name, f"#!/bin/sh\n{script}\n").chmod(0o755)
    done = calipers("check", "d", cwd=tmp_path, PATH=f"{tmp_path / 'bin'}:/usr/bin:/bin", CALIPERS_HARBOR="")
    assert done.stdout.splitlines()[1:] == [
        "runs here: 1 of 2, in environment docker (Docker 27.0 answers)",
        "  1 cannot run: it is for windows (b)",
    ]


def test_with_podman_no_accelerator_is_lent(tmp_path):
    task(tmp_path / "d" / "a", **{"environment/Dockerfile": "FROM postgres:16\n"})
    task(tmp_path / "d" / "b", "[environment]\ngpus = 1\n")
    podman = '[ "$1" = info ] && echo 4.3'
    for name, script in (
        ("harbor", "echo 0.25.0"),
        ("podman", podman),
        ("podman-compose", "echo 1.3"),
        ("docker", "exit 1"),
    ):
        write(tmp_path / "bin" / name, f"#!/bin/sh\n{script}\n").chmod(0o755)
    done = calipers("check", "d", cwd=tmp_path, PATH=f"{tmp_path / 'bin'}:/usr/bin:/bin", CALIPERS_HARBOR="")
    assert done.stdout.splitlines()[1:] == [
        "runs here: 1 of 2, in environment podman (Podman 4.3 answers)",
        "  1 cannot run: it needs an accelerator that Harbor does not give to Podman (b)",
    ]


def test_fix(place):
    write(place / "d" / "a" / "instruction.md", "Other.\n")
    task(place / "d" / "c")
    done = calipers("check", "--fix", "d", cwd=place)
    assert done.returncode == 0
    assert done.stderr == "note: the digest of acme/a is computed again\nnote: acme/c is added\n"
    assert calipers("check", "d", cwd=place).stdout == done.stdout


def test_names_that_would_move_the_cursor(tmp_path):
    task(tmp_path / "d" / "a\x1b[2J", "agent = 1")
    done = calipers("check", "d", cwd=tmp_path)
    assert done.returncode == 1
    assert "\x1b" not in done.stdout + done.stderr


def test_a_registry_that_was_changed(place):
    assert calipers("publish", "d", "--registry", "reg", cwd=place).returncode == 0
    assert calipers("check", "acme/d", "--registry", "reg", cwd=place).returncode == 0
    stored = next(place.glob("reg/objects/*/a/instruction.md"))
    stored.write_text("Other.\n")
    said = refused("check", "acme/d", "--registry", "reg", cwd=place)
    assert said.startswith("reg/objects/")
    assert said.endswith("it was changed after it was published; publish it into a fresh registry")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["d", "--selftest"], "--selftest: d is a dataset; remove it: all tasks are checked, and none is run"),
        (["d", "--limit", "1"], "--limit: d is a dataset"),
        (["suite.jsonl", "--fix"], "suite.jsonl: is not a dataset, as --fix and --registry require"),
        (["acme/d@1", "--fix"], "--fix: there is no directory acme/d@1; a published dataset cannot be changed"),
        (["acme/d@1", "--registry", "none"], "none: is not a registry; expected a directory with registry.json"),
        (["acme/d@1"], "acme/d@1: no such file or directory"),
    ],
)
def test_what_is_wrong_is_one_line(place, arguments, said):
    lines(place, row("a", "4"), name="suite.jsonl")
    assert refused("check", *arguments, cwd=place).startswith(said)
