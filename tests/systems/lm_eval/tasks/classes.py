"""A task written as a Python class, and a stand-in for the little of lm-evaluation-harness that it imports."""

from __future__ import annotations

import json
from pathlib import Path

CODE = '''
from types import SimpleNamespace

from lm_eval.api.instance import Instance
from lm_eval.api.metrics import mean


class Quiz:
    """Two requests a document: what the model writes, and how likely it holds a refusal."""

    VERSION = 3
    MULTIMODAL = False

    def __init__(self, config=None):
        self.given, self.config = config, SimpleNamespace(task=None, num_fewshot=None)
        self.seeds = []

    @property
    def eval_docs(self):
        return [{"id": i, "q": f"the cat {i} is", "a": " A"} for i in range(4)]

    def set_config(self, key, value):
        setattr(self.config, key, value)

    def set_fewshot_seed(self, seed):
        self.seeds.append(seed)

    def doc_to_target(self, doc):
        return doc["a"]

    def doc_to_prefix(self, doc):
        return None

    def fewshot_context(self, doc, num_fewshot, system_instruction, apply_chat_template, fewshot_as_multiturn,
                        chat_template, gen_prefix):
        text = f"{self.given['recipe']} {num_fewshot}: {doc['q']}"
        return chat_template([{"role": "user", "content": text}]) if apply_chat_template else text

    def construct_requests(self, doc, ctx, metadata, apply_chat_template=False, chat_template=None):
        later = Instance("loglikelihood", doc, (ctx, " not"), 1, metadata)
        return [later, Instance("generate_until", doc, (ctx, {"until": ["."], "max_gen_toks": 7}), 0, metadata)]

    def process_results(self, doc, results):
        said, (ll, greedy) = results
        return {"right": float(said == doc["a"]), "refusal": ll, "pair": (said, doc["a"])}

    def aggregation(self):
        return {"right": mean, "refusal": max, "pair": lambda pairs: sum(a == b for a, b in pairs)}

    def higher_is_better(self):
        return {"right": True, "refusal": False, "pair": True}


class Broken(Quiz):
    def __init__(self, config=None):
        raise RuntimeError("no dataset here\\nand more")


class Pictures(Quiz):
    MULTIMODAL = True


class Nothing:
    pass


class Odd(Quiz):
    def construct_requests(self, **_):
        return "a text"


class Costly(Quiz):
    def aggregation(self):
        def load(values):
            raise OSError("the metric is to be downloaded")

        return {"pair": load}


class Writer(Quiz):
    """One request for text a document, as an ordinary task has."""

    def construct_requests(self, doc, ctx, metadata, **_):
        return Instance("generate_until", doc, (ctx, {"until": "."}), 0, metadata)

    def process_results(self, doc, results):
        return {"right": float(results[0] == doc["a"])}
'''
STAND_IN = {
    "lm_eval/__init__.py": "",
    "lm_eval/api/__init__.py": "",
    "lm_eval/api/metrics.py": "def mean(values):\n    return sum(values) / len(values)\n",
    "lm_eval/api/registry.py": "from .metrics import mean\n\nAGGREGATION_REGISTRY = {'mean': mean}\n",
    "lm_eval/api/instance.py": (
        "from .registry import AGGREGATION_REGISTRY\n\n\nclass Instance:\n"
        "    def __init__(self, request_type, doc, args, idx, metadata):\n"
        "        self.request_type, self.doc, self.args, self.idx = request_type, doc, args, idx\n"
    ),
}


def write_classes(folder: Path) -> None:
    """The task files, ``quiz.yaml`` and one for each other class, and their code."""
    (folder / "code_of_it.py").write_text(CODE)
    for name in ("Quiz", "Broken", "Pictures", "Nothing", "Odd", "Costly", "Writer"):
        text = f"task: {name.lower()}\nclass: !function code_of_it.{name}\nrecipe: Say\n"
        (folder / f"{name.lower()}.yaml").write_text(text)


def write_stand_in(folder: Path) -> Path:
    """The stand-in as a package to be put on the import path; its folder."""
    for name, text in STAND_IN.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


def write_documents(folder: Path, splits: dict[str, int]) -> None:
    """Documents of a split as files, so many of each."""
    for split, count in splits.items():
        rows = [{"text": f"say {split}{i} val:", "value": f"{split}{i}", "n": i % 2} for i in range(count)]
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{split}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
