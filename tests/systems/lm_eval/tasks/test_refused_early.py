"""Errors that would fail after a run, or make it hang, are refused before it begins."""

from __future__ import annotations

import pytest
from systems.lm_eval.tasks.test_bad_input import FIRST, TASK, home, refused

__all__ = ["home"]  # a fixture

CASES = {
    "an exploding pattern of a filter": (
        lambda text: text.replace(FIRST, '{function: regex, regex_pattern: "(a+)+$"}'),
        (
            "task.yaml:9: filter_list[0]: pattern '(a+)+$' does not finish "
            "matching 40 times 'a'; expected no nested repetitions"
        ),
    ),
    "an exploding pattern of a metric": (
        lambda text: text.replace("exact_match}", 'exact_match, regexes_to_ignore: ["(a+)+$"]}'),
        "task.yaml:12: metric_list: pattern '(a+)+$' does not finish matching 40 times 'a'",
    ),
    "an exploding pattern of a scorer": (
        lambda text: text + "scorer: {type: regex, kwargs: {regex_pattern: '(a+)+$'}}\n",
        "task.yaml:14: scorer: pattern '(a+)+$' does not finish matching 40 times 'a'",
    ),
    "an unknown reduction": (
        lambda text: text.replace("exact_match}", "exact_match, reduction: meen}"),
        "task.yaml:12: metric_list: no reduction named 'meen'; did you mean 'mean'?",
    ),
    "a k beyond the repeats": (
        lambda text: text.replace("exact_match}", "exact_match, reduction: pass_at_k, k: 5}"),
        "task.yaml:12: metric_list: k is 5, but repeats is 2; expected repeats: 5 or more",
    ),
    "a k that is no number": (
        lambda text: text.replace("exact_match}", "exact_match, reduction: pass_at_k, k: many}"),
        "task.yaml:12: metric_list: k is 'many'; expected a positive integer, or a list of them",
    ),
    "a metric of another output type": (
        lambda text: text.replace("exact_match}", "acc}"),
        "task.yaml:12: metric_list: metric 'acc' is not a metric of generate_until; expected one of exact_match",
    ),
}


@pytest.mark.parametrize("what", CASES)
@pytest.mark.usefixtures("impatient")
def test_one_line_with_file_and_key_before_any_call(home, capsys, what):
    change, said = CASES[what]
    found = refused(home, capsys, change(TASK))
    assert found.startswith(said), found
