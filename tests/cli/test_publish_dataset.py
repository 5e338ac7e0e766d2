"""``calipers publish`` on a dataset of Harbor's, as a user runs it."""

from __future__ import annotations

import json
import shutil

import pytest
from cli.running import calipers, refused
from systems.harbor.given import ARITH, dataset, task
from tasks.given import benchmark

from calipers.systems.harbor.registry import resolve


@pytest.fixture
def arith(tmp_path):
    shutil.copytree(ARITH, tmp_path / "arith")
    assert calipers("init", "--dataset", "acme/arith", "--with-metric", "-o", "arith", cwd=tmp_path).returncode == 0
    return tmp_path


def test_the_command_of_the_metrics_page(arith):
    done = calipers("publish", "arith", "--public", cwd=arith)
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert list(document) == ["name", "version", "digest", "status", "n_tasks", "files", "registry"]
    assert (document["status"], document["n_tasks"], document["files"]) == ("created", 6, ["metric.py"])
    assert done.stderr.splitlines() == [
        "note: acme/arith@1.0.0 is created; run it with calipers run acme/arith@1.0.0 --agent NAME",
        "note: --public has no effect: file permissions decide who can read a local registry",
    ]
    checked = calipers("check", "acme/arith@1.0.0", cwd=arith)
    first = checked.stdout.splitlines()[0]
    assert first == f"acme/arith 1.0.0: 6 tasks, no errors, digest {document['digest']}"


def test_into_a_registry_of_ones_own(arith):
    (arith / "arith" / "metric.py").write_text("print()\n")  # edited after init, as the page would have it
    done = calipers("publish", "arith", "--registry", "reg", cwd=arith)
    assert "note: arith/dataset.toml: the digest of metric.py is computed again\n" in done.stderr
    assert json.loads(done.stdout)["registry"] == "reg"
    assert resolve("acme/arith", arith / "reg").metric_script.read_text() == "print()\n"
    assert json.loads(calipers("publish", "arith", "--registry", "reg", cwd=arith).stdout)["status"] == "unchanged"
    (arith / "arith" / "add-two" / "instruction.md").write_text("Other.\n")
    said = refused("publish", "arith", "--registry", "reg", cwd=arith)
    assert said.startswith("arith/dataset.toml:5: acme/arith@1.0.0 is in reg with other content; increase the version")


def test_what_cannot_be_published(tmp_path):
    dataset(tmp_path / "plain", "a", toml=None)
    assert refused("publish", "plain", cwd=tmp_path) == (
        "plain: has no dataset.toml; calipers init --dataset ORG/NAME -o plain writes one"
    )
    task(tmp_path / "one")
    assert refused("publish", "one", cwd=tmp_path).startswith("one: is a task")
    benchmark(tmp_path)
    assert refused("publish", "arith", "--registry", "reg", cwd=tmp_path).startswith(
        "--registry: arith is not a dataset"
    )
