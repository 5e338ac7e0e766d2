import pytest
from systems.lm_eval.tasks.given import config, task

from calipers.errors import InputError
from calipers.systems.lm_eval.tasks.loaded import requests

DOC = {"question": "Which one?", "choices": ["red", "blue"], "answer": 1}


def asked(**fields):
    made = task([DOC], **{"doc_to_text": None, "doc_to_target": None, **fields})
    return made, [one.args for one in requests(made)]


def test_mcqa_shows_letters_and_scores_them():
    _, found = asked(formats="mcqa")
    prompt = "Question: Which one?\nA. red\nB. blue\nAnswer:"
    assert found == [(prompt, " A"), (prompt, " B")]


def test_cloze_scores_the_choices_themselves_and_does_not_show_them():
    _, found = asked(formats="cloze")
    assert found == [("Question: Which one?\nAnswer:", " red"), ("Question: Which one?\nAnswer:", " blue")]


def test_generate_asks_for_a_letter_and_is_scored_by_it():
    made, [(prompt, kwargs)] = asked(formats="generate")
    assert prompt == (
        "Given the following question and 2 candidate answers (A and B), choose the best answer.\n"
        "Question: Which one?\nA. red\nB. blue\n"
        'Your response should end with "The best answer is [answer_letter]" where the [answer_letter] is one of A or B.'
        "\nThe best answer is"
    )
    assert made.target(DOC) == "B"
    assert (made.config.scorer, kwargs["until"]) == ("first_token", ["\n\n"])


def test_cot_asks_for_reasons_and_keeps_the_answer_as_it_is():
    made, [(prompt, _)] = asked(formats="cot", doc_to_text="{{question}}", doc_to_target="answer")
    assert prompt.startswith(
        "Given the following problem, reason step by step to find the final answer.\nProblem: Which"
    )
    assert made.target(DOC) == "1"


@pytest.mark.parametrize(
    ("formats", "tail"),
    [
        ({"type": "mcqa", "choice_labels": "numbers"}, "\n1. red\n2. blue\nAnswer:"),
        ({"type": "mcqa", "choice_labels": ["I", "II"], "choice_delimiter": "; "}, "\nI. red; II. blue\nAnswer:"),
        ({"mcqa": {"answer_prompt": "Choose:"}, "cloze": None}, "\nA. red\nB. blue\nChoose:"),
    ],
)
def test_a_format_can_be_changed(formats, tail):
    assert asked(formats=formats)[1][0][0].endswith(tail)


def test_an_answer_that_is_a_text_is_looked_up():
    made = task([{**DOC, "answer": "blue"}], formats="mcqa", doc_to_text="question", doc_to_target="answer")
    assert made.target(made.docs[0]) == 1


def test_columns_may_be_written_as_templates():
    made = task(
        [{"stem": {"q": "Q"}, "l": "x", "r": "y", "g": 0}],
        formats="mcqa",
        doc_to_text="{{stem.q}}",
        doc_to_choice="{{[l, r]}}",
        doc_to_target="{{g}}",
    )
    assert [one.args[0] for one in requests(made)] == ["Question: Q\nA. x\nB. y\nAnswer:"] * 2


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"formats": "mcq"}, "no format named 'mcq'; did you mean 'mcqa'"),
        ({"formats": {"type": "mcqa", "prefix": "x"}}, "no field of a format named 'prefix'"),
        ({"formats": "mcqa", "doc_to_choice": None}, "a format with choices needs doc_to_choice"),
    ],
)
def test_a_format_that_cannot_be_is_refused(fields, said):
    with pytest.raises(InputError) as caught:
        config(task="t", **fields)
    assert said in str(caught.value)
