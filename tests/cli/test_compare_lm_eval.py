"""``calipers compare`` and ``calipers gate`` on runs of lm-evaluation-harness' tasks, as a user runs them."""

from __future__ import annotations

import json

import pytest
from analyses.compare.tables import home, ran
from cli.running import calipers, refused

pytest.importorskip("sacrebleu", reason="sacrebleu comes with calipers[text]")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with the runs said-before and said-after, of one task by two models."""
    made = home(tmp_path_factory.mktemp("said"))
    for model in ("before", "after"):
        ran(made, "said", model)
    return made


def test_the_page_says_which_way_is_better(folder):
    done = calipers("compare", "said-before", "said-after", "--metric", "ter", "--metric", "bleu", cwd=folder)
    assert (done.returncode, done.stderr) == (0, "")
    rows = [line.split() for line in done.stdout.splitlines() if line.startswith(("ter ", "bleu "))]
    assert [(row[0], row[1] == "↓", row[-1]) for row in rows] == [("ter", True, "better"), ("bleu", False, "better")]


def test_a_third_run_without_such_a_table_is_left_out_by_name(folder):
    rows = [{"task": str(number), "sample": 0, "reward": 1.0} for number in range(40)]
    (folder / "third.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    done = calipers("compare", "said-before", "said-after", "third.jsonl", "--metric", "bleu", cwd=folder)
    assert done.returncode == 0, done.stderr
    assert "third.jsonl share none of these numbers" in done.stdout + done.stderr
    assert [line.split()[-1] for line in done.stdout.splitlines() if line.startswith("bleu ")] == ["better"]


def test_worse_is_worse_for_the_exit_code(folder):
    """A higher error rate is worse although the number increases."""
    asked = ("compare", "said-after", "said-before", "--metric", "ter", "--fail-on", "worse", "--format", "json")
    done = calipers(*asked, cwd=folder)
    (finding,) = json.loads(done.stdout)["contests"][0]["pairs"][0]["findings"]
    assert (done.returncode, finding["verdict"], finding["delta"] > 0) == (1, "worse", True)


def test_the_same_command_again_writes_what_is_missing(folder):
    """If the document table of a run is missing, the same run command writes it without any request."""
    old = folder / "said-before" / "documents.jsonl"
    kept, log = old.read_bytes(), (folder / "said-before" / "rollouts.jsonl").read_bytes()
    old.unlink()
    said = refused("compare", "said-before", "said-after", "--metric", "bleu", cwd=folder)
    assert said.startswith("metric 'bleu': lm-evaluation-harness' numbers cannot be compared: said-before/documents")
    model = f"python/{folder / 'models.py'}:before"
    again = calipers("run", f"{folder / 'said.yaml'}", "--model", model, "--out", "said-before", cwd=folder)
    assert again.returncode == 0, again.stderr
    assert old.read_bytes() == kept
    assert (folder / "said-before" / "rollouts.jsonl").read_bytes() == log


def test_predictions_alone_keep_nothing(folder):
    model = f"python/{folder / 'models.py'}:after"
    done = calipers("run", "said.yaml", "--model", model, "--predict-only", "--out", "bare", cwd=folder)
    assert done.returncode == 0, done.stderr
    assert not (folder / "bare" / "documents.jsonl").exists()


def test_scoring_writes_nothing(folder):
    before = {path: path.stat().st_mtime_ns for path in (folder / "said-after").iterdir()}
    assert calipers("score", "said-after", "--dialect", "lm_eval", "--format", "md", cwd=folder).returncode == 0
    assert {path: path.stat().st_mtime_ns for path in (folder / "said-after").iterdir()} == before


def test_a_gate_on_both_runs(folder):
    asked = ("--baseline", "said-before", "--require", "lower(delta(bleu)) >= 0", "--require", "upper(ter) <= 50")
    done = calipers("gate", "said-after", *asked, cwd=folder)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[1] == "Passed: 2 of 2 rules."


def test_a_reward_is_no_metric_and_the_metric_of_it_is_named(tmp_path):
    for name in ("a", "b"):
        row = {"doc_id": 0, "doc": {}, "resps": [["x"]], "filtered_resps": ["x"], "filter": "none"}
        lines = [json.dumps({**row, "doc_id": n, "acc": n % 2, "mcc": [1, n % 2]}) for n in range(4)]
        (tmp_path / name).mkdir()
        (tmp_path / name / "samples_t.jsonl").write_text("\n".join(lines))
    said = refused("compare", "a/samples_t.jsonl", "b/samples_t.jsonl", "--metric", "acc", cwd=tmp_path)
    assert said == (
        "'acc' is a reward of these runs, not a metric; expected mean_reward(reward=acc), or --dialect lm_eval"
    )


def test_pipelines_of_one_task_and_the_rewards_of_several_are_told_apart(tmp_path):
    """Two results folders with two tasks, one of which has two filter pipelines and another metric."""
    for model, passes in (("a", 4), ("b", 12)):
        (tmp_path / model).mkdir()
        for task, metric, pipelines in (("gsm", "exact_match", ("flex", "strict")), ("arc", "acc", ("none",))):
            rows = [
                {
                    **{"doc_id": number, "doc": {}, "resps": [["x"]], "filtered_resps": ["4"], "filter": pipeline},
                    **{metric: float(number < passes), **({"acc_norm": 1.0} if metric == "acc" else {})},
                }
                for pipeline in pipelines
                for number in range(16)
            ]
            lines = "".join(json.dumps(row) + "\n" for row in rows)
            (tmp_path / model / f"samples_{task}_2026-01-02T03-04-05.678.jsonl").write_text(lines)
        results = {"results": {}, "model_name": model}
        (tmp_path / model / "results_2026-01-02T03-04-05.678.json").write_text(json.dumps(results))
    done = calipers("compare", "a", "b", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert [line.partition("B − A")[0].strip() for line in lines if " B − A " in line] == [
        "arc",
        "gsm · flex",
        "gsm · strict",
    ]
    assert "mean_reward" not in lines[0]  # the tasks have different rewards: each is named below
    assert "\narc: mean_reward(reward=acc)\ngsm · flex, gsm · strict: mean_reward\n" in done.stdout
    alone = calipers("compare", *(f"{model}/samples_gsm_2026-01-02T03-04-05.678.jsonl" for model in "ab"), cwd=tmp_path)
    assert [name in alone.stdout for name in ("gsm · flex", "gsm · strict")] == [True, True]
    matched = calipers("compare", "a", "b", "--reward", "exact_match", cwd=tmp_path)
    assert matched.returncode == 0, matched.stderr
    assert "note: excluded, because no rollout has the reward 'exact_match': arc" in matched.stderr
    assert refused("compare", "a", "b", "--reward", "match", cwd=tmp_path).startswith("no reward named 'match'")
