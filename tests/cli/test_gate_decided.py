"""``calipers gate`` with missing rollouts: no answer if they could change it, unless they are allowed."""

from __future__ import annotations

import json

import pytest
from cli.inside import inside  # noqa: F401
from cli.running import lines
from cli.test_gate_missing import FILLED, SEEN, checks, document, of_rollouts  # noqa: F401

import calipers

BEST = [[1 if reward is None else reward for reward in task] for task in SEEN]


@pytest.mark.parametrize(
    ("required", "code"),
    [
        ("pass@1 >= 0.6", 0),  # 0.75 is seen; it is 0.6 or more, whatever is missing
        ("pass@1 >= 0.61", 3),
        ("pass@1 >= 0.8", 3),  # the observed value is below 0.8, but the true one could be 0.8
        ("pass@1 >= 0.81", 1),
        ("pass@1 < 0.6", 1),
        ("pass@1 < 0.7", 3),
        ("pass@1 == 0.7", 3),  # at neither end, and between them
        ("pass@1 == 0.5", 1),
        ("missing <= 0.2", 0),
    ],
)
@pytest.mark.parametrize("made", [of_rollouts, document])
def test_a_value_is_asked_at_both_ends(tmp_path, checks, made, required, code):  # noqa: F811
    settings = {"metrics": ["pass@1"]} if made is document else {}
    (one,) = checks(made(tmp_path, SEEN, **settings), required, code=code)
    if code == 3:
        told = "8 of 40 rollouts are missing and decide the answer: the value is 0.6000 to 0.8000 depending on them"
        assert one["why"] == f"{told}; use --max-gaps 8 to decide without them"


@pytest.mark.parametrize("option", ["--max-gaps", "--max-missing"])
def test_so_many_as_are_allowed_decide_nothing(tmp_path, checks, option):  # noqa: F811
    path = of_rollouts(tmp_path, SEEN)
    (one,) = checks(path, "pass@1 >= 0.7", code=0, options=[option, "20%"])
    assert one["remark"].endswith(
        "the missing rollouts may decide the answer: the value is 0.6000 to 0.8000 depending on them"
    )
    assert checks(path, "pass@1 >= 0.7", code=3, options=[option, "7"])[0]["why"].endswith("at most 7 may be")
    checks(path, "pass@1 >= 0.81", code=1, options=[option, "7"])  # whatever they are


def test_an_end_of_an_interval_is_asked_of_the_filled_rollouts(tmp_path, checks):  # noqa: F811
    path = of_rollouts(tmp_path, SEEN)
    worst, seen, best = (calipers.score(tasks, "pass@1")["pass@1"].interval for tasks in (FILLED, SEEN, BEST))
    assert worst[0] < seen[0] < best[0]
    checks(path, f"lower(pass@1) >= {worst[0] - 1e-6}", code=0)
    (one,) = checks(path, f"lower(pass@1) >= {worst[0] + 1e-6}", code=3)
    assert f"decide the answer: the value is {worst[0]:.4f} to {best[0]:.4f}" in one["why"]
    checks(path, f"lower(pass@1) >= {best[0] + 1e-6}", code=1)
    checks(path, f"upper(pass@1) <= {best[1] + 1e-6}", code=0)
    checks(path, f"upper(pass@1) <= {best[1] - 1e-6}", code=3)


def test_a_finished_result_passes_on_no_end_that_missing_rollouts_could_move(tmp_path, checks):  # noqa: F811
    path = document(tmp_path, SEEN, metrics=["pass@1"])
    worst = calipers.score(tmp_path / f"{path}l", "pass@1")["pass@1"].worst_interval
    checks(path, f"lower(pass@1) >= {worst[0] - 1e-6}", code=0)
    (one,) = checks(path, f"lower(pass@1) >= {worst[0] + 1e-6}", code=3)
    assert "8 of 40 rollouts are missing and decide the answer" in one["why"]
    written = json.loads((tmp_path / path).read_text())
    del written["groups"][0]["metrics"]["pass@1"]["filled_intervals"]  # as earlier versions wrote it
    (tmp_path / path).write_text(json.dumps(written))
    (one,) = checks(path, "lower(pass@1) >= 0.1", code=3)
    assert "the document has no interval with the missing rollouts filled in; expected the rollouts" in one["why"]
    checks(path, "lower(pass@1) >= 0.1", code=0, options=["--max-gaps", "8"])
    checks(path, "lower(pass@1) >= 0.7", code=1)


