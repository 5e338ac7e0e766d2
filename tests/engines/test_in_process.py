"""The driver and the workers of a cluster, in one process: a stand-in for Ray whose actors are plain objects.

`tests/on_ray` tests them on a real cluster; these tests run where Ray is not installed.
"""

from __future__ import annotations

import asyncio
import json
import sys
from types import ModuleType, SimpleNamespace

import pytest

import calipers
from calipers.analyses.rescore import Rescoring, rejudge

MODEL = """
from calipers.clients import Completion

def answer(prompt):
    return str(int(prompt) % 3)

class Counted:
    notes = ["it counts"]

    async def complete(self, request):
        return Completion(str(int(request.prompt) % 3), usage={"output_tokens": 1})
"""


class LostError(Exception):
    """A worker was lost, in the words of the cluster."""


class Actor:
    """An actor in this process. Its ``exchange`` fails as often as ``failures`` says."""

    def __init__(self, instance, failures):
        self._instance, self._failures = instance, failures

    def __getattr__(self, name):
        async def call(*arguments):
            if name == "exchange" and self._failures and self._failures.pop():
                raise LostError
            return await getattr(self._instance, name)(*arguments)

        return SimpleNamespace(remote=lambda *arguments: asyncio.ensure_future(call(*arguments)))


class Task:
    """A function on the cluster, or the class of an actor."""

    def __init__(self, code, failures):
        self._code, self._failures = code, failures

    def options(self, **_):
        return self

    def remote(self, *arguments):
        made = self._code(*arguments)
        return Actor(made, self._failures) if isinstance(self._code, type) else (made,)


@pytest.fixture
def failures(monkeypatch, tmp_path):
    """A cluster of two machines; the list says for each exchange, from the last on, whether its worker is lost."""
    failures = []
    ray, strategies = ModuleType("ray"), ModuleType("ray.util.scheduling_strategies")
    machine = {"Resources": {"CPU": 2.0}, "Alive": True}
    ray.is_initialized = lambda: True
    ray.nodes = lambda: [{"NodeID": name, **machine} for name in ("a", "b")]
    ray.remote = lambda code: Task(code, failures)
    ray.kill = lambda actor: None
    ray.wait = lambda references, **_: (references[:1], references[1:])
    ray.get = lambda reference: reference[0]
    ray.exceptions = SimpleNamespace(RayError=LostError, WorkerCrashedError=LostError)
    strategies.NodeAffinitySchedulingStrategy = lambda node, soft: node
    for name, module in (("ray", ray), ("ray.util", ModuleType("ray.util")), (strategies.__name__, strategies)):
        monkeypatch.setitem(sys.modules, name, module)
    for name in ("RAY_gcs_rpc_server_reconnect_timeout_s", "RAY_USAGE_STATS_ENABLED", "CALIPERS_CORES"):
        monkeypatch.setenv(name, "1")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "m.py").write_text(MODEL)
    (tmp_path / "qa.csv").write_text("question,answer\n" + "".join(f"{n},{n % 2}\n" for n in range(12)))
    return failures


def run(model, out, **more):
    return calipers.run("qa.csv", f"python/m.py:{model}", samples=2, out=out, **more)


@pytest.mark.usefixtures("failures")
@pytest.mark.parametrize("model", ["answer", "Counted"])
def test_a_run_on_a_cluster_gives_the_digest_of_one_process(model):
    here, there = run(model, "here"), run(model, "there", engine="ray")
    assert there.digest == here.digest
    assert there.groups[0].ledger.scored == 24


@pytest.mark.parametrize(("lost", "asked_again"), [(1, True), (2, True), (3, True), (0, False)])
def test_what_is_lost_with_its_worker_is_done_again(failures, tmp_path, lost, asked_again):
    failures += [True] * lost
    there = run("answer", "there", engine="ray")
    rows = [json.loads(line) for line in (tmp_path / "there" / "rollouts.jsonl").read_text().splitlines()]
    assert there.digest == run("answer", "here").digest
    assert any("asked_again" in row for row in rows) == asked_again


@pytest.mark.usefixtures("failures")
def test_a_rescore_on_a_cluster_judges_as_one_process_does():
    run("answer", "first")
    here, there = (rejudge(Rescoring("first", verifier="contains", engine=engine)) for engine in (None, "ray"))
    assert there.after.digest == here.after.digest
    assert there.judged == here.judged == 24


@pytest.mark.usefixtures("failures")
def test_files_that_a_cluster_reads_give_the_digest_of_one_process(tmp_path):
    for part in range(3):
        rows = ({"task": f"t{task}", "sample": part, "reward": (task + part) % 2} for task in range(5))
        (tmp_path / f"{part}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    files = [str(tmp_path / f"{part}.jsonl") for part in range(3)]
    metrics = ["mean_reward", "pass@2"]
    assert calipers.score(files, metrics, engine="ray").digest == calipers.score(files, metrics).digest
