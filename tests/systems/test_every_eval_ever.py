"""The export to Every Eval Ever; tests/exports checks its files with Every Eval Ever's own validator."""

import hashlib
import json
import math
from pathlib import Path

import polars as pl
import pytest
from cli.running import ARITH, calipers, refused

from calipers.formats.read import read


def exported(folder: Path) -> list[tuple[dict, list[dict]]]:
    """The pairs of files below a folder: the aggregate and the samples."""
    pairs = []
    for path in sorted(folder.glob("data/*/*/*/*.json")):
        document = json.loads(path.read_text())
        samples = folder / document["detailed_evaluation_results"]["file_path"]
        assert samples == path.with_name(path.stem + "_samples.jsonl")
        pairs.append((document, [json.loads(line) for line in samples.read_text().split("\n") if line]))
    return pairs


def test_every_number_has_its_uncertainty_and_what_has_no_place_is_under_details(tmp_path):
    asked = ("--metric", "mean_reward", "--metric", "pass@2", "--by", "difficulty", "--format", "json")
    done = calipers("score", ARITH, *asked, "--export", "every_eval_ever", cwd=tmp_path)
    assert done.returncode == 0
    (group,) = json.loads(done.stdout)["groups"]
    ((document, samples),) = exported(tmp_path)
    (number, *_) = document["evaluation_results"]
    ours = group["metrics"]["mean_reward"]
    assert number["score_details"]["score"] == ours["value"]
    assert number["score_details"]["uncertainty"] == {
        "standard_error": {"value": ours["stderr"], "method": "over tasks"},
        "confidence_interval": {
            **dict(zip(("lower", "upper"), ours["interval"], strict=True)),
            "confidence_level": 0.95,
            "method": ours["method"],
        },
        "num_samples": 40,
    }
    details = number["score_details"]["details"]
    assert (details["tasks"], details["samples"], details["missing"], details["planned"]) == ("40", "303", "17", "320")
    assert [float(details[key]) for key in ("lowest_with_missing", "highest_with_missing")] == ours["bounds"]
    ids = [each["evaluation_result_id"] for each in document["evaluation_results"]]
    assert ids[:3] == ["arith:mean_reward", "arith:pass@2", "arith:mean_reward[difficulty=easy]"]
    detailed = document["detailed_evaluation_results"]
    content = (tmp_path / detailed["file_path"]).read_bytes()
    assert (detailed["checksum"], detailed["total_rows"]) == (hashlib.sha256(content).hexdigest(), len(samples))
    assert "17 missing rollouts have no line among the samples" in done.stderr


def test_the_samples_give_the_same_mean_again(tmp_path):
    calipers("score", ARITH, "--export", "every_eval_ever=out", cwd=tmp_path)
    ((document, samples),) = exported(tmp_path / "out")
    by_task: dict[str, list[float]] = {}
    for sample in samples:
        by_task.setdefault(sample["sample_id"], []).append(sample["evaluation"]["score"])
    means = [sum(scores) / len(scores) for scores in by_task.values()]
    assert sum(means) / len(means) == pytest.approx(document["evaluation_results"][0]["score_details"]["score"])
    assert {sample["evaluation_result_id"] for sample in samples} == {"arith:mean_reward"}
    assert {sample["metadata"]["outcome"] for sample in samples} == {"scored", "refused", "truncated", "unparsed"}


def test_reading_the_files_again_gives_the_same_numbers(tmp_path):
    done = calipers("score", ARITH, "--format", "json", "--export", "every_eval_ever", cwd=tmp_path)
    (samples,) = map(str, tmp_path.glob("data/*/*/*/*_samples.jsonl"))
    again = calipers("score", samples, "--format", "json", cwd=tmp_path)
    before, after = (json.loads(each.stdout)["groups"][0] for each in (done, again))
    for name in ("mean_reward", "pass_rate"):
        for key in ("value", "stderr", "interval", "tasks", "samples"):
            assert after["metrics"][name][key] == before["metrics"][name][key]
    assert (before["ledger"]["gaps"], after["ledger"]["gaps"]) == (17, 0)  # missing rollouts have no line


HOSTILE = ["../../etc/passwd", "a/b/c", ".", "x" * 300, "\u202egnp.exe", "CON", "a\nb", "ü"]


