import random
from dataclasses import replace

import pytest
from systems.lm_eval.tasks.given import DOCS, task

from calipers.errors import InputError
from calipers.systems.lm_eval.tasks.loaded import gold, requests
from calipers.systems.lm_eval.tasks.prompts import Manner

TRAIN = [{"q": f"t{i}", "a": f"b{i}", "c": ["x", "y"], "n": i % 2} for i in range(5)]


def prompts(made, **asking):
    return [one.args[0] for one in requests(replace(made, **asking))]


def test_examples_of_a_split_of_their_own_are_drawn_by_one_generator():
    made = task(train=TRAIN, fewshot_split="train", num_fewshot=2)
    rng = random.Random(1234)
    expected = ["".join(f"{one['q']} {one['a']}\n\n" for one in rng.sample(TRAIN, 2)) + doc["q"] for doc in DOCS]
    assert prompts(made) == expected
    assert prompts(replace(made, cache={}), seeds=(0, 0, 0, 7)) != expected


def test_of_the_evaluated_split_one_more_is_drawn_and_the_document_left_out():
    made = task(fewshot_split="test", num_fewshot=2)
    rng = random.Random(1234)
    expected = []
    for doc in DOCS:
        drawn = [one for one in rng.sample(DOCS, 3) if one != doc][:2]
        expected.append("".join(f"{one['q']} {one['a']}\n\n" for one in drawn) + doc["q"])
    assert prompts(made) == expected


def test_where_several_rows_equal_the_document_examples_are_drawn_again():
    rows = [DOCS[0], DOCS[0], DOCS[0], DOCS[1], DOCS[2]]
    made = task(docs=rows, fewshot_split="test", num_fewshot=2)
    rng, again = random.Random(1234), 0
    expected = []
    for doc in rows:
        drawn = [one for one in rng.sample(rows, 3) if one != doc][:2]
        if len(drawn) < 2:
            drawn, again = rng.sample([one for one in rows if one != doc], 2), again + 1
        expected.append("".join(f"{one['q']} {one['a']}\n\n" for one in drawn) + doc["q"])
    assert again  # it happens here
    assert prompts(made) == expected


def test_where_too_few_rows_differ_from_the_document():
    made = task(docs=[DOCS[0]] * 3 + [DOCS[1]], fewshot_split="test", num_fewshot=2)
    with pytest.raises(InputError, match="1 examples differ from the document; expected 2"):
        prompts(made)


def test_the_first_of_the_evaluated_split_without_the_document_itself():
    made = task(fewshot_split="test", num_fewshot=2, fewshot_config={"sampler": "first_n"})
    firsts = [[1, 2], [0, 2], [0, 1], [0, 1], [0, 1], [0, 1]]
    assert prompts(made) == [
        "".join(f"q{one} a{one}\n\n" for one in before) + f"q{number}" for number, before in enumerate(firsts)
    ]


def test_too_few_others_for_the_first_ones_are_refused():
    made = task(docs=DOCS[:2], fewshot_split="test", num_fewshot=2, fewshot_config={"sampler": "first_n"})
    with pytest.raises(InputError, match="fewshot_config: 1 examples differ from the document; expected 2"):
        prompts(made)


@pytest.mark.parametrize(
    ("fields", "before"),
    [
        ({"fewshot_config": {"samples": [{"q": "s", "a": "!"}]}}, "s !\n\n"),
        ({"fewshot_config": {"samples": lambda: [{"q": "s", "a": "!"}]}}, "s !\n\n"),
        ({"fewshot_split": "train", "fewshot_config": {"sampler": "first_n"}}, "t0 b0\n\n"),
        # lm-eval 0.4.13 takes the field and never looks at it
        ({"fewshot_split": "train", "fewshot_config": {"sampler": "first_n", "fewshot_indices": [3, 1]}}, "t0 b0\n\n"),
        ({"training_split": "train", "fewshot_config": {"sampler": "first_n"}}, "t0 b0\n\n"),
        ({"fewshot_config": {"sampler": "first_n"}}, "q0 a0\n\n"),  # no other split: the evaluated one
        (
            {
                "fewshot_split": "train",
                "fewshot_config": {
                    "sampler": "first_n",
                    "doc_to_text": "<{{q}}>",
                    "doc_to_target": "({{a}})",
                    "target_delimiter": "=",
                    "fewshot_delimiter": ";",
                },
            },
            "<t0>=(b0);",
        ),
        ({"fewshot_split": "train", "fewshot_config": {"sampler": "first_n", "doc_to_target": ""}}, "t0"),
        ({"fewshot_split": "train", "fewshot_config": {"sampler": "first_n", "doc_to_target": "c"}}, "t0 x\n\n"),
    ],
)
def test_where_examples_come_from_and_how_they_are_written(fields, before):
    assert prompts(task(train=TRAIN, num_fewshot=1, **fields))[:1] == [f"{before}q0"]


def test_an_answer_that_is_an_index_is_the_choice_it_points_at():
    made = task(
        train=TRAIN,
        output_type="multiple_choice",
        doc_to_choice="c",
        doc_to_target="n",
        fewshot_split="train",
        fewshot_config={"sampler": "first_n"},
        num_fewshot=2,
    )
    assert prompts(made)[:2] == ["t0 x\n\nt1 y\n\nq0"] * 2


