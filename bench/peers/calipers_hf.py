"""Calipers with an ``hf/`` model: one task after the other, on a checkpoint that is loaded once."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from bench.harness.answers import Answers, device_memory, timed
from bench.peer import Numbers, Peer, Work

PEER = Peer(
    "calipers_hf",
    "Calipers",
    packages=("calipers", "transformers", "torch"),
    note="the same files, their documents asked through `hf/` by as many workers as it takes calls at once",
)


def prepare(
    checkpoint: str,
    folder: str,
    tasks: Sequence[str],
    answers: str,
    at_once: int,
    device: str = "cpu",
    dtype: str = "auto",
) -> Work:
    """Import everything and load the model, before the first document."""
    from calipers.clients import Connection, Request
    from calipers.clients.huggingface.client import HfModel, connect

    model = connect(checkpoint, Connection(api="completions", most=at_once, model_args={"dtype": dtype}))
    asyncio.run(model.complete(Request("first", 0, "first", max_tokens=1)))

    async def ask(calls: Iterator[tuple[str, Any]], found: dict[str, list[Any]]) -> None:
        for doc, call in calls:
            found[doc] = await _answered(model, call)

    async def all_of(name: str) -> Answers:
        calls, found = iter(list(_calls(Path(folder) / f"{name}.yaml"))), dict[str, list[Any]]()
        await asyncio.gather(*[ask(calls, found) for _ in range(at_once)])
        return found

    async def _answered(model: HfModel, call: Any) -> list[Any]:
        if isinstance(call, Request):
            return [(await model.complete(call)).text]
        return [[one.logprob, one.greedy] for one in await model.score(call)]

    def work() -> Numbers:
        figures, found = timed(tasks, lambda name: asyncio.run(all_of(name)))
        asyncio.run(model.close())
        Path(answers).write_text(json.dumps(found), encoding="utf-8")
        return {**figures, **device_memory(device)}

    return work


def _calls(path: Path) -> Iterator[tuple[str, Any]]:
    """The requests for each document: texts to score together, or one prompt."""
    from calipers.clients import Continuation, Request, Rolling
    from calipers.systems.lm_eval.tasks.groups import Tasks, leaves
    from calipers.systems.lm_eval.tasks.loaded import load_task, requests

    (leaf,) = leaves(Tasks([]).find(str(path)))
    for doc, asked in groupby(requests(load_task(leaf.config, leaf.file)), key=lambda one: one.doc_id):
        kinds = list(asked)
        if kinds[0].request_type == "generate_until":
            prompt, settings = kinds[0].args
            until, limit = tuple(settings["until"]), settings["max_gen_toks"]
            extra = {"truncate": "left"}
            yield str(doc), Request(str(doc), 0, prompt, max_tokens=limit, temperature=0.0, stop=until, extra=extra)
        elif kinds[0].request_type == "loglikelihood_rolling":
            yield str(doc), [Rolling(*one.args) for one in kinds]
        else:
            yield str(doc), [Continuation(*one.args) for one in kinds]


def numbers(answer: Any) -> Numbers:
    """The seconds of each task."""
    figures: Numbers = answer
    return figures
