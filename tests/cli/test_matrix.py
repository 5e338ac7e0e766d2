"""``calipers score`` and ``calipers compare`` of a folder of runs, and several runs at once, as a user types them."""

from __future__ import annotations

import csv
import io
import json
import shutil
from pathlib import Path

import pytest
from analyses.matrix.rows import NEW, OLD, rows_of, share, suite_rows
from cli.running import ARITH, calipers, lines, refused

NEXT = ARITH.replace("arith.jsonl", "arith_next.jsonl")
BENCHMARK = ARITH.removesuffix(".jsonl")


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A folder of files, one for each benchmark and model."""
    folder = tmp_path_factory.mktemp("matrix")
    (folder / "runs").mkdir()
    rows = suite_rows()
    for dataset, model in {(row["dataset"], row["model"]) for row in rows}:
        some = [row for row in rows if (row["dataset"], row["model"]) == (dataset, model)]
        lines(folder / "runs", *some, name=f"{dataset}-{model}.jsonl")
    (folder / "runs" / "notes.md").write_text("# not a run\n")
    return folder


def test_a_folder_of_runs_is_a_matrix(home):
    done = calipers("score", "runs", cwd=home)
    assert (done.returncode, done.stderr) == (0, "")
    page = done.stdout.splitlines()
    assert page[0].startswith("5 benchmarks, 2 models")
    assert page[1] == "B is better than A by 0.030 over five benchmarks."
    assert len(page) == 21


@pytest.mark.parametrize("command", ["score", "compare"])
def test_rewards_of_a_matrix_may_be_words(tmp_path, command):
    (tmp_path / "runs").mkdir()
    for model, word in (("a", "yes"), ("b", "no")):
        for dataset in "xy":
            rows = [{"task": f"t{n}", "model": model, "dataset": dataset, "ok": word} for n in range(6)]
            lines(tmp_path / "runs", *rows, name=f"{model}-{dataset}.jsonl")
    options = ("--columns", "reward=ok", "--truth", "yes=1,no=0", "--format", "json")
    done = calipers(command, "runs", *options, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert [cell["value"] for cell in json.loads(done.stdout)["mean"]["cells"]] == [1, 0]


def test_every_format_and_the_file_agree(home, tmp_path):
    path = str(tmp_path / "matrix.json")
    done = calipers("score", "runs", "--format", "json", "--out", path, cwd=home)
    document = json.loads(done.stdout)
    assert document["schema"] == "calipers.matrix/1"
    with open(path, encoding="utf-8") as file:
        assert json.load(file) == document
    rows = list(csv.DictReader(io.StringIO(calipers("score", "runs", "--format", "csv", cwd=home).stdout)))
    assert float(rows[-1]["delta"]) == document["mean"]["delta"]
    assert "| macro mean |" in calipers("score", "runs", "--format", "md", cwd=home).stdout


def test_details_follow_on_request(home):
    done = calipers("score", "runs", "--details", cwd=home)
    assert done.stdout.startswith("5 benchmarks, 2 models")
    assert f"leetcode-hard · {NEW}" in done.stdout


def test_by_shows_the_ordinary_page(home):
    done = calipers("score", "runs", "--by", "model", cwd=home)
    assert done.returncode == 0, done.stderr
    assert "5 benchmarks, 2 models" not in done.stdout


def test_further_metrics_are_named(home):
    done = calipers("score", "runs", "--metric", "pass@1", "--metric", "mean_reward", cwd=home)
    assert "pass@1, 95 % intervals" in done.stdout
    assert "the matrix shows pass@1; --details also shows mean_reward" in done.stderr
    detailed = calipers("score", "runs", "--metric", "pass@1", "--metric", "mean_reward", "--details", cwd=home)
    assert "the matrix shows" not in detailed.stderr


@pytest.mark.parametrize("arguments", [["score", "runs", "--details", "--format", "json"], ["compare", "runs"]])
def test_further_metrics_that_are_not_shown_are_named(home, arguments):
    done = calipers(*arguments, "--metric", "pass@1", "--metric", "mean_reward", cwd=home)
    assert done.returncode == 0, done.stderr
    assert "note: the matrix shows pass@1, and not mean_reward" in done.stderr


def test_one_run_in_a_folder_has_its_own_page(tmp_path):
    (tmp_path / "runs").mkdir()
    lines(tmp_path / "runs", *rows_of({("x", "a"): share(0.5)}), name="x.jsonl")
    assert calipers("score", "runs", cwd=tmp_path).stdout == calipers("score", "runs/x.jsonl", cwd=tmp_path).stdout


def test_compare_takes_models_in_their_order(home):
    done = calipers("compare", "runs", "--models", f"{NEW},{OLD}", cwd=home)
    assert done.returncode == 0, done.stderr
    assert "B is worse than A by 0.030 over five benchmarks." in done.stdout
    failing = ("compare", "runs", "--models", f"{NEW},{OLD}", "--fail-on", "worse")
    assert calipers(*failing, cwd=home).returncode == 1
    assert calipers("compare", "runs", "--models", f"{OLD},{NEW}", "--fail-on", "worse", cwd=home).returncode == 0


def test_compare_of_one_benchmark_is_the_comparison_of_its_runs(tmp_path):
    (tmp_path / "runs").mkdir()
    for model, rate in (("a", 0.5), ("b", 0.7)):
        lines(tmp_path / "runs", *rows_of({("x", model): share(rate)}), name=f"{model}.jsonl")
    whole = calipers("compare", "runs", "--models", "b,a", cwd=tmp_path)
    assert whole.stdout == calipers("compare", "runs/b.jsonl", "runs/a.jsonl", cwd=tmp_path).stdout


def test_compare_for_ci_has_a_case_for_each_benchmark_and_their_mean(home):
    done = calipers("compare", "runs", "--models", f"{NEW},{OLD}", "--format", "junit", cwd=home)
    assert 'tests="6" failures="1" errors="0" skipped="5"' in done.stdout
    assert 'testcase name="mean_reward · macro mean"' in done.stdout
    noted = calipers("compare", "runs", "--models", f"{NEW},{OLD}", "--format", "github", cwd=home)
    assert noted.stdout.startswith("### 5 benchmarks, 2 models")
    assert noted.stderr.count("::error") == 1
    assert noted.stderr.count("::notice") == 5


def test_compare_takes_models_of_one_file_too(tmp_path):
    lines(tmp_path, *suite_rows(), name="all.jsonl")
    done = calipers("compare", "all.jsonl", "--models", f"{OLD},{NEW}", cwd=tmp_path)
    assert "B is better than A by 0.030 over five benchmarks." in done.stdout


def test_runs_results_and_files_of_rollouts_are_one_set(tmp_path):
    """Folders as calipers run writes them, a finished result, and a file of rollouts."""
    for name, file in (("a", ARITH), ("b", NEXT)):
        done = calipers(
            "run", BENCHMARK, "--model", f"replay/{file}", "--samples", "8", "--out", f"runs/{name}", cwd=tmp_path
        )
        assert done.returncode in (0, 3), done.stderr
    other = rows_of({("other", "x"): share(0.5)})
    lines(tmp_path / "runs", *other, name="other.jsonl")
    lines(tmp_path, *rows_of({("other", "y"): share(0.6)}), name="y.jsonl")
    assert calipers("score", "y.jsonl", "--out", "runs/y.json", cwd=tmp_path).returncode == 0
    document = json.loads(calipers("score", "runs", "--format", "json", cwd=tmp_path).stdout)
    assert [row["benchmark"] for row in document["benchmarks"]] == ["arith", "other"]
    assert len(document["models"]) == 4
    assert document["benchmarks"][0]["delta"] == pytest.approx(0.11, abs=0.01)
    assert document["benchmarks"][1]["why"].startswith("a finished result")


def test_several_runs_end_with_a_matrix_and_details_on_request(tmp_path):
    lines(
        tmp_path,
        *({"id": f"q{n}", "question": f"{n} + 1 = ?", "answer": str(n + 1)} for n in range(12)),
        name="q.jsonl",
    )
    (tmp_path / "model.py").write_text("def right(prompt):\n    return str(int(prompt.split()[0]) + 1)\n")
    (tmp_path / "other.py").write_text("def wrong(prompt):\n    return '0'\n")
    models = ("--model", "python/model.py:right", "--model", "python/other.py:wrong")
    for name in ("q2", "q3"):
        (tmp_path / f"{name}.jsonl").write_bytes((tmp_path / "q.jsonl").read_bytes())
    done = calipers(
        "run", "q.jsonl", "q2.jsonl", "q3.jsonl", *models, "--verifier", "exact_match", "--trust", cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("3 benchmarks, 2 models")
    assert len(done.stdout.splitlines()) < 25
    again = calipers(
        "run",
        "q.jsonl",
        "q2.jsonl",
        "q3.jsonl",
        *models,
        "--verifier",
        "exact_match",
        "--trust",
        "--details",
        cwd=tmp_path,
    )
    assert again.stdout.startswith(done.stdout)
    assert "mean_reward ↑" in again.stdout
    assert "more: --details" not in again.stdout
    one = ("run", "q.jsonl", "--model", "python/model.py:right", "--verifier", "exact_match", "--trust")
    assert "more: --details" in calipers(*one, "--all", cwd=tmp_path).stdout
    assert "± stderr" in calipers(*one, "--details", cwd=tmp_path).stdout
    assert "latency_p90 ↓" in calipers(*one, "--economics", cwd=tmp_path).stdout
    programs = calipers(
        "run", "q.jsonl", "q2.jsonl", *models, "--verifier", "exact_match", "--trust", "--format", "json", cwd=tmp_path
    )
    assert json.loads(programs.stdout)["schema"] == "calipers.result/1"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("score", "empty"), "empty: has no runs; expected run folders"),
        (("score", "twice"), "is a second run of 'x' by 'a', beside twice/1.jsonl; expected one run of each"),
        (("score", "broken"), "broken/result.json: not JSON"),
        (("compare", "two", "--models", "a,modle-b"), "no model named 'modle-b' in these runs; did you mean 'model-b'"),
        (("compare", "two", "--models", "a"), "a is the only model; expected two models or more"),
        (("compare", "two", "--test", "strict"), "--test: is for one benchmark, and two has 2"),
        (("score", "two", "--metric", "max(column=reward)"), "no mean over tasks"),
    ],
)
def test_wrong_input_is_a_line(tmp_path, arguments, message):
    for name in ("empty", "twice", "broken", "two"):
        (tmp_path / name).mkdir()
    for number in (1, 2):
        lines(tmp_path / "twice", *rows_of({("x", "a"): share(0.5)}), name=f"{number}.jsonl")
    (tmp_path / "broken" / "result.json").write_text('{"schema": "calipers.result/1", "dialect"')
    lines(tmp_path / "two", *rows_of({(d, m): share(0.5) for d in "xy" for m in ("a", "model-b")}), name="all.jsonl")
    assert message in refused(*arguments, cwd=tmp_path)


def test_models_in_one_file_have_no_option_of_two_runs(tmp_path):
    lines(tmp_path, *rows_of({("x", model): share(0.5) for model in "ab"}), name="all.jsonl")
    refusal = refused("compare", "all.jsonl", "--models", "a,b", "--flips", "3", cwd=tmp_path)
    remedy = "remove it, or give the two runs of one benchmark"
    assert refusal == f"--flips: needs a file of rollouts for each model; {remedy}"


def test_excluded_rollouts_are_not_in_a_matrix(home):
    less = ("--exclude", "task=t0", "--format", "json")
    for verb in ("score", "compare"):
        whole = json.loads(calipers(verb, "runs", "--format", "json", cwd=home).stdout)
        part = json.loads(calipers(verb, "runs", *less, cwd=home).stdout)
        tasks = [[row["tasks"] for row in document["benchmarks"]] for document in (whole, part)]
        assert [old - new for old, new in zip(*tasks, strict=True)] == [1] * 5
    assert "--exclude task=nowhere" in refused("score", "runs", "--exclude", "task=nowhere", cwd=home)


def test_ci_sees_the_mean_and_every_benchmark(home):
    done = calipers("compare", "runs", "--models", f"{NEW},{OLD}", "--format", "junit", cwd=home)
    assert done.returncode == 0, done.stderr
    assert '<testsuites name="calipers compare" tests="6" failures="1" errors="0" skipped="5">' in done.stdout
    assert 'name="mean_reward · macro mean"' in done.stdout
    done = calipers("compare", "runs", "--models", f"{NEW},{OLD}", "--format", "github", cwd=home)
    assert done.stderr.count("::error ") == 1
    assert done.stderr.count("::notice ") == 5


def test_what_a_matrix_has_no_use_for_is_not_swallowed(home):
    assert "nothing is exported" in refused("score", "runs", "--force", cwd=home)
    assert "--trust" in refused("score", "runs", "--metric-script", "count.py", cwd=home)
    assert "5 benchmarks, 2 models" not in calipers("score", "runs", "--economics", cwd=home).stdout


GOLDEN = Path(__file__).parents[1] / "golden" / "formats"


def test_files_of_training_steps_are_one_run_and_no_models(tmp_path):
    folder = str(GOLDEN / "verl" / "validation")
    page = calipers("score", folder, cwd=tmp_path).stdout.splitlines()
    assert page[1] == "The run has a mean_reward of 0.867 on step 40, the last of 3."
    assert [line.split()[0] for line in page[7:10]] == ["0", "20", "40"]
    assert "several training steps" in refused("report", folder, cwd=tmp_path)
    done = calipers("score", str(GOLDEN / "skyrl" / "dumped_evals"), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "3 datasets" in done.stdout


def test_settings_beside_runs_are_no_run(home, tmp_path):
    shutil.copytree(home / "runs", tmp_path / "runs")
    (tmp_path / "runs" / "config.json").write_text('{"seed": 1}\n')
    assert calipers("score", "runs", cwd=tmp_path).stdout == calipers("score", "runs", cwd=home).stdout


# --- benchmarks of unlike scales


@pytest.fixture(scope="module")
def unlike(tmp_path_factory):
    """The accuracy falls from 0.9 to 0.1, and chrF rises by 9."""
    folder = tmp_path_factory.mktemp("unlike")
    (folder / "runs").mkdir()
    for model, passed, mean in (("a", 0.9, 55.0), ("b", 0.1, 64.0)):
        chrf = [mean + (task * 7) % 11 - 5 + (task % 4 - 1.5) * (model == "b") for task in range(60)]
        for dataset, rewards in (("acc", share(passed)), ("chrf", chrf)):
            lines(folder / "runs", *rows_of({(dataset, model): rewards}), name=f"{dataset}-{model}.jsonl")
    return folder


@pytest.mark.parametrize("command", ["score", "compare"])
def test_benchmarks_of_unlike_scales_have_no_mean_and_both_ways_to_one_are_printed(unlike, command):
    done = calipers(command, "runs", cwd=unlike)
    assert done.returncode == 0, done.stderr
    page = done.stdout.splitlines()
    assert page[1].startswith("No mean over benchmarks: acc lies within 0 to 1, chrf reaches ")
    assert page[2] == "Worse on acc by 0.80; better on chrf by 9.00."
    assert "--range acc=0,1 --range chrf=LOW,HIGH --mean of-range" in done.stderr
    assert "if all benchmarks have one range: --range LOW,HIGH" in done.stderr


def test_the_mean_of_the_range_says_so(unlike):
    given = ("--range", "acc=0,1", "--range", "chrf=0,100", "--mean", "of-range")
    done = calipers("compare", "runs", *given, cwd=unlike)
    assert done.returncode == 0, done.stderr
    assert "b is worse than a on average by 0.355 of the range over two benchmarks; better" in done.stdout
    document = json.loads(calipers("compare", "runs", *given, "--format", "json", cwd=unlike).stdout)
    assert (document["mean"]["of_range"], document["mean"]["verdict"]) == (True, "worse")
    scored = calipers("score", "runs/acc-a.jsonl", "runs/chrf-a.jsonl", *given, cwd=unlike)
    assert "of the range over 2 datasets" in scored.stdout


def test_a_benchmark_that_is_worse_fails_although_there_is_no_mean(unlike):
    assert calipers("compare", "runs", "--fail-on", "worse", cwd=unlike).returncode == 1


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--range", "chr=0,100"], "no benchmark in these runs named 'chr'; did you mean 'chrf'?"),
        (["--range", "chrf=0,50"], "of 'chrf' sample 0: reward is"),
        (["--range", "chrf=0"], "--range: 'chrf=0' cannot be read; expected LOW,HIGH"),
        (["--range", "=0,1"], "--range: '=0,1' names no benchmark"),
        (["--range", "acc=0,1", "--range", "acc=0,2"], "--range: acc is given twice"),
        (["--range", "0,1", "--range", "0,2"], "--range: a range of all benchmarks is given twice"),
        (["--mean", "of-range"], "--mean of-range: chrf has no range: its values go from"),
    ],
)
def test_a_range_that_does_not_fit_is_an_error_with_its_place(unlike, arguments, said):
    assert said in refused("compare", "runs", *arguments, cwd=unlike)


def test_two_runs_of_one_benchmark_have_no_mean_over_benchmarks(unlike):
    said = refused("compare", "runs/acc-a.jsonl", "runs/acc-b.jsonl", "--mean", "of-range", cwd=unlike)
    assert said == "--mean: is for a folder of runs on several benchmarks; leave it out"
