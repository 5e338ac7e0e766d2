"""``calipers plan`` as a user runs it."""

from __future__ import annotations

import json

import pytest
from cli.inside import inside  # noqa: F401
from cli.running import ARITH, calipers, lines

MILLER = ["--variance-between", "0.08333333333", "--variance-within", "0.16666666667", "--correlation", "0.3333333333"]


def test_from_variances(tmp_path):
    done = calipers("plan", *MILLER, "--detect", "0.03", "--tasks", "198", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == [
        "mean_reward: variances of 0.0833333 between tasks and 0.166667 within",
        "variance of a task's difference: 0.1111 between tasks, 0.1667 within tasks (per sample and run)",
        "paired: both runs on the same tasks; two-sided test at 5 %, power 80 %",
        "",
        "with the available tasks and samples:",
        "tasks  samples  rollouts  smallest difference  power to show 0.0300",
        "───────────────────────────────────────────────────────────────────",
        "  198        1       396               0.1335                  10 %",
        "",
        "to show a difference of 0.0300:",
        "samples  tasks  rollouts",
        "────────────────────────",
        "      1  3,879     7,758",
        "      2  2,425     9,700",
        "      4  1,699    13,592",
        "      6  1,457    17,484",
        "      8  1,336    21,376",
        "     16  1,154    36,928",
        "",
        "198 tasks with 1 sample each show a difference of 0.1335 or more with a power of 80 %",
        "no number of samples shows 0.0300 on 198 tasks: unlimited samples show 0.0670; only more tasks help",
        "more than 6 samples per task add little: more tasks narrow the interval faster",
        "without pairing (different tasks in each run) it takes 4,363 tasks instead of 3,879",
    ]


def test_from_a_pilot_with_a_price(tmp_path, inside):  # noqa: F811
    asked = ["plan", ARITH, "--detect", "0.05", "--budget", "5", "--format", "json", "--out", "plan.json"]
    done = inside(*asked, cwd=tmp_path)
    found = json.loads(done.stdout)
    assert (found["schema"], found["have"]["tasks"], found["have"]["samples"]) == ("calipers.plan/1", 40, 8)
    assert found["price_per_sample"] > 0
    assert found["best"]["price"] <= 5
    assert found["best_here"]["tasks"] == 40
    assert (tmp_path / "plan.json").read_text() == done.stdout
    assert "it is assumed to be 0" in done.stderr


def test_two_pilots_and_markdown(tmp_path, inside):  # noqa: F811
    rows = [{"task": f"t{n}", "sample": k, "reward": (n + k) % 2} for n in range(20) for k in range(2)]
    more = [{**row, "reward": 1 - row["reward"] if row["task"] == "t3" else row["reward"]} for row in rows]
    a, b = lines(tmp_path, *rows, name="a.jsonl"), lines(tmp_path, *more, name="b|<b>.jsonl")
    done = inside("plan", a, b, "--detect", "0.1", "--format", "md", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("### Plan for `mean_reward`\n\n`two pilots, a.jsonl and b\\|<b>.jsonl: 20 tasks")
    assert "to show a difference of 0.1000:\n\n| samples | tasks | rollouts | tasks, 95 % range |\n" in done.stdout


def test_a_pilot_in_clusters(tmp_path, inside):  # noqa: F811
    rows = [
        {"task": f"t{n}", "sample": k, "reward": int((n // 5 + k * (n % 5 == 0)) % 2), "metadata": {"book": n // 5}}
        for n in range(60)
        for k in range(2)
    ]
    pilot = lines(tmp_path, *rows)
    done = inside("plan", pilot, "--cluster", "book", "--detect", "0.2", "--correlation", "0.5", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    said = done.stdout.splitlines()
    assert said[0].endswith("60 tasks in 12 clusters by book with about 2 samples each")
    assert "tasks in clusters by book, about 5 tasks each: the variance is" in done.stdout
    assert "to show a difference of 0.2000, in clusters of the same size:" in said
    assert any(line.split()[:4] == ["samples", "tasks", "clusters", "rollouts"] for line in said)
    found = json.loads(
        inside("plan", pilot, "--cluster", "book", "--detect", "0.2", "--format", "json", cwd=tmp_path).stdout
    )
    assert found["clusters"]["design_effect"] > 4
    assert {key: found["clusters"][key] for key in ("key", "count", "tasks_per_cluster")} == {
        "key": "book",
        "count": 12,
        "tasks_per_cluster": 5.0,
    }
    assert all(one["tasks"] == 5 * one["clusters"] for one in [found["have"], *found["designs"]])
    plain = json.loads(inside("plan", pilot, "--detect", "0.2", "--format", "json", cwd=tmp_path).stdout)
    assert (plain["clusters"], plain["have"]["clusters"]) == (None, None)
    assert found["have"]["smallest"] > 1.8 * plain["have"]["smallest"]


def test_a_pilot_says_what_it_knows_and_what_it_cannot_tell(tmp_path, inside):  # noqa: F811
    """Eight tasks with two samples give a useful range for one sample per task, but not for 16."""
    new, old = ("11", "10", "00", "11", "01", "10", "00", "11"), ("01", "00", "00", "11", "00", "11", "10", "01")
    paths = [
        lines(
            tmp_path,
            *(
                {"task": f"t{n}", "sample": k, "reward": int(one)}
                for n, some in enumerate(run)
                for k, one in enumerate(some)
            ),
            name=name,
        )
        for name, run in (("old.jsonl", old), ("new.jsonl", new))
    ]
    done = inside("plan", *paths, "--detect", "0.1", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    said = " ".join(done.stdout.split())
    assert "0.008929 between tasks (95 % range 0.0000 to 0.6337)" in said
    found = json.loads(inside("plan", *paths, "--detect", "0.1", "--format", "json", cwd=tmp_path).stdout)
    assert found["variance"]["difference_range"] == pytest.approx([0, 0.633709], abs=1e-6)
    one, _, _, _, sixteen = (design for design in found["designs"] if design["samples"] in (1, 2, 4, 8, 16))
    assert (one["cannot_tell"], sixteen["cannot_tell"]) == (False, True)
    assert one["tasks_range"][0] < one["tasks"] < one["tasks_range"][1]
    # the need is the variance times a constant, but for the allowance of the test
    assert one["tasks_range"][1] / one["tasks"] == pytest.approx(1.008709 / 0.383929, rel=0.02)
    assert sixteen["tasks_range"][0] == 2
    assert f"2 to {sixteen['tasks_range'][1]:,} (pilot too small)" in said
    low, high = found["have"]["smallest_range"]
    assert low < found["have"]["smallest"] < (high or 1)
    numbers = json.loads(inside("plan", *MILLER, "--detect", "0.1", "--format", "json", cwd=tmp_path).stdout)
    assert all(
        design["tasks_range"] is None for design in numbers["designs"]
    )  # without a pilot, its uncertainty is unknown


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (MILLER, "nothing to plan; expected --detect, --tasks or --budget"),
        ([], "the variance is unknown; expected a PILOT run"),
        (["--variance-between", "0.1"], "--variance-within is missing"),
        (["--variance-within", "0.1"], "--variance-between is missing"),
        ([*MILLER, "--detect", "0"], "--detect: is 0; expected a difference above 0"),
        ([*MILLER, "--detect", "nan"], "--detect: is nan"),
        ([*MILLER, "--power", "1"], "--power: is 1; expected a share"),
        ([*MILLER, "--power", "0.01"], "--power: is 0.01, not above alpha"),
        ([*MILLER, "--alpha", "0"], "--alpha: is 0"),
        ([*MILLER[:4], "--correlation", "2"], "--correlation: is 2; expected a correlation from -1 to 1"),
        ([*MILLER, "--unpaired"], "--correlation: cannot be combined with --unpaired"),
        ([*MILLER, "--tasks", "1"], "--tasks: is 1; expected two tasks or more"),
        ([*MILLER, "--samples", "0"], "--samples: is 0"),
        ([*MILLER, "--budget", "5"], "--budget: the price of a sample is not known"),
        ([*MILLER, "--baseline-rate", "0.5"], "--baseline-rate: both variances are given as well"),
        (
            ["--baseline-rate", "0.5", "--variance-within", "0.3"],
            "more than the total variance of a rate of 0.5 (0.25)",
        ),
        (
            ["--baseline-rate", "0.9", "--detect", "0.95"],
            "--detect: is 0.95, and a rate cannot differ that much from 0.9",
        ),
        (["--variance-between", "-1", "--variance-within", "0"], "--variance-between: is -1; expected a variance"),
        ([ARITH, "--baseline-rate", "0.5"], "--baseline-rate: cannot be combined with a pilot"),
        ([ARITH, ARITH, ARITH], "3 pilots; expected one or two"),
        ([ARITH, "--reward", "rward"], "named 'rward'"),
        (["--variance-between", "0", "--variance-within", "0"], "the rewards have no variance"),
        (["gone.jsonl"], "gone.jsonl: no such file"),
        ([*MILLER, "--cluster", "book", "--detect", "0.1"], "--cluster: needs a pilot that has the key"),
        ([ARITH, "--cluster", "bok"], "--cluster bok: task"),
        *(
            ([*MILLER, option, value], f"{option}: there are no rollouts to choose from; add a PILOT run")
            for option, value in {
                "--reward": "acc",
                "--missing": "zero",
                "--columns": "task=id",
                "--truth": "yes=1",
                "--input-format": "verl",
            }.items()
        ),
    ],
)
def test_what_is_refused(tmp_path, inside, arguments, said):  # noqa: F811
    assert said in inside.refused("plan", *arguments, cwd=tmp_path)


def test_a_difference_beyond_what_rewards_can_have_is_none(tmp_path):
    rows = [{"task": f"t{n}", "sample": s, "reward": (n + s) % 2} for n in range(5) for s in range(2)]
    done = calipers("plan", lines(tmp_path, *rows), cwd=tmp_path)
    assert "5 tasks with 2 samples each show no possible difference with a power of 80 %" in done.stdout
