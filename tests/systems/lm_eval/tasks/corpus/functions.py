"""What the task files of the corpus call: made-up functions in the shapes that shipped tasks have."""

from __future__ import annotations

import math
import re
from collections import Counter
from importlib.util import find_spec


# documents
def without_the_sea(documents):
    """Of a datasets.Dataset, which lm-evaluation-harness hands over, or of a list, where that is not installed."""
    if hasattr(documents, "filter"):
        return documents.filter(lambda doc: "sea" not in doc["question"])
    return [doc for doc in documents if "sea" not in doc["question"]]


def question(doc):
    return f"{doc['question']} ({', '.join(doc['choices'])})"


def index(doc):
    return doc["label"]


def colours(doc):
    return doc["choices"]


def sentences(doc):
    return [f"{doc['question']} {choice}" for choice in doc["choices"]]


def example(doc):
    return f"Example: {doc['question']} ="


def doubles(count, first, **metadata):
    rows = [{"n": n, "twice": str(2 * n)} for n in range(first, first + count)]
    if find_spec("datasets") is None:
        return {"test": rows}
    from datasets import Dataset

    return {"test": Dataset.from_list(rows)}


# filters
class LastNumber:
    def apply(self, resps, docs):
        return [[(re.findall(r"\d+", text) or ["[invalid]"])[-1] for text in each] for each in resps]


def build_predictions(resps, docs):
    return [[f"{doc['question']} = {text}" for text in each] for each, doc in zip(resps, docs)]


# metrics
def pass_at_k(references, predictions, k):
    [answer], [said] = references, predictions
    right = sum(text.endswith(f"= {answer}") for text in said)
    return {f"pass@{one}": 1 - math.comb(len(said) - right, one) / math.comb(len(said), one) for one in k}


def digits_right(items):
    """Takes one list and no keywords, as older tasks have it."""
    answer, said = items
    return sum(a == b for a, b in zip(answer, said)) / len(answer)


def distance(references, predictions):
    return abs(int(references[0]) - int(predictions[0])) if predictions[0].isdigit() else math.nan


def process(doc, results):
    return {"acc": results[0] == doc["answer"], "length": len(results[0]), "extra": 2.0}


def spans(doc, results):
    return {"f1": (doc["target"], results[0])}


def tags(doc, results):
    return {"acc": (doc["tags"], results[0])}


def pairs(doc, results):
    pair = (doc["letter"], results[0])
    return {"weighted_f1": pair, "micro_f1": pair, "subjects": pair}


# aggregations
def _f1(pairs, label):
    both = sum(gold == said == label for gold, said in pairs)
    either = sum(gold == label for gold, _ in pairs) + sum(said == label for _, said in pairs)
    return 2 * both / either if either else 0.0


def weighted_f1_score(items):
    gold = Counter(one for one, _ in items)
    return sum(_f1(items, label) * count for label, count in gold.items()) / len(items)


def micro_f1_score(items):
    return sum(gold == said for gold, said in items) / len(items)


def aggregate_metrics(items):
    return max(_f1(items, label) for label in {gold for gold, _ in items})


def span_f1_agg(items):
    gold = [set(one.split(" $ ")) for one, _ in items]
    said = [set(one.split(" $ ")) for _, one in items]
    both = sum(len(a & b) for a, b in zip(gold, said))
    return 2 * both / (sum(map(len, gold)) + sum(map(len, said)))


def acc_score(items):
    pairs = [(a, b) for gold, said in items for a, b in zip(gold, said)]
    return sum(a == b for a, b in pairs) / sum(len(gold) for gold, _ in items)


def share_of_firsts(items):
    """Of pairs (target, list over repeats)."""
    return sum(gold == said[0] for gold, said in items) / len(items)
