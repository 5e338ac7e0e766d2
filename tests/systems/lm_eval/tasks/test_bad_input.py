"""Task files with errors: one line with file and key and exit code 2, before any request and without a run folder."""

from __future__ import annotations

import json

import pytest
from cli.running import run

TASK = """\
task: made
dataset_path: json
dataset_kwargs: {data_files: {test: data.jsonl}}
test_split: test
doc_to_text: "Q: {{q}}\\nA:"
doc_to_target: answer
repeats: 2
generation_kwargs: {until: ["\\n"]}
filter_list:
  - name: first
    filter: [{function: take_first}]
metric_list:
  - {metric: exact_match}
"""
DOCS = [{"q": "q0", "answer": "a0", "n": 0, "c": ["x", "y"]}, {"q": "q1", "answer": "a1", "n": 7, "c": ["x", "y"]}]
MODEL = "def answer(prompt):\n    with open('calls.txt', 'a') as file:\n        file.write('x')\n    return 'a'\n"
FIRST = "{function: take_first}"
LONG = "a" * 300


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model.py").write_text(MODEL)
    (tmp_path / "data.jsonl").write_text("".join(json.dumps(doc) + "\n" for doc in DOCS))
    return tmp_path


def refused(home, capsys, text, *more):
    """The error line for a task file."""
    (home / "task.yaml").write_text(text)
    before = sorted(home.rglob("*"))
    assert run(["run", "task.yaml", "--model", "python/model.py:answer", *more]) == 2
    said = capsys.readouterr()
    assert (said.out, said.err.count("\n")) == ("", 1)
    assert sorted(home.rglob("*")) == before
    return said.err.rstrip("\n")


