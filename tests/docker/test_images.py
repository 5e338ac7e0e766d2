"""Images of packages from the machine's own mirror, for rooms: no engine has a part in it."""

import json
import shutil

import pytest
from cli.running import calipers
from harbor_datasets import write_task

from calipers.systems.harbor.lent.image import PYTHONS, answers, mirrors

BENCH = """FROM ghcr.io/laude-institute/t-bench/ubuntu-24-04:20250624
RUN apt-get update && apt-get install -y --no-install-recommends jq && rm -rf /var/lib/apt/lists/*
WORKDIR /app
RUN echo '{"answer": 42}' > question.json
"""
PYTHON = """FROM python:3.11-slim
WORKDIR /app
RUN python -m venv --without-pip /opt/own && /opt/own/bin/python --version
RUN pip --version
"""
SOLVED = "#!/bin/sh\njq -j .answer question.json > answer.txt && command -v tmux\n"


def lacking():
    if shutil.which("mmdebstrap") is None:
        return "mmdebstrap is not installed"
    if not mirrors():
        return "apt is configured with no mirror"
    vendor = next(iter(mirrors()))
    return "" if answers(vendor, [*PYTHONS[vendor]][-1]) else "the mirror does not answer"


def test_bases_of_packages_and_steps_that_install_some(tmp_path, monkeypatch):
    if why := lacking():
        pytest.skip(why)
    monkeypatch.setenv("CALIPERS_IMAGES", str(tmp_path / "images"))
    write_task(tmp_path / "d", "bench", dockerfile=BENCH, solution=SOLVED)
    write_task(tmp_path / "d", "python", dockerfile=PYTHON)
    write_task(tmp_path / "d", "wrong", dockerfile=BENCH + "RUN apt-get install -y no-such-package\n", solution=SOLVED)
    done = calipers("run", "d", "--agent", "command:sh /app/solve 2>/dev/null; printf 42 > answer.txt", cwd=tmp_path)
    assert "built from packages (" in done.stdout
    options = ("--environment", "room", "--format", "json")
    done = calipers("run", "d", "--agent", "oracle", *options, cwd=tmp_path)  # by Harbor: it finds what is there
    (group,) = json.loads(done.stdout)["groups"]
    assert group["ledger"]["outcomes"] == {"scored": 2, "not_run": 1}, done.stderr
    assert group["metrics"]["mean_reward"]["value"] == 1.0
    assert (
        "wrong: not run: environment/Dockerfile:5: RUN apt-get install -y no-such-package failed with exit code 100"
        in done.stderr
    )
    assert len(list((tmp_path / "images" / "bases").iterdir())) == 2
