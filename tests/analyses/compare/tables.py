"""Runs of lm-evaluation-harness' tasks with two models, of which the second is better, for comparisons and gates."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import calipers

DOCUMENTS = 40
WORDS = ["the", "a", "cat", "dog", "sat", "ran", "on", "mat", "tree", "slowly", "red", "blue", "house", "big"]
TASKS = {
    "said": """
output_type: generate_until
doc_to_text: "Say: {{text}}"
doc_to_target: "{{text}}"
metric_list: [{metric: bleu}, {metric: ter}, {metric: exact_match}]
""",
    "roll": """
output_type: loglikelihood_rolling
doc_to_text: ""
doc_to_target: text
""",
    "choice": """
output_type: multiple_choice
doc_to_text: text
doc_to_choice: ["no", "yes"]
doc_to_target: kind
metric_list: [{metric: acc}, {metric: f1}, {metric: mcc}, {metric: brier_score}]
""",
    "own": """
output_type: generate_until
doc_to_text: "Say: {{text}}"
doc_to_target: "{{text}}"
metric_list: [{metric: exact_match, aggregation: !function own.largest, higher_is_better: true}]
""",
}
MODELS = """
import random, zlib
from calipers.clients import Scored

def chance(text):
    return random.Random(zlib.crc32(text.encode()))

def said(prompt, salt, slips):
    words, lot = prompt.removeprefix("Say: ").split(), chance(prompt + salt)
    return " ".join("oops" if lot.random() < slips else word for word in words)

def before(prompt): return said(prompt, "b", 0.35)
def after(prompt): return said(prompt, "a", 0.1)

class Before:
    doubt = 1.5
    async def complete(self, request): raise AssertionError("nothing is to be written")
    def score(self, texts):
        return [Scored(-self.doubt * len(str(one)) * chance(f"{one}{self.doubt}").uniform(0.5, 1.5), False, 1)
                for one in texts]

class After(Before):
    doubt = 0.9
"""


def home(folder: Path, seed: int = 0) -> Path:
    """A folder with documents, tasks and models in it."""
    lot = random.Random(seed)
    rows = [
        {
            "text": " ".join(lot.choices(WORDS, k=lot.randint(6, 14))),
            "kind": lot.randint(0, 1),
            "level": "easy" if n % 4 else "hard",
        }
        for n in range(DOCUMENTS)
    ]
    (folder / "data.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "models.py").write_text(MODELS)
    (folder / "own.py").write_text("def largest(values):\n    return max(values)\n")
    data = f"dataset_path: json\ndataset_kwargs: {{data_files: {{test: {folder / 'data.jsonl'}}}}}\ntest_split: test"
    for name, text in TASKS.items():
        (folder / f"{name}.yaml").write_text(f"task: {name}\n{data}{text}")
    return folder


def ran(folder: Path, task: str, model: str, name: str = "", **settings: Any) -> str:
    """The folder of a run of one of the tasks."""
    out = folder / (name or f"{task}-{model}")
    calipers.evaluate(folder / f"{task}.yaml", f"python/{folder / 'models.py'}:{model}", out=out, **settings)
    return str(out)


def kept(run: str, key: str) -> list[Any]:
    """The stored value of a metric for each document of a run, in order."""
    rows = [json.loads(line) for line in (Path(run) / "documents.jsonl").read_text().splitlines()[1:]]
    return [row["values"][key] for row in sorted(rows, key=lambda row: int(row["document"]))]
