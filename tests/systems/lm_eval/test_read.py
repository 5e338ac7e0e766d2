"""What lm-evaluation-harness wrote yesterday, read as rollouts."""

from __future__ import annotations

import json
import math

import pytest
from formats.given import refused, seen, written

from calipers import score
from calipers.formats.read import read

NAME = "samples_gsm8k_2026-01-02T03-04-05.678.jsonl"
RESULTS = "results_2026-01-02T03-04-05.678.json"


def sample(doc_id, answer="4", pipeline="none", doc=None, **scores):
    return {
        **{"doc_id": doc_id, "doc": doc or {"q": "2+2"}, "target": "4", "arguments": {"gen_args_0": {"arg_0": "2+2"}}},
        **{"resps": [["so 4"]], "filtered_resps": [answer], "filter": pipeline, "metrics": list(scores)},
        **{"doc_hash": "d", "prompt_hash": "p", "target_hash": "t", **scores},
    }


def lines(*rows):
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


def table(folder, *rows, name=NAME, **asked):
    found, inputs = read([written(folder, lines(*rows), name)], **asked)
    assert [one.format for one in inputs] == ["lm_eval_samples"]
    return found


def test_a_document_is_a_task_and_a_pipeline_an_agent(tmp_path):
    rows = [sample(n, pipeline=p, exact_match=float(n)) for p in ("strict-match", "flexible-extract") for n in (0, 1)]
    found = table(tmp_path, *rows)
    assert list(found.keys) == [("flexible-extract", None, "gsm8k"), ("strict-match", None, "gsm8k")]
    assert [row["reward exact_match"] for row in seen(found)] == [0.0, 1.0, 0.0, 1.0]


def test_an_unnamed_pipeline_is_no_agent(tmp_path):
    assert list(table(tmp_path, sample(0, acc=1.0), name="samples_t.jsonl").keys) == [(None, None, "t")]


def test_a_fallback_is_unparsed_and_keeps_its_score(tmp_path):
    found = table(tmp_path, sample(0, "[invalid]", exact_match=0.0), sample(1, ["[invalid]", "4"], exact_match=0.5))
    assert [row["outcome"] for row in seen(found)] == ["unparsed", "scored"]
    assert found.rewards["exact_match"].values.tolist() == [0.0, 0.5]


def test_the_results_beside_tell_the_model_and_the_fallbacks(tmp_path):
    steps = [{"function": "regex", "fallback": "?"}]
    configs = {"gsm8k": {"filter_list": [{"name": "n", "filter": steps}]}}
    written(tmp_path, json.dumps({"results": {}, "configs": configs, "model_name": "m"}), RESULTS)
    found = table(tmp_path, sample(0, "?", exact_match=0.0))
    assert list(found.keys) == [(None, "m", "gsm8k")]
    assert [row["outcome"] for row in seen(found)] == ["unparsed"]


def test_a_bare_nan_is_a_number_somebody_sent(tmp_path):
    found = table(tmp_path, sample(0, acc=math.nan), sample(1, acc=1.0), sample(2, doc={"x": math.inf}, acc=math.inf))
    assert found.rewards["acc"].given.all()
    assert math.isnan(found.rewards["acc"].values[0])
    assert found.rewards["acc"].values[1:].tolist() == [1.0, math.inf]


def test_pairs_are_noted_and_are_no_rewards(tmp_path):
    found = table(tmp_path, sample(0, acc=1.0, f1=[0, 1], bleu=["a", "b"]))
    assert list(found.rewards) == ["acc"]
    assert "bleu, f1 are numbers of all documents together" in found.notes[0]


def test_the_document_is_what_one_can_slice_by(tmp_path):
    rows = [sample(n, doc={"level": level}, acc=float(n)) for n, level in enumerate(["easy", "hard"])]
    result = score(written(tmp_path, lines(*rows), NAME), by=["level"])
    assert sorted(result.groups[0].breakdowns["level"]) == ["easy", "hard"]


def test_a_results_file_stands_for_the_samples_of_its_time(tmp_path):
    written(tmp_path, lines(sample(0, acc=1.0)), NAME)
    written(tmp_path, lines(sample(0, acc=0.0)), "samples_old_2025-01-02T03-04-05.678.jsonl")
    found, inputs = read([written(tmp_path, json.dumps({"results": {"gsm8k": {}}}, indent=2), RESULTS)])
    assert [one.format for one in inputs] == ["lm_eval_results"]
    assert list(found.keys) == [(None, None, "gsm8k")]


def test_a_results_file_alone_has_no_rollouts(tmp_path):
    assert "--log_samples" in refused(written(tmp_path, json.dumps({"results": {"t": {}}}, indent=2), RESULTS))


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (lines(sample(0, acc=1.0)) * 2, ":2: task '0'"),  # the same document twice under one pipeline
        (lines(sample(0, acc=1.0)) + '{"doc_id": 1}\n', ":2: no key 'task'"),
        (lines(sample(0, acc=1.0)) + "{not json\n", ":2: not JSON"),
    ],
)
def test_bad_lines_are_refused_where_they_stand(tmp_path, content, said):
    assert said in refused(written(tmp_path, content, NAME))
