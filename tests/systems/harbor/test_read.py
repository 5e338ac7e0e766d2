import json

import pytest
from formats.given import seen
from systems.harbor.made import GOLDEN, at, job, outcomes, phase, result, write

import calipers
from calipers.errors import InputError
from calipers.formats.read import read

EXPECTED = json.loads((GOLDEN.parent / "job_small.expected.json").read_text())["expected"]["stats"]
THEIRS = EXPECTED["evals"]["terminus-2__coder-1__arith-mini"]

LABELS = ["exception", "failure_cause", "trial_name", "job_name", "source", "provider"]


def test_a_job_of_harbors_own():
    (group,) = calipers.score(GOLDEN, ["mean_reward", "pass@1", "pass@2", "pass@3"]).groups
    assert (group.agent, group.model, group.dataset) == ("terminus-2", "coder-1", "arith-mini")
    ledger = group.ledger
    assert ledger.outcomes == {"scored": 16, "timed_out": 1, "client_failed": 1}
    assert (ledger.planned, ledger.planned_from, ledger.tasks, ledger.gaps) == (18, "lock.json", 6, 1)
    assert ledger.exceptions == {kind: len(trials) for kind, trials in sorted(THEIRS["exception_stats"].items())}
    # json-merge has two graded trials, one of them passing: a sandbox that did not start is no failure of the agent
    assert group["mean_reward"].value == pytest.approx((3 + 0 + 2 + 1.5 + 1 + 1) / 18)
    assert group["pass@1"].value == group["mean_reward"].value
    assert group["pass@3"].undefined_tasks == 1


def test_with_gaps_as_zeros_pass_at_k_is_harbors():
    estimate = calipers.score(GOLDEN, "pass@2", missing="zero")["pass@2"]
    assert estimate.value == pytest.approx(THEIRS["pass_at_k"]["2"])


def test_totals_are_harbors():
    (group,) = calipers.score(GOLDEN).groups
    ours = {"n_input_tokens": "input_tokens", "n_cache_tokens": "cached_tokens", "n_output_tokens": "output_tokens"}
    for theirs, name in {**ours, "cost_usd": "cost_usd"}.items():
        assert group.totals[name] == pytest.approx(EXPECTED[theirs])
    assert {"cost_per_task", "cost_per_solved", "time_per_task", "tokens_per_task"} <= set(group.economics)


@pytest.mark.parametrize(
    ("rewards", "exception", "outcome", "counts"),
    [
        ({"reward": 0.25}, None, "scored", 0.25),
        ({"reward": True}, None, "scored", 1.0),
        ({"reward": 1}, "AgentTimeoutError", "timed_out", 1.0),  # verification still ran
        (None, "AgentTimeoutError", "timed_out", 0.0),  # the agent's own doing
        (None, "ContextLengthExceededError", "timed_out", 0.0),
        (None, "OutputLengthExceededError", "timed_out", 0.0),
        (None, "AgentSafetyRefusalError", "refused", 0.0),
        ({"reward": 0.5}, "ContentPolicyViolationError", "refused", 0.5),
        (None, "VerifierTimeoutError", "verifier_failed", None),
        (None, "RewardFileNotFoundError", "verifier_failed", None),
        (None, "CancelledError", "cancelled", None),
        (None, "EnvironmentStartTimeoutError", "client_failed", None),
        (None, "ApiUsageLimitError", "client_failed", None),
        (None, "MissingExtraError", "client_failed", None),
        (None, "SomethingNobodyHeardOf", "client_failed", None),
        # a reward that is not valid in Harbor's own terms is kept and not counted
        ({"reward": 1}, "NonZeroAgentExitCodeError", "client_failed", None),
        ({"reward": 1}, "CancelledError", "cancelled", None),
        (None, None, "not_run", None),  # verification disabled
        ({}, None, "not_run", None),
        ({}, "AgentTimeoutError", "timed_out", 0.0),
    ],
)
def test_what_became_of_a_trial(tmp_path, rewards, exception, outcome, counts):
    path = job(tmp_path, result("a__1", rewards, exception))
    assert outcomes(path) == {outcome: 1}
    estimate = calipers.score(path, "mean_reward")["mean_reward"]
    assert estimate.value == counts
    (row,) = seen(read([path], labels=["exception"])[0])
    assert row.get("reward reward") == (None if not rewards else float(rewards["reward"]))  # whatever it counts
    assert row.get("label exception") == exception


