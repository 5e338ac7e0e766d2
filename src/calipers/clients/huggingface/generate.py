"""Completions of a checkpoint for a batch of prompts.

Each row has its own token limit, stop strings and random numbers, so a completion does not depend on the other prompts
of the batch. Only the last digits of the scores do, because matrices of another shape are multiplied in another order.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from time import perf_counter
from typing import Any

from calipers.clients import Completion, Price, Request, priced
from calipers.clients.huggingface.batches import BatchBounds, ForwardPass, PrefixCache, Takes, Tokens, in_batches
from calipers.clients.huggingface.checkpoint import Checkpoint, Template, kernels
from calipers.errors import ClientError

TAKEN = ("do_sample", "min_p", "top_k", "top_p", "truncate")  # keys of --gen-kwargs that hf/ models support


@dataclass(frozen=True, slots=True)
class Sampling:
    """The parameters of sampling: scores are divided by the temperature, then unlikely tokens are left out."""

    temperature: float
    seed: int | None = None
    top_k: int = 0  # keep this number of the most likely tokens; 0: all
    top_p: float = 1.0  # keep the most likely tokens that together reach this probability
    min_p: float = 0.0  # keep tokens with at least this fraction of the highest probability

    def dice(self) -> random.Random:
        """The random generator of one sample: determined by the seed, or random without a seed."""
        return random.Random(self.seed)


def sampling_of(request: Request) -> Sampling | None:
    """The sampling of a request; None for greedy decoding: without a temperature, or with temperature 0.

    ``do_sample`` is transformers' option: false means greedy decoding, true without a temperature means temperature 1.
    """
    extra = dict(request.extra)
    if unknown := sorted(set(extra) - set(TAKEN)):
        raise _wrong(f"hf/ models do not support {unknown[0]!r}; supported: {', '.join(TAKEN)}")
    do_sample = extra.pop("do_sample", None)
    if do_sample not in (None, True, False):
        raise _wrong(f"do_sample is {do_sample!r}; expected true or false")
    temperature = request.temperature
    if do_sample and temperature == 0:
        raise _wrong("do_sample is true but the temperature is 0; expected only one of the two")
    if do_sample and temperature is None:
        temperature = 1.0
    sampling = Sampling(
        temperature or 0.0,
        request.seed,
        int(_number(extra, "top_k", 0, math.inf, 0)),
        _number(extra, "top_p", 0, 1, 1.0),
        _number(extra, "min_p", 0, 1, 0.0),
    )
    return sampling if sampling.temperature and do_sample is not False else None


def truncates(request: Request) -> bool:
    """Whether a prompt that is too long for its completion is cut at its beginning, as in lm-evaluation-harness."""
    side = request.extra.get("truncate")
    if side not in (None, "left"):
        raise _wrong(f"truncate is {side!r}; expected left, or no value")
    return side == "left"


def draw_token(scores: Any, sampling: Sampling, chance: float) -> Any:
    """Draw a token (a tensor with one index) from the scores [V] of all tokens, by a random number in [0, 1).

    The tokens divide [0, 1) in the order of their indices, each with a width of its probability, and the random number
    falls into one of these ranges. So scores that differ only in their last digits nearly always give the same token.
    """
    import torch

    exact = torch.float32 if scores.device.type == "mps" else torch.float64
    chances = (scores.to(exact) / sampling.temperature).softmax(0)
    if 0 < sampling.top_k < len(chances):
        chances = torch.where(chances < chances.topk(sampling.top_k).values[-1], 0, chances)
        chances = chances / chances.sum()
    if sampling.top_p < 1:
        ordered, tokens = chances.sort(descending=True, stable=True)
        reached = ordered.cumsum(0) - ordered  # the probability of all more likely tokens
        beyond = reached >= sampling.top_p
        beyond[0] = False  # with top_p 0, the most likely token is left
        chances = chances.index_fill(0, tokens[beyond], 0)
    if sampling.min_p:
        chances = torch.where(chances < sampling.min_p * chances.max(), 0, chances)
    edges = chances.cumsum(0)
    return torch.searchsorted(edges, chance * edges[-1:], right=True).clamp(max=len(edges) - 1)


def _number(extra: Mapping[str, Any], name: str, least: float, most: float, default: float) -> float:
    value = extra.get(name, default)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not least <= value <= most:
        expected = f"a number from {least:g} to {most:g}" if most < math.inf else f"an integer >= {least:g}"
        raise _wrong(f"{name} is {value!r}; expected {expected}")
    return value


def _wrong(message: str) -> ClientError:
    return ClientError(message, kind="setting", hopeless=True)


DEFAULT_TOKENS = 256  # default limit of a completion; that of EvSys and lm-eval
HALF = "\N{REPLACEMENT CHARACTER}"  # a tokenizer's text for a token that is a part of a character
LOOKBACK = 8  # further tokens to decode when looking for a stop string, because special tokens have no text


@dataclass(frozen=True, slots=True)
class Prompted:
    """A prompt in tokens, and the settings of its completion."""

    index: int  # the index of its request
    tokens: Tokens
    limit: int  # maximum tokens of the completion
    stops: Sequence[str]
    ends: frozenset[int]  # tokens that end the completion
    sampling: Sampling | None


@dataclass(frozen=True, slots=True)
class Ended:
    """The end of a row: its reason, the number of generated tokens, and the seconds."""

    why: str  # stop or length; timeout or closed, for a row without an answer
    tokens: int
    seconds: float


def completions(
    checkpoint: Checkpoint,
    cache: PrefixCache,
    requests: Sequence[Request],
    chat: bool,
    bounds: BatchBounds,
    price: Price | None,
    template: Template | None = None,
) -> list[Completion | ClientError]:
    """The completions for requests, in their order; the error of a request that fails is in its place."""
    results: list[Completion | ClientError | None] = [None] * len(requests)
    rows = []
    for index, request in enumerate(requests):
        try:
            rows.append(_prompted(checkpoint, index, request, chat, template))
        except ClientError as error:
            results[index] = error
    most = bounds.most if checkpoint.shares else 1  # some models would process padding as text
    reader = ForwardPass(checkpoint, bounds)
    plan = reader.plan

    def fits(before: int, first: Prompted) -> Takes[Prompted]:
        """Accept rows while they fit. A row that has ended grows with the others, up to the context length."""
        rows = width = limit = 0

        def takes(row: Prompted) -> bool:
            nonlocal rows, width, limit
            rows, width, limit = rows + 1, max(width, len(row.tokens)), max(limit, row.limit)
            return width + limit <= checkpoint.longest and rows <= plan.rows(width - before, before + limit)

        takes(first)
        return takes

    by_prompt: dict[Tokens, list[Prompted]] = {}
    for row in rows:
        by_prompt.setdefault(row.tokens, []).append(row)
    for prefix, prompts in cache.branches(list(by_prompt)):
        # Prompts of similar length share a batch; the longest come first.
        branch = [row for prompt in sorted(prompts, key=len, reverse=True) for row in by_prompt[prompt]]
        memory = partial(cache.memory, prefix, read=reader)
        generated = in_batches(
            branch, most, partial(fits, len(prefix)), partial(_generate, checkpoint, bounds, prefix, memory)
        )
        for row, (tokens, ended) in zip(branch, generated, strict=True):
            results[row.index] = _completion(checkpoint, row, tokens, ended, bounds, price)
    return [result for result in results if result is not None]


def _prompted(checkpoint: Checkpoint, index: int, request: Request, chat: bool, template: Template | None) -> Prompted:
    sampling = sampling_of(request)
    tokens = checkpoint.prompt(request, chat, template)
    limit = DEFAULT_TOKENS if request.max_tokens is None else request.max_tokens
    if truncates(request):
        if limit >= checkpoint.longest:
            problem = (
                f"max_tokens is {limit}, but the model's context length is "
                f"{checkpoint.longest} tokens, including the prompt"
            )
            raise ClientError(problem, kind="context")
        tokens = tokens[-(checkpoint.longest - limit) :]
    left = checkpoint.longest - len(tokens)
    if left <= 0:
        problem = (
            f"the prompt has {len(tokens)} tokens, but the model's context length "
            f"is {checkpoint.longest} tokens, including the completion"
        )
        raise ClientError(problem, kind="context")
    special_tokens = {stop: checkpoint.special(stop) for stop in request.stop}
    ends = checkpoint.ends | {token for token in special_tokens.values() if token is not None}
    stops = [stop for stop, token in special_tokens.items() if token is None and stop]
    return Prompted(index, tuple(tokens), min(limit, left), stops, ends, sampling)


def _generate(
    checkpoint: Checkpoint, bounds: BatchBounds, prefix: Tokens, memory: Callable[[int], Any], batch: Sequence[Prompted]
) -> list[tuple[list[int], Ended]]:
    """The tokens of each completion, and how it ended. Prompts are padded between the prefix and their other tokens."""
    import torch
    from transformers import LogitsProcessorList, StoppingCriteriaList

    width = max(len(row.tokens) for row in batch)
    start, gaps = len(prefix), [width - len(row.tokens) for row in batch]
    pairs = list(zip(gaps, batch, strict=True))
    padded = [[*prefix, *[checkpoint.pads] * gap, *row.tokens[start:]] for gap, row in pairs]
    given = [[1] * start + [0] * gap + [1] * (len(row.tokens) - start) for gap, row in pairs]
    device = checkpoint.model.device
    ends = _Ends(batch, checkpoint.decode, width, bounds)
    with torch.inference_mode(), kernels(device):
        output = checkpoint.model.generate(
            input_ids=torch.tensor(padded, device=device),
            attention_mask=torch.tensor(given, device=device),
            do_sample=False,  # greedy: for a row that samples, _Choose leaves only the drawn token
            max_new_tokens=max(row.limit for row in batch),
            logits_processor=LogitsProcessorList([_Choose(batch)]),
            stopping_criteria=StoppingCriteriaList([ends]),
            **({"past_key_values": memory(len(batch))} if prefix else {}),
        )
    answers = zip(output[:, width:].tolist(), ends.found, strict=True)
    return [(tokens[: ended.tokens], ended) for tokens, ended in answers if ended is not None]


def _completion(
    checkpoint: Checkpoint, row: Prompted, tokens: Sequence[int], ended: Ended, bounds: BatchBounds, price: Price | None
) -> Completion | ClientError:
    if ended.why == "timeout":
        message = f"no answer within {bounds.seconds:g} s; use a larger --timeout or a smaller --concurrency"
        return ClientError(message, kind="timeout")
    if ended.why == "closed":
        return ClientError("the model was closed before it answered", kind="closed")
    text = checkpoint.decode(tokens[:-1] if tokens[-1] in row.ends else tokens)
    cut = min((start for stop in row.stops if (start := text.find(stop)) >= 0), default=len(text))
    usage = priced({"input_tokens": len(row.tokens), "output_tokens": len(tokens)}, price)
    usage["latency_s"] = ended.seconds
    return Completion(text[:cut], ended.why, "truncated" if ended.why == "length" else "", usage)


class _Choose:
    """A logits processor that draws the next token of each row that samples, and excludes all other tokens."""

    def __init__(self, rows: Sequence[Prompted]) -> None:
        self._dice = {index: (row.sampling, row.sampling.dice()) for index, row in enumerate(rows) if row.sampling}

    def __call__(self, input_ids: Any, scores: Any) -> Any:
        for index, (sampling, dice) in self._dice.items():
            token = draw_token(scores[index], sampling, dice.random())
            scores[index] = float("-inf")
            scores[index, token] = 0.0
        return scores


class _Ends:
    """A stopping criterion that checks after each token which rows have ended; ``found`` has their ends."""

    def __init__(
        self, rows: Sequence[Prompted], decode: Callable[[Sequence[int]], str], start: int, bounds: BatchBounds
    ) -> None:
        self.found: list[Ended | None] = [None] * len(rows)
        self._rows, self._decode, self._start, self._bounds = rows, decode, start, bounds
        self._began = perf_counter()
        self._window = max((len(stop.encode()) for row in rows for stop in row.stops), default=0) + LOOKBACK
        self._texts: dict[int, str] = {}  # the texts of single tokens

    def __call__(self, input_ids: Any, scores: Any, **_: Any) -> Any:
        import torch

        seconds = perf_counter() - self._began
        count = input_ids.shape[1] - self._start
        latest = input_ids[:, self._start :][:, -self._window :].tolist()  # only once, as it waits for the device
        for index, row in enumerate(self._rows):
            if self.found[index] is None:
                stopped = self._may_stop(row, latest[index][-1]) and self._stops(row, latest[index])
                if stopped and len(latest[index]) < count:  # confirm with all tokens: a part may decode differently
                    stopped = self._stops(row, input_ids[index, self._start :].tolist())
                if why := "stop" if stopped or latest[index][-1] in row.ends else self._limit(row, count, seconds):
                    self.found[index] = Ended(why, count, seconds)
        return torch.tensor([ended is not None for ended in self.found], device=input_ids.device)

    def _may_stop(self, row: Prompted, token: int) -> bool:
        """Whether a token may end a stop string: its text has the string's last character, or a part of a character.

        A single token may be decoded without its leading space, so a stop string that ends with a space always may.
        """
        if row.stops and token not in self._texts:
            self._texts[token] = self._decode([token])
        text = self._texts.get(token, "")
        return any(stop[-1] in text or stop[-1] == " " or HALF in text for stop in row.stops)

    def _stops(self, row: Prompted, tokens: Sequence[int]) -> bool:
        text = self._decode(tokens)
        return any(stop in text for stop in row.stops)

    def _limit(self, row: Prompted, count: int, seconds: float) -> str:
        if count >= row.limit:
            return "length"
        if self._bounds.closed.is_set():
            return "closed"
        return "timeout" if seconds > self._bounds.seconds else ""
