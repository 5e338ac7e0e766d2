"""Completions of real checkpoints: limits, stop strings, sampling, templates, and independence of batches."""

import asyncio
import json
import random
import re
import threading
from pathlib import Path

import pytest
from hf import tiny
from hf.asking import ask, asked, batch_plan, request
from hf.parity import EXAMPLES
from hf.tiny import LENGTH

from calipers.clients import Connection, Price
from calipers.clients.huggingface import batches
from calipers.clients.huggingface.batches import BatchBounds
from calipers.clients.huggingface.checkpoint import BatchPlan
from calipers.clients.huggingface.client import NO_TEMPLATE, connect
from calipers.clients.huggingface.generate import Prompted, _Ends

CHAT = [{"role": "user", "content": "the cat"}, {"role": "assistant", "content": "sat"}]


def test_a_greedy_answer_is_the_likeliest_token_each_time(checkpoints):
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    words = AutoTokenizer.from_pretrained(checkpoints["gpt2"])
    model = AutoModelForCausalLM.from_pretrained(checkpoints["gpt2"])
    tokens = words("the cat sat")["input_ids"]
    start = len(tokens)
    with torch.no_grad():
        for _ in range(7):
            tokens.append(int(model(torch.tensor([tokens])).logits[0, -1].argmax()))
    (end,) = ask(checkpoints["gpt2"], request("the cat sat", max_tokens=7))
    assert end.text == words.decode(tokens[start:])
    assert (end.finish_reason, end.ending) == ("length", "truncated")
    usage = dict(end.usage)
    assert usage.pop("latency_s") > 0
    assert usage == {"input_tokens": start, "output_tokens": 7}


