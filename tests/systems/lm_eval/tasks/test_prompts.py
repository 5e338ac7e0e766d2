import threading
import tracemalloc

import numpy as np
import pytest
from waiting import PATIENCE

from calipers.errors import InputError, PluginError
from calipers.systems.lm_eval.tasks import Function, prompts
from calipers.systems.lm_eval.tasks.prompts import choices_of, compiled, render, target_of, text_of

DOC = {"q": "Why?", "n": 1, "digits": "3", "l": ["x", "y"], "none": None, "t": ("a", "b")}


@pytest.mark.parametrize(
    ("value", "choices", "expected"),
    [
        ("q", False, "Why?"),
        ("n", True, 1),  # a column keeps its type
        ("digits", True, "3"),  # and is not read as a number
        ("{{digits}}", True, 3),  # a template is, where there are choices
        ("{{digits}}", False, "3"),
        (2, False, 2),
        (lambda doc: doc["q"] + "!", False, "Why?!"),
    ],
)
def test_text(value, choices, expected):
    assert text_of(value, DOC, list(DOC), "here", choices=choices) == expected


@pytest.mark.parametrize(
    ("value", "choices", "expected"),
    [
        ("[1, 2]", False, [1, 2]),
        ("[1, 2", False, "[1, 2"),
        ("[{{q}}]", False, "[Why?]"),  # no literal: the text itself
        ("[" * 5000 + "]" * 5000, False, "[" * 5000 + "]" * 5000),  # too deep for a literal
        ([1, "a"], False, [1, "a"]),
        ("none", False, None),
        ("{{ -1 }}", True, "-1"),
        (lambda doc: np.round(doc["n"] > 0, 0).astype(np.int32), True, 1),  # as ToxiGen's does
        (lambda doc: [np.int64(2), "a"], True, [2, "a"]),
    ],
)
def test_target(value, choices, expected):
    assert target_of(value, DOC, list(DOC), "here", choices=choices) == expected


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (["{{q}}", "b"], ["{{q}}", "b"]),
        ({0: "no", 1: "yes"}, ["no", "yes"]),
        ("l", ["x", "y"]),
        ("t", ["a", "b"]),
        ("{{[q, n]}}", ["Why?", 1]),
        (lambda doc: doc["l"], ["x", "y"]),
    ],
)
def test_choices(value, expected):
    assert choices_of(value, DOC, list(DOC), "here") == expected


@pytest.mark.parametrize(
    ("resolve", "value", "said"),
    [
        (choices_of, "{{q}}", "here: renders to 'Why?'; expected a list, such as ['yes', 'no']"),
        (choices_of, "q", "here: is 'Why?'; expected a list of choices"),
        (choices_of, lambda doc: "xy", "here: is 'xy'; expected a list of choices"),
        (text_of, "gone", "here: the document has no column 'gone'; it has q, n, digits, l, none, t"),
        (text_of, None, "here: is None; expected a column, a template or a function"),
        (text_of, Function("utils", "f", None), "here: is !function utils.f, code from the task"),
    ],
)
def test_what_cannot_be_resolved_is_refused(resolve, value, said):
    with pytest.raises(InputError) as caught:
        resolve(value, DOC, [*DOC, "gone"], "here")
    assert str(caught.value).startswith(said)


@pytest.mark.parametrize("digits", ["²", "007", "9" * 5000])
def test_digits_that_are_no_index_are_refused(digits):
    with pytest.raises(InputError, match="expected the index of a choice"):
        target_of("{{d}}", {"d": digits}, ["d"], "here", choices=True)


def test_a_function_that_fails_is_named():
    def broken(doc):
        return doc["gone"]

    with pytest.raises(PluginError, match=r"here: broken failed: KeyError: 'gone'"):
        text_of(broken, DOC, list(DOC), "here")


def test_a_number_of_numpys_becomes_pythons():
    found = target_of(lambda doc: np.int32(1), DOC, list(DOC), "here", choices=True)
    assert type(found) is int


