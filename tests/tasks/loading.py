"""Loads every kind of task whose own code draws random numbers; the result is the same whoever loads it, and when."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

UTILS = """
import random
import numpy

OWN, NUMPY, OLD = random.Random(42), numpy.random.default_rng(42), numpy.random.RandomState(42)

def held(docs):  # by generators of the module's own, which every task that shares it draws from
    return [dict(doc, q=f"{doc['q']} {OWN.random()} {NUMPY.random()} {OLD.random()}") for doc in docs]

def shuffled(docs):
    found = []
    for doc in docs:
        answers = [doc["a"], "w1", "w2", "w3"]
        random.shuffle(answers)
        found.append(dict(doc, c=answers, n=answers.index(doc["a"])))
    return found

def permuted(docs):
    docs = list(docs)
    return [docs[place] for place in numpy.random.permutation(len(docs))]

def text(doc):
    return f"{doc['q']} {random.random()}"

def target(doc):
    return random.choice(["yes", "no"])

def choices(doc):
    return random.sample(["u", "v", "w"], 3)

def examples():
    return [{"q": f"e{random.randrange(10**9)}", "a": "b"} for _ in range(3)]

def dataset(**_):
    return {"test": [{"q": f"q{random.randrange(10**9)}", "a": "a"} for _ in range(8)]}
"""
HEAD = """\
dataset_path: json
dataset_kwargs: {data_files: {test: data.jsonl, train: data.jsonl}}
test_split: test
doc_to_text: q
doc_to_target: a
"""
CHOICE = "output_type: multiple_choice\ndoc_to_choice: c\ndoc_to_target: n\n"
SHUFFLED = "process_docs: !function utils.shuffled\n"
KINDS = {
    "generation": SHUFFLED + "doc_to_text: '{{q}} {{c}}'\n",
    "choices": SHUFFLED + CHOICE,
    "contexts": SHUFFLED + "output_type: multiple_choice\ndoc_to_choice: c\ndoc_to_text: '{{n}}'\n",
    "likelihood": SHUFFLED + "output_type: loglikelihood\ndoc_to_target: '{{c}}.'\n",
    "rolling": SHUFFLED + "output_type: loglikelihood_rolling\ndoc_to_target: '{{c}}.'\n",
    "numpy": "process_docs: !function utils.permuted\n",
    "held": "process_docs: !function utils.held\n",
    "held_too": "process_docs: !function utils.held\n",
    "shots": SHUFFLED + CHOICE + "fewshot_split: train\nnum_fewshot: 2\n",
    "own_shots": SHUFFLED + CHOICE + "fewshot_split: test\nnum_fewshot: 2\n",
    "spare_shots": SHUFFLED + CHOICE + "fewshot_split: train\n",
    "unused_shots": SHUFFLED
    + CHOICE
    + "fewshot_split: train\nfewshot_config: {process_docs: !function utils.permuted}\n",
    "made_shots": "fewshot_config: {samples: !function utils.examples}\nnum_fewshot: 2\n",
    "text": "doc_to_text: !function utils.text\n",
    "template": "doc_to_text: '{{ [q, 1, 2, 3, 4] | random }}'\ndoc_to_target: '{{ [1, 2, 3] | random }}.'\n",
    "target": "doc_to_target: !function utils.target\n",
    "offered": CHOICE.replace("doc_to_choice: c", "doc_to_choice: !function utils.choices"),
    "dataset": "custom_dataset: !function utils.dataset\n",
}


OWN_GENERATORS = ("held", "held_too")  # which no seed of ours reaches


def write_tasks(folder: Path) -> None:
    """The task files, their code and their data."""
    rows = [{"q": f"q{i}", "a": f"a{i}", "n": i % 3} for i in range(8)]
    (folder / "data.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "utils.py").write_text(UTILS)
    for name, text in KINDS.items():
        keys = [line.partition(":")[0] for line in text.splitlines()]
        head = "".join(f"{line}\n" for line in HEAD.splitlines() if line.partition(":")[0] not in keys)
        (folder / f"{name}.yaml").write_text(f"task: {name}\n{head}{text}")


def load_all(folder: Path) -> dict[str, Any]:
    """The documents, requests and targets of each task as JSON."""
    from calipers.systems.lm_eval.benchmarks import LoadedTasks, TaskRequest, suite
    from calipers.systems.lm_eval.tasks.loaded import requests

    found = {}
    for name in KINDS:
        task = LoadedTasks().task(str(folder / f"{name}.yaml"), name, TaskRequest(trust=True))
        asked = suite(task).tasks
        found[name] = {
            "documents": task.docs,
            "prompts": [one.prompt for one in asked],
            "targets": [one.target for one in asked],
            "requests": [one.args for one in requests(task)],
        }
    made: dict[str, Any] = json.loads(json.dumps(found))
    return made


if __name__ == "__main__":
    sys.stdout.write(json.dumps(load_all(Path(sys.argv[1]))))
