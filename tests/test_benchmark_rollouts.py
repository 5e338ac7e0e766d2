"""EvSys' rollouts: what they add up to, what they cost, and what Harbor would have to be there for."""

import asyncio
import inspect
from pathlib import Path
from types import SimpleNamespace

import pytest
from harbor_jobs import job
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
        ({"model_client": "tinker"}, ValueError, "model_client is 'tinker' but model_path is missing; "),
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
    with pytest.raises(HarborError, match="the job factory returned 'nowhere'; expected the directory of a job"):
        via_harbor(model_client="litellm", workspace_dir=tmp_path, _job_factory=lambda config: "nowhere")


def trial(task="a", reward=1.0, **more):
    return SimpleNamespace(task_name=task, verifier_result=SimpleNamespace(rewards={"reward": reward}), **more)


def of_trials(folder, *trials, rows=("a", "b"), **asked):
    """What the trials of somebody's factory come to."""
    bench = Benchmark.from_iterable("b", [row(task_id) for task_id in rows])
    job = SimpleNamespace(trial_results=list(trials))
    return via_harbor(bench, workspace_dir=folder, _job_factory=lambda config: job, **asked)


def test_trials_of_a_model_behind_an_api_have_no_tokens(tmp_path):
    """Neither a checkpoint nor Harbor is needed: the factory stands for both."""
    spent = SimpleNamespace(rollout_details=None, cost_usd=0.01, n_input_tokens=5, n_output_tokens=7)
    began = {"started_at": "2026-01-01T00:00:00Z", "finished_at": "2026-01-01T00:00:04Z"}
    score = of_trials(tmp_path, trial("a", agent_result=spent, **began), trial("b", 0.0))
    assert score.metrics == {
        **{"n_tasks": 2.0, "mean_reward": 0.5, "pass_rate": 0.5},
        **{"time_per_task": 4.0, "tokens_per_task": 12.0, "cost_per_task": 0.01},
    }
    usage = score.rollouts[1].trajectories[0].metadata["usage"]
    assert (usage["prompt_tokens"], usage["latency_s"]) == (None, None)  # nobody knows: not 0
    assert score.result.groups[0].ledger.outcomes == {"scored": 2}


@pytest.mark.parametrize(
    ("lost", "outcomes"),
    [
        ([], {"missing": 1}),
        ([trial("b", exception_info={"exception_type": "BadRequestError"})], {"client_failed": 1}),
        ([trial("b", exception_info=SimpleNamespace(exception_type="AgentTimeoutError"))], {"timed_out": 1}),
        ([SimpleNamespace(task_name="b", agent_result=None)], {"not_run": 1}),
        ([{"task_name": "b"}, {"task_name": "b"}], {"not_run": 2}),
    ],
)
def test_a_task_that_failed_is_0_in_per_task_and_no_reward_in_the_ledger(tmp_path, lost, outcomes):
    score = of_trials(tmp_path, trial("a"), *lost)
    assert (score.metrics["n_tasks"], score.metrics["mean_reward"]) == (1.0, 1.0)
    assert [(task.task_id, task.reward) for task in score.per_task] == [("a", 1.0), ("b", 0.0)]
    assert score.result.groups[0].ledger.outcomes == {"scored": 1, **outcomes}


def test_no_trial_at_all(tmp_path):
    score = of_trials(tmp_path, num_samples=3)
    assert score.metrics == {"n_tasks": 0.0, "mean_reward": 0.0, "pass_rate": 0.0}
    assert score.result.groups[0].ledger.outcomes == {"missing": 6}


def test_a_verdict_without_a_reward_counts_0(tmp_path):  # as in EvSys
    verdict = SimpleNamespace(rewards=None)
    score = of_trials(tmp_path, SimpleNamespace(task_name="a", verifier_result=verdict), rows=["a"])
    assert score.metrics == {"n_tasks": 1.0, "mean_reward": 0.0, "pass_rate": 0.0}


def test_tasks_are_called_as_their_directories_or_as_in_evsys(tmp_path):
    score = of_trials(tmp_path, trial("é-1"), trial("x_y", 0.5), rows=["é-1", "x/y"])
    assert [task.reward for task in score.per_task] == [1.0, 0.5]


def test_a_trial_of_an_unknown_task_is_told_of(tmp_path):
    with pytest.warns(UserWarning, match=r"trial_results\[1\] is of 'c', which is not a task of the benchmark"):
        score = of_trials(tmp_path, trial("a"), trial("c"))
    assert score.metrics["n_tasks"] == 1.0


