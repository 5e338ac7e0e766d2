"""Templates: columns by name and nothing else; Jinja in its sandbox."""

from __future__ import annotations

import pytest

from calipers.errors import InputError, UnknownName
from calipers.tasks.prompt_template import prompt_template

ROW = {"question": "2 + 2?", "my col": "x", "braces": "{question}"}


@pytest.mark.parametrize(
    ("written", "filled"),
    [
        ("Q: {question}\nA:", "Q: 2 + 2?\nA:"),
        ("{my col}", "x"),
        ("{{{question}}}", "{2 + 2?}"),
        ("{braces}{{question}}", "{question}{question}"),  # a cell is no template
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


def test_a_column_that_is_not_there():
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
