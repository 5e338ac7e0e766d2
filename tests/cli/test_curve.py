import csv
import io
import json
import sys

import pytest
from cli.running import ARITH, calipers, lines, refused, rewards, run

import calipers as cal
from calipers.reports.plain_words import plain_why


def curves(*arguments, cwd):
    done = calipers("curve", *arguments, "--format", "json", cwd=cwd)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def values(group, metric):
    (found,) = [curve for curve in group["curves"] if curve["metric"] == metric]
    return {point["k"]: point["value"] for point in found["points"]}


def test_every_k_has_its_point_and_band(tmp_path):
    tasks = [[1] * c + [0] * (10 - c) for c in (3, 7)]
    (group,) = curves(rewards(tmp_path, tasks), cwd=tmp_path)["groups"]
    assert values(group, "pass@k")[5] == pytest.approx((0.916667 + 1) / 2, abs=1e-6)
    assert values(group, "pass^k")[4] == pytest.approx((0 + 0.166667) / 2, abs=1e-6)
    assert all(len(curve["points"]) == 10 for curve in group["curves"])
    points = [point for curve in group["curves"] for point in curve["points"]]
    assert all(point["interval"][0] <= point["value"] <= point["interval"][1] for point in points)


def test_max_at_k_of_graded_rewards(tmp_path):
    (group,) = curves(rewards(tmp_path, [[0.1, 0.4, 0.4, 0.9], [0.1, 0.4, 0.4, 0.9]]), cwd=tmp_path)["groups"]
    assert values(group, "max@k") == pytest.approx({1: 0.45, 2: 0.65, 3: 0.775, 4: 0.9})


def test_votes_are_counted_where_there_are_answers(tmp_path):
    rows = [
        {"task": "a", "sample": n, "reward": float(answer == "A"), "answer": answer}
        for n, answer in enumerate("AAAABBBC")
    ]
    (group,) = curves(lines(tmp_path, *rows), cwd=tmp_path)["groups"]
    assert values(group, "maj@k")[5] == pytest.approx(0.660714, abs=1e-6)
    without = [{key: value for key, value in row.items() if key != "answer"} for row in rows]
    (group,) = curves(lines(tmp_path, *without), cwd=tmp_path)["groups"]
    assert "no maj@k: no rollout has an answer (--columns answer=KEY)" in group["notes"]


SEEN = [40, 12, 10, 13, 25]  # tasks with 0 to 4 passes of 4 samples


def test_beyond_the_samples_a_law_speaks_and_says_what_it_assumes(tmp_path):
    name = rewards(tmp_path, [[1] * c + [0] * (4 - c) for c, tasks in enumerate(SEEN) for _ in range(tasks)])
    document = curves(name, "--to", "100", cwd=tmp_path)
    (group,) = document["groups"]
    (found,) = [curve for curve in group["curves"] if curve["metric"] == "pass@k"]
    assert [(p["k"], p["model_based"]) for p in found["points"]][3:] == [
        (4, False),
        *((k, True) for k in (8, 16, 32, 64, 100)),
    ]
    sixteen, hundred = found["points"][5], found["points"][-1]
    assert sixteen["value"] == pytest.approx(0.700337, abs=1e-6)
    assert sixteen["interval"][0] < 0.65 < sixteen["value"] < 0.75 < sixteen["interval"][1]
    assert sixteen["assumes"] == group["law"]["assumes"] == "if chances follow a beta law with a share never solved"
    assert group["law"]["never_solved"] == pytest.approx(0.1899, abs=1e-4)
    assert (hundred["value"], hundred["interval"]) == (None, None)
    assert hundred["why"] == "k is above 64, 16 times the 4 samples of a task"
    said = " ".join(calipers("curve", name, "--to", "100", cwd=tmp_path).stdout.split())
    assert "16* 0.700" in said
    assumed = "assuming that pass probabilities follow a beta distribution and that a share of tasks is never solved"
    assert f"* beyond the 4 samples of a task, {assumed}:" in said
    assert "Beta(0.48, 0.43), and 19 % never solved" in said
    assert "at k = 4: pass@k 0.600 from the samples, 0.600 from the model" in said
    assert "* no value: k is above 64, 16 times the 4 samples of a task" in said
    markdown = calipers("curve", name, "--to", "64", "--format", "md", cwd=tmp_path).stdout
    assert assumed in " ".join(markdown.split())
    assert document["digest"] != curves(name, cwd=tmp_path)["digest"]