@pytest.mark.parametrize("word", ["broke_verifier", "tampered"])
def test_a_trial_whose_agent_broke_its_judge_counts_zero(tmp_path, word):
    """Our finding is in the result of a trial of ours, or in a file beside the result that Harbor wrote."""
    found = {"outcome": word, "reference": "judged", "tries": 2}
    given = [
        result("a__1", {"reward": 1}),
        result("a__2", None, "VerifierTimeoutError", calipers=found),
        result("a__3", {"reward": 1}, "VerifierRuntimeError", calipers=found),  # of a step before
        result("a__4", None, "VerifierTimeoutError", calipers={"reference": "failed", "tries": 1}),
        result("a__5", None, "AddTestsDirError"),
        result("a__6", None, "AddTestsDirError"),
    ]
    path = job(tmp_path, *given)
    (tmp_path / "a__5" / "calipers.json").write_text(json.dumps(found))
    (tmp_path / "a__6" / "calipers.json").write_text("nonsense")
    assert outcomes(path) == {"scored": 1, word: 3, "verifier_failed": 1, "client_failed": 1}
    assert calipers.score(path, "mean_reward")["mean_reward"].value == 1 / 4


def test_a_disowned_reward_is_told_of(tmp_path):
    given = [result(f"a__{n}", {"reward": 1}, "NonZeroAgentExitCodeError") for n in range(3)]
    (note,) = read([job(tmp_path, *given)])[0].notes
    assert "the native dialect excludes the reward of 3 trials" in note
    assert "NonZeroAgentExitCodeError 3" in note


def test_a_trial_as_a_row(tmp_path):
    (row,) = seen(read([job(tmp_path / "j", result("a__1", {"reward": 1}))], labels=LABELS)[0])
    assert row == {
        **{"task": "a", "sample": 0, "outcome": "scored", "agent": "solver", "model": "coder-1", "dataset": "d"},
        **{"reward reward": 1.0, "input_tokens": 10.0, "cached_tokens": 4.0, "output_tokens": 2.0, "cost_usd": 0.5},
        **{"latency_s": 20.0, "environment_setup_s": 5.0, "agent_setup_s": 2.0, "verifier_s": 2.5, "trial_s": 30.0},
        **{"label job_name": "j", "label trial_name": "a__1", "label source": "d", "label provider": "openai"},
    }


def test_names_come_from_what_the_agent_called_itself(tmp_path):
    other = {"name": "oracle", "version": "1", "model_info": None}
    path = job(tmp_path, result("a__1", {"reward": 1}, source=None, agent_info=other))
    assert read([path])[0].keys == [("oracle", None, "adhoc")]


def test_labels_of_a_failure(tmp_path):
    path = job(tmp_path, result("a__1", None, "RateLimitError"))
    (row,) = seen(read([path], labels=["failure_cause"])[0])
    assert row["label failure_cause"] == "model_provider_failed"


def test_steps_are_added_up_and_their_exceptions_count(tmp_path):
    spent = {"n_input_tokens": 10, "n_cache_tokens": None, "n_output_tokens": 1, "cost_usd": 0.1}
    steps = [
        {"step_name": "1", "agent_result": spent, "agent_execution": phase(0, 4), "verifier": phase(4, 5)},
        {"step_name": "2", "agent_result": spent, "agent_execution": phase(5, 8), "exception_info": None},
    ]
    whole = {"agent_result": None, "agent_execution": None, "verifier": None}
    path = job(tmp_path, result("a__1", {"reward": 1}, step_results=steps, **whole))
    (row,) = seen(read([path])[0])
    assert (row["input_tokens"], row["output_tokens"], row["latency_s"], row["verifier_s"]) == (20, 2, 7, 1)
    assert row["cost_usd"] == pytest.approx(0.2)
    assert "cached_tokens" not in row  # nobody reported any: missing, not zero
    assert row["outcome"] == "scored"


@pytest.mark.parametrize("rewards", [None, {"reward": 0}, {"reward": 1}])
def test_a_trial_whose_steps_exhausted_the_budget_has_that_cause(tmp_path, rewards):
    """The exception is in the trial itself if it has no steps, or in a step."""
    done = {"step_name": "1", "verifier_result": {"rewards": {"reward": 1}}}
    late = {"step_name": "2", "exception_info": {"exception_type": "AgentTimeoutError"}}
    path = job(
        tmp_path, result("a__1", rewards, step_results=[done, late]), result("b__1", rewards, "AgentTimeoutError")
    )
    for row in seen(read([path], labels=["failure_cause", "exception"])[0]):
        assert (row["outcome"], row["label failure_cause"]) == ("timed_out", "agent_exhausted_budget")
        assert row["label exception"] == "AgentTimeoutError"


@pytest.mark.parametrize(
    ("raised", "outcome"),
    [
        (["AgentTimeoutError"], "timed_out"),
        (["AgentTimeoutError", "VerifierTimeoutError"], "verifier_failed"),  # a reward is then not valid
    ],
)
def test_a_step_that_failed_does_not_hide_behind_a_reward(tmp_path, raised, outcome):
    steps = [{"step_name": kind, "exception_info": {"exception_type": kind}} for kind in raised]
    path = job(tmp_path, result("a__1", {"reward": 1}, step_results=steps))
    (group,) = calipers.score(path).groups
    assert group.ledger.outcomes == {outcome: 1}
    assert group.ledger.exceptions == {raised[-1]: 1}  # a trial is counted once, under what decides


