"""The export to model cards, one file per group; tests/exports reads its files with huggingface_hub."""

import json

import polars as pl
import pytest
import yaml
from cli.running import ARITH, calipers, refused


def test_the_value_and_what_has_no_place_in_the_notes(tmp_path):
    done = calipers("score", ARITH, "--export", "hf=openai/gsm8k:gsm8k", cwd=tmp_path)
    assert done.returncode == 0
    (entry,) = yaml.safe_load((tmp_path / ".eval_results" / "gsm8k.yaml").read_text())
    assert entry["dataset"] == {"id": "openai/gsm8k", "task_id": "gsm8k"}
    assert entry["value"] == pytest.approx(0.44017857)
    assert entry["notes"].startswith(
        "mean_reward; 95 % interval 0.3391 to 0.5465 (wilson_t); n = 40 tasks, 303 samples; 17 of 320 rollouts missing"
    )
    assert set(entry) == {"dataset", "value", "date", "notes"}
    assert "a card has one value for a benchmark, the first metric; not written: pass_rate" in done.stderr


def test_a_file_for_each_model_with_a_safe_name(tmp_path):
    models = ["a/b", "../x", 'q"\n- evil: 1']
    (tmp_path / "r.jsonl").write_text("".join(json.dumps({"task": 1, "reward": 1, "model": m}) + "\n" for m in models))
    done = calipers("score", "r.jsonl", "--export", "hf=o/d:t", cwd=tmp_path)
    files = sorted((tmp_path / ".eval_results").iterdir())
    assert len(files) == 3
    assert all(len(yaml.safe_load(path.read_text())) == 1 for path in files)
    assert sorted(path.name for path in tmp_path.iterdir()) == [".eval_results", "r.jsonl"]
    assert "each file belongs in the repository of its own model" in done.stderr
    assert refused("score", "r.jsonl", "--export", "hf=o/d:t", cwd=tmp_path).endswith("--force replaces it")


@pytest.mark.parametrize("target", ["hf", "hf=gsm8k", "hf=a/b", "hf=a/b:", "hf=a/b:c d"])
def test_a_benchmark_that_is_not_named(tmp_path, target):
    message = refused("score", ARITH, "--export", target, cwd=tmp_path)
    assert message.startswith("--export hf: ")
    assert "expected hf=DATASET:TASK" in message


@pytest.mark.parametrize(("reward", "why"), [(float("nan"), "1 reward is NaN"), (float("inf"), "1 reward is infinite")])
def test_a_number_that_is_not_finite_is_in_no_card(tmp_path, reward, why):
    pl.DataFrame({"task": ["a", "b"], "reward": [1.0, reward]}).write_parquet(tmp_path / "r.parquet")
    done = calipers("score", "r.parquet", "--export", "hf=o/d:t", cwd=tmp_path)
    assert f"mean_reward has no value ({why}), so that no file is written" in done.stderr
    assert not [*tmp_path.glob(".eval_results/*")]
