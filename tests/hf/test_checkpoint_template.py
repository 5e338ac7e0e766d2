"""Chat templates around the turns of lm-evaluation-harness' tasks.

Prompts and answers are those that lm-evaluation-harness 0.4.13 had from the same checkpoint with its ``hf`` model.
"""

from __future__ import annotations

import json

import pytest
from hf.asking import asked, request, score
from hf.tiny import TEMPLATE
from running.scene import records

from calipers.clients import Continuation
from calipers.clients.huggingface.checkpoint import NO_NAMES, NO_SYSTEM, Local, Template
from calipers.errors import ClientError
from calipers.running.perform import perform
from calipers.running.settings import jobs_of
from calipers.systems.lm_eval.client import chat_template, prompt_settings
from calipers.systems.lm_eval.report import sample_rows
from calipers.systems.lm_eval.write import digest, line_text

TASK = """\
task: made
dataset_path: json
dataset_kwargs: {data_files: {test: data.jsonl}}
test_split: test
description: "Do {{k}}.\\n\\n"
doc_to_text: q
num_fewshot: 1
"""
WRITTEN = (
    "doc_to_target: a\nfewshot_config: {samples: [{q: 1+1, a: '2', k: x}]}\n"
    "generation_kwargs: {until: ['\\n'], max_gen_toks: 8}\nmetric_list: [{metric: exact_match}]\n"
)
CHOICE = (
    "output_type: multiple_choice\ndoc_to_target: n\ndoc_to_choice: c\n"
    "fewshot_config: {sampler: first_n, samples: [{q: hello, c: [world, dog], n: 0, k: x}]}\n"
    "metric_list: [{metric: acc}]\n"
)
DOCS = {
    WRITTEN: {"q": "2+2", "a": "4", "k": "sums"},
    CHOICE: {"q": "the cat sat on", "c": ["the mat", "a dog"], "n": 0, "k": "sums"},
}
SYSTEM = "<s>[system]Be brief.\n\nDo sums.\n\n</s>"
TURNS = [{"role": "system", "content": "the"}, {"role": "user", "content": "cat"}]
BEGUN = [*TURNS, {"role": "assistant", "content": "sat on"}]


def ran(home, checkpoint, text, **given):
    """The report of a task's run, and the content of its samples file."""
    (home / "data.jsonl").write_text(json.dumps(DOCS[WRITTEN if WRITTEN in text else CHOICE]) + "\n")
    (home / "task.yaml").write_text(text)
    chat = {"apply_chat_template": True, "system_instruction": "Be brief."}
    ((job,), _) = jobs_of(
        [str(home / "task.yaml")], {"model": (f"hf/{checkpoint}",), "out": home / "r", **chat, **given}
    )
    report = perform(job)
    return report, json.loads(line_text(next(iter(sample_rows(report.part.scored, chat_template(job))))))


@pytest.mark.parametrize(
    ("more", "given", "prompt"),
    [
        ("gen_prefix: So\n", {}, "<s>[user]1+1</s><s>[assistant]So 2</s><s>[user]2+2</s><s>[assistant]So"),
        ("", {}, "<s>[user]1+1</s><s>[assistant]2</s><s>[user]2+2</s><s>[assistant]"),
        ("gen_prefix: So\n", {"fewshot_as_multiturn": False}, "<s>[user]1+1 So 2\n\n2+2</s><s>[assistant]So"),
        ("", {"fewshot_as_multiturn": False}, "<s>[user]1+1 2\n\n2+2</s><s>[assistant]"),
    ],
)
def test_an_answer_is_written_after_the_prompt_of_lm_eval(tmp_path, checkpoints, more, given, prompt):
    report, sample = ran(tmp_path, checkpoints["chatty"], TASK + WRITTEN + more, **given)
    assert sample["arguments"]["gen_args_0"]["arg_0"] == SYSTEM + prompt
    assert sample["prompt_hash"] == digest(SYSTEM + prompt)
    [row] = records(tmp_path / "r")
    ((end,), _) = asked(
        checkpoints["chatty"], request(SYSTEM + prompt, max_tokens=8, stop=("\n",)), api="completions"
    )  # the same text as it is
    assert (row["completion"], row["usage"]["input_tokens"]) == (end.text, end.usage["input_tokens"])
    assert not report.notes


