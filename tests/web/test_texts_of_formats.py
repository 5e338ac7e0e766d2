"""The texts of every format: compare and report have the same texts that `calipers convert` writes."""

import json
from pathlib import Path

import pytest

import calipers
from calipers.analyses.compare.source import stored_text
from calipers.web.report_data import ManyData, PairData, report_data, with_texts

GOLDEN = Path(__file__).parents[1] / "golden" / "formats"
FILES = {
    "trl": "trl/completions/completions_00002.parquet",
    "verifiers": "verifiers_v1/traces.jsonl",
    "prime_rl": "prime_rl/rollouts/step_2/eval/all/traces.jsonl",
    "nemo_rl, training": "nemo_rl/train_data_step1.jsonl",
    "nemo_rl, evaluation": "nemo_rl/val_data_step0.jsonl",
    "promptfoo": "promptfoo/results.json",
    "promptfoo lines": "promptfoo/results.jsonl",
    "openai_evals": "openai_evals/log_a.jsonl",
    "every_eval_ever": "every_eval_ever/data/modes/acme/tiny-1/e007019b-2397-45d6-9b84-e1c74846c385_samples.jsonl",
    "inspect": "inspect/golden_a.eval",
    "inspect, chunked": "inspect/chunked_a.eval",
    "verl": "verl/validation/0.jsonl",
}


def runs_of(data):
    if isinstance(data, ManyData):
        return list(data.runs)
    return [data.first, data.second] if isinstance(data, PairData) else [data]


@pytest.mark.parametrize("file", FILES.values(), ids=FILES)
def test_a_report_has_the_texts_that_convert_writes(file, tmp_path):
    calipers.convert(str(GOLDEN / file), str(tmp_path / "rows.jsonl"))
    rows = list(map(json.loads, (tmp_path / "rows.jsonl").read_text().splitlines()))
    said_by = {
        (row.get("agent"), row.get("model"), row.get("dataset"), row["task"], row["sample"]): row for row in rows
    }
    texts = 0
    for run in runs_of(report_data([str(GOLDEN / file)])):
        run = with_texts(run)
        table = run.rollouts.table
        for row, text in run.rollouts.texts.items():
            task = int(table.task[row])
            known = said_by[(*table.keys[0], table.tasks[task], int(table.sample[row]))]
            assert (text.completion or None) == (stored_text(known.get("completion")) or None), known
            assert run.rollouts.prompts[task]
            texts += bool(text.completion)
    assert texts == sum(bool(stored_text(row.get("completion"))) for row in rows) > 0


def test_a_comparison_shows_the_answers_of_rows_that_only_convert_read(tmp_path):
    rows = [json.loads(line) for line in (GOLDEN / FILES["nemo_rl, evaluation"]).read_text().splitlines()]
    (tmp_path / "before").mkdir()
    (tmp_path / "after").mkdir()
    name = "val_data_step0.jsonl"
    (tmp_path / "before" / name).write_text("".join(json.dumps(row) + "\n" for row in rows))
    changed = [{**row, "rewards": [1 - row["rewards"][0]]} for row in rows]
    (tmp_path / "after" / name).write_text("".join(json.dumps(row) + "\n" for row in changed))
    (pair,) = calipers.compare(tmp_path / "before" / name, tmp_path / "after" / name).contests[0].pairs
    answers = [change.answers for change in (*pair.flips.regressions, *pair.flips.fixes)]
    assert answers
    assert all(first and first == second for first, second in answers)
