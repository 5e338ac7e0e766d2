import json

import numpy as np
import pytest
from cli.running import calipers, refused

from calipers.analyses.selftest import ErrorRates, allowed_rates
from calipers.metrics import UNIT
from calipers.stats.intervals import interval


def rollouts(path):
    rows = [
        {"task": f"t{task}", "sample": sample, "reward": int(task < 6)} for task in range(10) for sample in range(2)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def check(path, accepted=(), failed=()):
    probes = [{"rate": "false positives", "wrong": list(accepted)}, {"rate": "false negatives", "wrong": list(failed)}]
    path.write_text(json.dumps({"selftest": {"probes": probes}}))


def test_bounds_widen_by_the_tasks_with_wrong_verdicts(tmp_path):
    rollouts(tmp_path / "run.jsonl")
    check(tmp_path / "check.json", accepted=["t0"], failed=["t8", "t9", "elsewhere"])
    command = ("score", "run.jsonl", "--verifier-errors", "check.json", "--metric", "mean_reward")
    document = json.loads(calipers(*command, "--format", "json", cwd=tmp_path).stdout)
    bounds = document["verifier_errors"]["groups"][0]["bounds"]["mean_reward"]
    ends = {}
    for worth, tasks in ((0, {"t0"}), (1, {"t8", "t9"})):
        rows = [json.loads(line) for line in (tmp_path / "run.jsonl").read_text().splitlines()]
        filled = [{**row, "reward": worth} if row["task"] in tasks else row for row in rows]
        (tmp_path / "filled.jsonl").write_text("".join(json.dumps(row) + "\n" for row in filled))
        done = json.loads(calipers("score", "filled.jsonl", "--format", "json", cwd=tmp_path).stdout)
        ends[worth] = done["groups"][0]["metrics"]["mean_reward"]["interval"]
    assert bounds == pytest.approx([ends[0][0], ends[1][1]])
    done = calipers(*command, cwd=tmp_path)
    said = f"mean_reward 0.60, between {bounds[0]:.2f} and {bounds[1]:.2f} if the suspicious tasks are wrong"
    assert f"note: {said}\n" in done.stderr
    assert "a wrong answer passes in 1 task, the gold answer fails in 2 tasks" in done.stderr


def test_the_digest_does_not_change(tmp_path):
    rollouts(tmp_path / "run.jsonl")
    check(tmp_path / "check.json", accepted=["t0"])
    plain, bounded = (
        json.loads(calipers("score", "run.jsonl", "--format", "json", *more, cwd=tmp_path).stdout)
        for more in ((), ("--verifier-errors", "check.json"))
    )
    assert plain["digest"] == bounded["digest"]


@pytest.mark.parametrize(
    "text",
    ["{}", '{"selftest": {"probes": [{"rate": "false positives", "wrong": [], "failed": [], "asked": Infinity}]}}'],
)
def test_what_is_no_self_test(tmp_path, text):
    rollouts(tmp_path / "run.jsonl")
    (tmp_path / "check.json").write_text(text)
    message = refused("score", "run.jsonl", "--verifier-errors", "check.json", cwd=tmp_path)
    assert message.startswith("check.json: is not the self-test of a benchmark; expected the output of calipers check")


def probe(rate, asked, wrong, failed=0):
    return {"rate": rate, "asked": asked, "wrong": ["t"] * wrong, "failed": [["t", "why"]] * failed}


@pytest.mark.parametrize(
    ("probes", "limits"),
    [
        ([probe("false positives", 30, 0), probe("false negatives", 30, 30)], (1 - 0.0125 ** (1 / 30), 1)),
        (
            [probe("false positives", 30, 0), probe("false positives", 30, 30)],
            (1, 1),
        ),  # the worst probe; no gold answer
        ([probe("false positives", 30, 0, failed=29)], (1 - 0.0125, 1)),  # a verdict that failed is none
    ],
)
def test_the_rates_that_a_self_test_allows(probes, limits):
    rates = allowed_rates(probes, 0.95)
    assert (rates.false_positives, rates.false_negatives) == pytest.approx(limits)


@pytest.mark.parametrize(
    ("rates", "bounds"),
    [
        ((0, 0), (0.4, 0.6)),
        ((0.2, 0.25), (0.25, 0.8)),
        ((0.5, 0.5), (0, 1)),  # fewer passes than wrong answers alone may give
        ((1, 1), (0, 1)),
    ],
)
def test_shares_are_bounded_by_the_rates(rates, bounds):
    assert ErrorRates(0.95, *rates).bounds((0.4, 0.6)) == pytest.approx(bounds)


@pytest.mark.parametrize(
    ("share", "passes", "fails"),
    [(0.25, 0.15, 0.02), (0.75, 0.02, 0.15)],  # where wrong verdicts move the share most, up and down
)
def test_the_bounds_of_rates_cover_the_true_share_where_the_interval_does_not(share, passes, fails):
    rng = np.random.default_rng(0)
    covered = naive = 0
    for _ in range(200):
        right = rng.random(200) < rng.beta(2 * share, 2 - 2 * share, 200)
        passed = np.where(right, rng.random(200) >= fails, rng.random(200) < passes).astype(float)
        selftest = [
            probe("false negatives", 80, int(rng.binomial(80, fails))),
            probe("false positives", 80, int(rng.binomial(80, passes / 8))),
            probe("false positives", 80, int(rng.binomial(80, passes))),
        ]
        rates = allowed_rates(selftest, 0.95)
        low, high = rates.bounds(interval(passed, np.ones(200), rates.confidence_of_shares, UNIT).ends)
        covered += low <= share <= high
        ends = interval(passed, np.ones(200), 0.95, UNIT).ends
        naive += ends[0] <= share <= ends[1]
    assert covered >= 0.95 * 200
    assert naive < 0.5 * 200


def test_a_score_has_the_bounds_of_the_rates(tmp_path):
    rollouts(tmp_path / "run.jsonl")
    probes = [probe("false positives", 300, 3), probe("false negatives", 300, 30)]
    (tmp_path / "check.json").write_text(json.dumps({"selftest": {"probes": probes}}))
    command = ("score", "run.jsonl", "--verifier-errors", "check.json", "--metric", "mean_reward", "--metric", "pass@2")
    done = calipers(*command, "--format", "json", cwd=tmp_path)
    document = json.loads(done.stdout)["verifier_errors"]
    wide = json.loads(calipers("score", "run.jsonl", "--confidence", "0.975", "--format", "json", cwd=tmp_path).stdout)[
        "groups"
    ][0]["metrics"]["mean_reward"]["interval"]
    rates = document["rates"]
    expected = [
        (wide[0] - rates["false_positives"]) / (1 - rates["false_positives"]),
        min(wide[1] / (1 - rates["false_negatives"]), 1),
    ]
    assert document["groups"][0]["rate_bounds"] == {"mean_reward": pytest.approx(expected), "pass@2": None}
    assert f"between {expected[0]:.2f} and {expected[1]:.2f} if up to" in done.stderr


def test_graded_rewards_have_no_bounds_of_rates(tmp_path):
    (tmp_path / "run.jsonl").write_text("".join(json.dumps({"task": t, "reward": t / 9}) + "\n" for t in range(10)))
    probes = [probe("false positives", 30, 0), probe("false negatives", 30, 0)]
    (tmp_path / "check.json").write_text(json.dumps({"selftest": {"probes": probes}}))
    done = calipers("score", "run.jsonl", "--verifier-errors", "check.json", "--format", "json", cwd=tmp_path)
    bounds = json.loads(done.stdout)["verifier_errors"]["groups"][0]["rate_bounds"]
    assert bounds["mean_reward"] is None
    assert bounds["pass_rate"] is not None