def test_a_factory_is_given_the_configuration_as_an_object_too(tmp_path):
    seen = []

    async def factory(config):
        seen.append((config.n_attempts, config["n_attempts"], config.retry.max_retries, config.agents[0].model_name))
        seen.append(([task.path for task in config.tasks], config.jobs_dir, "tasks" in config))
        with pytest.raises(AttributeError, match="the job's configuration has no 'trials'; it has job_name, "):
            config.trials  # noqa: B018
        return {"trial_results": None}

    via_harbor(workspace_dir=tmp_path, num_samples=2, _job_factory=factory)
    assert seen == [(2, 2, 2, "m"), ([tmp_path / "tasks" / "a"], tmp_path / "jobs", False)]


JOB = "expected the directory of a job, or an object with trial_results, the list of its trials"


@pytest.mark.parametrize(
    ("job", "message"),
    [
        (None, f"the job factory returned None; {JOB}"),
        (3, f"the job factory returned 3; {JOB}"),
        (object(), f"the job factory returned an object of type object; {JOB}"),
        ({"trial_results": 5}, f"the job factory returned trial_results that are 5; {JOB}"),
        (
            {"trial_results": [7]},
            "trial_results[0].task_name is missing; expected the name of a task's directory, as 'a'",
        ),
        ({"trial_results": [{"task_name": 7}]}, "trial_results[0].task_name is 7; expected the name of a task's "),
        (
            {"trial_results": [trial(reward="x")]},
            "trial_results[0].verifier_result.rewards['reward'] is 'x'; expected a n",
        ),
        (
            {"trial_results": [trial(reward=None)]},
            "trial_results[0].verifier_result.rewards['reward'] is None; expected",
        ),
        (
            {"trial_results": [{"task_name": "a", "verifier_result": {"rewards": [1]}}]},
            "trial_results[0].verifier_result.rewards is [1]; expected an object of numbers",
        ),
        (
            {"trial_results": [{"task_name": "a", "agent_result": {"rollout_details": [5]}}]},
            "trial_results[0].agent_result.rollout_details is [5]; expected a list of {prompt_token_ids, ",
        ),
        (
            {"trial_results": [trial(agent_result={"cost_usd": "much"})]},
            "trial_results[0].agent_result.cost_usd is 'much'; expected a number",
        ),
    ],
)
def test_what_is_no_job_says_what_a_job_is(tmp_path, job, message):
    with pytest.raises(HarborError) as caught:
        via_harbor(workspace_dir=tmp_path, _job_factory=lambda config: job)
    assert str(caught.value).startswith(message)


def no_parameters():
    """It cannot be given a configuration."""


@pytest.mark.parametrize(("factory", "shown"), [(5, "5"), (no_parameters, "no_parameters()")])
def test_what_is_no_job_factory(tmp_path, factory, shown):
    with pytest.raises(HarborError) as caught:
        via_harbor(workspace_dir=tmp_path, _job_factory=factory)
    assert str(caught.value) == f"_job_factory is {shown}; expected a function that takes the job's configuration"


def test_what_a_job_on_disk_knows_nothing_of_is_missing(tmp_path):
    lost = {"task": "b", "exception_type": "BadRequestError"}
    job(tmp_path / "job", {"task": "a", "rewards": {"reward": 1.0}}, lost)
    bench = Benchmark.from_iterable("b", [row("a"), row("b"), row("c")])
    score = via_harbor(bench, workspace_dir=tmp_path, num_samples=2, _job_factory=lambda config: tmp_path / "job")
    assert [(task.task_id, task.reward) for task in score.per_task] == [("a", 1.0), ("b", 0.0), ("c", 0.0)]
    ledger = score.result.groups[0].ledger
    assert (ledger.tasks, ledger.planned_from) == (3, "num_samples")
    assert ledger.outcomes == {"scored": 1, "client_failed": 1, "missing": 4}


def test_a_job_on_disk_that_counts_its_trials_is_taken_at_its_word(tmp_path):
    config, total = {"n_attempts": 1}, {"n_total_trials": 3, "stats": {}}
    job(tmp_path / "job", {"task": "a", "rewards": {"reward": 1.0}}, config=config, **total)
    bench = Benchmark.from_iterable("b", [row("a"), row("b"), row("c")])
    score = via_harbor(bench, workspace_dir=tmp_path, _job_factory=lambda config: tmp_path / "job")
    ledger = score.result.groups[0].ledger
    assert (ledger.planned, ledger.scored, ledger.planned_from) == (3, 1, "result.json")


def test_without_harbor_it_says_so(no_harbor, monkeypatch):
    said = "there is no program 'harbor'; install Harbor, or set CALIPERS_HARBOR to its path"
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
        ({}, ValueError, "benchmark is missing; expected a Benchmark, or path=, id= or name="),
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
