"""EvSys' rollouts: what they add up to, what they cost, and what Harbor would have to be there for."""

import asyncio
import inspect
from pathlib import Path

import pytest
from tasks.given import benchmark, row

from calipers.errors import CalipersError, UnknownName
from calipers.formats.rewards import Trajectory, TrajectoryGroup, Turn
from calipers.systems.evsys.benchmark import (
    Benchmark,
    BenchmarkTaskResult,
    HarborError,
    break_down,
    eval_metrics,
    run_benchmark,
)


def rollout(reward, **usage):
    return Trajectory([Turn([1], [2], [0.0])], reward, {"usage": usage} if usage else {})


ROLLOUTS = [
    TrajectoryGroup([rollout(1, latency_s=1, prompt_tokens=5, completion_tokens=2, cost_usd=0.01)]),
    TrajectoryGroup([]),
    TrajectoryGroup([rollout(0, latency_s=2, prompt_tokens=10, completion_tokens=None), rollout(1)]),
]


def test_rewards_and_costs():  # a task without a rollout is in none of the numbers
    found = eval_metrics(ROLLOUTS)
    assert list(found) == [
        *("n_tasks", "mean_reward", "pass_rate", "time_per_task", "tokens_per_task", "cost_per_task"),
    ]
    assert list(found.values()) == pytest.approx([2.0, 0.75, 2 / 3, 1.5, 8.5, 0.01], rel=0, abs=1e-12)


def test_a_breakdown_counts_a_task_without_a_rollout_as_0():
    rewards = [sum(group.rewards) / len(group.rewards) if group.rewards else 0.0 for group in ROLLOUTS]
    per_task = [BenchmarkTaskResult(n, "q", "", None, reward) for n, reward in enumerate(rewards)]
    assert break_down(per_task, ["k"]) == {
        "k": {"__missing__": {"n": 3.0, "mean_reward": 0.5, "pass_rate": pytest.approx(1 / 3)}}
    }


@pytest.mark.parametrize("groups", [[], [TrajectoryGroup([])]])
def test_nothing(groups):
    assert eval_metrics(groups) == {"n_tasks": 0.0, "mean_reward": 0.0, "pass_rate": 0.0}


@pytest.mark.parametrize(
    ("usage", "costs"),
    [
        ({}, {}),  # nobody reported anything: no key
        ({"latency_s": None, "prompt_tokens": None, "completion_tokens": None, "cost_usd": None}, {}),
        ({"prompt_tokens": 0, "completion_tokens": None}, {"tokens_per_task": 0.0}),  # one of the two is enough
        ({"cached_tokens": 7}, {}),  # adds up to nothing
    ],
)
def test_what_was_not_reported_is_left_out(usage, costs):
    found = eval_metrics([TrajectoryGroup([rollout(1, **usage)])], metrics=["pass@3"])
    assert found == {"n_tasks": 1.0, "pass@3": 1.0, **costs}


def test_costs_are_means_over_samples_then_tasks():
    groups = [
        TrajectoryGroup([rollout(1, latency_s=1), rollout(1, latency_s=3), rollout(1)]),
        TrajectoryGroup([rollout(0, latency_s=10)]),
        TrajectoryGroup([rollout(0)]),
    ]
    assert eval_metrics(groups)["time_per_task"] == 6.0


def test_metrics_are_asked_for_by_evsys_names():
    assert eval_metrics(ROLLOUTS, metrics="avg")["avg"] == 0.75
    with pytest.raises(UnknownName, match="no evsys metric named 'solved_rate'"):
        eval_metrics(ROLLOUTS, metrics=["solved_rate"])