CASES = {
    "a file that includes one that includes it": (
        lambda text: "include: other.yaml\n" + text,
        "other.yaml:1: include: task.yaml is included twice, also by task.yaml; expected each file once",
    ),
    "a file that is not there": (
        lambda text: "include: missing.yaml\n" + text,
        "task.yaml:1: include: no file missing.yaml; expected a path from this file's folder",
    ),
    "a column that is not there, in a template": (
        lambda text: text.replace("doc_to_target: answer", 'doc_to_target: "{{label}}"'),
        "task.yaml:6: doc_to_target: document 0: the template fails: 'label' is undefined; the document has q, answer",
    ),
    "a column that is not there, by its name": (
        lambda text: text.replace('"Q: {{q}}\\nA:"', "question"),
        "task.yaml:5: doc_to_text: no column of the documents named 'question'; known: answer, c, n, q",
    ),
    "a column whose name is misspelt": (
        lambda text: text.replace("doc_to_target: answer", "doc_to_target: anser"),
        "task.yaml:6: doc_to_target: no column of the documents named 'anser'; did you mean 'answer'?",
    ),
    "an index beyond the choices, in the second document": (
        lambda text: text.replace("doc_to_target: answer", "doc_to_target: n\ndoc_to_choice: c"),
        "task.yaml:6: doc_to_target: document 1: the target is choice 7, but there are 2 choices; expected 0 to 1",
    ),
    "a text where an index should be": (
        lambda text: text + "doc_to_choice: [x, y]\n",
        "task.yaml:6: doc_to_target: document 0: the target is 'a0'; expected the index of a choice",
    ),
    "a filter's setting": (
        lambda text: text.replace(FIRST, "{function: regex, pattern: x}"),
        "task.yaml:9: filter_list[0]: no setting of filter 'regex' named 'pattern'; did you mean 'regex_pattern'?",
    ),
    "a filter without what it needs": (
        lambda text: text.replace(FIRST, "{function: take_first_k}"),
        "task.yaml:9: filter_list[0]: filter 'take_first_k' has no k; expected k: VALUE",
    ),
    "a filter over more repeats than there are": (
        lambda text: text.replace(FIRST, "{function: take_first_k, kwargs: {k: 3}}"),
        "task.yaml:9: filter_list[0]: take_first_k takes 3 of 2 responses; expected repeats: 3 or more",
    ),
    "a filter that needs choices": (
        lambda text: text.replace(FIRST, "{function: multi_choice_regex}"),
        "task.yaml:9: filter_list[0]: multi_choice_regex needs a column 'choices'; the documents have q, answer, n, c",
    ),
    "a table that is none": (
        lambda text: text.replace(FIRST, "{function: map, mapping_dict: [a]}"),
        "task.yaml:9: filter_list[0]: filter 'map': mapping_dict is ['a']; expected a mapping",
    ),
    "a function that is a word": (
        lambda text: text.replace(FIRST, "{function: custom, filter_fn: word}"),
        "task.yaml:9: filter_list[0]: filter 'custom': filter_fn is 'word'; expected a function (!function)",
    ),
    "two pipelines of one name": (
        lambda text: text.replace("  - name: first", "  - {name: first, filter: []}\n  - name: first"),
        "task.yaml: filter_list: two pipelines are called 'first'; expected different names",
    ),
    "a scorer's setting": (
        lambda text: text + "scorer: {type: regex, kwargs: {pattern: x}}\n",
        "task.yaml:14: scorer: no setting of scorer 'regex' named 'pattern'; did you mean 'regex_pattern'?",
    ),
    "a metric's setting": (
        lambda text: text.replace("exact_match}", "exact_match, ignore_cases: true}"),
        "task.yaml:12: metric_list: no setting of metric 'exact_match' named 'ignore_cases'; did you mean",
    ),
    "a pattern of a metric": (
        lambda text: text.replace("exact_match}", 'exact_match, regexes_to_ignore: ["("]}'),
        "task.yaml:12: metric_list: ",
    ),
    "an output type": (
        lambda text: text + "output_type: generate\n",
        "task.yaml:14: output_type: no output_type named 'generate'; did you mean 'generate_until'?",
    ),
    "no repeats": (
        lambda text: text.replace("repeats: 2", "repeats: 0"),
        "task.yaml:7: repeats: is 0; expected an integer >= 1",
    ),
    "repeats without an end": (
        lambda text: text.replace("repeats: 2", f"repeats: {10**30}"),
        f"task.yaml:7: repeats: is {10**30}; expected at most 1,000,000",
    ),
    "a stop that is no text": (
        lambda text: text.replace('until: ["\\n"]', "until: 5"),
        "task.yaml:8: generation_kwargs.until: is 5; expected a text or a list of texts",
    ),
    "a file of documents that is not there": (
        lambda text: text.replace("data.jsonl", "date.jsonl"),
        "task.yaml:3: dataset_kwargs.data_files: no file date.jsonl; expected it in ",
    ),
    "more examples than there are": (
        lambda text: text + "num_fewshot: 5\n",
        "task.yaml: fewshot_config: 5 examples are needed, but there are only 2; use fewer",
    ),
    "a filter's kwargs that are no mapping": (
        lambda text: text.replace(FIRST, "{function: regex, kwargs: [x]}"),
        "task.yaml:9: filter_list[0]: kwargs is ['x']; expected a mapping from setting to value",
    ),
    "a filter's setting that is a number": (
        lambda text: text.replace(FIRST, "{function: regex, 5: x}"),
        "task.yaml:9: filter_list[0]: no setting of filter 'regex' named '5'; known: ",
    ),
    "a filter's pattern that is a number": (
        lambda text: text.replace(FIRST, "{function: multi_choice_regex, regexes_to_ignore: [.nan]}"),
        "task.yaml:9: filter_list[0]: filter 'multi_choice_regex': regexes_to_ignore has nan; expected patterns as",
    ),
    "a metric's kwargs that are no mapping": (
        lambda text: text.replace("exact_match}", "exact_match, kwargs: 5}"),
        "task.yaml:12: metric_list: kwargs is 5; expected a mapping from setting to value",
    ),
    "a metric's setting that is a number": (
        lambda text: text.replace("exact_match}", "exact_match, 5: true}"),
        "task.yaml:12: metric_list: no setting of metric 'exact_match' named '5'; known: ",
    ),
    "a metric's field with a typing error": (
        lambda text: text.replace("exact_match}", "exact_match, high_is_better: true}"),
        "task.yaml:12: metric_list: no setting of metric 'exact_match' named 'high_is_better'; "
        "did you mean 'higher_is_better'?",
    ),
    "a metric's patterns that are a number": (
        lambda text: text.replace("exact_match}", "exact_match, regexes_to_ignore: 5}"),
        "task.yaml:12: metric_list: exact_match: regexes_to_ignore is 5; expected a list of patterns as text",
    ),
    "no k at all": (
        lambda text: text.replace("exact_match}", "exact_match, reduction: pass_at_k, k: []}"),
        "task.yaml:12: metric_list: k is []; expected a positive integer, or a list of them",
    ),
    "a scorer's kwargs that are no mapping": (
        lambda text: text + "scorer: {type: regex, kwargs: 5}\n",
        "task.yaml:14: scorer: is {'type': 'regex', 'kwargs': 5}; expected {type: NAME, kwargs: {...}}",
    ),
    "a scorer's setting that is a number": (
        lambda text: text + "scorer: {type: regex, kwargs: {5: x}}\n",
        "task.yaml:14: scorer: no setting of scorer 'regex' named '5'; known: ",
    ),
    "a format that is no mapping": (
        lambda text: text + "formats: {mcqa: 5}\n",
        "task.yaml:14: formats.mcqa: is 5; expected a mapping",
    ),
    "a dataset's path that is too long for a file": (
        lambda text: text.replace("dataset_path: json", f"dataset_path: {LONG}"),
        f"task.yaml:2: dataset_path: {LONG} is a dataset of the hub",
    ),
    "a file's name that is too long": (
        lambda text: text.replace("data.jsonl", LONG),
        f"task.yaml:3: dataset_kwargs.data_files: no file {LONG}; expected it in ",
    ),
    "an included file's name that is too long": (
        lambda text: f"include: {LONG}\n{text}",
        f"task.yaml:1: include: no file {LONG}; expected a path from this file's folder",
    ),
    "an included file's name that is none": (
        lambda text: f'include: "\\0"\n{text}',
        "task.yaml:1: include: no file \ufffd; expected a path from this file's folder",
    ),
    "names of columns that are a number": (
        lambda text: text.replace("json\n", "csv\n").replace("data.jsonl}}", "data.jsonl}, names: 5}"),
        "data.jsonl: the names of its columns are 5; expected a list of texts",
    ),
    "code without trust": (
        lambda text: text.replace("exact_match}", "!function utils.mine, aggregation: mean}"),
        "task.yaml:12: metric_list: is !function utils.mine, code from the task; read it first, then run it",
    ),
}


@pytest.mark.parametrize("what", CASES)
def test_one_line_with_file_and_key_before_any_call(home, capsys, what):
    (home / "other.yaml").write_text("include: task.yaml\n")
    change, said = CASES[what]
    found = refused(home, capsys, change(TASK))
    assert found.startswith(said), found


def test_the_task_itself_is_right(home, capsys):
    (home / "task.yaml").write_text(TASK)
    assert run(["run", "task.yaml", "--model", "python/model.py:answer"]) == 0
    assert (home / "calls.txt").read_text() == "xxxx"
