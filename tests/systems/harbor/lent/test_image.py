"""Images without an engine: the base for an image's name, and the keys of layers."""

import os

import pytest

from calipers.systems.harbor.lent.dockerfile import read_environment
from calipers.systems.harbor.lent.image import _keys, base_image, failed_before, grouped, unbuildable

BENCH = "ghcr.io/laude-institute/t-bench/"


@pytest.mark.parametrize(
    ("image", "vendor", "suite", "python", "differs"),
    [
        ("debian", "debian", "trixie", "", ""),
        ("docker.io/library/debian:bookworm-slim", "debian", "bookworm", "", ""),
        ("debian:11@sha256:ab", "debian", "bullseye", "", ""),
        ("ubuntu:24.04", "debian", "trixie", "", "which is close to Ubuntu noble"),
        ("ubuntu:jammy", "debian", "bookworm", "", "which is close to Ubuntu jammy"),
        ("ubuntu:24.04", "ubuntu", "noble", "", ""),
        ("debian:12", "ubuntu", "jammy", "", "which is close to Debian bookworm"),
        ("python:3.11-slim", "debian", "bookworm", "3.11", ""),
        ("python:3.12-slim", "ubuntu", "noble", "3.12", ""),
        ("python:3.12.4-slim-bookworm", "debian", "trixie", "3.13", "which replaces Python 3.12"),
        ("python:3.14", "debian", "trixie", "3.13", "which replaces Python 3.14"),
        ("python:3.12-slim", "debian+ubuntu", "noble", "3.12", ""),
        ("ubuntu:22.04", "debian+ubuntu", "jammy", "", ""),
        ("debian:12", "ubuntu+debian", "bookworm", "", ""),
        ("python:slim", "debian", "trixie", "3.13", ""),
        (f"{BENCH}ubuntu-24-04:20250624", "debian", "trixie", "", "which is close to Ubuntu noble"),
        (f"{BENCH}python-3-13:20250620", "debian", "trixie", "3.13", ""),
    ],
)
def test_names_that_packages_make(image, vendor, suite, python, differs):
    base = base_image(image, vendor.split("+"))
    assert (base.image, base.suite, base.python, base.differs) == (image, suite, python, differs)
    assert ("tmux" in base.packages) == image.startswith(BENCH)
    assert differs in base.words


@pytest.mark.parametrize(
    "image", ["postgres:16", "alpine", "python:3.12-alpine", "python:2.7", "me/ubuntu", "debian:8"]
)
def test_names_that_they_do_not(image):
    assert base_image(image, ["debian"]) is None


def keys(folder, text):
    (folder / "Dockerfile").write_text(f"FROM debian\n{text}\n")
    return [key for key, _ in _keys(read_environment(folder).image)]


def test_a_layer_is_kept_under_all_that_it_is_made_of(tmp_path):
    (tmp_path / "a").write_text("1")
    text = "RUN make\nCOPY a /a\nENV X=1\nRUN test"
    before = keys(tmp_path, text)
    assert len(set(before)) == 3
    assert keys(tmp_path, f"# a comment moves every line\n{text}") == before
    assert keys(tmp_path, text.replace("X=1", "X=2"))[:2] == before[:2]  # what comes later changes nothing before
    assert keys(tmp_path, text.replace("X=1", "X=2"))[2] != before[2]
    assert keys(tmp_path, f"RUN first\n{text}")[1] != before[0]  # the same step over something else
    assert keys(tmp_path, text.replace("debian", "debian:12")) == before
    (tmp_path / "a").chmod(0o755)
    assert [here == there for here, there in zip(keys(tmp_path, text), before, strict=True)] == [True, False, False]
    (tmp_path / "a").chmod(0o644)
    (tmp_path / "a").write_text("2")
    assert [here == there for here, there in zip(keys(tmp_path, text), before, strict=True)] == [True, False, False]
    (tmp_path / "a").write_text("1")
    os.utime(tmp_path / "a", (0, 0))
    assert keys(tmp_path, text) == before  # when it was written does not count


def test_what_is_copied_between_two_commands_is_one_layer(tmp_path):
    (tmp_path / "a").write_text("")
    (tmp_path / "Dockerfile").write_text("FROM debian\nWORKDIR /w\nCOPY a a\nRUN x\nRUN y\nCOPY a b\nWORKDIR /v\n")
    groups = grouped(read_environment(tmp_path).image.steps)
    assert [[step.text.split()[0] for step in group] for group in groups] == [
        ["WORKDIR", "COPY"],
        ["RUN"],
        ["RUN"],
        ["COPY", "WORKDIR"],
    ]


def test_why_an_image_cannot_be_built(tmp_path, monkeypatch):
    (tmp_path / "Dockerfile").write_text("FROM debian\nRUN make\n")
    plan = read_environment(tmp_path).image
    assert unbuildable(plan) == "its image must be built, and CALIPERS_IMAGES is none"
    assert failed_before(plan) is None
    monkeypatch.setenv("CALIPERS_IMAGES", str(tmp_path / "images"))
    monkeypatch.setenv("PATH", str(tmp_path))
    why = "only root can do that" if os.geteuid() else "mmdebstrap is not installed"
    assert unbuildable(plan) == f"its image must be built, and {why}"
    monkeypatch.setenv("CALIPERS_MIRRORS", "ubunto=http://127.0.0.1/")
    why = "CALIPERS_MIRRORS contains 'ubunto=http://127.0.0.1/'; expected debian=URL"
    assert os.geteuid() or why in unbuildable(plan)