@pytest.mark.parametrize("number", [0, 100])
def test_rewards_without_a_known_range(tmp_path, checks, number):  # noqa: F811
    path = lines(tmp_path, *({"task": f"t{n}", "reward": 7 + n % 2} for n in range(6)), {"task": "t6"})
    for required in (f"mean_reward >= {number}", f"lower(mean_reward) >= {number}"):
        (one,) = checks(path, required, code=3)
        assert one["why"].startswith("1 of 7 rollouts is missing and may decide the answer: no bounds are known")
    checks(path, f"mean_reward >= {number}", code=number and 1, options=["--max-gaps", "1"])


def test_a_range_that_is_named_gives_both_ends(tmp_path, checks):  # noqa: F811
    path = lines(tmp_path, *({"task": f"t{n}", "reward": 7 + n % 2} for n in range(6)), {"task": "t6"})
    for required, code in (("mean_reward >= 6", 0), ("mean_reward >= 7", 3), ("mean_reward >= 8", 1)):
        checks(path, required, code=code, options=["--range", "0,10"])
    worst = calipers.score([[7], [8]] * 3 + [[0]], "mean_reward", range=(0, 10))["mean_reward"].interval
    checks(path, f"lower(mean_reward) >= {worst[0] - 1e-6}", code=0, options=["--range", "0,10"])
    checks(path, f"lower(mean_reward) >= {worst[0] + 1e-6}", code=3, options=["--range", "0,10"])


def test_a_number_that_reads_no_reward_lacks_only_what_has_none(tmp_path, checks):  # noqa: F811
    rows = [{"task": f"t{n}", "reward": 1, "usage": {"cost_usd": 0.5}} for n in range(6)]
    judged = {"task": "t6", "outcome": "judge_failed", "usage": {"cost_usd": 0.5}}
    checks(lines(tmp_path, *rows, judged), "mean(column=cost_usd) <= 0.5", code=0)
    lost = lines(tmp_path, *rows, {"task": "t6", "outcome": "client_failed"}, name="lost.jsonl")
    checks(lost, "mean(column=cost_usd) <= 0.5", code=3)


def test_a_difference_is_asked_at_both_ends(tmp_path, checks):  # noqa: F811
    before = [*[[0, 0]] * 12, [None, None]]
    after = [*[[1, 1]] * 10, [None, 1], [1, 1], [1, 1]]
    paths = of_rollouts(tmp_path, before, "old.jsonl"), of_rollouts(tmp_path, after, "new.jsonl")
    asked = {"options": ["--baseline", paths[0]]}

    worst, best = (
        calipers.compare(
            [[one if x is None else x for x in task] for task in before],
            [[two if x is None else x for x in task] for task in after],
            metric="mean_reward",
        )["mean_reward"]
        for one, two in ((1, 0), (0, 1))
    )
    assert worst.delta < best.delta
    checks(paths[1], f"delta(mean_reward) >= {worst.delta - 1e-6}", code=0, **asked)
    (one,) = checks(paths[1], f"delta(mean_reward) >= {worst.delta + 1e-6}", code=3, **asked)
    assert one["why"].startswith(
        "1 of 26 rollouts and 2 of 26 rollouts of the baseline are missing and decide the answer: "
    )
    checks(paths[1], f"delta(mean_reward) <= {worst.delta - 1e-6}", code=1, **asked)
    checks(paths[1], f"lower(delta(mean_reward)) > {worst.interval[0] - 1e-6}", code=0, **asked)
    checks(paths[1], f"lower(delta(mean_reward)) > {worst.interval[0] + 1e-6}", code=3, **asked)
    checks(paths[1], f"delta(mean_reward) >= {best.delta}", code=3, **asked)
    results = document(tmp_path, before, "old.json"), document(tmp_path, after, "new.json")
    plain = {"options": ["--baseline", results[0]]}
    checks(results[1], f"delta(mean_reward) >= {worst.delta - 1e-6}", code=0, **plain)
    checks(results[1], f"delta(mean_reward) >= {worst.delta + 1e-6}", code=3, **plain)