GROW = "{{% set ns = namespace(x={start}) %}}{{% for i in range(60) %}}{step}{{% endfor %}}{{{{ ns.x|length }}}}"
NEVER = "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}"


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        ("{{a}}\n", "1\n"),
        ("{{ 1 ~ 'x' ~ t }}", "1xab"),
        ("{{ ['a', 'b']|join(', ') }}{{ [{'k': 1}]|join('', 'k') }}", "a, b1"),
        ("{{ t|replace('a', 'bb') }}{{ t.replace('b', '') }}", "bbba"),
        ("{{ t|center(6) }}|{{ t.ljust(3) }}|{{ '%03d' % a }}|{{ '{:>3}'.format(a) }}", "  ab  |ab |001|  1"),
        ("{{ t|regex_replace('[a-b]', 'x') }}{{ t|regex_replace('.', '-', 1) }}", "xx-b"),
        ("{{ [3, 4]|batch(2)|list }}{{ 2 ** 10 }}{{ [1] + [2] }}{{ 'ab' * 2 }}", "[[3, 4]]1024[1, 2]abab"),
        ("{% set x %}{{t}}{{t}}{% endset %}{{x}}", "abab"),
        ("{{ [{'k': {'v': 'x'}}]|map(attribute='k.v')|join('-') }}{{ t|upper|list|last }}", "xB"),
        (
            "{{ [{'k': {'v': 'x'}}]|join('-', attribute='k.v') }}{{ {'a': 1}|tojson }}{{ [2, 1]|sort|first }}",
            'x{"a": 1}1',
        ),
        (
            "{{ t|default('z') }}{{ none|default('z', true) }}{{ '  x '|trim }}{{ 'a b'|title }}{{ t|length }}",
            "abzxA B2",
        ),
        ("{{ ['a', 'b']|select('equalto', 'a')|list }}{{ [1, 2]|sum }}{{ 'a b'.split(' ')|reverse|join }}", "['a']3ba"),
        ("{% macro m(x) %}<{{x}}>{% endmacro %}{{ m(1) }}{{ none }}{{ 1.50 }}{{ true }}", "<1>None1.5True"),
    ],
)
def test_a_template_does_what_jinja_does(template, expected):
    assert render(template, {"a": 1, "t": "ab"}, "here") == expected


@pytest.mark.parametrize(
    "template",
    [
        "{{ 'a' * 10**9 }}",
        "{{ 10**9 * 'a' }}",
        "{{ 2 ** 99999999 }}",
        "{{ 'a'.ljust(10**11) }}",
        "{{ 'a'|center(10**11) }}",
        "{{ 'a\\n\\na'|indent(10**8) }}",
        "{{ '%100000000d' % 1 }}",
        "{{ '%*d' % (10**8, 1) }}",
        "{{ '{:100000000}'.format(1) }}",
        "{{ '%100000000d'|format(1) }}",
        "{{ '\\t'.expandtabs(10**10) }}",
        "{{ [1]|batch(10**9, 0)|list }}",
        "{% for i in range(99999) %}{{ 'x' * 10000 }}{% endfor %}",  # prints without end
        GROW.format(start="'ab'", step="{% set ns.x = ns.x ~ ns.x %}"),
        GROW.format(start="'ab'", step="{% set ns.x = ns.x + ns.x %}"),
        GROW.format(start="'ab'", step="{% set ns.x %}{{ ns.x }}{{ ns.x }}{% endset %}"),
        GROW.format(start="'aa'", step="{% set ns.x = ns.x.replace('a', 'aa') %}"),
        GROW.format(start="'aa'", step="{% set ns.x = ns.x|replace('a', 'aa') %}"),
        GROW.format(start="'aa'", step="{% set ns.x = [ns.x, ns.x]|join %}"),
        GROW.format(start="'aa'", step="{% set ns.x = ns.x.join(['a', 'b', 'c']) %}"),
        GROW.format(start="'aa'", step="{% set ns.x = '%s%s' % (ns.x, ns.x) %}"),
        GROW.format(start="'aa'", step="{% set ns.x = '{0}{0}'.format(ns.x) %}"),
        GROW.format(start="'aa'", step="{% set ns.x = '%s%s'|format(ns.x, ns.x) %}"),
        GROW.format(start="'aa'", step="{% set ns.x = [ns.x, ns.x]|string %}"),
        GROW.format(start="'aa'", step="{% set ns.x = [ns.x, ns.x] ~ '' %}"),
        GROW.format(start="[1]", step="{% set ns.x = [ns.x, ns.x]|sum(start=[]) %}"),
        GROW.format(start="[1]", step="{% set ns.x = [ns.x, ns.x]|map('list')|sum(start=[]) %}"),
        GROW.format(start="'aa'", step="{% set ns.x = [ns.x, ns.x]|map('upper')|join %}"),
        GROW.format(start="'aa'", step="{% set ns.x = ns.x|regex_replace('a', 'aa') %}"),
        GROW.format(start="'a a'", step="{% set ns.x = ns.x|wordwrap(1, true, ns.x) %}"),
        GROW.format(start="[1]", step="{% set ns.x = [ns.x, ns.x] %}").replace("|length", ""),  # short, its text is not
        "{{ [1]|tojson(indent=10**9) }}",
        "{{ (1).to_bytes(10**10, 'big') }}",
    ],
)
def test_a_template_that_makes_too_much_is_refused(monkeypatch, template):
    monkeypatch.setattr(prompts, "SECONDS", PATIENCE)  # of size, however long a busy machine takes
    monkeypatch.setattr(prompts, "MAX_LENGTH", 1 << 18)  # less than there is, so that it is soon reached
    with pytest.raises(InputError, match=r"^f\.yaml:3: doc_to_text: the template fails: it(s format has| makes) "):
        render(template, {}, "f.yaml:3: doc_to_text")


KEEP = "{{% set ns = namespace(x=[], t='ab' * 40000) %}}{{% for i in range(99999) %}}{step}{{% endfor %}}"


