"""Tasks of every output type of lm-evaluation-harness, made of random words, for both sides of a benchmark.

The words come from a generator with a seed, so that every machine has the same tasks. The texts have no meaning, which
makes no difference to a checkpoint with random weights.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any

Doc = Mapping[str, Any]
LETTERS = "ABCD"
OPENINGS = ("b", "br", "d", "f", "g", "h", "k", "l", "m", "n", "p", "pl", "r", "s", "st", "t", "tr", "v", "w", "")
VOWELS = ("a", "e", "i", "o", "u", "ea", "ou")
ENDS = ("", "n", "r", "s", "t", "l", "nd", "st", "ck", "m")
WORDS = 5000


@dataclass(frozen=True, slots=True)
class Made:
    """A task: its file, its test documents, and the documents for few-shot examples."""

    name: str
    about: str
    yaml: str
    docs: Sequence[Doc]
    examples: Sequence[Doc] = ()


def write_tasks(folder: Path, scale: float) -> list[Made]:
    """Write the tasks into a folder; ``scale`` is a factor for the number of documents."""
    made = tasks(scale)
    for task in made:
        data = {"test": task.docs, "dev": task.examples} if task.examples else {"test": task.docs}
        files = {}
        for split, docs in data.items():
            files[split] = str(folder / f"{task.name}-{split}.jsonl")
            Path(files[split]).write_text("".join(json.dumps(doc) + "\n" for doc in docs), encoding="utf-8")
        head = [f"task: {task.name}", "dataset_path: json", f"dataset_kwargs: {json.dumps({'data_files': files})}"]
        head += ["test_split: test", *(["fewshot_split: dev"] if task.examples else [])]
        (folder / f"{task.name}.yaml").write_text("\n".join(head) + "\n" + task.yaml, encoding="utf-8")
    return made


def tasks(scale: float) -> list[Made]:
    """Six tasks with the shapes of well-known ones."""

    def some(count: int) -> int:
        return max(2, round(count * scale))

    return [
        Made("letters", "like MMLU: five examples, the same for all; choices are letters", LETTERED, *_asked(some(60))),
        Made("answers", "like ARC: three random examples; choices are words", ANSWERED, *_asked(some(40))),
        Made("endings", "like HellaSwag: no examples; choices are sentences", ENDED, list(_endings(some(40)))),
        Made("cloze", "like LAMBADA: the last word of a passage", CLOZE, list(_cloze(some(60)))),
        Made(
            "pages", "like WikiText: whole pages, some longer than the model's context", ROLLING, list(_pages(some(12)))
        ),
        Made("written", "like GSM8K: four examples, then a generated answer", WRITTEN, *_asked(some(24))),
    ]


LETTERED = """output_type: multiple_choice
num_fewshot: 5
fewshot_config: {sampler: first_n}
description: "The following are multiple choice questions about nothing.\\n\\n"
doc_to_text: "{{question}}\\nA. {{choices[0]}}\\nB. {{choices[1]}}\\nC. {{choices[2]}}\\nD. {{choices[3]}}\\nAnswer:"
doc_to_choice: ["A", "B", "C", "D"]
doc_to_target: answer
metric_list: [{metric: acc}, {metric: acc_norm}]
"""
ANSWERED = """output_type: multiple_choice
num_fewshot: 3
doc_to_text: "Question: {{question}}\\nAnswer:"
doc_to_choice: choices
doc_to_target: answer
metric_list: [{metric: acc}, {metric: acc_norm}, {metric: acc_mutual_info}]
"""
ENDED = """output_type: multiple_choice
doc_to_text: passage
doc_to_choice: endings
doc_to_target: label
metric_list: [{metric: acc}, {metric: acc_norm}]
"""
CLOZE = """output_type: loglikelihood
doc_to_text: "{{passage}}"
doc_to_target: " {{word}}"
metric_list: [{metric: perplexity}, {metric: acc}]
"""
ROLLING = """output_type: loglikelihood_rolling
doc_to_text: ""
doc_to_target: "{{page}}"
metric_list: [{metric: word_perplexity}, {metric: byte_perplexity}, {metric: bits_per_byte}]
"""
WRITTEN = """output_type: generate_until
num_fewshot: 4
fewshot_config: {sampler: first_n}
doc_to_text: "Question: {{question}}\\nAnswer:"
doc_to_target: "{{choices[answer]}}"
generation_kwargs: {until: ["\\n\\n", "Question:", "st"], max_gen_toks: 48, do_sample: false}
metric_list: [{metric: exact_match}]
"""


class Words:
    """Random sentences in which few words are frequent and many are rare, as in any language."""

    def __init__(self, seed: str) -> None:
        known = random.Random("words")
        made = (
            "".join(known.choice(OPENINGS) + known.choice(VOWELS) + known.choice(ENDS) for _ in range(syllables))
            for syllables in known.choices((1, 2, 3), (3, 4, 1), k=4 * WORDS)
        )
        self._words = list(dict.fromkeys(made))[:WORDS]
        self._weights = list(accumulate(1 / (rank + 3) for rank in range(len(self._words))))
        self._lots = random.Random(seed)

    def some(self, least: int, most: int) -> str:
        """A random number of words."""
        return " ".join(self._lots.choices(self._words, cum_weights=self._weights, k=self._lots.randint(least, most)))

    def sentence(self, least: int = 8, most: int = 20) -> str:
        """A sentence with a random number of words."""
        return self.some(least, most).capitalize() + "."

    def text(self, sentences: int) -> str:
        """A text of sentences, with a few in each paragraph."""
        parts = [self.sentence() + ("\n" if place % 6 == 5 else " ") for place in range(sentences)]
        return "".join(parts).strip()

    def below(self, end: int) -> int:
        """A random number from zero to below ``end``."""
        return self._lots.randrange(end)


def _asked(count: int) -> tuple[list[Doc], list[Doc]]:
    """Questions with four choices, and ten more for few-shot examples."""
    words = Words("asked")
    made: list[Doc] = [
        {
            "question": words.sentence(15, 50)[:-1] + "?",
            "choices": [words.some(2, 8) for _ in LETTERS],
            "answer": words.below(len(LETTERS)),
        }
        for _ in range(count + 10)
    ]
    return made[10:], made[:10]


def _endings(count: int) -> Iterator[Doc]:
    words = Words("endings")
    for _ in range(count):
        endings = [words.sentence(10, 30) for _ in LETTERS]
        yield {"passage": words.text(2 + words.below(5)), "endings": endings, "label": words.below(len(LETTERS))}


def _cloze(count: int) -> Iterator[Doc]:
    words = Words("cloze")
    for _ in range(count):
        yield {
            "passage": words.text(3 + words.below(4)) + " " + words.some(5, 10).capitalize(),
            "word": words.some(1, 2),
        }


def _pages(count: int) -> Iterator[Doc]:
    words = Words("pages")
    for _ in range(count):
        yield {"page": words.text(5 + words.below(120))}
