"""What lm-evaluation-harness itself says of the tiny checkpoints, written to fixtures/lm_eval.json.

Run by hand, in an environment of its own with lm_eval 0.4.13, torch and transformers:
``python tests/hf/make_fixture.py``. The tests read the file and need none of it.
"""

from __future__ import annotations

import json
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path
from typing import Any

FIXTURE = Path(__file__).parent / "fixtures" / "lm_eval.json"

LONG = "the cat sat on the mat and then the dog ran away, not the cat; " * 4
CHOICES = [" the mat", " the dog ran", " the dog ran away", " on", " not"]
PAIRS = [
    ("the cat", " sat"),
    ("the cat ", "sat"),  # the space belongs to what follows
    ("the cat \n", "sat on"),
    ("the ca", "t sat on"),  # encoded together the border falls inside a token,
    ("the c", "at and then"),  # and as many tokens as the context has alone are passed over
    ("", "the dog ran"),  # not "the cat sat": see test_the_same_text_with_another_border
    ("", "<s>the cat"),  # a text that brings its own beginning
    ("<s>the cat", " sat"),
    ("<|endoftext|>the cat", " sat"),
    ("caf\u00e9 \u4f60\u597d", " \U0001f600!"),
    ("not the", " catastrophe, hello world"),
    *[("then the cat sat on", choice) for choice in CHOICES],
    *[(LONG[:90], choice) for choice in CHOICES],  # shared, and long enough to be worth it
    *[(LONG[7:97], choice) for choice in CHOICES],
    *[(LONG[2:70], choice) for choice in CHOICES],
    (LONG, " the cat"),  # too long: it loses its beginning
    (LONG, " the cat ran away"),
    (LONG, LONG[:60]),
    ("not the,", "z"),  # what the one model would have said itself,
    ("cat,", "m"),  # and the other
    ("cat,", "mat"),
    *[("hello world", letter) for letter in "ABCD"],  # one token each: one row
]
WHOLE = ["", "h", "the cat sat", "<s>hello", LONG[:130], LONG * 3, "caf\u00e9 \u4f60\u597d " * 12]
ASKED: list[tuple[str, dict[str, Any]]] = [
    ("the cat", {"max_gen_toks": 12}),
    ("hello world, the dog", {"max_gen_toks": 20}),
    (LONG[:40], {"max_gen_toks": 20, "until": ["f", "io"]}),
    ("the cat sat on", {"max_gen_toks": 24, "until": ["\n", "and"]}),
    ("<s>hello", {"max_gen_toks": 8}),
    ("and then", {"max_gen_toks": 30, "until": ["t", "an", "-"]}),
]


def ask(kind: str, folder: str) -> dict[str, Any]:
    from lm_eval.api.instance import Instance
    from lm_eval.models.huggingface import HFLM

    model = HFLM(pretrained=folder, batch_size=4, device="cpu")

    def instances(of: str, arguments: list[tuple[Any, ...]]) -> list[Any]:
        return [Instance(request_type=of, doc={}, arguments=one, idx=0) for one in arguments]

    asked = [(text, {"do_sample": False, "temperature": 0.0, **settings}) for text, settings in ASKED]
    return {
        "loglikelihood": model.loglikelihood(instances("loglikelihood", PAIRS)),
        "rolling": model.loglikelihood_rolling(instances("loglikelihood_rolling", [(text,) for text in WHOLE])),
        "generated": model.generate_until(instances("generate_until", asked)),
    }


def main() -> None:
    sys.path.insert(0, str(Path(__file__).parents[1]))
    from hf import tiny

    found: dict[str, Any] = {"lm_eval": version("lm_eval"), "transformers": version("transformers")}
    with tempfile.TemporaryDirectory() as scratch:
        for kind in ("gpt2", "llama"):
            found[kind] = ask(kind, tiny.build(Path(scratch) / kind, kind))
    FIXTURE.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
