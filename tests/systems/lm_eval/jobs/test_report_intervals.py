import pytest
from systems.lm_eval.tasks.given import task

from calipers.systems.lm_eval.jobs.judges import scoring
from calipers.systems.lm_eval.jobs.report import task_numbers
from calipers.systems.lm_eval.task_scores import Way, answered, score_documents

ROLLING = {"output_type": "loglikelihood_rolling", "doc_to_target": "a"}
LIKELIHOOD = {"output_type": "loglikelihood", "doc_to_target": "a"}


def said(made, resps, seed=0):
    way = Way(made.config.output_type)
    scores = score_documents(answered(made, dict(enumerate(resps))), scoring(made), way)
    return list(map(str, task_numbers("t", scores, 0.95, seed)))


def texts(count):
    return [{"q": "", "a": "word " * (n % 5 + 1)} for n in range(count)]


def test_a_corpus_metric_has_an_interval_by_draws_of_documents():
    rows = [[[-9.0 * (n % 5 + 1) - n]] for n in range(20)]
    made = task(texts(20), **ROLLING)
    lines = said(made, rows)
    assert [line.split(",")[0] for line in lines] == ["t word_perplexity", "t byte_perplexity", "t bits_per_byte"]
    assert all(line.endswith(" by 10,000 draws, 20 documents") for line in lines)
    assert said(made, rows) == lines != said(made, rows, seed=1)


def test_a_mean_has_the_interval_of_every_mean():
    made = task([{"q": "", "a": "x"}] * 10, **LIKELIHOOD, metric_list=[{"metric": "acc"}])
    (line,) = said(made, [[[(-1.0, n < 4)]] for n in range(10)])
    assert line == "t acc,none 0.4000, 95% interval [0.1682, 0.6873], 10 documents"


@pytest.mark.parametrize(
    ("rows", "why"),
    [
        ([-5.0], "one document"),
        ([-5.0, -5.0, -5.0], "every draw gives the same number"),
        ([-1e9, -1.0, -1.0], "some draws give no finite number"),
    ],
)
def test_no_interval_says_why(rows, why):
    lines = said(task([{"q": "", "a": "word"}] * len(rows), **ROLLING), [[[ll]] for ll in rows])
    assert f", no interval ({why}), " in lines[1]


def test_a_huge_number_in_few_digits():
    lines = said(task([{"q": "", "a": "a"}] * 3, **ROLLING), [[[-20.0]], [[-21.0]], [[-20.5]]])
    assert lines[0].startswith("t word_perplexity,none 7.999e+08, 95% interval [4.852e+08, ")