def test_a_law_of_passes_says_nothing_of_votes(tmp_path):
    """Tasks with 5 to 8 samples: their log likelihoods add up, and the curve of votes ends where the samples do."""
    shown = " ".join(calipers("curve", ARITH, "--to", "64", cwd=tmp_path).stdout.split())
    assert "no maj@k beyond the 8 samples of a task: the model is for passes only" in shown
    assert "16* 0.812" in shown
    assert "fit of the model at k = 5: pass@k 0.737 from the samples, 0.747 from the model" in shown


def test_a_refused_extrapolation_says_why_everywhere(tmp_path):
    name = rewards(tmp_path, [[1] * 3 + [0] * 7, [0] * 10])
    done = calipers("curve", name, "--to", "100", "--plot", "c.svg", cwd=tmp_path)
    why = "2 tasks; at least 30 are needed to fit a law of chances"
    assert f"* no value beyond the 10 samples of a task: {plain_why(why)}" in " ".join(done.stdout.split())
    (group,) = curves(name, "--to", "100", cwd=tmp_path)["groups"]
    later = [point for curve in group["curves"] for point in curve["points"] if point["model_based"]]
    assert [(point["value"], point["why"]) for point in later] == [(None, why)] * 8
    assert group["law"]["why"] == why
    table = csv.DictReader(io.StringIO(calipers("curve", name, "--to", "16", "--format", "csv", cwd=tmp_path).stdout))
    assert [(row["value"], row["why"]) for row in table if row["k"] == "16"] == [("", why)] * 2
    assert b"no value beyond the samples" in (tmp_path / "c.svg").read_bytes()


def test_a_second_line_beyond_the_samples_needs_no_law(tmp_path):
    name = rewards(tmp_path, [[1] * c + [0] * (4 - c) for c, tasks in enumerate(SEEN) for _ in range(tasks)])
    (group,) = curves(name, "--to", "16", cwd=tmp_path)["groups"]
    free = group["free_bounds"]
    assert (free["samples"], free["tasks"], free["missing"], free["why"]) == (4, 100, 0, None)
    assert [point["k"] for point in free["points"]] == [8, 16]
    assert (free["points"][1]["low"], free["points"][1]["high"]) == pytest.approx((0.4704, 0.9863), abs=0.001)
    shown = " ".join(calipers("curve", name, "--to", "16", cwd=tmp_path).stdout.split())
    assert "pass@16, if chances follow a beta law with a share never solved: 0.700 (0.5" in shown
    assert "). Whatever the law: 0.470 to 0.986." in shown
    table = csv.DictReader(io.StringIO(calipers("curve", name, "--to", "16", "--format", "csv", cwd=tmp_path).stdout))
    with_bounds = [(row["metric"], row["k"], row["free_low"]) for row in table if row["free_low"]]
    assert with_bounds == [("pass@k", "8", with_bounds[0][2]), ("pass@k", "16", str(free["points"][1]["low"]))]


def test_the_line_without_a_law_is_there_where_the_law_is_refused(tmp_path):
    name = rewards(tmp_path, [[1] * c + [0] * (4 - c) for c in (0, 0, 1, 1, 2, 2, 3, 3, 4, 4)])
    shown = " ".join(calipers("curve", name, "--to", "16", "--plot", "c.svg", cwd=tmp_path).stdout.split())
    assert "10 tasks; at least 30 are needed" in shown
    assert "pass@16, whatever the law: 0." in shown
    assert b"dotted: bounds of pass@k that need no model" in (tmp_path / "c.svg").read_bytes()


def test_without_bounds_a_reason_is_said(tmp_path):
    name = rewards(tmp_path, [[1, 0, 1, 0]] * 40)
    (group,) = curves(name, "--to", "16", cwd=tmp_path)["groups"]
    assert group["free_bounds"]["points"] == []
    assert group["free_bounds"]["why"]["code"] == "free_bounds_impossible"
    shown = " ".join(calipers("curve", name, "--to", "16", cwd=tmp_path).stdout.split())
    assert "no bounds of pass@k that need no model: no distribution of chances gives" in shown
    assert "Whatever the law:" not in shown


def test_a_run_that_retries_until_a_pass_has_no_bounds(tmp_path):
    tasks = [[1]] * 10 + [[0, 1]] * 10 + [[0, 0, 1]] * 5 + [[0, 0, 0]] * 10
    (group,) = curves(rewards(tmp_path, tasks), "--to", "16", cwd=tmp_path)["groups"]
    assert group["free_bounds"]["why"]["code"] == "free_bounds_counts"