@pytest.mark.parametrize(
    ("more", "given", "prompt", "after", "logprobs"),
    [
        (
            "",
            {},
            "<s>[user]hello</s><s>[assistant]world</s><s>[user]the cat sat on</s><s>[assistant]",
            ["the mat", "a dog"],
            [-12.60570240020752, -21.064292907714844],
        ),
        (
            "gen_prefix: the answer\n",
            {},
            "<s>[user]hello</s><s>[assistant]the answer world</s><s>[user]the cat sat on</s><s>[assistant]the answer",
            [" the mat", " a dog"],
            [-24.214405059814453, -25.080886840820312],
        ),
        (
            "gen_prefix: the answer\n",
            {"fewshot_as_multiturn": False},
            "<s>[user]hello the answer world\n\nthe cat sat on</s><s>[assistant]the answer",
            [" the mat", " a dog"],
            [-21.82436752319336, -29.52175521850586],
        ),
    ],
)
def test_likelihoods_after_a_chat_are_those_of_lm_eval(tmp_path, checkpoints, more, given, prompt, after, logprobs):
    _, sample = ran(tmp_path, checkpoints["chatty"], TASK + CHOICE + more, **given)
    asked_for = sample["arguments"].values()
    assert [one["arg_0"] for one in asked_for] == [SYSTEM + prompt] * 2
    assert [one["arg_1"] for one in asked_for] == after
    [row] = records(tmp_path / "r")
    assert [one["logprob"] for one in json.loads(row["completion"])] == pytest.approx(logprobs, rel=1e-5)


def test_a_results_file_holds_the_template(tmp_path, checkpoints):
    report, _ = ran(tmp_path, checkpoints["chatty"], TASK + WRITTEN)
    told = prompt_settings(report.job, chat_template(report.job))
    assert (told["chat_template"], told["chat_template_sha"]) == (TEMPLATE, digest(TEMPLATE))


def templated(checkpoints, chat_template, name=""):
    from transformers import AutoTokenizer

    words = AutoTokenizer.from_pretrained(checkpoints["chatty"])
    words.chat_template = chat_template
    return Local(words, Template(name, []))


@pytest.mark.parametrize("turns", [TURNS, BEGUN])
def test_the_text_is_what_transformers_makes_of_the_turns(checkpoints, turns):
    made = templated(checkpoints, TEMPLATE)
    begun = turns is BEGUN
    direct = made.tokenizer.apply_chat_template(
        turns, tokenize=False, add_generation_prompt=not begun, continue_final_message=begun
    )
    assert made.around(turns) == direct
    assert direct.endswith("sat on" if begun else "[assistant]")


def test_a_template_without_a_system_turn_does_without(checkpoints):
    strict = "{% if messages[0].role == 'system' %}{{ raise_exception('no system') }}{% endif %}" + TEMPLATE
    made = templated(checkpoints, strict)
    assert made.around(TURNS) == "<s>[user]cat</s><s>[assistant]"
    assert made.around(TURNS) == made.around(TURNS[1:])
    assert made.template.notes == [NO_SYSTEM]


def test_a_template_that_refuses_is_an_error(checkpoints):
    made = templated(checkpoints, TEMPLATE)
    with pytest.raises(ClientError, match="rejects the prompt: no tools here"):
        made.around([{"role": "tool", "content": "x"}])
    with pytest.raises(ClientError, match="the model has no chat template; run it without --apply-chat-template"):
        templated(checkpoints, None).around(TURNS)


def test_a_template_is_chosen_by_its_name(checkpoints):
    several = {"default": TEMPLATE, "short": "{% for m in messages %}{{ m.content }};{% endfor %}"}
    assert templated(checkpoints, several, "short").around(TURNS) == "the;cat;"
    assert templated(checkpoints, several, "short").text == several["short"]
    assert templated(checkpoints, several).text == TEMPLATE
    assert templated(checkpoints, several).around(TURNS).startswith("<s>[system]the</s>")
    with pytest.raises(ClientError, match="no chat template 'long'; it has default, short") as refusal:
        templated(checkpoints, several, "long").around(TURNS)
    assert refusal.value.hopeless
    only = templated(checkpoints, TEMPLATE, "short")
    assert (only.around(TURNS), only.template.notes) == (templated(checkpoints, TEMPLATE).around(TURNS), [NO_NAMES])


def test_a_model_says_what_its_template_did_not_take(checkpoints):
    ((end,), model) = asked(checkpoints["chatty"], request(TURNS), template="short")
    assert (model.notes, end.usage["input_tokens"] > 0) == ([NO_NAMES], True)
    ((end,), _) = asked(checkpoints["llama"], request(TURNS), template="")
    assert "the model has no chat template" in str(end)
    (end,) = score(checkpoints["chatty"], [Continuation(TURNS, "sat")])
    assert "the context is a chat, but --apply-chat-template is not set" in str(end)


def test_a_tokenizer_that_is_not_there_is_an_error(packages, tmp_path):
    with pytest.raises(ClientError, match="the tokenizer cannot be loaded"):
        Local.load(str(tmp_path), "")
