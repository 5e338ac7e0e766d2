from dataclasses import replace

import pytest
from systems.lm_eval.tasks.given import task

import calipers
from calipers.running import Job
from calipers.systems.lm_eval.aggregations import DocumentSpread
from calipers.systems.lm_eval.benchmarks import scoring
from calipers.systems.lm_eval.report import TableNumber, task_numbers
from calipers.systems.lm_eval.task_scores import ScoringSettings, answered_documents, score_documents

ROLLING = {"output_type": "loglikelihood_rolling", "doc_to_target": "a"}
LIKELIHOOD = {"output_type": "loglikelihood", "doc_to_target": "a"}


def said(made, resps, seed=0):
    way = ScoringSettings(made.config.output_type)
    scores = score_documents(answered_documents(made, dict(enumerate(resps))), scoring(made), way)
    return list(map(str, task_numbers("t", scores, scores.numbers(0), Job("b", "m", seed=seed))))


def texts(count):
    return [{"q": "", "a": "word " * (n % 5 + 1)} for n in range(count)]


def test_a_corpus_metric_has_an_interval_by_draws_of_documents():
    rows = [[[-9.0 * (n % 5 + 1) - n]] for n in range(20)]
    made = task(texts(20), **ROLLING)
    lines = said(made, rows)
    assert [line.split(",")[0] for line in lines] == ["t word_perplexity", "t byte_perplexity", "t bits_per_byte"]
    assert all(line.endswith(" from 10,000 resamples, 20 documents") for line in lines)
    assert said(made, rows) == lines != said(made, rows, seed=1)


def test_a_mean_has_the_interval_of_every_mean():
    made = task([{"q": "", "a": "x"}] * 10, **LIKELIHOOD, metric_list=[{"metric": "acc"}])
    (line,) = said(made, [[[(-1.0, n < 4)]] for n in range(10)])
    assert line == "t acc,none 0.4000, 95% interval [0.1682, 0.6873], 10 documents"


@pytest.mark.parametrize(
    ("rows", "why"),
    [
        ([-5.0], "there is only one document"),
        ([-5.0, -5.0, -5.0], "every resample gives the same value"),
        ([-1e9, -1.0, -1.0], "some resamples have no finite value"),
    ],
)
def test_no_interval_says_why(rows, why):
    lines = said(task([{"q": "", "a": "word"}] * len(rows), **ROLLING), [[[ll]] for ll in rows])
    assert f", no interval ({why}), " in lines[1]


def test_a_huge_number_in_few_digits():
    lines = said(task([{"q": "", "a": "a"}] * 3, **ROLLING), [[[-20.0]], [[-21.0]], [[-20.5]]])
    assert lines[0].startswith("t word_perplexity,none 7.999e+08, 95% interval [4.852e+08, ")


TASK = """task: {name}
dataset_path: json
dataset_kwargs: {{data_files: {{test: {folder}/docs.jsonl}}}}
test_split: test
output_type: generate_until
doc_to_text: q
doc_to_target: a
metric_list: [{{metric: exact_match, aggregation: !function code.share, higher_is_better: true}}]
"""
CODE = """
from pathlib import Path

def share(items):
    with open(Path(__file__).with_name("calls"), "a") as stream:
        stream.write("called ")
    return sum(items) / len(items)
"""
MODEL = """
class Model:
    def complete(self, request):
        return "yes" if request.prompt in ("1", "3") else "no"
"""


@pytest.fixture
def counting(tmp_path, monkeypatch):
    """A group of two tasks whose aggregation counts its calls, and a function that runs it and returns the count."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "docs.jsonl").write_text("".join(f'{{"q": "{n}", "a": "yes"}}\n' for n in range(5)))
    (tmp_path / "code.py").write_text(CODE)
    (tmp_path / "model.py").write_text(MODEL)
    (tmp_path / "g.yaml").write_text("group: g\ntask: [a, b]\naggregate_metric_list: [{metric: exact_match}]\n")
    for name in ("a", "b"):
        (tmp_path / f"{name}.yaml").write_text(TASK.format(name=name, folder=tmp_path))

    def run(**settings):
        result = calipers.evaluate("g", "python/model.py:Model", include_path=(".",), trust=True, **settings)
        (own,) = result.own["lm_eval"]
        return len((tmp_path / "calls").read_text().split()), own

    return run


def test_a_function_that_aggregates_is_called_as_often_as_there(counting):
    calls, own = counting(out="runs")
    assert calls == 2  # once a task, as lm-evaluation-harness 0.4.13 does
    for number in (own["tasks"]["a"]["exact_match,none"], own["groups"]["g"]["exact_match,none"]):
        assert (number["value"], number["interval"]) == (0.4, None)
        assert "called once, as there; --interval default" in number["why"]


def test_it_is_called_for_draws_where_an_interval_is_asked_for(counting):
    calls, own = counting(out="runs", interval="default")
    assert calls > 2 + 2 * 200
    assert own["tasks"]["a"]["exact_match,none"]["interval"] == pytest.approx([0.0, 0.8])
    assert own["groups"]["g"]["exact_match,none"]["interval"] is not None


def test_a_number_of_one_document_or_task_says_so():
    alone = TableNumber("t", "acc,none", 1.0, DocumentSpread(why="one document"), 0.95, 1)
    assert str(alone) == "t acc,none 1.0000, no interval (there is only one document), 1 document"
    assert str(replace(alone, of="tasks")).endswith(", 1 task")