def test_curves_with_bounds_are_read_back():
    drawn = cal.curve([[1, 0, 0]] * 6 + [[0, 0, 0]] * 6, upto=8)
    assert type(drawn).from_json(drawn.to_json()).groups == drawn.groups
    assert type(drawn).from_json(drawn.to_json()).digest == drawn.digest
    refused = cal.curve([[1, 0]], upto=8)
    assert type(refused).from_json(refused.to_json()).digest == refused.digest


def test_curves_written_before_there_were_bounds_are_read():
    document = cal.curve([[1, 0, 0]] * 6, upto=8).to_dict()
    for group in document["groups"]:
        del group["free_bounds"]
    assert cal.Curves.from_dict(document).groups[0].free_bounds is None


def test_bands_say_that_each_is_by_itself(tmp_path):
    name = rewards(tmp_path)
    for more in ((), ("--format", "md")):
        shown = calipers("curve", name, *more, cwd=tmp_path).stdout
        assert "95 % bands are valid for each k on its own, not for all k together" in " ".join(shown.split())


def test_to_may_end_the_curve_early(tmp_path):
    (group,) = curves(rewards(tmp_path), "--to", "2", cwd=tmp_path)["groups"]
    assert list(values(group, "pass^k")) == [1, 2]
    assert [one["k"] for one in group["first_success"]] == [1, 2]


def test_what_it_costs_to_reach_a_first_pass(tmp_path):
    def row(sample, reward, cost):
        return {"task": "a", "sample": sample, "reward": reward, "usage": {"cost_usd": cost}}

    (group,) = curves(lines(tmp_path, row(0, 1, 3.0), row(1, 0, 1.0)), cwd=tmp_path)["groups"]
    one, two = group["first_success"]
    assert (one["tries"], one["cost"], one["cost_per_success"]) == (1, 2.0, 4.0)
    # half of the time the first try passes for 3; else a failure for 1 comes before it
    assert (two["tries"], two["cost"], two["solved"]) == (1.5, 3.5, 1.0)


def test_an_unknown_cost_is_said_not_guessed(tmp_path):
    rows = [{"task": "a", "sample": 0, "reward": 1, "usage": {"cost_usd": 1}}, {"task": "a", "sample": 1, "reward": 0}]
    (group,) = curves(lines(tmp_path, *rows), cwd=tmp_path)["groups"]
    assert [one["cost"] for one in group["first_success"]] == [None, None]
    assert any("some tasks have no finite cost_usd" in note for note in group["notes"])


@pytest.mark.parametrize(
    ("missing", "expected"),
    [("gap", {1: 0.75, 2: 1}), ("zero", {1: 0.5, 2: 1})],  # left out, only one task has two samples
)
def test_a_gap_is_no_sample_unless_it_counts_zero(tmp_path, missing, expected):
    name = rewards(tmp_path, [[1, None], [1, 0]])
    (group,) = curves(name, "--missing", missing, cwd=tmp_path)["groups"]
    assert values(group, "pass@k") == pytest.approx(expected)


def test_missing_fail_refuses_gaps(tmp_path):
    name = rewards(tmp_path, [[1, None], [1, 0]])
    said = refused("curve", name, "--missing", "fail", cwd=tmp_path, code=3)
    assert said.startswith("1 of 4 rollouts is missing; --missing gap excludes them")


def test_each_model_and_each_reward_has_its_own_curves(tmp_path):
    rows = [
        {"task": "a", "sample": n, "model": model, "rewards": {"style": n / 2, "truth": 1}}
        for model in ("x", "y")
        for n in range(2)
    ]
    groups = curves(lines(tmp_path, *rows), cwd=tmp_path)["groups"]
    assert [(group["model"], group["reward"]) for group in groups] == [
        (model, key) for model in ("x", "y") for key in ("style", "truth")
    ]
    chosen = curves(lines(tmp_path, *rows), "--reward", "truth", cwd=tmp_path)["groups"]
    assert [group["reward"] for group in chosen] == ["truth", "truth"]


def test_the_shapes_agree(tmp_path):
    found = curves(ARITH, cwd=tmp_path)
    table = list(csv.DictReader(io.StringIO(calipers("curve", ARITH, "--format", "csv", cwd=tmp_path).stdout)))
    flat = [(c["metric"], p["k"], p["value"]) for g in found["groups"] for c in g["curves"] for p in c["points"]]
    assert [(row["metric"], int(row["k"]), float(row["value"])) for row in table] == flat
    markdown = calipers("curve", ARITH, "--format", "md", cwd=tmp_path).stdout
    shown = calipers("curve", ARITH, cwd=tmp_path).stdout
    first = f"{flat[0][2]:.3f}"
    assert f"| 1 | {first} |" in markdown
    assert f"1   {first}" in shown
    assert "tasks have 5 to 8 samples: from k = 6 on the curve is over fewer tasks" in shown