def test_missing_rollouts_that_count_zero_decide_nothing(tmp_path, checks):  # noqa: F811
    path = of_rollouts(tmp_path, SEEN)
    assert checks(path, "pass@1 >= 0.6", code=0, options=["--missing", "zero"])[0]["value"] == pytest.approx(0.6)
    checks(path, "pass@1 >= 0.61", code=1, options=["--missing", "zero"])


def test_every_task_is_asked_at_both_ends(tmp_path, checks):  # noqa: F811
    path = of_rollouts(tmp_path, [[1, 1, 1, None], [1, 1, 1, 1]])
    checks(path, "pass_rate[task=*] >= 0.75", code=0)
    (one,) = checks(path, "pass_rate[task=*] >= 0.8", code=3)
    assert "1 of 2 tasks has no answer: t0 (1 of 4 rollouts is missing and decides the answer" in one["why"]
    checks(path, "pass_rate[task=*] >= 0.8", code=0, options=["--max-gaps", "1"])


def test_the_worst_task_is_asked_at_both_ends(tmp_path, checks):  # noqa: F811
    """A task of which eight samples are missing could have been shown to be below 0.8, and another is."""
    good = [[1] * 12] * 9
    path = of_rollouts(tmp_path, [[*[1] * 4, *[None] * 8], *good])
    (one,) = checks(path, "worst(pass_rate[task]) >= 0.8", code=3)
    assert one["why"] == "8 of 120 rollouts are missing and decide the answer; use --max-gaps 8 to decide without them"
    checks(path, "worst(pass_rate[task]) >= 0.1", code=0)
    checks(path, "worst(pass_rate[task]) >= 0.8", code=0, options=["--max-gaps", "8"])
    checks(of_rollouts(tmp_path, [[0] * 12, [None, *[1] * 11], *good]), "worst(pass_rate[task]) >= 0.8", code=1)


def test_a_policy_has_both_spellings(tmp_path, inside):  # noqa: F811
    of_rollouts(tmp_path, SEEN)
    policy = tmp_path / "p.yaml"
    for text, code in (("", 3), ("max_missing: 8\n", 0), ("max_gaps: 8\n", 0), ("max_missing: 8\nmax_gaps: 8\n", 2)):
        policy.write_text(f"{text}critical: ['pass@1 >= 0.7']\n")
        done = inside("gate", "new.jsonl", "--policy", "p.yaml", cwd=tmp_path)
        assert done.returncode == code, done.stdout + done.stderr
    assert "max_gaps and max_missing mean the same; expected one of them" in done.stderr


def test_an_agent_that_makes_its_failures_missing_does_not_pass(tmp_path, checks):  # noqa: F811
    """One of three trials passes, and the others have no verdict, so the observed rate is 1.0."""
    rows = [
        {"task": f"t{n}", "reward": 1} if n % 3 == 0 else {"task": f"t{n}", "outcome": "verifier_failed"}
        for n in range(30)
    ]
    checks(lines(tmp_path, *rows), "mean_reward >= 0.9", "lower(mean_reward) >= 0.5", code=3)
    own = [{**row, "outcome": "broke_verifier"} if "outcome" in row else row for row in rows]
    (one,) = checks(lines(tmp_path, *own, name="own.jsonl"), "mean_reward >= 0.9", code=1)
    assert one["value"] == pytest.approx(1 / 3)
