"""lm-evaluation-harness' own files: its results object, and a line for each document and pipeline.

Both are handed what a run knows, as plain values, and written in its order of keys; a standard error that
does not exist is ``"N/A"`` there.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

NOT_AVAILABLE: Final = "N/A"
ORDER: Final = (
    "results",
    "groups",
    "group_subtasks",
    "configs",
    "versions",
    "n-shot",
    "higher_is_better",
    "n-samples",
    "config",
    "git_hash",
    "date",
    "pretty_env_info",
    "transformers_version",
    "lm_eval_version",
    "upper_git_hash",
    "tokenizer_pad_token",
    "tokenizer_eos_token",
    "tokenizer_bos_token",
    "eot_token_id",
    "max_length",
    "task_hashes",
    "model_source",
    "model_name",
    "model_name_sanitized",
    "system_instruction",
    "system_instruction_sha",
    "fewshot_as_multiturn",
    "chat_template",
    "chat_template_sha",
    "total_evaluation_time_seconds",
)
BY_NAME: Final = ("configs", "versions", "n-shot", "higher_is_better")
"""The blocks whose tasks stand sorted by name."""
HYPHENED: Final = {"n_shot": "n-shot", "n_samples": "n-samples"}


def hashes(doc: Any, prompt: str, target: Any) -> dict[str, str]:
    """The three hashes of a sample: of its document as indented JSON, of its prompt, of its target as text."""
    return {"doc_hash": digest(dumped(doc)), "prompt_hash": digest(prompt), "target_hash": digest(str(target))}


def task_hash(samples: Sequence[Mapping[str, Any]]) -> str:
    """The hash of all samples of a task: of their hashes one after another."""
    return digest("".join(f"{row['doc_hash']}{row['prompt_hash']}{row['target_hash']}" for row in samples))


def task_row(name: str, alias: str | None, sample_len: int, numbers: Mapping[str, Any]) -> dict[str, Any]:
    """A task's entry under ``results``: who it is, how many documents, then each number and its standard error."""
    return {"name": name, "alias": alias or name, "sample_len": sample_len, **available(numbers)}


def available(row: Mapping[str, Any]) -> dict[str, Any]:
    """The same numbers with ``"N/A"`` for those that do not exist."""
    return {key: NOT_AVAILABLE if value is None else value for key, value in row.items()}


def results_object(**blocks: Any) -> dict[str, Any]:
    """The blocks of a results file in its order; one that is not given is not there.

    Keywords spell ``n-shot`` and ``n-samples`` with an underscore.
    """
    named = {HYPHENED.get(key, key): value for key, value in blocks.items()}
    if "groups" in named and not named["groups"]:
        del named["groups"]
    for key in BY_NAME:
        if key in named:
            named[key] = dict(sorted(named[key].items()))
    return {key: named[key] for key in ORDER if key in named}


def sample_row(
    doc_id: int,
    doc: Mapping[str, Any],
    target: Any,
    arguments: Sequence[Sequence[Any]],
    resps: Sequence[Sequence[Any]],
    answers: Sequence[Any],
    pipeline: str,
    scores: Mapping[str, Any],
) -> dict[str, Any]:
    """A document's line under one pipeline; ``arguments`` are those of each request, the prompt first.

    A chat is a list of one text, its turns as JSON.
    """
    prompt = arguments[0][0] if arguments and arguments[0] else ""
    prompt = str(prompt[0] if isinstance(prompt, list) else prompt)
    named = {
        f"gen_args_{number}": {f"arg_{place}": value for place, value in enumerate(request)}
        for number, request in enumerate(arguments)
    }
    return {
        "doc_id": doc_id,
        "doc": doc,
        "target": str(target),
        "arguments": named,
        "resps": [_texts(request) for request in resps],
        "filtered_resps": [_texts(answer) for answer in answers],
        "filter": pipeline,
        "metrics": list(scores),
        **hashes(doc, prompt, target),
        **{name: _printed(value) if name == "brier_score" else value for name, value in scores.items()},
    }


def file_text(results: Mapping[str, Any]) -> str:
    """A results object as its file has it: indented, characters as they are."""
    return json.dumps(results, indent=2, ensure_ascii=False, default=_plain)


def line_text(row: Mapping[str, Any]) -> str:
    """A sample as a line of its file."""
    return json.dumps(row, ensure_ascii=False, default=_plain) + "\n"


def dumped(doc: Any) -> str:
    """A document as it is hashed."""
    return json.dumps(doc, indent=2, default=_plain, ensure_ascii=False)


def digest(text: str) -> str:
    """The SHA-256 of a text, in hexadecimal."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _texts(value: Any) -> Any:
    """Every leaf as text, whatever it was."""
    return [_texts(one) for one in value] if isinstance(value, (list, tuple)) else str(value)


def _printed(pair: Any) -> Any:
    """(gold, chances) with the chances as numpy prints them, which is what lm-eval's file holds."""
    import numpy as np

    return (pair[0], str(np.array(pair[1]))) if isinstance(pair, (list, tuple)) else pair


def _plain(value: Any) -> Any:
    """What JSON has no word for: a set as a list, an array's number as a number, anything else as its text."""
    if isinstance(value, (set, frozenset)):
        return list(value)
    item = getattr(value, "item", None)
    if callable(item) and getattr(value, "shape", None) == ():
        return item()
    return without_address(str(value))


def without_address(text: str) -> str:
    """What Python shows of an object, less where it lay in memory: two exports of one run are the same.

    >>> without_address("<function f at 0x7f2a9c0d5a80>")
    '<function f>'
    """
    return _ADDRESS.sub("", text)


_ADDRESS: Final = re.compile(r" at 0x[0-9a-fA-F]+(?=>)")
