"""What a task says about its judges, read and checked."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Final, Literal, cast
from urllib.parse import urlsplit

from calipers.names import CLIENTS
from calipers.run.client import Price
from calipers.run.clients.address import BASE_URL, KEY, is_loopback
from calipers.run.verifiers.judge_prompt import ALONE, FIRST, PAIR, placeholders
from calipers.run.verifiers.judge_reply import Labels, Range, Scale
from calipers.run.verifiers.params import check_flag, check_names, check_number, fault, is_number
from calipers.tasks.task import Task

PARAMS: Final = (
    *("judge_model", "judges", "rubric", "scale", "aggregate", "pair", "quorum"),
    *("seconds", "retries", "max_tokens", "temperature", "base_url", "price"),
)
SERVED: Final = ("openai", "litellm")  # the kinds that only talk to a server; others may run code or read files
HOW: Final = ("vote", "mean", "median")
SECONDS: Final = 120.0
RETRIES: Final = 8


@dataclass(frozen=True, slots=True)
class Settings:
    """Who judges, by what, and how their scores become one."""

    judges: tuple[str, ...]  # specs of models
    rubric: str
    scale: Scale
    aggregate: Literal["vote", "mean", "median"]
    pair: bool
    quorum: int  # judges that must give a score
    seconds: float  # for the whole verdict
    retries: int
    max_tokens: int | None
    temperature: float | None
    base_url: str | None
    price: Price | None


def settings(task: Task) -> Settings:
    """The settings of a task; InputError for what cannot be used, or would be unwise to."""
    params = task.params
    check_names(task, PARAMS)
    check_flag(task, "pair")
    for name, least in (("seconds", 0.1), ("retries", 0), ("max_tokens", 1), ("temperature", 0)):
        if params.get(name) is not None:
            check_number(task, name, least=least)
    judges, pair = _judges(task), bool(params.get("pair"))
    _check_rubric(task, pair)
    scale = FIRST if pair else _scale(task)
    how = params.get("aggregate", "vote" if isinstance(scale, Labels) else "mean")
    if how not in HOW:
        raise fault(task, f"aggregate is {how!r:.60}", f"expected one of {', '.join(HOW)}")
    quorum = params.get("quorum", len(judges) // 2 + 1)
    if not isinstance(quorum, int) or isinstance(quorum, bool) or not 1 <= quorum <= len(judges):
        raise fault(
            task, f"quorum is {quorum!r:.60}", f"expected how many of the {len(judges)} judges must give a score"
        )
    max_tokens, temperature = params.get("max_tokens"), params.get("temperature", 0.0)
    return Settings(
        judges,
        params["rubric"],
        scale,
        cast(Literal["vote", "mean", "median"], how),
        pair,
        quorum,
        float(params.get("seconds") or SECONDS),
        int(params.get("retries", RETRIES)),
        None if max_tokens is None else int(max_tokens),
        None if temperature is None else float(temperature),
        _base_url(task, judges),
        _price(task),
    )


@cache
def spec_of(model: str) -> str:
    """The spec of a judge: as it is if it names a kind of ours, else an id that litellm knows.

    >>> spec_of("openai/gpt-x"), spec_of("anthropic/claude-x"), spec_of("gpt-x")
    ('openai/gpt-x', 'litellm/anthropic/claude-x', 'litellm/gpt-x')
    """
    kind, slash, name = model.strip().partition("/")
    known = bool(slash and name) and (CLIENTS.match(kind) is not None or CLIENTS.plugin(kind) is not None)
    return model.strip() if known else f"litellm/{model.strip()}"


def _judges(task: Task) -> tuple[str, ...]:
    given = task.params.get("judges", task.params.get("judge_model"))
    models = [given] if isinstance(given, str) else given
    right = "expected judge_model, such as 'openai/NAME', or judges, a list of them"
    if "judges" in task.params and "judge_model" in task.params:
        raise fault(task, "there are both judge_model and judges", "expected one of them")
    if not isinstance(models, (list, tuple)) or not models:
        raise fault(task, "no judge is named", right)
    if not all(isinstance(model, str) and model.strip() for model in models):
        raise fault(task, f"judges are {models!r:.80}", right)
    specs = tuple(spec_of(model) for model in models)
    for spec in specs:
        kind = spec.partition("/")[0]
        if kind in CLIENTS.entries and kind not in SERVED:
            # A task is data. Naming python/FILE.py:OBJECT in it must not run that file.
            raise fault(task, f"judge {spec!r:.80} is no model behind a server", "expected openai/NAME or litellm/ID")
    return specs


def _check_rubric(task: Task, pair: bool) -> None:
    rubric, known = task.params.get("rubric"), PAIR if pair else ALONE
    example = (
        "'Which answers {question} better? {answer_a} {answer_b}'" if pair else "'Is {answer} right for {question}?'"
    )
    if not isinstance(rubric, str) or not rubric.strip():
        raise fault(task, "rubric is missing", f"expected a text such as {example}")
    found = placeholders(rubric)
    lacking = [name for name in known[1:] if name not in found and name != "target"]
    if lacking:
        has = f"has {', '.join(f'{{{name}}}' for name in found[:3])}" if found else "has no placeholder"
        needs = " and ".join(f"{{{name}}}" for name in lacking)
        raise fault(
            task, f"rubric {has}, so no judge would see the answer", f"put {needs} where it goes, as in {example}"
        )
    if task.target is None and (pair or "target" in found):
        why = "pair compares with the target" if pair else "rubric names {target}"
        raise fault(task, f"{why}, but there is none", "expected a target")


def _scale(task: Task) -> Scale:
    given = task.params.get("scale", [0, 1])
    if isinstance(given, (list, tuple)) and len(given) == 2 and all(map(is_number, given)) and given[0] < given[1]:
        return Range(float(given[0]), float(given[1]))
    if isinstance(given, Mapping) and len(given) > 1 and all(map(is_number, given.values())):
        words = {word.strip().casefold() for word in given if isinstance(word, str) and word.strip()}
        if len(words) == len(given):
            return Labels({word.strip(): float(reward) for word, reward in given.items()})
    right = 'expected two numbers, such as [0, 10], or labels with their rewards, such as {"CORRECT": 1, "WRONG": 0}'
    raise fault(task, f"scale is {given!r:.80}", right)


def _base_url(task: Task, judges: tuple[str, ...]) -> str | None:
    """The server a task names; refused where the user's key would go to it without the user having said so."""
    url = task.params.get("base_url")
    if url is None:
        return None
    if not isinstance(url, str):
        raise fault(task, f"base_url is {url!r:.80}", "expected a URL such as 'http://localhost:8000/v1'")
    try:
        here = is_loopback(urlsplit(url).hostname or "")
    except ValueError:
        here = False
    keyless = not os.environ.get(KEY) and all(spec.startswith("openai/") for spec in judges)
    if here or keyless or url == os.environ.get(BASE_URL):
        return url
    raise fault(task, f"base_url {url!r:.80} would be sent your key by a task file", f"set ${BASE_URL} to it yourself")


def _price(task: Task) -> Price | None:
    given: Any = task.params.get("price")
    if given is None:
        return None
    if not (isinstance(given, (list, tuple)) and len(given) == 2 and all(is_number(one) and one >= 0 for one in given)):
        raise fault(
            task, f"price is {given!r:.80}", "expected dollars per million tokens in and out, such as [2.5, 10]"
        )
    return Price(float(given[0]), float(given[1]))
