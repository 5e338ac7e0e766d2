"""Chat prompts, compared with recordings of the messages that lm-evaluation-harness 0.4.13 gives its chat template.

``chat_cases.jsonl`` holds the documents, then a case a line: no examples and two, in turns of their own or in one,
with and without a system instruction, a description, and beginnings of answers that vary by document.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from systems.lm_eval.tasks.given import task

from calipers.systems.lm_eval.tasks.loaded import requests
from calipers.systems.lm_eval.tasks.prompts import Manner

FIRST, *CASES = map(json.loads, Path(__file__).with_name("chat_cases.jsonl").read_text(encoding="utf-8").splitlines())


def made(case):
    return task(FIRST["docs"], FIRST["train"], **case["config"], num_fewshot=case["num_fewshot"])


@pytest.mark.parametrize("case", CASES, ids=range(len(CASES)))
def test_turns_are_those_of_lm_eval(case):
    manner = Manner(chat=True, multiturn=case["multiturn"], system=case["system"])
    asked = requests(replace(made(case), manner=manner))
    found = [list(one.args[: len(case["expected"][0])]) for one in asked]
    expected = [
        [[{"role": role, "content": content} for role, content in before], *after]
        for before, *after in case["expected"]
    ]
    assert found == expected


def test_the_cases_hold_every_kind_of_turn():
    roles = {tuple(role for role, _ in before) for case in CASES for before, *_ in case["expected"]}
    examples = ("user", "assistant") * 2
    for head in ((), ("system",)):
        for rest in (("user",), ("user", "assistant"), (*examples, "user"), (*examples, "user", "assistant")):
            assert (*head, *rest) in roles


def test_a_task_has_a_manner_of_its_own():
    case = next(one for one in CASES if one["num_fewshot"] and one["config"]["output_type"] == "generate_until")
    plain = [one.args[0] for one in requests(made(case))]
    assert all(isinstance(one, str) for one in plain)
    assert plain == [one.args[0] for one in requests(replace(made(case), manner=Manner()))]