@pytest.fixture
def no_harbor(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CALIPERS_HARBOR", raising=False)
    return tmp_path


def via_harbor(bench=None, **asked):
    bench = bench or Benchmark.from_iterable("b", [row()])
    return asyncio.run(bench.score_via_harbor(**{"model_name": "m", "workspace_dir": Path("w"), **asked}))


@pytest.mark.parametrize(
    ("asked", "kind", "said"),
    [
        ({"workspace_dir": "w"}, TypeError, "workspace_dir is 'w'; expected a pathlib.Path"),
        ({"model_client": "litelm"}, ValueError, "no model_client named 'litelm'; did you mean 'litellm'?"),
        ({"model_client": "tinker"}, ValueError, "model_client is 'tinker' but there is no model_path; "),
        ({"model_client": "litellm", "metrics": ["pass@5"]}, ValueError, "no evsys metric named 'pass@5'"),
    ],
)
@pytest.mark.usefixtures("no_harbor")
def test_what_is_asked_is_checked_first(asked, kind, said):
    with pytest.raises(kind) as caught:
        via_harbor(**asked)
    assert isinstance(caught.value, CalipersError)
    assert str(caught.value).startswith(said)


@pytest.mark.usefixtures("no_harbor")
def test_verifiers_are_checked_first():  # EvSys gives the reward 0.0, as if the model were at fault
    verifier = {"kind": "in_process", "fn_name": "exact_mach"}
    with pytest.raises(ValueError, match="Unknown verifier fn 'exact_mach'"):
        via_harbor(Benchmark.from_iterable("b", [row(verifier=verifier)]), model_client="litellm")
    with pytest.raises(NotImplementedError, match="E2BVerifier"):
        via_harbor(Benchmark.from_iterable("b", [row(verifier={"kind": "e2b"})]), model_client="litellm")


@pytest.mark.usefixtures("no_harbor")
def test_no_tasks_need_no_harbor():  # as `score` with a limit of 0 needs no client
    assert via_harbor(model_client="litellm", limit=0).metrics == {
        "n_tasks": 0.0,
        "mean_reward": 0.0,
        "pass_rate": 0.0,
    }


def test_a_job_factory_gives_a_directory(tmp_path):
    with pytest.raises(HarborError, match="the job factory gave 'nowhere'; expected the directory of a job"):
        via_harbor(model_client="litellm", workspace_dir=tmp_path, _job_factory=lambda config: "nowhere")


def test_without_harbor_it_says_so(no_harbor, monkeypatch):
    said = "there is no program 'harbor'; install Harbor or say where it is in CALIPERS_HARBOR"
    with pytest.raises(HarborError) as caught:
        via_harbor(model_client="litellm")
    assert str(caught.value) == said
    with pytest.raises(HarborError) as caught:
        run_benchmark(Benchmark.from_iterable("b", [row()]), model="openai/m")
    assert str(caught.value) == said
    monkeypatch.setenv("CALIPERS_HARBOR", "harbor-0.13")
    with pytest.raises(HarborError, match=r"there is no program 'harbor-0\.13'"):
        via_harbor(model_client="tinker", model_path="checkpoint")
    assert list(no_harbor.iterdir()) == []  # nothing was begun


@pytest.mark.usefixtures("no_harbor")
def test_run_benchmark_within_a_running_loop(tmp_path):
    async def main():
        run_benchmark(model="m", path=benchmark(tmp_path))

    with pytest.raises(HarborError):
        asyncio.run(main())


@pytest.mark.parametrize(
    ("asked", "kind", "said"),
    [
        ({}, ValueError, "no benchmark is given; expected a Benchmark, or path=, id= or name="),
        ({"path": "absent"}, FileNotFoundError, "benchmark dir not found: absent"),
        ({"name": "absent"}, FileNotFoundError, "no benchmark named 'absent' in this project"),
        ({"id": "absent"}, FileNotFoundError, "benchmark absent not found"),
        ({"id": "absent", "store": 5}, TypeError, "the store is a int; "),
    ],
)
def test_run_benchmark_needs_one(tmp_path, monkeypatch, asked, kind, said):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(kind) as caught:
        run_benchmark(model="m", **asked)
    assert isinstance(caught.value, CalipersError)
    assert str(caught.value).startswith(said)


def test_the_signature_of_run_benchmark():
    found = inspect.signature(run_benchmark).parameters.values()
    assert [one.name for one in found if one.kind is one.POSITIONAL_OR_KEYWORD] == ["benchmark"]
    assert {one.name: one.default for one in found if one.default is not one.empty} == {
        **{"benchmark": None, "path": None, "id": None, "name": None, "num_samples": 1, "max_tokens": 512},
        **{"temperature": 0.0, "system_prompt": None, "limit": None, "n_concurrent": 8, "workspace_dir": None},
        **{"store": None, "run_id": None, "eval_id": None},
    }
    assert inspect.signature(run_benchmark).parameters["model"].default is inspect.Parameter.empty
