"""Requests to the tiny checkpoints, and the answers of lm-evaluation-harness.

``tests/golden/record_hf.py`` recorded the answers, in an environment of its own.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

FIXTURE = Path(__file__).parents[1] / "golden" / "hf" / "lm_eval.json"
OPTIONS_FIXTURE = FIXTURE.with_name("lm_eval_options.json")
KINDS = ("gpt2", "llama", "headless")  # one token that begins and ends; a beginning put before every text; none at all

LONG = "the cat sat on the mat and then the dog ran away, not the cat; " * 4
CHOICES = [" the mat", " the dog ran", " the dog ran away", " on", " not"]
EXAMPLES = "".join(f"question {n}: the cat sat\nanswer: the dog{' ran' * n}\n\n" for n in range(2))
PAIRS = [
    ("the cat", " sat"),
    ("the cat ", "sat"),  # the space belongs to the continuation
    ("the cat \n", "sat on"),
    ("the ca", "t sat on"),  # encoded together the border falls inside a token,
    ("the c", "at and then"),  # and as many tokens as the context has alone are passed over
    ("the answ", "er and then"),
    ("", "the dog ran"),  # not "the cat sat": see test_the_same_text_with_another_border
    ("", " "),
    ("", "<s>the cat"),  # a text that brings its own beginning
    ("<s>the cat", " sat"),
    ("<|endoftext|>the cat", " sat"),
    ("caf\u00e9 \u4f60\u597d", " \U0001f600!"),
    ("not the", " catastrophe, hello world"),
    *[("then the cat sat on", choice) for choice in CHOICES],
    *[(LONG[:90], choice) for choice in CHOICES],  # shared, and long enough to be computed once
    *[(LONG[7:97], choice) for choice in CHOICES],
    *[(LONG[2:70], choice) for choice in CHOICES],
    *[(EXAMPLES + question, choice) for question in ("the", "the cat:", "hello world") for choice in CHOICES],
    (LONG, " the cat"),  # too long: it is cut at its beginning
    (LONG, " the cat ran away"),
    (LONG, LONG[:60]),
    ("not the,", "z"),  # what the one model would have said itself,
    ("cat,", "m"),  # and the other
    ("cat,", "mat"),
    *[("hello world", letter) for letter in "ABCD"],  # one token each, so they share a row
]
WHOLE = [
    "",
    "h",
    "the cat sat",
    "<s>hello",
    LONG[:130],
    LONG * 3,
    "caf\u00e9 \u4f60\u597d " * 12,
    LONG[:30] * 9 + "z" * 70,
]
ASKED: list[tuple[str, dict[str, Any]]] = [
    ("the cat", {"max_gen_toks": 12}),
    ("hello world, the dog", {"max_gen_toks": 20}),
    (LONG[:40], {"max_gen_toks": 20, "until": ["f", "io"]}),
    ("the cat sat on", {"max_gen_toks": 24, "until": ["\n", "and"]}),
    ("<s>hello", {"max_gen_toks": 8}),
    ("and then", {"max_gen_toks": 30, "until": ["t", "an", "-"]}),
    ("and then", {"max_gen_toks": 1}),
    ("not", {"max_gen_toks": 16, "until": "e"}),
    *[(EXAMPLES + question, {"max_gen_toks": 16, "until": ["\n\n", "q"]}) for question in ("the", "cat", "the dog")],
    (LONG, {"max_gen_toks": 10}),  # too long: it is cut at its beginning,
    (LONG[:120], {"max_gen_toks": 50}),  # and so is a prompt that leaves too little room for the answer
]
# Requested one by one, because some of them stop lm-evaluation-harness.
ODD_PAIRS = [
    ("the", ""),
    ("", ""),
    ("the cat ", ""),  # a space is a valid continuation
    ("the", "n"),  # "then" is one token, and the context has as many
    ("then hello wor", "ld"),  # one token fewer than the context has
    ("a", LONG),
    ("  ", "the"),  # the context is empty without its spaces
    (" \n", ""),
]
ODD_ASKED: list[tuple[str, dict[str, Any]]] = [
    ("", {"max_gen_toks": 6}),
    ("the cat", {"max_gen_toks": 4000}),
]

# The arguments for loading a checkpoint: its kind, and the arguments; paths are filled in by name.
OPTIONS: dict[str, tuple[str, dict[str, Any]]] = {
    "as it is": ("llama", {}),
    "dtype": ("llama", {"dtype": "float64"}),
    "max_length": ("llama", {"max_length": 40}),
    "max_length of the other": ("gpt2", {"max_length": 40}),
    "with a beginning": ("llama", {"add_bos_token": True}),
    "without a beginning": ("llama", {"add_bos_token": False}),
    "with a beginning that it has not": ("gpt2", {"add_bos_token": True}),
    "prefix_token_id": ("llama", {"prefix_token_id": 5}),
    "tokenizer": ("llama", {"tokenizer": "{gpt2}"}),
    "tokenizer with a limit": ("llama", {"tokenizer": "{short}"}),
    "truncation": ("llama", {"tokenizer": "{short}", "truncation": True}),
    "truncation without a limit": ("llama", {"truncation": True}),
    "an adapter": ("llama", {"peft": "{adapter}"}),
    "an adapter, dtype": ("llama", {"peft": "{adapter}", "dtype": "float64"}),
    "an adapter, resized": ("llama", {"peft": "{adapter}", "tokenizer": "{gpt2}"}),
    "subfolder, revision": ("llama", {"subfolder": "inner", "revision": "main"}),
}
OPTION_PAIRS = PAIRS[:14] + PAIRS[-10:-4]
OPTION_WHOLE = WHOLE[1:6]
OPTION_ASKED = ASKED


def filled(given: dict[str, Any], paths: dict[str, str]) -> dict[str, Any]:
    """The arguments with the paths of this machine."""
    return {name: value.format(**paths) if isinstance(value, str) else value for name, value in given.items()}
