"""The comparison with lm-evaluation-harness' own tasks: documents made up, files compared, differences named."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2]))

from bench.harness.run import with_others
from bench.parity.columns import rows
from bench.parity.compare import compared
from bench.parity.learn import learned
from bench.parity.make import repaired
from bench.parity.model import answer, likelihood, prompt_key
from bench.parity.one import DIFFERENT, QUIRK, REFUSED, SAME, Outcome
from bench.parity.quirks import KNOWN, settled
from bench.parity.report import END, HEADINGS, block, told
from bench.parity.sample import SAMPLE
from bench.parity_run import placed
from calipers.systems.lm_eval.tasks import read_task_file, task_config

ROOT = Path(__file__).parents[2]
ARC = """task: arc
dataset_path: d
test_split: test
output_type: multiple_choice
doc_to_text: "Question: {{question}}\\nAnswer:"
doc_to_target: "{{choices.label.index(answerKey)}}"
doc_to_choice: "{{choices.text}}"
"""
CODE = """task: code
dataset_path: d
test_split: test
process_docs: !function utils.process
doc_to_text: "{{query}}"
doc_to_target: "{{label}}"
doc_to_choice: ["no", "yes"]
"""
UTILS = """NAMES = {"math": 1, "law": 2}

def process(docs):
    return docs.map(one)

def one(doc):
    return {"query": doc["ctx"].strip() + doc["parts"][0], "kind": NAMES[doc["subject"]]}
"""


def config(folder, text, **files):
    for name, held in files.items():
        (folder / f"{name}.py").write_text(held)
    (folder / "task.yaml").write_text(text)
    return task_config(read_task_file(folder / "task.yaml"))


def test_columns_are_learned_from_templates(tmp_path):
    found = rows(learned(config(tmp_path, ARC)), 20, "seed")
    assert found == rows(learned(config(tmp_path, ARC)), 20, "seed")
    assert {len(row["choices"]["text"]) for row in found} == {4}
    assert all(row["answerKey"] in row["choices"]["label"] for row in found)
    assert len({row["question"] for row in found}) > 10


def test_columns_are_learned_from_functions(tmp_path):
    columns = learned(config(tmp_path, CODE, utils=UTILS))
    found = rows(columns, 20, "seed")
    assert {row["subject"] for row in found} == {"math", "law"}
    assert {row["label"] for row in found} == {0, 1}
    assert isinstance(found[0]["parts"], list)
    assert isinstance(found[0]["ctx"], str)


def test_an_error_leads_to_another_kind(tmp_path):
    from random import Random

    made = config(tmp_path, CODE, utils=UTILS)
    columns = learned(made)
    assert repaired(columns, KeyError("extra"), {}, made, Random(0))
    assert "extra" in columns
    columns["extra"].place = columns["extra"].kinds.index("texts")
    for name in [name for name in columns if name != "extra"]:
        del columns[name]
    assert repaired(columns, AttributeError("'list' object has no attribute 'strip'"), {}, made, Random(0))
    assert columns["extra"].kind == "text"
    assert not repaired(columns, ImportError("no"), {}, made, Random(0))


def test_the_model_says_the_same_to_the_same_request():
    targets = {prompt_key("2 + 2 ="): "4"}
    said = {answer("2 + 2 =", sample, targets) for sample in range(50)}
    assert {"4", "The answer is 4.", "no"} <= said
    assert answer("2 + 2 =", 3, targets) == answer("2 + 2 =", 3, targets)
    assert likelihood("a", "b") == likelihood("a", "b") != likelihood("a", "c")


def files(folder, value, argument="Q", error=0.25):
    folder.mkdir()
    results = {"t": {"alias": "t", "acc,none": value, "acc_stderr,none": error}, "g": {"acc,none": value}}
    whole = {"results": results, "groups": {"g": {}}, "n-shot": {"t": 0}, "higher_is_better": {"t": {"acc": True}}}
    (folder / "results_1.json").write_text(json.dumps(whole))
    asked = {"gen_args_0": {"arg_0": argument, "arg_1": {"until": ["\n"]}}}
    row = {"doc_id": 0, "filter": "none", "arguments": asked, "metrics": ["acc"], "acc": value, "target": "x"}
    (folder / "samples_t_1.jsonl").write_text(json.dumps(row) + "\n")
    return folder


def test_files_are_compared_to_the_last_number(tmp_path):
    ours, theirs = files(tmp_path / "ours", 0.5), files(tmp_path / "theirs", 0.5 + 1e-12)
    same = compared(ours, theirs)
    assert same.differences == []
    assert same.counts == {"values": 3, "standard errors": 1, "group values": 1, "requests": 1, "sample metrics": 5}
    other = compared(ours, files(tmp_path / "other", 0.5001, "q", 0.2500001)).differences
    assert [one.partition(":")[0] for one in other] == [
        "values",
        "standard errors",
        "group values",
        "requests",
        "sample metrics",
    ]


def outcomes():
    counts = {"requests": 8, "sample metrics": 16, "values": 2, "standard errors": 1}
    same = Outcome("a", "fam", None, SAME, kinds=["multiple_choice"], counts=counts)
    wrong = "task.yaml:2: doc_to_target: document 0: the target is choice 4, and there are 2; expected 0 to 1"
    return [
        same,
        replace(same, name="b", status=DIFFERENT, differences=["values: b acc: ours 1, theirs 0"]),
        Outcome("c", "fam", 2, REFUSED, wrong),
        Outcome("d", "other", 2, REFUSED, "anything else"),
    ]


def test_a_documented_difference_is_named_and_fails_nothing():
    found = outcomes()
    settled(found)
    assert [one.status for one in found] == [SAME, DIFFERENT, QUIRK, REFUSED]
    text = told(found, 6, 1.0)
    assert "    values: b acc: ours 1, theirs 0" in text
    assert "a documented difference: c (fam): a document whose target is not a valid choice index" in text
    assert "refused by Calipers: d (other): anything else" in text
    assert "not started in time: 2 of 6" in text
    assert text.endswith("2 tasks with a difference, 1 documented difference")


def test_every_documented_difference_stands_on_the_page():
    page = (ROOT / "docs" / "dialects.md").read_text(encoding="utf-8")
    assert [row for _, row in KNOWN if row not in page] == []


def test_the_table_stays_when_the_rest_of_the_page_is_written(monkeypatch):
    monkeypatch.setattr("bench.parity.report.version", lambda name: "0.4.13")
    text = block(outcomes(), "sample", 60, 9.5)
    assert text.startswith(HEADINGS["sample"])
    assert "| `multiple_choice` | 2 | 16 | 32 | 4 | 2 | 0 | 1 | 0 |" in text
    assert "| **all** | 2 | 16 | 32 | 4 | 2 | 0 | 3 | 0 |" in text
    assert "- `d` (other): refused by Calipers: anything else\n" in text
    assert text.endswith(END)
    page = placed(text, "sample", "# Page\n\n## Own\n\nold\n")
    assert page == f"# Page\n\n## Own\n\nold\n\n{text}\n"
    assert placed(text, "sample", f"{page}\n## More\n") == f"{page}\n## More\n"
    assert with_others("# Page\n\n## Own\n\nnew\n", page) == f"# Page\n\n## Own\n\nnew\n\n{text}\n"


def test_the_sample_is_sixty_tasks():
    assert len(SAMPLE) == len(set(SAMPLE)) == 60
    assert {shots for _, shots in SAMPLE} == {None, 2}
