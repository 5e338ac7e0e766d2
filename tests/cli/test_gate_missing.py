"""``calipers gate`` on missing rollouts, on every task and on the worst one, as a user runs it."""

from __future__ import annotations

import json
from math import comb

import pytest
from cli.inside import inside  # noqa: F401
from cli.running import calipers as calipers_command
from cli.running import lines, refused, rewards

import calipers

# ten tasks of four samples; all samples of the last two are missing: 24 of 40 pass, 8 fail, 8 are missing
SEEN = [*[[1, 1, 1, 1]] * 4, *[[1, 1, 0, 0]] * 4, *[[None] * 4] * 2]
FILLED = [[reward or 0 for reward in task] for task in SEEN]


@pytest.fixture
def checks(inside, tmp_path):  # noqa: F811
    def held(path, *required, code, options=()):
        asked = [part for text in required for part in ("--require", text)]
        done = inside("gate", path, *asked, *options, "--format", "json", cwd=tmp_path)
        assert done.returncode == code, done.stdout + done.stderr
        return json.loads(done.stdout)["checks"]

    return held


def of_rollouts(tmp_path, tasks, name="new.jsonl"):
    rows = [
        {"task": f"t{n}", "sample": k, "reward": reward}
        for n, task in enumerate(tasks)
        for k, reward in enumerate(task)
    ]
    return lines(tmp_path, *rows, name=name)


def document(tmp_path, tasks, name="result.json", **settings):
    path = of_rollouts(tmp_path, tasks, name + "l")
    (tmp_path / name).write_text(calipers.score(tmp_path / path, **settings).to_json())
    return name


def test_worst_is_the_run_with_every_missing_rollout_failed(tmp_path, checks):
    path = of_rollouts(tmp_path, SEEN)
    whole = calipers.score(FILLED, ["pass@1", "pass@2"])
    found = checks(
        *(path, "worst(pass@1) >= 0.6", "worst(lower(pass@1)) >= 0.3", "worst(upper(pass@2)) <= 1", "pass@1 > 0.7"),
        code=0,
        options=["--max-gaps", "8"],
    )
    assert [check["value"] for check in found] == pytest.approx(
        [whole["pass@1"].value, whole["pass@1"].interval[0], whole["pass@2"].interval[1], 0.75]
    )
    assert [check["gaps"] for check in found] == [8] * 4
    assert checks(path, "worst(pass@1) >= 0.61", code=1)[0]["word"] == "failed"


def test_without_missing_rollouts_worst_is_the_value(tmp_path, checks):
    """Also of a metric whose missing rollouts could not be filled."""
    rows = [{"task": f"t{n}", "reward": n % 2, "usage": {"cost_usd": 0.5}} for n in range(6)]
    path = lines(tmp_path, *rows)
    found = checks(path, "worst(mean_reward) >= 0.5", "worst(cost_per_task) <= 0.5", code=0)
    assert [check["value"] for check in found] == [0.5, 0.5]
    (tmp_path / "result.json").write_text(calipers.score(tmp_path / path).to_json())
    assert checks("result.json", "worst(lower(mean_reward)) >= 0", code=0)[0]["value"] > 0


@pytest.mark.parametrize(
    ("required", "why"),
    [
        ("worst(cost_per_task) <= 9", "no bounds are known for a metric that reads more than the reward"),
        ("worst(mean(column=reward)) >= 0", "no bounds are known for a metric that reads more than the reward"),
        ("worst(mean_reward(reward=points)) >= 0", "no bounds are known for it"),
    ],
)
def test_what_nobody_can_fill_has_no_worst(tmp_path, checks, required, why):
    rows = [{"task": f"t{n}", "rewards": {"reward": 1, "points": 7}, "usage": {"cost_usd": 0.5}} for n in range(6)]
    path = lines(tmp_path, *rows, {"task": "t6"})
    assert why in checks(path, required, code=3)[0]["why"]


def test_a_finished_result_has_the_ends_of_its_worst_fillings(tmp_path, checks):
    path = document(tmp_path, SEEN, metrics=["pass@1"])
    assert checks(path, "worst(pass@1) >= 0.6", code=0)[0]["value"] == pytest.approx(0.6)
    lower = checks(path, "worst(lower(pass@1)) >= 0", code=0)[0]["value"]
    assert lower == calipers.score(tmp_path / f"{path}l", "pass@1")["pass@1"].worst_interval[0]


