"""Writes the logs beside it with inspect_ai and its own mock model: python make.py FOLDER.

inspect_ai is no dependency of Calipers; the logs are kept so that the tests need none. Made with 0.3.285.
"""

from __future__ import annotations

import glob
import sys
from typing import Any

import tiktoken
from inspect_ai import Epochs, Task, eval
from inspect_ai.dataset import MemoryDataset, Sample
from inspect_ai.log import read_eval_log, write_eval_log
from inspect_ai.model import ModelOutput, ModelUsage, get_model
from inspect_ai.scorer import Score, match, mean, scorer
from inspect_ai.solver import solver
from inspect_ai.util import LimitExceededError

ANSWERS = {"2+2": "4", "3+3": "7", "4+4": "8", "5+5": "10", "6+6": "about 12 or 13"}


class Plain:
    """Bytes for tokens: the mock model counts them, and the real table of tokens needs a network."""

    def encode(self, text: str, **_: Any) -> list[int]:
        return list(text.encode())


tiktoken.get_encoding = tiktoken.encoding_for_model = lambda *_: Plain()


def answered(messages: Any, *_: Any) -> ModelOutput:
    said = ANSWERS[messages[-1].text]
    out = ModelOutput.from_content("mockllm/model", said, stop_reason="max_tokens" if len(said) > 5 else "stop")
    out.usage = ModelUsage(
        input_tokens=10, output_tokens=len(said), total_tokens=10 + len(said), input_tokens_cache_read=4, total_cost=0.5
    )
    return out


@solver
def stumbling() -> Any:
    async def solve(state: Any, generate: Any) -> Any:
        if (state.sample_id, state.epoch) == ("s3", 1):
            raise RuntimeError("the sky fell")
        if (state.sample_id, state.epoch) == ("s4", 2):
            raise LimitExceededError(type="time", value=11, limit=10)
        return await generate(state)

    return solve


@scorer(metrics={"helpful": [mean()], "short": [mean()]})
def rubric() -> Any:
    async def score(state: Any, target: Any) -> Score:
        return Score(value={"helpful": 0.25, "short": len(state.output.completion) < 3}, answer="none")

    return score


@scorer(metrics=[mean()])
def unsure() -> Any:
    async def score(state: Any, target: Any) -> Score:
        return Score.unscored(reason="grader_failed") if state.sample_id == 2 else Score(value=0.75)

    return score


def sums(scorers: list[Any], name: str) -> Task:
    levels = ["easy", "easy", "hard", "hard", "hard"]
    samples = [
        Sample(
            id=2 if number == 2 else f"s{number}", input=asked, target=str(2 * int(asked[0])), metadata={"level": level}
        )
        for number, (asked, level) in enumerate(zip(ANSWERS, levels, strict=True), 1)
    ]
    data = MemoryDataset(samples, name=name)
    return Task(name=name, dataset=data, solver=stumbling(), scorer=scorers, epochs=Epochs(2), fail_on_error=False)


def write(folder: str, name: str, scorers: list[Any], kind: str) -> None:
    model = get_model("mockllm/model", custom_outputs=answered)
    eval(sums(scorers, "sums"), model=model, log_dir=f"{folder}/{name}", log_format=kind, display="none", max_samples=1)
    log = read_eval_log(glob.glob(f"{folder}/{name}/*")[0])
    for sample in log.samples:
        sample.events = []  # long, and of no use here
        if sample.error:
            sample.error.traceback = sample.error.traceback_ansi = ""  # it names folders
    write_eval_log(log, f"{folder}/{name}.{kind}", kind)


write(sys.argv[1], "one_scorer", [match()], "eval")
write(sys.argv[1], "three_scorers", [match(), rubric(), unsure()], "eval")
write(sys.argv[1], "three_scorers", [match(), rubric(), unsure()], "json")