def test_the_same_rollouts_give_the_same_digest(tmp_path):
    one = curves(rewards(tmp_path, name="a.json"), cwd=tmp_path)
    two = curves(rewards(tmp_path, name="b.json"), cwd=tmp_path)
    other = curves("b.json", "--threshold", "0.5", cwd=tmp_path)
    assert one["digest"] == two["digest"] != other["digest"]


def test_out_and_plot_are_written(tmp_path):
    done = calipers("curve", rewards(tmp_path), "--out", "c.json", "--plot", "c.svg", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert json.loads((tmp_path / "c.json").read_text())["schema"] == "calipers.curves/1"
    assert b"pass@k" in (tmp_path / "c.svg").read_bytes()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--to", "0"], "--to is 0; expected a number of samples from 1 to 1,000,000"),
        (["--threshold", "nan"], "--threshold: is nan; expected a number that a reward can reach"),
        (["--plot", "c.pdf"], "c.pdf: does not have the name of a picture; expected a name that ends in .svg or .png"),
        (["--plot", "no/c.svg"], "no/c.svg: there is no folder 'no'; create it first"),
        (["--cluster", "author"], "--cluster author: task 'add-00' has no 'author'"),
        (["--reward", "accuracy"], "no reward named 'accuracy'; known: reward"),
        (["--confidence", "95"], "confidence is 95.0; expected a number between 0 and 1"),
    ],
)
def test_what_cannot_be_drawn_is_one_line(tmp_path, monkeypatch, capsys, arguments, said):
    monkeypatch.chdir(tmp_path)
    assert run(["curve", ARITH, *arguments]) == 2
    found = capsys.readouterr()
    assert found.out == ""
    assert found.err.startswith(said)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("tasks", [[], [[None, None]]])
def test_no_rewards_no_curve(tmp_path, tasks):
    assert refused("curve", rewards(tmp_path, tasks), cwd=tmp_path).startswith("no rollout has a reward")


def test_one_task_has_a_curve_and_no_band(tmp_path):
    shown = calipers("curve", rewards(tmp_path, [[1, 0]]), cwd=tmp_path).stdout
    assert "no band: at least two tasks are needed" in shown


def test_without_matplotlib_the_picture_is_one_clear_line(tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "matplotlib", None)  # as Python itself marks what cannot be imported
    monkeypatch.chdir(tmp_path)
    assert run(["curve", ARITH, "--plot", "c.svg"]) == 2
    said = capsys.readouterr().err
    assert said == "--plot needs matplotlib, which is not installed; pip install 'calipers[plot]'\n"
    assert run(["curve", ARITH]) == 0


def test_bands_over_clusters_say_so(tmp_path):
    rows = [
        {"task": f"t{n}", "sample": sample, "reward": (n + sample) % 2, "metadata": {"document": f"d{n // 4}"}}
        for n in range(12)
        for sample in range(2)
    ]
    run = lines(tmp_path, *rows)
    plain, clustered = (calipers("curve", run, *more, cwd=tmp_path).stdout for more in ((), ("--cluster", "document")))
    said = "bands are over clusters: the tasks of one document are one unit"
    assert said in clustered
    assert said not in plain


def test_from_python():
    found = cal.curve([[1, 0], [0, 0]])
    assert [point.value for point in found["pass@k"].points] == [0.25, 0.5]
    assert found.to_polars().height == 6
    with pytest.raises(cal.InputError, match=r"no curve in this group named 'pass@1'"):
        found["pass@1"]


def test_a_group_without_rewards_says_so_beside_the_others(tmp_path):
    rows = [{"task": "a", "sample": n, "model": "x", "reward": n} for n in range(2)]
    run_file = lines(tmp_path, *rows, {"task": "a", "sample": 0, "model": "y", "outcome": "client_failed"})
    first, second = curves(run_file, "--to", "8", "--plot", "c.svg", cwd=tmp_path)["groups"]
    assert list(values(first, "pass@k")) == [1, 2, 4, 8]
    assert values(second, "pass@k") == {}
    assert second["notes"][0] == "no rollout has a reward, so there is no curve"
    assert b">y<" in (tmp_path / "c.svg").read_bytes()
