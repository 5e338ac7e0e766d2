"""What lm-evaluation-harness' own ``hf`` model says of the tiny checkpoints of tests/hf, written to hf/lm_eval*.json.

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


def ask(folder: str, options: dict[str, Any] | None = None) -> dict[str, Any]:
    """Every answer of one checkpoint; the name of the error where there is none."""
    from lm_eval.api.instance import Instance
    from lm_eval.models.huggingface import HFLM

    model = HFLM(pretrained=folder, batch_size=4, device="cpu", **(options or {}))

    def instances(kind: str, arguments: list[tuple[Any, ...]]) -> list[Any]:
        return [Instance(request_type=kind, doc={}, arguments=one, idx=0) for one in arguments]

    def likely(pairs: list[tuple[Any, ...]]) -> list[Any]:
        return model.loglikelihood(instances("loglikelihood", pairs))

    def written(asked: list[tuple[Any, ...]]) -> list[Any]:
        greedy = [(text, {"do_sample": False, "temperature": 0.0, **settings}) for text, settings in asked]
        return model.generate_until(instances("generate_until", greedy))

    def rolled(texts: list[tuple[Any, ...]]) -> list[Any]:
        return model.loglikelihood_rolling(instances("loglikelihood_rolling", texts))

    if options is not None:
        return {
            "loglikelihood": [alone(likely, pair) for pair in parity.OPTION_PAIRS],
            "rolling": [alone(rolled, (text,)) for text in parity.OPTION_WHOLE],
            "generated": [alone(written, one) for one in parity.OPTION_ASKED],
        }
    whole = [(text,) for text in parity.WHOLE]
    return {
        "loglikelihood": likely(parity.PAIRS),
        "odd loglikelihood": [alone(likely, pair) for pair in parity.ODD_PAIRS],
        "rolling": rolled(whole),
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
        paths = {kind: str(Path(scratch) / kind) for kind in parity.KINDS}
        paths["short"] = tiny.shortened(Path(scratch) / "short", "llama")
        paths["adapter"] = tiny.adapter(Path(scratch) / "adapter", paths["llama"])
        tiny.build(Path(scratch) / "llama" / "inner", "gpt2")
        loaded: dict[str, Any] = {package: version(package) for package in ("lm_eval", "transformers", "torch", "peft")}
        for name, (kind, options) in parity.OPTIONS.items():
            loaded[name] = ask(paths[kind], parity.filled(options, paths))
    parity.FIXTURE.parent.mkdir(exist_ok=True)
    parity.FIXTURE.write_text(json.dumps(found, indent=1) + "\n")
    parity.OPTIONS_FIXTURE.write_text(json.dumps(loaded, indent=1) + "\n")


if __name__ == "__main__":
    main()
