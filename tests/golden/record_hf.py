"""What lm-evaluation-harness' own ``hf`` model says of the tiny checkpoints of tests/hf, written to hf/lm_eval.json.

Run by hand, with the interpreter that ``make bench-lm-eval`` makes: ``.venv-lm-eval/bin/python
tests/golden/record_hf.py``. The tests read the file and need none of it.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from hf import parity, tiny


def ask(folder: str) -> dict[str, Any]:
    """Every answer of one checkpoint; the name of the error where there is none."""
    from lm_eval.api.instance import Instance
    from lm_eval.models.huggingface import HFLM

    model = HFLM(pretrained=folder, batch_size=4, device="cpu")

    def instances(kind: str, arguments: list[tuple[Any, ...]]) -> list[Any]:
        return [Instance(request_type=kind, doc={}, arguments=one, idx=0) for one in arguments]

    def likely(pairs: list[tuple[Any, ...]]) -> list[Any]:
        return model.loglikelihood(instances("loglikelihood", pairs))

    def written(asked: list[tuple[Any, ...]]) -> list[Any]:
        greedy = [(text, {"do_sample": False, "temperature": 0.0, **settings}) for text, settings in asked]
        return model.generate_until(instances("generate_until", greedy))

    whole = [(text,) for text in parity.WHOLE]
    return {
        "loglikelihood": likely(parity.PAIRS),
        "odd loglikelihood": [alone(likely, pair) for pair in parity.ODD_PAIRS],
        "rolling": model.loglikelihood_rolling(instances("loglikelihood_rolling", whole)),
        "generated": written(parity.ASKED),
        "odd generated": [alone(written, one) for one in parity.ODD_ASKED],
    }


def alone(work: Callable[[list[Any]], list[Any]], one: Any) -> Any:
    """The answer to one request; an error by its name, as a mapping, so that no text is taken for one."""
    try:
        return work([one])[0]
    except Exception as error:
        return {"error": type(error).__name__}


def main() -> None:
    found: dict[str, Any] = {package: version(package) for package in ("lm_eval", "transformers", "torch")}
    with tempfile.TemporaryDirectory() as scratch:
        for kind in parity.KINDS:
            found[kind] = ask(tiny.build(Path(scratch) / kind, kind))
    parity.FIXTURE.parent.mkdir(exist_ok=True)
    parity.FIXTURE.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