def test_a_difference_with_every_missing_rollout_against_it(tmp_path, checks):
    """The worst case of a delta: the missing rollouts of the result fail, and those of the baseline pass."""
    before = [*[[0, 0]] * 12, [None, None]]
    after = [*[[1, 1]] * 10, [None, 1], [1, 1], [1, 1]]
    paths = of_rollouts(tmp_path, before, "old.jsonl"), of_rollouts(tmp_path, after, "new.jsonl")
    full = calipers.compare(
        [*before[:-1], [1, 1]], [[reward or 0 for reward in task] for task in after], metric="mean_reward"
    )["mean_reward"]
    found = checks(
        paths[1],
        *("worst(delta(mean_reward)) > 0", "worst(lower(delta(mean_reward))) > 0", "lower(delta(mean_reward)) > 0"),
        code=0,
        options=["--baseline", paths[0]],
    )
    assert [check["value"] for check in found[:2]] == pytest.approx([full.delta, full.interval[0]])
    assert found[2]["value"] > found[1]["value"]
    results = document(tmp_path, before, "old.json"), document(tmp_path, after, "new.json")
    plain = checks(results[1], "worst(delta(mean_reward)) > 0", code=0, options=["--baseline", results[0]])
    assert plain[0]["value"] == pytest.approx(full.delta)


def test_the_share_that_is_missing(tmp_path, checks):
    path = of_rollouts(tmp_path, SEEN)
    found = checks(path, "missing <= 0.2", "missing >= 0.2", code=0)
    assert [(check["value"], check["tasks"]) for check in found] == [(0.2, None)] * 2
    assert checks(path, "missing <= 0.05", code=1)[0]["word"] == "failed"
    assert checks(document(tmp_path, SEEN), "missing <= 0.05", code=1)[0]["value"] == 0.2
    by_task = checks(path, "missing[task=*] <= 0.5", code=1)[0]
    assert (by_task["value"], by_task["failing"]) == (1.0, ["t8", "t9"])
    assert checks(path, "missing <= 0.5", code=3, options=["--max-gaps", "5%"])[0]["why"].startswith("8 of 40 rollouts")


def test_more_than_five_per_cent_missing_is_warned_of(tmp_path, inside):  # noqa: F811
    def said(path, *required):
        return inside("gate", path, *(part for text in required for part in ("--require", text)), cwd=tmp_path).stderr

    path = of_rollouts(tmp_path, SEEN)
    assert said(path, "mean_reward > 0") == (
        "warning: 20 % of the rollouts of new.jsonl are missing (8 of 40): "
        "requirements without worst(...) may depend on which rollouts are missing\n"
    )
    assert said(path, "worst(mean_reward) > 0", "missing < 1") == ""  # which do say it
    few = of_rollouts(tmp_path, [*[[1]] * 19, [None]], "few.jsonl")
    assert said(few, "mean_reward > 0") == ""  # 5 %, and no more


def test_every_task_must_hold(tmp_path, checks):
    path = rewards(tmp_path, [[1, 1, 1, 1], [1, 0, 0, 0], [1, 1, 0, 0], [0, 0, 0, 1]])
    one = checks(path, "pass_rate[task=*] >= 0.5", code=1)[0]
    assert (one["value"], one["tasks"], one["failing"]) == (0.25, 4, ["1", "3"])
    assert one["remark"] == "2 of 4 tasks fail: 1 (0.2500), 3 (0.2500)"
    held = checks(path, "pass_rate[task=*] >= 0.25", "mean_reward[task=*] <= 1", code=0)
    assert [(check["value"], check["failing"]) for check in held] == [(0.25, []), (1.0, [])]


def test_tasks_that_fail_are_named_the_furthest_first_and_counted(tmp_path, checks):
    path = rewards(tmp_path, [[1, 0], *[[0, 0]] * 8, [1, 1]])
    one = checks(path, "pass_rate[task=*] >= 0.8", code=1)[0]
    assert one["remark"] == "9 of 10 tasks fail: 1 (0.0000), 2 (0.0000), 3 (0.0000), 4 (0.0000), 5 (0.0000), …"
    assert one["failing"] == [*"12345678", "0"]


