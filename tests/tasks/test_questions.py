"""Tasks from the rows of a table: the roles of columns, stable ids, choices, and rows that cannot be used."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from calipers.errors import InputError, UnknownName
from calipers.tasks.questions import Questions, guessed_column, prompt_template, questions_suite
from calipers.tasks.table import QuestionTable, table_of

PNG = b"\x89PNG\r\n\x1a\n"


def table(*rows):
    return replace(table_of(list(rows)), origin="qa.csv", places=[f"qa.csv:{n}" for n in range(2, len(rows) + 2)])


def suite(*rows, **settings):
    return questions_suite(table(*rows), Questions(**settings))


def tasks(*rows, **settings):
    return suite(*rows, **settings).tasks


def refused(*rows, **settings):
    with pytest.raises(InputError) as error:
        suite(*rows, **settings)
    return str(error.value)


QA = {"question": "2 + 2?", "answer": "4"}


def test_what_is_guessed_is_said_in_one_line_with_the_first_question():
    assert list(suite(QA, {"question": "b?", "answer": "c"}).opening) == [
        "qa.csv: 2 questions; prompt: question, target: answer, verifier: exact_match "
        "(change with --prompt, --target or --verifier)",
        "first prompt: 2 + 2?",
        "first target: 4",
    ]
    line = suite(QA, prompt="question", target="answer", id="#", verifier="contains").opening[0]
    assert line == "qa.csv: 1 question; prompt: question, target: answer, verifier: contains"


@pytest.mark.parametrize(
    ("columns", "prompt"),
    [
        (["id", "Question", "Answer"], "Question"),
        (["question", "prompt"], "prompt"),
        (["User Prompt"], "User Prompt"),
        (["Problem Statement"], None),
    ],
)
def test_guesses_are_by_common_names(columns, prompt):
    from calipers.tasks.questions import PROMPTS

    assert guessed_column(columns, PROMPTS) == prompt


@pytest.mark.parametrize(
    ("row", "settings", "wrong"),
    [
        (
            {"a": "x", "b": "y"},
            {},
            "qa.csv: no column has the usual name of a prompt (columns here: a, b); name it with --prompt",
        ),
        (
            {"question": "x"},
            {},
            "qa.csv: no column has the usual name of a target (columns here: question); name it with --target",
        ),
        ({"question": "x"}, {"verifier": "numeric_match"}, "qa.csv: verifier numeric_match needs a target"),
        (QA, {"prompt": "qestion"}, "--prompt: no column named 'qestion' in qa.csv; did you mean 'question'?"),
        (QA, {"metadata": ("levle",)}, "--metadata: no column named 'levle' in qa.csv; known: answer, question"),
        (
            QA,
            {"index_from": 0},
            "--index-from: there are no choices; name their columns with --choices A,B,C,D",
        ),
        (
            QA,
            {"shuffle_choices": True},
            "--shuffle-choices: there are no choices; name their columns with --choices A,B,C,D",
        ),
    ],
)
def test_a_column_that_is_not_there(row, settings, wrong):
    assert refused(row, **settings).startswith(wrong)


def test_a_verifier_that_needs_no_target_gets_none():
    (task,) = tasks({"question": "x"}, verifier="my.py:grade")
    assert (task.verifier, task.target) == ("my.py:grade", None)


@pytest.mark.parametrize("prompt", [None, "", "  \n"])
def test_an_empty_prompt_says_its_line(prompt):
    wrong = refused(QA, {"question": prompt, "answer": "1"})
    assert wrong == "qa.csv:3: the prompt is empty (column 'question'); fill it in or remove the row"


def test_a_row_without_a_target_says_its_line():
    assert refused(QA, {"question": "b?", "answer": None}).startswith(
        "qa.csv:3: no target in column 'answer'; fill it in"
    )
    answerless = suite(QA, {"question": "b?", "answer": None}, verifier="my.py:grade")
    assert [task.target for task in answerless.tasks] == ["4", None]
    assert list(answerless.notes) == ["qa.csv: 1 row has no target; my.py:grade gets None as the target"]
    assert [task.verifier for task in tasks(QA, {"question": "b?", "answer": None}, judged=False)] == [None, None]


# ids


def test_ids_are_kept_as_they_are_written():
    rows = ({"id": "007", **QA}, {"id": "7", **QA}, {"id": 8, **QA}, {"id": 9.0, **QA})
    assert [task.id for task in tasks(*rows)] == ["007", "7", "8", "9"]


@pytest.mark.parametrize(
    ("first", "second", "wrong"),
    [
        (
            "7",
            "7",
            "qa.csv:3: id '7' appears twice, first at qa.csv:2; expected unique ids; use another column with --id",
        ),
        (7, "7", "qa.csv:3: id '7' appears twice, first at qa.csv:2"),
        ("7", "", "qa.csv:3: the id is empty (column 'id')"),
        ("7", 7.5, "qa.csv:3: the id is 7.5; expected text or a whole number"),
        ("7", [1], "qa.csv:3: the id is [1]; expected text or a whole number"),
    ],
)
def test_ids_that_are_none(first, second, wrong):
    assert refused({"id": first, **QA}, {"id": second, **QA}).startswith(wrong)


def test_without_an_id_an_inserted_row_moves_nothing():
    rows = [{"question": f"{n}?", "answer": "1"} for n in (1, 2, 2, 3, 2)]
    before = [task.id for task in tasks(*rows)]
    after = [task.id for task in tasks({"question": "new?", "answer": "1"}, *rows)]
    assert after[1:] == before
    assert [name.rpartition("-")[2] for name in (before[2], before[4])] == ["2", "3"]  # 2nd and 3rd row of a prompt
    assert len({*before}) == 5
    assert [task.id for task in tasks(*reversed(rows))][1] == before[3]
    (note,) = suite(*rows).notes
    assert note == "qa.csv: 2 rows repeat an earlier prompt; ids of repeated prompts end in -2, -3 and so on"


def test_an_id_is_of_the_cells_and_not_of_the_words_around_them():
    (plain,), (worded,) = tasks(QA), tasks(QA, template="Q: {question}")
    assert plain.id == worded.id
    rows = ({"question": "Who?", "text": "a", "answer": "1"}, {"question": "Who?", "text": "b", "answer": "1"})
    assert not any("-" in task.id for task in tasks(*rows, template="{text}\n{question}"))
    assert tasks({"id": "x", **QA}, id="#")[0].id == plain.id


# prompts and targets


def test_a_template_over_columns_of_any_kind():
    row = {"question": "Which?", "year": 2024, "share": 0.5, "none": None, "answer": "x"}
    (task,) = tasks(row, template="{question} {year} {share}{none}")
    assert task.prompt == "Which? 2024 0.5"
    assert refused({**row, "year": [1]}, template="{year}").startswith("qa.csv:2: column 'year' is [1]; expected text")
    assert refused({**row, "question": ""}, template="Q: {question}") == (
        "qa.csv:2: the prompt is empty; fill in its cells or remove the row"
    )


def test_numbers_are_compared_as_text_where_text_is_compared():
    rows = [{"question": "a?", "answer": answer} for answer in (0, 42.0, 0.5, "x")]
    assert [task.target for task in tasks(*rows, id="#")] == ["0", "42", "0.5", "x"]
    assert tasks(rows[0], verifier="numeric_match")[0].target == 0


def test_a_chat_is_a_prompt():
    chat = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "2 + 2?"}]
    (task,) = tasks({"messages": chat, "answer": "4"})
    assert task.prompt == chat
    assert refused({"question": 5, "answer": "4"}).startswith("qa.csv:2: the prompt is 5 (column 'question'); expected")


def test_metadata_are_columns_with_commas_between_or_names_that_hold_one():
    row = {**QA, "level": "hard", "a, b": 1}
    assert tasks(row, metadata=("level,question",))[0].metadata == {"level": "hard", "question": "2 + 2?"}
    assert tasks(row, metadata=("a, b", "level"))[0].metadata == {"a, b": 1, "level": "hard"}


@pytest.mark.parametrize(
    ("column", "cell"),
    [
        ("image", PNG),
        ("image", {"bytes": PNG, "path": None}),
        ("picture", "data:image/png;base64,iVBORw0"),
        ("image_1", "cat.png"),
        ("images", [{"bytes": None, "path": "a.jpg"}]),
        ("messages", [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "https://x/y"}}]}]),
    ],
)
def test_images_are_an_error_and_not_left_out(column, cell):
    wrong = refused(QA, {**QA, column: cell})
    assert wrong.startswith(f"qa.csv:3: column {column!r} contains an image; Calipers sends text only")


def test_an_empty_column_of_images_is_none():
    assert len(tasks({**QA, "image": None})) == 1


# choices

MC = {"question": "Capital of Italy?", "A": "Paris", "B": "Rome", "C": "Bern"}


@pytest.mark.parametrize(
    ("answers", "letters", "settings"),
    [
        (["B", "A"], "BA", {}),
        (["b", "(A)"], "BA", {}),
        (["Rome", "Paris"], "BA", {}),
        ([" rome ", "PARIS"], "BA", {}),
        ([1, 0], "BA", {}),  # one target is 0, so they are counted from 0
        (["1", "0"], "BA", {}),
        ([3, 1], "CA", {}),  # one target is 3, of three choices, so they are counted from 1
        ([2, 1], "BA", {"index_from": 1}),
        ([2, 1], "CB", {"index_from": 0}),
        (["Rome", "A"], "BA", {}),
    ],
)
def test_the_right_choice_by_letter_index_or_text(answers, letters, settings):
    rows = [{**MC, "answer": answer} for answer in answers]
    made = tasks(*rows, **settings)
    assert "".join(task.target for task in made) == letters
    assert made[0].prompt == (
        "Capital of Italy?\n\nA) Paris\nB) Rome\nC) Bern\n\nAnswer with the letter of the right choice."
    )
    assert (made[0].verifier, made[0].params) == ("choice", {"choices": ["Paris", "Rome", "Bern"]})


@pytest.mark.parametrize(
    ("answers", "wrong"),
    [
        ([1, 2], "qa.csv:2: targets such as 1 could count from 0 or from 1; choose with --index-from 0"),
        (["B", "D"], "qa.csv:3: target D is not one of the choices; expected a letter from A to C"),
        (["Rome", "Oslo"], "qa.csv:3: target Oslo is not one of the choices"),
        ([0, 3], "qa.csv:3: target 3 is not one of the choices; expected a number from 0 to 2"),
        (["B", None], "qa.csv:3: no target in column 'answer'"),
    ],
)
def test_a_target_that_is_no_choice(answers, wrong):
    assert refused(*({**MC, "answer": answer} for answer in answers)).startswith(wrong)


def test_a_target_that_is_a_letter_and_another_choices_text():
    row = {"question": "Which note?", "A": "B", "B": "A", "answer": "A"}
    assert "is the letter of one choice and the text of another" in refused(row)


def test_numbers_that_are_choices_themselves_are_texts():
    row = {"question": "2 + 2?", "choices": ["3", "4", "1"], "answer": "1"}
    assert tasks(row)[0].target == "C"


@pytest.mark.parametrize(
    "choices", [["Paris", "Rome"], '["Paris", "Rome"]', {"text": ["Paris", "Rome"], "label": ["A", "B"]}]
)
def test_choices_in_one_column(choices):
    (task,) = tasks({"question": "?", "options": choices, "answer": "Rome"})
    assert (task.target, task.params["choices"]) == ("B", ["Paris", "Rome"])


@pytest.mark.parametrize(
    ("row", "settings", "wrong"),
    [
        ({**MC, "A": None, "answer": "B"}, {}, "qa.csv:2: choice A is empty"),
        ({"question": "?", "A": "x", "answer": "A"}, {"choices": ("A",)}, "qa.csv:2: column 'A' is x; expected a list"),
        (
            {"question": "?", "c": ["x"], "answer": "A"},
            {"choices": ("c",)},
            "qa.csv:2: has 1 choices; expected 2 to 26",
        ),
        (
            {**MC, "answer": "A"},
            {"choices": ("A,B",), "template": "{question}"},
            "--template: does not show the choices",
        ),
        (
            {**MC, "answer": "A"},
            {"template": "{question} {A} {B} {C}", "shuffle_choices": True},
            "--shuffle-choices: --template shows the choices in the order of their columns",
        ),
    ],
)
def test_choices_that_cannot_be_asked(row, settings, wrong):
    assert refused(row, **settings).startswith(wrong)


def test_fewer_choices_in_one_row():
    (task,) = tasks({**MC, "C": None, "answer": "A"})
    assert "C)" not in task.prompt


def test_choices_are_shuffled_by_the_seed_and_the_right_one_goes_with_them():
    rows = [{**MC, "question": f"{n}?", "answer": "Rome"} for n in range(30)]
    shuffled = tasks(*rows, shuffle_choices=True, seed=1)
    assert shuffled == tasks(*rows, shuffle_choices=True, seed=1) != tasks(*rows, shuffle_choices=True, seed=2)
    assert [task.id for task in shuffled] == [task.id for task in tasks(*rows)]
    assert {task.target for task in shuffled} == {"A", "B", "C"}
    for task in shuffled:
        assert task.params["choices"]["ABC".index(task.target)] == "Rome"
        assert f"{task.target}) Rome" in task.prompt


def test_a_template_puts_the_choices_where_it_likes():
    (task,) = tasks({**MC, "answer": "B"}, template="{choices}\nQ: {question}")
    assert task.prompt == "A) Paris\nB) Rome\nC) Bern\nQ: Capital of Italy?"
    (own,) = tasks({**MC, "answer": "B"}, template="{question}: {A}, {B} or {C}?")
    assert (own.prompt, own.target) == ("Capital of Italy?: Paris, Rome or Bern?", "B")


def test_choices_that_a_template_leaves_out_are_no_guess():
    (task,) = tasks({**MC, "answer": "Rome"}, template="{question}")
    assert (task.verifier, task.target) == ("exact_match", "Rome")


def test_a_column_stands_once():
    with pytest.raises(InputError, match="column 'a' appears twice"):
        QuestionTable("t", "t", ["a", "a"], [], [])


def test_everything_that_a_task_holds_is_json():
    from datetime import date
    from decimal import Decimal

    (task,) = tasks({**QA, "day": date(2024, 1, 2), "price": Decimal("1.50")}, metadata=("day", "price"))
    assert json.loads(json.dumps(task.metadata)) == {"day": "2024-01-02", "price": "1.50"}
    assert refused({**QA, "blob": b"x"}, metadata=("blob",)).startswith(
        "qa.csv:2: column 'blob' is bytes; expected text"
    )


ROW = {"question": "2 + 2?", "my col": "x", "braces": "{question}"}


@pytest.mark.parametrize(
    ("written", "filled"),
    [
        ("Q: {question}\nA:", "Q: 2 + 2?\nA:"),
        ("{my col}", "x"),
        ("{{{question}}}", "{2 + 2?}"),
        ("{braces}{{question}}", "{question}{question}"),  # the text of a cell is not a template
        ("{question}{question}", "2 + 2?2 + 2?"),
    ],
)
def test_names_in_braces(written, filled):
    assert prompt_template(written, ROW).fill(ROW) == filled


@pytest.mark.parametrize(
    "written",
    [
        "{question.x}",
        "{question[0]}",
        "{question!r}",
        "{question:>9}",
        "{question:{my col}}",
        "{}",
        "{",
        "}",
        "plain",
        "long " * 100,
    ],
)
def test_nothing_else_is_taken(written):
    with pytest.raises(InputError, match=r"^--template: .*expected column names such as \{question\}"):
        prompt_template(written, ROW)


def test_a_template_over_a_column_that_is_not_there():
    with pytest.raises(UnknownName, match="--template: no column named 'qestion'; did you mean 'question'"):
        prompt_template("{qestion}", ROW)


def jinja(tmp_path, text, row=ROW):
    (tmp_path / "t.jinja").write_text(text)
    return prompt_template(str(tmp_path / "t.jinja"), row).fill(row)


def test_a_jinja_file_sees_cells_as_they_are(tmp_path):
    row = {"question": "Which?", "items": ["a", "b"]}
    text = "{% for item in items %}{{ loop.index }}. {{ item }}\n{% endfor %}{{ question | upper }}\n"
    assert jinja(tmp_path, text, row) == "1. a\n2. b\nWHICH?"


@pytest.mark.parametrize(
    "text",
    [
        "{{ question.__class__ }}",
        "{{ question.__class__.__mro__[1].__subclasses__() }}",
        "{{ ''.__init__.__globals__ }}{{ question }}",
        "{{ question.format.__globals__ }}",
        "{% include '/etc/passwd' %}{{ question }}",
    ],
)
def test_jinja_gets_out_of_its_sandbox_nowhere(tmp_path, text):
    with pytest.raises(InputError, match=r"failed|is not valid Jinja"):
        jinja(tmp_path, text)


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("{{ qestion }}", "no column named 'qestion'; did you mean 'question'?"),
        ("{% if %}", "t.jinja:1: is not valid Jinja"),
        ("plain", "contains no column name: every prompt would be the same"),
        ("{{ question.nothing }}", "failed (UndefinedError"),
    ],
)
def test_what_is_wrong_with_a_jinja_file(tmp_path, text, wrong):
    with pytest.raises(InputError) as error:
        jinja(tmp_path, text)
    assert wrong in str(error.value)


def test_a_jinja_file_that_is_not_there():
    with pytest.raises(InputError, match=r"no\.jinja: cannot be read"):
        prompt_template("no.jinja", ROW)