def test_several_rewards_are_reported_each(tmp_path):
    given = [{"accuracy": 1, "style": 0}, {"accuracy": 0}, {"style": 0.5}]
    path = job(tmp_path, *(result(f"{task}__1", rewards) for task, rewards in zip("abc", given, strict=True)))
    (group,) = calipers.score(path, "mean_reward").groups
    found = {name: estimate.value for name, estimate in group.metrics.items()}
    assert found == {"mean_reward(reward=accuracy)": 0.5, "mean_reward(reward=style)": 0.25}
    assert calipers.score(path, "pass@1", reward="accuracy")["pass@1"].value == 0.5


@pytest.mark.parametrize(
    "old",
    [
        {"verifier_result": {"reward": 1.0}},  # before rewards had names
        {"verifier_result": {"rewards": {"reward": 1.0}, "stdout": "..."}, "what_comes_later": {"deep": [1]}},
    ],
)
def test_other_forms_of_a_result(tmp_path, old):
    path = job(tmp_path, result("a__1", **old))
    assert calipers.score(path)["mean_reward"].value == 1.0


def test_a_result_with_no_more_than_names(tmp_path):
    bare = {"task_name": "a", "trial_name": "a__1", "agent_info": {"name": "x"}, "started_at": "yesterday"}
    (row,) = seen(read([job(tmp_path, bare)])[0])
    assert row == {"task": "a", "sample": 0, "outcome": "not_run", "agent": "x", "dataset": "adhoc"}


def test_a_clock_that_ran_backwards_says_nothing(tmp_path):
    (row,) = seen(read([job(tmp_path, result("a__1", {"reward": 1}, agent_execution=phase(9, 7)))])[0])
    assert "latency_s" not in row


def test_samples_are_numbered_by_when_they_started(tmp_path):
    second, first = (result(f"a__{n}", {"reward": n}, started_at=at(9 - n)) for n in (1, 2))
    rows = seen(read([job(tmp_path, second, first)])[0])
    assert [(row["sample"], row["reward reward"]) for row in rows] == [(0, 2.0), (1, 1.0)]


def test_progress_ends_at_the_whole(tmp_path):
    path = job(tmp_path, *(result(f"a__{n:03d}", {"reward": 1}) for n in range(150)))
    told = []
    read([path, str(GOLDEN)], progress=lambda done, total: told.append((done, total)))
    done = [one for one, _ in told]
    assert done == sorted(done)
    assert told[-1] == (told[0][1], told[0][1])
    assert len(set(done)) > 3  # within a job too


def test_the_hash_is_of_the_results(tmp_path):
    first, second = (job(tmp_path / name, result("a__1", {"reward": 1})) for name in "xy")
    (one,), (two,) = (read([path])[1] for path in (first, second))
    assert (one.format, one.rollouts, one.sha256) == ("harbor", 1, two.sha256)
    write(tmp_path / "y" / "a__1" / "result.json", result("a__1", {"reward": 0}))
    assert read([second])[1][0].sha256 != one.sha256


def test_columns_are_no_business_of_a_job(tmp_path):
    with pytest.raises(InputError, match="--columns: a Harbor job has its own field names"):
        read([str(GOLDEN)], columns={"task": "id"})


def test_too_many_kinds_of_reward(tmp_path):
    path = job(tmp_path, result("a__1", {str(n): 1 for n in range(1001)}))
    with pytest.raises(InputError, match="more than 1000 kinds of reward"):
        read([path])


@pytest.mark.parametrize(
    ("trial", "verified"),
    [
        (result("a__1", {"reward": 1}), "rewards"),
        (result("a__1", {}), "empty"),
        (result("a__1", None, "KeyError"), "nothing"),
        ("a__1", "unfinished"),
    ],
)
def test_what_harbors_own_numbers_need_to_know(tmp_path, trial, verified):
    (row,) = seen(read([job(tmp_path, trial)], labels=["harbor.verified"])[0])
    assert row["label harbor.verified"] == verified


def test_harbor_counts_no_exception_of_a_step(tmp_path):
    steps = [{"step_name": "1", "exception_info": {"exception_type": "AgentTimeoutError"}}]
    path = job(tmp_path, result("a__1", {"reward": 1}, step_results=steps), result("b__1", None, "KeyError"))
    of_step, of_trial = seen(read([path], labels=["harbor.exception", "exception"])[0])
    assert (of_step.get("label harbor.exception"), of_step["label exception"]) == (None, "AgentTimeoutError")
    assert (of_trial["label harbor.exception"], of_trial["label exception"]) == ("KeyError", "KeyError")
