"""What every task gives: prompts without a blank at the end, choices, targets, requests; and names that are known."""

from __future__ import annotations

from golden.lm_eval_own.ported import ported
from systems.lm_eval.tasks.given import task

from calipers.systems.lm_eval.aggregations import known
from calipers.systems.lm_eval.entries import KNOWN
from calipers.systems.lm_eval.tasks.loaded import requests

LETTERS = ["A", "B", "C", "D"]
ARC = {
    "output_type": "multiple_choice",
    "doc_to_text": "Question: {{question}}\nAnswer:",
    "doc_to_target": "{{choices.label.index(answerKey)}}",
    "doc_to_choice": "{{choices.text}}",
    "metric_list": [{"metric": "acc"}, {"metric": "acc_norm"}],
}
DOCS = [
    {
        "question": f"What is {n} + 1?",
        "choices": {"label": LETTERS, "text": [str(n + more) for more in range(4)]},
        "answerKey": "B",
    }
    for n in range(12)
]
NEW = "TestNewTasksElseDefault::test_"


@ported("test_tasks.py", "limit", {f"{NEW}doc_to_text": [(10,)]})
def test_a_prompt_ends_without_a_blank(limit):
    made = task(DOCS, **ARC)
    texts = [made.text(doc) for doc in DOCS[:limit]]
    assert texts[0] == "Question: What is 0 + 1?\nAnswer:"
    assert all(isinstance(text, str) and not text[-1].isspace() for text in texts)


@ported("test_tasks.py", "limit", {f"{NEW}create_choices": [(10,)]})
def test_choices_are_texts(limit):
    made = task(DOCS, **ARC)
    assert [made.choices(doc) for doc in DOCS[:limit]] == [doc["choices"]["text"] for doc in DOCS[:limit]]


@ported("test_tasks.py", "limit", {f"{NEW}doc_to_target": [(10,)]})
def test_a_target_is_an_index(limit):
    made = task(DOCS, **ARC)
    assert [made.target(doc) for doc in DOCS[:limit]] == [1] * limit


@ported("test_tasks.py", "limit", {f"{NEW}build_all_requests": [(10,)], f"{NEW}construct_requests": [(10,)]})
def test_as_many_documents_are_asked_as_the_limit_says(limit):
    made = requests(task(DOCS[:limit], **ARC))
    assert [(one.doc_id, one.idx) for one in made] == [(doc, idx) for doc in range(limit) for idx in range(4)]
    assert made[5].args == ("Question: What is 1 + 1?\nAnswer:", " 2")


@ported(
    "test_registry.py", "metric, aggregation", {"TestMetricRegistry::test_builtin_metrics_loaded": [("acc", "mean")]}
)
def test_known_names(metric, aggregation):
    assert KNOWN[metric].aggregation == aggregation
    assert known(aggregation).reduce is not None