def test_a_task_without_a_value_is_no_task_that_holds(tmp_path, checks):
    path = of_rollouts(tmp_path, SEEN)
    one = checks(path, "pass_rate[task=*] >= 0.5", code=3)[0]
    assert (one["value"], one["word"]) == (None, "undefined")
    assert one["why"] == "2 of 10 tasks have no answer: t8, t9 (no value: no task has a value)"
    failed = checks(path, "pass_rate[task=*] >= 0.9", code=1)[0]  # no is no
    assert failed["failing"] == ["t4", "t5", "t6", "t7"]
    assert "2 of 10 tasks have no answer: t8, t9" in failed["remark"]
    assert checks(path, "worst(pass_rate[task=*]) >= 0.5", code=1)[0]["failing"] == ["t8", "t9"]


def test_every_slice_of_any_key(tmp_path, checks):
    rows = [{"task": f"t{n}", "reward": int(n > 3), "level": "hard" if n < 6 else "easy"} for n in range(12)]
    path = lines(tmp_path, *rows)
    one = checks(path, "mean_reward[level=*] >= 0.5", code=1)[0]
    assert one["remark"] == "1 of 2 slices by level fails: hard (0.3333)"
    assert checks(path, "lower(mean_reward[level=*]) >= 0.05", code=0)[0]["interval"][1] < 1  # of the worse slice


def test_some_task_is_shown_to_be_below(tmp_path, checks):
    """t0 passes 1 of 8: P(X <= 1) at 0.8 is 8.448e-5, by Holm over 10 tasks 8.448e-4; t1 with 5 of 8 is not shown."""
    path = rewards(tmp_path, [[1, *[0] * 7], [*[1] * 5, *[0] * 3], *[[1] * 8] * 8])
    one = checks(path, "worst(pass_rate[task]) >= 0.8", code=1)[0]
    p = 10 * sum(comb(8, i) * 0.8**i * 0.2 ** (8 - i) for i in (0, 1))
    assert (one["value"], one["tasks"], one["failing"]) == (0.125, 10, ["0"])
    assert one["remark"] == f"1 task shown to be below 0.8 (Holm over 10 tasks): 0 (1 of 8, p {p:.2g})"
    passed = checks(path, "worst(pass@1[task]) >= 0.5", code=0)[0]
    assert (passed["value"], passed["word"]) == (0.125, "passed")  # lower than 0.5, and not shown to be
    assert passed["remark"] == "no task is shown to be below 0.5 (Holm over 10 tasks, smallest p 0.35)"


def test_the_worst_task_of_so_few_samples_that_nothing_can_be_shown(tmp_path, checks):
    one = checks(rewards(tmp_path, [[0], [1], [1], [None]]), "worst(pass_rate[task]) > 0.5", code=0)[0]
    assert one["value"] == 0.0
    assert one["remark"] == (
        "no task is shown to be below 0.5 (Holm over 3 tasks, smallest p 1); with so few samples not "
        "even a task without a pass could be; no value for 1 task"
    )


def test_slices_by_task_of_a_finished_result(tmp_path, checks, inside):  # noqa: F811
    tasks = [[1, *[0] * 7], [*[1] * 5, *[0] * 3], *[[1] * 8] * 8]
    path = document(tmp_path, tasks, by="task")
    assert checks(path, "worst(pass_rate[task]) >= 0.8", code=1)[0]["failing"] == ["t0"]
    assert checks(path, "pass_rate[task=*] >= 0.6", code=1)[0]["failing"] == ["t0"]
    bare = document(tmp_path, tasks, "bare.json")
    said = inside.refused("gate", bare, "--require", "pass_rate[task=*] >= 0.6", cwd=tmp_path)
    assert "it has no slices; expected a result of calipers score --by task" in said


def test_standard_input_is_filled_and_has_no_difference(tmp_path):
    of_rollouts(tmp_path, SEEN)
    rows = (tmp_path / "new.jsonl").read_text()
    done = calipers_command("gate", "-", "--require", "worst(pass@1) >= 0.6", cwd=tmp_path, stdin=rows)
    assert done.returncode == 0, done.stdout + done.stderr
    said = refused(
        *("gate", "-", "--baseline", "new.jsonl", "--require", "delta(mean_reward) >= 0"), cwd=tmp_path, stdin=rows
    )
    assert "standard input can be read only once; expected a file" in said


def test_the_false_failures_of_good_tasks_are_few():
    """If all tasks are exactly at the required rate, at most 5 % of gates show some task to be below it."""
    import numpy as np

    from calipers.stats.paired import below
    from calipers.stats.ranks import holm

    rng = np.random.default_rng(4)
    samples = np.full(40, 16)
    failed = [holm(below(rng.binomial(16, 0.8, 40), samples, 0.8)).min() <= 0.05 for _ in range(4_000)]
    assert np.mean(failed) < 0.05
