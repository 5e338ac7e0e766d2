"""Task files that cannot be run: one line with file and key, exit 2, before any call and without a run's folder."""

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


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model.py").write_text(MODEL)
    (tmp_path / "data.jsonl").write_text("".join(json.dumps(doc) + "\n" for doc in DOCS))
    return tmp_path


def refused(home, capsys, text, *more):
    """The one line that is said of a task file."""
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