@pytest.mark.parametrize(
    ("question", "prefix", "delimiter", "prompt", "example"),
    [
        ("q", "So", " ", "q0 So", "t0 So b0\n\n"),
        ("{{q}}\n", "So", " ", "q0\nSo", "t0\nSo b0\n\n"),
        ("q", " So", " ", "q0 So", "t0 So b0\n\n"),
        ("q", "So ", "\n", "q0\nSo ", "t0\nSo b0\n\n"),
        ("q", "a", " ", "q0 a0", "t0 b0 b0\n\n"),  # a column: of the example in an example
    ],
)
def test_how_an_answer_begins(question, prefix, delimiter, prompt, example):
    fields = {"doc_to_text": question, "gen_prefix": prefix, "target_delimiter": delimiter}
    shots = {"fewshot_split": "train", "fewshot_config": {"sampler": "first_n"}}
    assert prompts(task(**fields))[:1] == [prompt]
    assert prompts(task(train=TRAIN, num_fewshot=1, **fields, **shots))[:1] == [example + prompt]


@pytest.mark.parametrize(
    ("fields", "example"),
    [
        ({"doc_to_target": "{{['', a]}}"}, "t0 \n\n"),  # the first of several answers is empty
        ({"doc_to_target": "{{['', a]}}", "gen_prefix": "So"}, "t0 So\n\n"),
        ({"doc_to_target": "n", "doc_to_choice": "{{['', 'x']}}"}, "t0 \n\n"),  # so is the choice
        ({"doc_to_target": "{{''}}"}, "t0"),  # no answer at all
    ],
)
def test_an_example_with_an_empty_answer_still_ends(fields, example):
    """As lm-evaluation-harness 0.4.13 writes them."""
    shots = {"fewshot_split": "train", "num_fewshot": 1, "fewshot_config": {"sampler": "first_n", **fields}}
    assert prompts(task(train=TRAIN, doc_to_target="a", **shots))[:1] == [f"{example}q0"]


@pytest.mark.parametrize(
    ("system", "description", "head"),
    [
        (None, "", ""),
        ("Be brief.", "", "Be brief."),
        (None, "Task {{n}}: ", "Task 0: "),  # a template, of the document that is asked
        ("Be brief.", "Now:", "Be brief.\n\nNow:"),
        ("Be brief.\n", "Now:", "Be brief.\nNow:"),  # a blank parts them already
    ],
)
def test_what_stands_before_it_all(system, description, head):
    assert prompts(task(DOCS[:1], description=description), manner=Manner(system=system)) == [f"{head}q0"]


@pytest.mark.parametrize(
    ("prefix", "continuation"),
    [(None, "x"), ("So", " x"), ("So ", "x")],
)
def test_a_chat_template_parts_question_and_choice(prefix, continuation):
    made = task(output_type="multiple_choice", doc_to_choice="c", doc_to_target="n", gen_prefix=prefix)
    assert requests(replace(made, manner=Manner(chat=True)))[0].args[1] == continuation


def test_each_request_has_settings_of_its_own():
    first, second, *_ = (one.args[1] for one in requests(task()))
    assert first == second
    assert first is not second
    assert first["until"] is not second["until"]


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"doc_to_target": "gone"}, None),  # no column: a template that prints gone
        ({"doc_to_text": "{{gone}}"}, "doc_to_text: document 0: the template fails: 'gone' is undefined"),
        ({"test_split": "gone"}, "the dataset has no split 'gone'; it has test"),
        ({"test_split": None}, "no test_split or validation_split; expected the split to evaluate"),
        (
            {"doc_to_choice": "c", "doc_to_target": 2},
            "document 0: the target is choice 2, but there are 2 choices; expected 0 to 1",
        ),
        ({"doc_to_choice": ["a", ""], "doc_to_target": 0}, "doc_to_choice: document 0: a choice is ''; expected texts"),
        ({"doc_to_choice": [1, 2], "doc_to_target": 0}, "doc_to_choice: document 0: a choice is 1; expected texts"),
        ({"num_fewshot": 7}, "7 examples are needed, but there are only 6"),
        ({"num_fewshot": 6, "fewshot_split": "test"}, "7 examples are needed, but there are only 6"),
        ({"num_fewshot": 1, "fewshot_split": "train"}, "the dataset has no split 'train'"),
        ({"num_fewshot": 1, "fewshot_config": {"samples": ["x"]}}, "is not a list of documents"),
        ({"num_fewshot": 1, "doc_to_target": "n"}, "the answer of an example is"),
        ({"doc_to_text": "c"}, "doc_to_text: is ['x', 'y']; expected a text"),
        ({"output_type": "multiple_choice"}, "a multiple_choice task without doc_to_choice"),
        ({"gen_prefix": "c"}, "gen_prefix: document 0: is ['x', 'y']; expected a text"),
        ({"description": "n"}, "description: document 1: is 1; expected a text"),  # 0 is none, as in lm-eval
    ],
)
def test_a_task_that_cannot_be_asked_is_refused(fields, said):
    def asked():
        return list(requests(task(**fields)))

    if said is None:
        assert len(asked()) == len(DOCS)
        return
    with pytest.raises(InputError) as caught:
        asked()
    assert said in str(caught.value)


def test_no_documents_are_refused():
    with pytest.raises(InputError, match="split 'test' has no documents"):
        task(docs=[])


def test_what_counts_as_right():
    assert gold(task(), 1, DOCS[1]) == "a1"
    chosen = task(doc_to_choice="c", doc_to_target="n")
    assert gold(chosen, 1, DOCS[1]) == "y"
    with pytest.raises(InputError, match=r"document 1: the target is choice 5, but there are 2"):
        gold(chosen, 1, {**DOCS[1], "n": 5})
    with pytest.raises(InputError, match=r"the target is 'y'; expected the index of a choice"):
        gold(chosen, 1, {**DOCS[1], "n": "y"})