def test_a_pair_for_each_group_whatever_it_is_called(tmp_path):
    rows = [{"task": "t", "reward": 1, "model": name, "dataset": name, "agent": name} for name in HOSTILE]
    rows += [{"task": "t", "reward": 1}]
    (tmp_path / "r.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert calipers("score", "r.jsonl", "--export", "every_eval_ever", cwd=tmp_path).returncode == 0
    pairs = exported(tmp_path)
    assert len(pairs) == len(HOSTILE) + 1
    assert {document["model_info"]["id"] for document, _ in pairs} == {*HOSTILE, "unknown"}
    for path in (path for path in tmp_path.rglob("*") if path.name != "r.jsonl"):
        assert path.relative_to(tmp_path).parts[0] == "data"
        assert path.name.isascii()
        assert len(path.name) <= 200  # even with long names of the model and the agent


def test_several_rewards_are_several_lines_of_a_rollout(tmp_path):
    (tmp_path / "r.jsonl").write_text('{"task": "t", "rewards": {"format": 0.5, "right": 1}}\n')
    calipers("score", "r.jsonl", "--export", "every_eval_ever", cwd=tmp_path)
    ((_, samples),) = exported(tmp_path)
    assert {sample["evaluation_result_id"]: sample["evaluation"] for sample in samples} == {
        "rollouts:mean_reward(reward=format)": {"score": 0.5, "is_correct": False},
        "rollouts:mean_reward(reward=right)": {"score": 1.0, "is_correct": True},
    }


def test_what_exists_stays_unless_forced_and_nothing_is_half_written(tmp_path):
    (tmp_path / "r.jsonl").write_text(
        "".join(json.dumps({"task": "t", "reward": 1, "model": model}) + "\n" for model in "ab")
    )
    assert calipers("score", "r.jsonl", "--export", "every_eval_ever", cwd=tmp_path).returncode == 0
    for path in (tmp_path / "data" / "rollouts" / "unknown" / "a").iterdir():
        path.unlink()
    before = sorted(tmp_path.rglob("*"))
    message = refused("score", "r.jsonl", "--export", "every_eval_ever", cwd=tmp_path)
    assert message.endswith("_samples.jsonl: already exists; --force replaces it")
    assert sorted(tmp_path.rglob("*")) == before
    assert calipers("score", "r.jsonl", "--export", "every_eval_ever", "--force", cwd=tmp_path).returncode == 0
    assert len(exported(tmp_path)) == 2


def test_an_epoch_in_the_metadata_of_a_rollout_is_not_its_sample(tmp_path):
    """For example the step of training, where three samples of a task were read back as attempts at one sample."""
    rows = [{"task": "t", "sample": sample, "reward": sample / 2, "metadata": {"epoch": 3}} for sample in range(3)]
    (tmp_path / "r.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    calipers("score", "r.jsonl", "--export", "every_eval_ever=out", cwd=tmp_path)
    table = read([str(tmp_path / "out")])[0]
    assert table.sample.tolist() == [0, 1, 2]


@pytest.mark.parametrize(
    ("asked", "wrong"),
    [
        (["--export", "every_eval_evr"], "no system to export to named 'every_eval_evr'; did you mean"),
        (["--export", "every_eval_ever="], "--export: 'every_eval_ever=' has nothing after the equals sign"),
        (["--export", "every_eval_ever", "--hooks", "a.py:A"], "--hooks: every_eval_ever has none"),
        (["--export", "every_eval_ever=no/such"], "no/such: cannot be written (No such file or directory)"),
    ],
)
def test_what_cannot_be_exported(tmp_path, asked, wrong):
    (tmp_path / "r.jsonl").write_text('{"task": "t", "reward": 1}\n')
    assert refused("score", "r.jsonl", *asked, cwd=tmp_path).startswith(wrong)


def test_what_is_not_finite_is_in_no_file(tmp_path):
    frame = {"task": ["a", "b", "c"], "reward": [1.0, math.nan, 0.0], "output_tokens": [2.0, 2.0, 1e308]}
    frame |= {"input_tokens": [math.inf, 1.0, 1e308], "latency_s": [1.0, 1.0, math.nan]}
    pl.DataFrame(frame).write_parquet(tmp_path / "r.parquet")
    done = calipers("score", "r.parquet", "--export", "every_eval_ever", cwd=tmp_path)
    assert "1 reward is NaN or infinite: no line among the samples" in done.stderr
    ((document, samples),) = exported(tmp_path)
    assert [number["metric_config"]["metric_id"] for number in document["evaluation_results"]] == ["pass_rate"]
    assert [(sample["sample_id"], sample["evaluation"]["score"]) for sample in samples] == [("a", 1.0), ("c", 0.0)]
    assert [("token_usage" in sample, "performance" in sample) for sample in samples] == [(False, True), (True, False)]
    assert samples[1]["token_usage"]["total_tokens"] == 2 * int(1e308)


def test_the_rollouts_of_training_steps_are_samples(tmp_path):
    """Only the steps have metrics, and they read another reward than ``reward``: every rollout was called missing."""
    (tmp_path / "steps").mkdir()
    for step in (1, 2):
        rows = [{"input": f"q{n}", "output": "", "gts": "", "score": n % 2, "step": step} for n in range(4)]
        (tmp_path / "steps" / f"{step}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    done = calipers("score", "steps", "--by", "step", "--export", "every_eval_ever", cwd=tmp_path)
    assert "4 numbers and 8 samples" in done.stderr
    assert "missing" not in done.stderr
    ((_, samples),) = exported(tmp_path)
    assert sum(sample["evaluation"]["score"] for sample in samples) == 4
    assert {sample["metadata"]["reward"] for sample in samples} == {"score"}