@pytest.mark.parametrize(
    "template",
    [
        "".join(f"{{% set a{n} = 'x' * 100000 ~ {n} %}}" for n in range(200)),
        *(
            KEEP.format(step="{% set ns.x = [ns.x, " + one + "] %}")
            for one in (
                "ns.t ~ i",
                "ns.t + i|string",
                "ns.t * 2",
                "ns.t[1:]",
                "ns.t|upper",
                "ns.t|list",
                "ns.t.split('a')",
                "ns.t.center(90000)",
                "ns.t|center(90000)",
                "ns.t|replace('a', 'b')",
                "ns.t|regex_replace('^a', 'b')",
                "'%s!' % ns.t",
                "'{}!'.format(ns.t)",
                "[ns.t]|map('upper')|list",
                "ns.t|batch(7)|list",
                "[1]|batch(50000, 0)|list",
                "range(20000)|list",
                "[ns.t, i]|tojson",
                "[ns.t, i]|join",
                "2 ** 30000 - i",
                "-(2 ** 30000)",
                "[" + "1, " * 5000 + "]",
                "{" + ", ".join(f"'k{n}': i" for n in range(500)) + "}",
                "(" + "i, " * 5000 + ")",
                "dict(a=[1] * 50000)",
                "namespace(a=ns.t|title)",
            )
        ),
        KEEP.format(step="{% set t %}{{ ns.t }}{{ i }}{% endset %}{% set ns.x = [ns.x, t] %}"),
        "{% macro m(t) %}{{ t }}!{% endmacro %}" + KEEP.format(step="{% set ns.x = [ns.x, m(ns.t)] %}"),
        KEEP.format(step="{% set ns.x = ns.x + [i] %}"),
        KEEP.format(step="{% for t in ns.t|batch(9999) %}{% set ns.x = [ns.x, t] %}{% endfor %}"),
    ],
)
def test_all_that_a_template_makes_is_bounded_together(monkeypatch, template):
    """Each value is small, but there are many; the template keeps them all, so that no memory is freed meanwhile."""
    monkeypatch.setattr(prompts, "MAX_BYTES", 8 << 20)
    monkeypatch.setattr(prompts, "SECONDS", PATIENCE)
    compiled(template)
    tracemalloc.start()
    try:
        with pytest.raises(
            InputError, match=r"^f\.yaml:3: doc_to_text: the template fails: it makes values of more than 8"
        ):
            render(template, {}, "f.yaml:3: doc_to_text")
        assert tracemalloc.get_traced_memory()[1] < 24 << 20
    finally:
        tracemalloc.stop()


def test_long_documents_have_room():
    text = "word " * 400_000
    template = "{% for line in t.split('. ') %}{{ line|trim|replace('word', 'w') }}{% endfor %}{{ t|upper }}"
    assert len(render(template, {"t": text}, "here")) > 2_000_000


@pytest.mark.parametrize(
    ("template", "said"),
    [
        ("{{ missing }}", "the template fails: 'missing' is undefined; the document has a, l"),
        ("{{ l[5] }}", "the template fails: list object has no element 5"),
        ("{{ 1 / 0 }}", "the template fails: ZeroDivisionError: division by zero"),
        ("ok\n{% if %}", "line 2 of the template: Expected an expression"),
        ("{{ l.append(3) }}", "access to attribute 'append' of 'list' object is unsafe"),
        ("{{ ''.__class__.__mro__ }}", "access to attribute '__class__' of 'str' object is unsafe"),
        ("{{ a|regex_replace('(', '') }}", "pattern '(': missing )"),
        ("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", "the template fails: RecursionError"),
        ("{{ a|nofilter }}", "No filter named 'nofilter'"),
        ("{% include 'x' %}", "no loader for this environment specified"),
    ],
)
def test_what_goes_wrong_is_said_in_one_line(template, said):
    with pytest.raises(InputError) as caught:
        render(template, {"a": 1, "l": [1, 2]}, "here")
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("template", [NEVER, "{{ ('a' * 40 ~ '!')|regex_replace('(a+)+$', '') }}"])
def test_a_template_that_does_not_end_is_stopped(monkeypatch, template):
    monkeypatch.setattr(prompts, "SECONDS", 0.2)
    with pytest.raises(InputError, match=r"here: the template does not finish within 0\.2 s"):
        render(template, {}, "here")


def in_a_thread(template):
    """The rendered text of a template outside the main thread, or the error message."""
    said = []

    def work():
        try:
            said.append(render(template, {}, "here"))
        except InputError as error:
            said.append(str(error))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    return said


def test_so_is_one_away_from_the_main_thread(monkeypatch):
    assert in_a_thread("{{ 'abc'|regex_replace('b', '') }}") == ["ac"]  # with time enough to start a worker
    monkeypatch.setattr(prompts, "SECONDS", 0.2)
    assert in_a_thread(NEVER) == [
        ("here: the template does not finish within 0.2 s; expected a template that prints a prompt")
    ]


def test_a_document_stays_as_it_is():
    doc = {"l": [1, 2]}
    with pytest.raises(InputError):
        render("{{ l.clear() }}", doc, "here")
    assert doc == {"l": [1, 2]}
