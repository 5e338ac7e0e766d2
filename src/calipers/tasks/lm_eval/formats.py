"""Prompt formats of the guide: ``mcqa``, ``cloze``, ``generate`` and ``cot``, written out as templates.

A task with ``formats`` names the columns of its question, choices and answer in ``doc_to_text``,
``doc_to_choice`` and ``doc_to_target``; the format says how they are put to a model::

    instruction
    prefix question
    A. choice          where choices are labelled
    B. choice
    answer prompt
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, Final

from calipers.errors import InputError, UnknownName
from calipers.tasks.lm_eval.yaml import Function

LETTERS: Final = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"


@dataclass(frozen=True, slots=True)
class Format:
    """How a question is put. Texts may hold ``{{ }}``, also of ``_num_choices`` and the lists of labels."""

    output_type: str = "multiple_choice"
    instruction: str | None = None
    question_prefix: str | None = "Question: "
    choice_labels: str | list[str] | None = "letters"  # letters, numbers, a list; None: choices are not shown
    choice_delimiter: str = "\n"
    section_separator: str = "\n"
    answer_instruction: str | None = None
    answer_prompt: str = "Answer:"
    gen_prefix: str | None = None
    target_delimiter: str = " "
    fewshot_delimiter: str = "\n\n"
    scorer: str | None = None


MCQA: Final = Format()
GENERATE: Final = Format(
    output_type="generate_until",
    instruction="Given the following question and {{ _num_choices }} candidate answers ({{ _choice_list_and }}), "
    "choose the best answer.\n",
    answer_prompt='Your response should end with "The best answer is [answer_letter]" '
    "where the [answer_letter] is one of {{ _choice_list_or }}.",
    gen_prefix="The best answer is",
    target_delimiter="\n",
    scorer="first_token",
)
FORMATS: Final[Mapping[str, Format]] = {
    "mcqa": MCQA,
    "cloze": replace(MCQA, choice_labels=None),
    "generate": GENERATE,
    "cot": replace(
        GENERATE,
        instruction="Given the following problem, reason step by step to find the final answer.\n",
        question_prefix="Problem: ",
        choice_labels=None,
        answer_prompt='Your response should end with "The final answer is [answer]" '
        "where [answer] is the response to the problem.",
        gen_prefix=None,
    ),
}


def with_format(given: Mapping[str, Any], place: str, chosen: str | None) -> dict[str, Any]:
    """A task's fields with its format written out; as they are where it has none."""
    asked = given.get("formats")
    if asked is None:
        if chosen:
            raise InputError.at(
                place, f"the task has no formats, so none called {chosen!r}", "leave out the part after @"
            )
        return dict(given)
    format = _chosen(asked, place, chosen)
    chooses = format.output_type == "multiple_choice" or format.choice_labels is not None
    usual = {"doc_to_text": "question", "doc_to_choice": "choices" if chooses else None, "doc_to_target": "answer"}
    question, choices, answer = (_expression(given.get(name, usual[name]), f"{place}: {name}") for name in usual)
    if choices is None and format.output_type == "multiple_choice":
        raise InputError.at(place, "a format of choices needs doc_to_choice", "expected a column with the choices")
    found = {
        **given,
        "doc_to_text": _text(format, question or "question", choices),
        "doc_to_target": _target(format, answer or "answer", choices),
        "doc_to_choice": _choices(format, choices),
        "output_type": format.output_type,
        "target_delimiter": format.target_delimiter,
        "fewshot_delimiter": format.fewshot_delimiter,
    }
    added = {"gen_prefix": format.gen_prefix, "scorer": format.scorer}
    return {**found, **{key: value for key, value in added.items() if value is not None and given.get(key) is None}}