@pytest.mark.parametrize("kind", ["gpt2", "llama", "bloom", "gemma", "mamba"])
@pytest.mark.parametrize("temperature", [0, 1.0])
def test_an_answer_does_not_depend_on_the_batch(checkpoints, kind, temperature):
    """Prompts of many lengths with their own limits and seeds: one at a time, by threes, all together."""
    requests = [
        request("the cat" + " sat on the mat" * i, max_tokens=6 + 3 * (i % 3), temperature=temperature, seed=i // 2)
        for i in range(7)
    ]
    runs = [[end.text for end in ask(checkpoints[kind], *requests, most=most)] for most in (1, 3, 64)]
    runs.append([end.text for end in reversed(ask(checkpoints[kind], *reversed(requests)))])
    assert runs[1:] == runs[:1] * 3


def test_seeds(checkpoints):
    hot = [request(temperature=1.0, seed=seed, max_tokens=16) for seed in (1, 1, 2)]
    first, again, other = (end.text for end in ask(checkpoints["gpt2"], *hot))
    assert first == again
    assert first != other
    unseeded = {end.text for end in ask(checkpoints["gpt2"], *[request(temperature=1.0, max_tokens=16)] * 8)}
    assert len(unseeded) > 1


@pytest.mark.parametrize("settings", [{}, {"temperature": 0.0}, {"extra": {"do_sample": False}, "temperature": 1.0}])
def test_without_a_temperature_nothing_is_drawn(checkpoints, settings):
    plain, settled = ask(checkpoints["gpt2"], request(seed=1), request(seed=2, **settings))
    assert plain.text == settled.text


def test_a_limit_nobody_set_is_256_tokens_or_the_room_that_is_left(checkpoints):
    short, roomy = (
        ask(checkpoints[kind], request(max_tokens=None, temperature=1.5, seed=3))[0] for kind in ("gpt2", "bloom")
    )
    assert short.usage["input_tokens"] + short.usage["output_tokens"] <= LENGTH["gpt2"]
    assert roomy.usage["output_tokens"] <= 256
    assert (short.ending == "truncated") == (short.finish_reason == "length")


def test_a_prompt_that_fills_the_model_fails_alone(checkpoints):
    long, short = ask(checkpoints["gpt2"], request("the cat" * 40), request())
    assert (long.kind, long.retry, long.hopeless) == ("context", False, False)
    assert str(long) == (
        "the prompt has 80 tokens, but the model's context length is 64 tokens, including the completion"
    )
    assert short.text


def test_a_prompt_that_is_too_long_may_lose_its_beginning(checkpoints):
    """As in lm-evaluation-harness: the answer has its room, and the prompt gets the rest of the model's 64 tokens."""
    cut, kept = ask(
        checkpoints["gpt2"],
        request("cat" * 80, extra={"truncate": "left"}),
        request("cat" * 52, extra={"truncate": "left"}),
    )
    assert cut.text == kept.text
    assert cut.usage["input_tokens"] == 64 - 12
    (wrong,) = ask(checkpoints["gpt2"], request(extra={"truncate": "right"}))
    assert (wrong.kind, str(wrong)) == ("setting", "truncate is 'right'; expected left, or no value")


def test_rows_near_the_end_of_the_model_do_not_run_over(checkpoints):
    """The first has room for 4 tokens and the second for 50, so in one batch the first would have to continue."""
    near = request("cat" * 60, max_tokens=50)
    apart = [ask(checkpoints["gpt2"], one)[0].text for one in (near, request(max_tokens=50))]
    together = ask(checkpoints["gpt2"], near, request(max_tokens=50))
    assert [end.text for end in together] == apart
    assert together[0].usage["output_tokens"] <= 4


def test_stops_are_cut_and_end_the_answer(checkpoints):
    (whole,) = ask(checkpoints["gpt2"], request(max_tokens=20))
    stop = re.findall("[a-z]{3,}", whole.text)[-1][-3:]  # a few letters that it writes in time
    (end,) = ask(checkpoints["gpt2"], request(max_tokens=20, stop=("never written", stop)))
    assert end.text == whole.text[: whole.text.index(stop)]
    assert (end.finish_reason, end.ending) == ("stop", "")
    assert end.usage["output_tokens"] < 20


def test_the_end_token_ends_the_answer_and_is_not_shown(checkpoints):
    requests = [request("the cat", max_tokens=60, temperature=2.0, seed=seed) for seed in range(40)]
    ends = [end for end in ask(checkpoints["llama"], *requests) if end.finish_reason == "stop"]
    assert ends  # by lot some end early; the lots are fixed
    assert all("</s>" not in end.text and end.usage["output_tokens"] < 60 for end in ends)


def test_a_steering_token_may_be_a_stop(checkpoints):
    """Its text is never shown, so the stop string is compared as a token."""
    seeds = [{"max_tokens": 60, "temperature": 2.5, "seed": seed} for seed in range(60)]
    plain = ask(checkpoints["llama"], *[request(**seed) for seed in seeds])
    stopped = ask(checkpoints["llama"], *[request(stop=("<|turn|>",), **seed) for seed in seeds])
    earlier = [(a, b) for a, b in zip(plain, stopped) if b.usage["output_tokens"] < a.usage["output_tokens"]]
    assert earlier
    for whole, part in earlier:
        assert whole.text.startswith(part.text.rstrip("\N{REPLACEMENT CHARACTER}"))  # half a character may be last
        assert part.finish_reason == "stop"


def test_a_chat_goes_through_the_template(checkpoints):
    """With the messages as the template formats them, one BOS token, and the system message first."""
    text = "<s>[system]Be brief.</s><s>[user]the cat</s><s>[assistant]"
    chat, plain, turns = ask(
        checkpoints["chatty"],
        request("the cat", system="Be brief."),
        request([{"role": "user", "content": [{"type": "text", "text": "the cat"}]}], system="Be brief."),
        request(CHAT),
    )
    (written,) = ask(checkpoints["chatty"], request(text), api="completions")
    assert chat.text == plain.text == written.text
    assert chat.usage["input_tokens"] == written.usage["input_tokens"]
    assert turns.usage["input_tokens"] != chat.usage["input_tokens"]


def test_without_a_template_turns_are_joined(checkpoints):
    (chat, text), model = asked(checkpoints["gpt2"], request(CHAT, system="hello"), request("hello\n\nthe cat\n\nsat"))
    assert chat.text == text.text
    assert model.notes == [NO_TEMPLATE]
    (system, text), model = asked(checkpoints["gpt2"], request("cat", system="the"), request("the\n\ncat"))
    assert system.text == text.text
    assert model.notes == []


@pytest.mark.parametrize(
    ("asking", "api", "kind", "said"),
    [
        (request(CHAT), "completions", "prompt", "the prompt is a chat, but only text can be sent; use the chat route"),
        (
            request([{"role": "tool", "content": "4"}]),
            "chat",
            "prompt",
            "the model's chat template rejects the prompt: no tools here",
        ),
        (
            request([{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}]),
            "chat",
            "prompt",
            "a message contains more than text; hf/ models read only text",
        ),
        (request("\ud800"), "completions", "prompt", "the text cannot be encoded: it is not valid Unicode"),
        (
            request(extra={"beams": 3}),
            "chat",
            "setting",
            "hf/ models do not support 'beams'; supported: do_sample, min_p, top_k, top_p, truncate",
        ),
    ],
)
def test_what_cannot_be_asked(checkpoints, asking, api, kind, said):
    bad, good = ask(checkpoints["chatty"], asking, request(), api=api)
    assert (bad.kind, bad.retry, str(bad)) == (kind, False, said)
    assert good.text


def test_an_empty_prompt_is_the_beginning_of_a_text(checkpoints):
    empty, given = ask(checkpoints["gpt2"], request(""), request("<|endoftext|>"))
    assert empty.text == given.text
    assert empty.usage["input_tokens"] == 1


def test_a_checkpoints_own_taste_stays_out_of_it(checkpoints, tmp_path):
    """Only the tokens that end a completion are used from it."""
    (plain,) = ask(checkpoints["gpt2"], request(max_tokens=20))
    for file in Path(checkpoints["gpt2"]).iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    taste = {"do_sample": True, "temperature": 5.0, "top_k": 3, "repetition_penalty": 4.0}
    (tmp_path / "generation_config.json").write_text(json.dumps(taste))
    assert ask(str(tmp_path), request(max_tokens=20))[0].text == plain.text
    (tmp_path / "generation_config.json").write_text(json.dumps(taste | {"eos_token_id": list(range(300))}))
    (ended,) = ask(str(tmp_path), request(max_tokens=20))
    assert (ended.finish_reason, ended.usage["output_tokens"] < 20) == ("stop", True)


def test_a_price(checkpoints):
    (end,) = ask(checkpoints["gpt2"], request("the cat", max_tokens=3), price=Price(1e6, 1e5))
    assert end.usage["cost_usd"] == pytest.approx(end.usage["input_tokens"] + 0.1 * end.usage["output_tokens"])


def test_an_answer_that_takes_too_long(checkpoints):
    (end,) = ask(checkpoints["gpt2"], request(), timeout=1e-9)
    assert (end.kind, end.retry) == ("timeout", False)
    assert str(end).startswith("no answer within 1e-09 s; ")


def test_a_closed_model_ends_what_it_is_busy_with(checkpoints):
    async def leave():
        model = connect(checkpoints["bloom"], Connection())
        await model.complete(request(max_tokens=1))
        model._closed.set()  # what close() does first; the thread still gets calls
        return await asyncio.gather(model.complete(request()), return_exceptions=True)

    (end,) = asyncio.run(leave())
    assert end.kind == "closed"


def test_a_checkpoint_that_cannot_be_loaded(checkpoints, tmp_path):
    """Each call has this error; a run ends at the first, because every other call would fail, too."""
    (tmp_path / "config.json").write_text('{"model_type": "no such thing"}')
    first, second = ask(str(tmp_path), request(), request())
    assert (first.kind, first.retry, first.hopeless) == ("model", False, True)
    assert str(first).startswith("the model cannot be loaded: ")
    assert str(second) == str(first)


def test_examples_before_several_prompts_are_read_once(checkpoints, monkeypatch):
    """The completions stay the same."""
    read = []
    plain = batches.ForwardPass.__call__

    def noting(self, rows, wanted, **more):
        read.append(len(rows[0]))
        return plain(self, rows, wanted, **more)

    monkeypatch.setattr(batches.ForwardPass, "__call__", noting)
    prompts = [request(EXAMPLES * 4 + question, stop=("\n",)) for question in ("the cat", "hello", "not the dog ran")]
    together = ask(checkpoints["long"], *prompts)
    (examples,) = read
    assert all(examples < end.usage["input_tokens"] < examples + 20 for end in together)
    apart = [ask(checkpoints["long"], one)[0] for one in prompts]
    assert [end.text for end in together] == [end.text for end in apart]
    assert len({end.text for end in together}) > 1


STOPS = ["\n\n", ". ", "the ", " ", "the cat", "t s", "é", "日本", "ée", " é ", "a.", ", not", "\N{BROOM}!", "sat\n"]
TEXTS = [*tiny.WORDS, " ", "  ", "\n", "\n\n", ".", ",", "é", "日", "本", "\N{BROOM}", "!", " the", " cat", " é", "e"]


@pytest.mark.parametrize("kind", ["gpt2", "llama", "pieces"])
@pytest.mark.usefixtures("packages")
def test_a_stop_is_found_at_the_token_that_completes_it(kind):
    """However the text is divided into tokens: parts of characters, spaces that a token omits, tokens without text.

    The reference is to decode the whole completion after every token.
    """
    import torch

    words = tiny.pieces() if kind == "pieces" else tiny.tokenizer(kind)

    def decode(tokens):
        return words.decode(list(tokens), skip_special_tokens=True)

    dice, found = random.Random(kind), 0
    bounds = BatchBounds(1, 1e9, threading.Event(), BatchPlan(**batch_plan()))
    for _ in range(300):
        text = "".join(dice.choice(TEXTS) for _ in range(20))
        tokens = words(text, add_special_tokens=False)["input_ids"]
        for place in range(0, len(tokens), 9):
            tokens.insert(place, words.eos_token_id)  # has no text
        stops = dice.sample(STOPS, 4)
        plain = next((n for n in range(1, len(tokens)) if any(s in decode(tokens[:n]) for s in stops)), None)
        row = Prompted(0, (5,), 10**6, stops, frozenset(), None)
        ends = _Ends([row], decode, 1, bounds)
        for made in range(1, len(tokens)):
            ends(torch.tensor([[5, *tokens[:made]]]), None)
        assert (None if ends.found[0] is None else ends.found[0].tokens) == plain, (text, stops)
        found += plain is not None
    assert found > 100


@pytest.fixture
def model_of(checkpoints):
    """A function that returns the torch model of a kind, loaded and idle, so that the next call uses it."""
    from calipers.clients.huggingface import client

    def idle(kind):
        ask(checkpoints[kind], request())
        return client._loaded[0][1].model

    yield idle
    client._loaded.clear()


def rows_of(model, bears):
    """Records the numbers of rows per call of a model; more than it ``bears`` exceed its memory."""
    import torch

    seen = []

    def before(module, args, kwargs):
        seen.append(len(kwargs["input_ids"] if "input_ids" in kwargs else args[0]))
        if seen[-1] > bears:
            raise torch.OutOfMemoryError("out of memory")

    model.base_model.register_forward_pre_hook(before, with_kwargs=True)
    return seen


@pytest.mark.parametrize("temperature", [0, 1.0])
def test_out_of_memory_halves_the_batch_and_changes_no_answer(checkpoints, model_of, temperature):
    prompts = [
        request("the cat" + " sat on the mat" * (n % 4), temperature=temperature, seed=n, sample=n) for n in range(9)
    ]
    plain = [end.text for end in ask(checkpoints["llama"], *prompts)]
    seen = rows_of(model_of("llama"), bears=2)
    assert [end.text for end in ask(checkpoints["llama"], *prompts)] == plain
    assert [seen[0], max(seen[3:])] == [9, 2]
    assert seen[1] == 4


def test_one_prompt_that_is_too_much_fails_with_the_reason(checkpoints, model_of):
    rows_of(model_of("llama"), bears=0)
    (end,) = ask(checkpoints["llama"], request())
    assert (end.kind, str(end)) == ("hf", "OutOfMemoryError: out of memory")


@pytest.mark.parametrize(("most", "largest"), [(2048, 12), (5, 5), (1, 1)])
def test_a_batch_is_as_large_as_the_plan_unless_concurrency_bounds_it(checkpoints, model_of, most, largest):
    seen = rows_of(model_of("llama"), bears=99)
    ask(checkpoints["llama"], *[request(sample=n) for n in range(12)], most=most)
    assert max(seen) == largest
    seen.clear()
    ask(checkpoints["llama"], *[request(sample=n) for n in range(12)], most=most, batch=batch_plan(tokens=9))
    assert max(seen) == min(largest, 3)  # of three tokens each
