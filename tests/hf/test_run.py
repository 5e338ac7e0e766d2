"""The command with a checkpoint: a whole run, twice."""

import json
from pathlib import Path

from cli.running import calipers
from running.scene import digest, records


def words(folder: Path, tasks: int = 6) -> str:
    """A benchmark that a model by lot passes now and then: does the answer hold an ``a``?"""
    home = folder / "words"
    home.mkdir()
    rows = [
        {
            "task_id": f"w{i}",
            "instruction": "the cat sat on the mat and then the dog ran away"[: 8 * (i + 1)],
            "verifier": {"kind": "in_process", "fn_name": "contains", "expected": "a"},
        }
        for i in range(tasks)
    ]
    (home / "tasks.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(home)


def test_a_run_completes_balances_and_repeats(checkpoints, tmp_path):
    """The second run has other batches, so it is the answers that repeat, not the circumstances."""
    asked = ["--model", f"hf/{checkpoints['llama']}", "--samples", "2", "--temperature", "1", "--max-tokens", "12"]
    bench = words(tmp_path)
    for name, concurrency in (("a", "8"), ("b", "3")):
        done = calipers("run", bench, *asked, "--out", name, "--concurrency", concurrency, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        assert "Traceback" not in done.stderr
    result = json.loads((tmp_path / "a" / "result.json").read_text())
    (group,) = result["groups"]
    ledger = group["ledger"]
    assert (ledger["planned"], ledger["gaps"], ledger["tasks"]) == (12, 0, 6)
    assert sum(ledger["outcomes"].values()) == 12
    assert 0 < group["metrics"]["mean_reward"]["value"] < 1
    assert digest(tmp_path / "a") == digest(tmp_path / "b")
    first, second = (
        {(row["task"], row["sample"]): row["completion"] for row in records(tmp_path / name)} for name in "ab"
    )
    assert first == second
    assert len(set(first.values())) > 6
    assert all(row["usage"]["output_tokens"] <= 12 for row in records(tmp_path / "a"))


def test_a_checkpoint_that_cannot_be_loaded_ends_the_run_in_one_line(checkpoints, tmp_path):
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "config.json").write_text("{}")
    done = calipers("run", words(tmp_path), "--model", "hf/broken", cwd=tmp_path)
    assert done.returncode != 0
    assert done.stdout == ""
    assert "hf/broken: the model cannot be loaded: " in done.stderr
    assert "Traceback" not in done.stderr