def _chosen(asked: Any, place: str, chosen: str | None) -> Format:
    """One format out of ``mcqa``, ``{type: mcqa, ...}`` or ``{mcqa: {...}, generate: {...}}``; there the first."""
    if isinstance(asked, str):
        asked = {asked: None}
    if "type" in asked:
        asked = {str(asked["type"]): {key: value for key, value in asked.items() if key != "type"}}
    name = chosen or next(iter(asked), "")
    if name not in asked:
        raise UnknownName(f"{place}: {UnknownName.of('format of this task', name, list(map(str, asked)))}")
    if name not in FORMATS:
        raise UnknownName(f"{place}: {UnknownName.of('format', str(name), FORMATS)}")
    changed = asked[name] or {}
    known = [one.name for one in fields(Format)]
    for key in changed:
        if key not in known:
            raise UnknownName(f"{place}.{name}: {UnknownName.of('field of a format', str(key), known)}")
    return replace(FORMATS[name], **changed)


def _expression(value: Any, place: str) -> str | None:
    """A column, template, list or integer as an expression of a template; None for nothing."""
    if value is None:
        return None
    if isinstance(value, Function) or callable(value):
        raise InputError.at(place, "a format cannot be written around a function", "expected a column or a template")
    if isinstance(value, str) and "{{" in value:
        inner = value.replace("{{", "").replace("}}", "").strip()
        return inner if inner.isidentifier() else f"({inner})"
    return value if isinstance(value, str) else f"({value!r})"


def _label(format: Format, index: str) -> str:
    if format.choice_labels == "letters":
        return f"'{LETTERS}'[{index}]"
    return f"({index} + 1)" if format.choice_labels == "numbers" else f"{format.choice_labels!r}[{index}]"


def _labels(format: Format, choices: str) -> str:
    if format.choice_labels == "letters":
        return f"'{LETTERS}'[:{choices}|length]|list"
    if format.choice_labels == "numbers":
        return f"range(1, {choices}|length + 1)|map('string')|list"
    return f"{format.choice_labels!r}[:{choices}|length]"


def _text(format: Format, question: str, choices: str | None) -> str:
    head = f"{format.instruction or ''}{format.question_prefix or ''}{{{{{question}}}}}"
    shown = ""
    if format.choice_labels and choices:
        shown = (
            f"{format.section_separator}{{% for choice in {choices} %}}{{{{ {_label(format, 'loop.index0')} }}}}. "
            f"{{{{ choice }}}}{{% if not loop.last %}}{format.choice_delimiter}{{% endif %}}{{% endfor %}}"
        )
    tail = f"{format.section_separator}{format.answer_instruction or ''}{format.answer_prompt}"
    body = head + shown + tail
    names = ("_num_choices", "_choice_labels", "_choice_list_and", "_choice_list_or")
    if not (format.choice_labels and choices and any(name in body for name in names)):
        return body
    last = "_choice_labels[:-1]|join(', ') ~ ' {} ' ~ _choice_labels[-1]|string"
    values = (f"{choices}|length", _labels(format, choices), last.format("and"), last.format("or"))
    return "".join(f"{{% set {name} = {value} %}}" for name, value in zip(names, values, strict=True)) + body


def _target(format: Format, answer: str, choices: str | None) -> str:
    """The template of the answer: an index among the choices, its label, or its text."""
    as_it_is = f"{{{{ {answer} }}}}"
    if format.output_type == "multiple_choice":
        number, other = as_it_is, f"{{{{ {choices}.index({answer}) }}}}"
    elif format.choice_labels:
        number, other = f"{{{{ {_label(format, answer)} }}}}", as_it_is
    elif choices:
        number, other = f"{{{{ {choices}[{answer}] }}}}", as_it_is
    else:
        return as_it_is
    return f"{{% if {answer} is number %}}{number}{{% else %}}{other}{{% endif %}}"


def _choices(format: Format, choices: str | None) -> str | None:
    """The template of the choices that are scored: their labels where they have some; none where text is generated."""
    if choices is None or format.output_type == "generate_until":
        return None
    return f"{{{{ {_labels(format, choices) if format.choice_labels else choices} }}}}"
