"""Pairing tasks by id or by content, and notes on tasks that differ under one id."""

from __future__ import annotations

import json

import pytest
from analyses.compare.writing import put, run

import calipers
from calipers.errors import InputError
from calipers.reports.remark_texts import note_of


def pair(comparison):
    """The only pair of a comparison."""
    ((found,),) = [contest.pairs for contest in comparison.contests]
    return found


def test_tasks_of_one_side_are_counted_and_named(tmp_path):
    a = run(tmp_path / "a.jsonl", {"t1": [1], "t2": [0], "t3": [1]})
    b = run(tmp_path / "b.jsonl", {"t2": [1], "t3": [1], "t9": [0]})
    found = pair(calipers.compare(a, b))
    aligned = found.alignment
    assert (aligned.by, aligned.common) == ("id", 2)
    assert (aligned.only_first.ids, aligned.only_second.ids) == (["t1"], ["t9"])
    assert (found.findings[0].first, found.findings[0].second) == (0.5, 1.0)  # of t2 and t3 alone


def test_a_run_that_one_of_three_sources_lacks_is_named_once(tmp_path):
    models = {"one": "ab", "two": "ab", "three": "a"}
    paths = [
        put(tmp_path / f"{name}.jsonl", *({"task": task, "model": m, "reward": 1} for m in given for task in "xyz"))
        for name, given in models.items()
    ]
    assert f"'b' is only in {paths[0]} and {paths[1]} and is excluded" in calipers.compare(*paths).notes


def test_other_ids_are_paired_by_the_prompt(tmp_path):
    asked = [f"What is {n} plus {n}?" for n in range(6)]
    a = put(tmp_path / "a.jsonl", *({"task": f"a{n}", "prompt": p, "reward": n % 2} for n, p in enumerate(asked)))
    messages = [[{"role": "user", "content": p}] for p in reversed(asked)]
    b = put(
        tmp_path / "b.jsonl",
        *({"task": f"b{n}", "prompt": p, "reward": 1, "completion": f"said {n}"} for n, p in enumerate(messages)),
    )
    found = pair(calipers.compare(a, b))
    assert (found.alignment.by, found.alignment.common) == ("content", 6)
    assert [(one.task, one.answers) for one in found.flips.fixes] == [
        ("a0", (None, "said 5")),
        ("a2", (None, "said 3")),
        ("a4", (None, "said 1")),
    ]


def test_a_prompt_that_stands_twice_pairs_nothing(tmp_path):
    a = put(tmp_path / "a.jsonl", *({"task": f"a{n}", "prompt": p, "reward": 1} for n, p in enumerate("xxyz")))
    b = put(tmp_path / "b.jsonl", *({"task": f"b{n}", "prompt": p, "reward": 1} for n, p in enumerate("xyz")))
    assert pair(calipers.compare(a, b)).alignment.common == 2


def test_no_task_in_common_is_refused(tmp_path):
    a, b = run(tmp_path / "a.jsonl", {"t1": [1]}), run(tmp_path / "b.jsonl", {"u1": [1]})
    with pytest.raises(InputError, match=r"a.jsonl \('t1', ...\) and b.jsonl \('u1', ...\) have no task in common"):
        calipers.compare(a, b)


def test_another_prompt_under_the_same_id_is_said(tmp_path):
    a = put(tmp_path / "a.jsonl", *({"task": t, "prompt": f"Q: {t}", "reward": 1} for t in "uvw"))
    b = put(tmp_path / "b.jsonl", *({"task": t, "prompt": f"Question: {t}", "reward": 0} for t in "uv"))
    assert pair(calipers.compare(a, b)).notes == ["the prompt differs in 2 of 2 common tasks (u, v)"]


def test_prompts_that_moved_to_other_ids_are_said(tmp_path):
    a, b = (
        put(tmp_path / f"{name}.jsonl", *({"task": n, "prompt": p, "reward": 1} for n, p in enumerate(prompts)))
        for name, prompts in (("a", "xyz"), ("b", "yxz"))
    )
    assert pair(calipers.compare(a, b)).notes[1].startswith("2 of these prompts have another id")


def test_different_sample_counts_are_said_and_compared(tmp_path):
    a, b = run(tmp_path / "a.jsonl", {"t": [1, 0], "u": [1, 1]}), run(tmp_path / "b.jsonl", {"t": [1], "u": [0]})
    found = pair(calipers.compare(a, b, metric=["mean_reward", "pass@2"]))
    assert found.notes == ["on the common tasks a.jsonl has 4 samples and b.jsonl has 2"]
    assert found.findings[0].delta == pytest.approx(-0.25)
    assert found.findings[1].why == "no task has a value in both runs"  # two samples are not to be had of one


def sample(doc, passed, **more):
    """A line of lm-eval's samples."""
    return {
        "doc_id": doc,
        "doc": {"question": f"q{doc}"},
        "target": "1",
        "arguments": {"gen_args_0": {"arg_0": f"Question: q{doc}", "arg_1": {}}},
        "resps": [[f"said {doc}"]],
        "filtered_resps": [f"said {doc}"],
        "filter": "none",
        "metrics": ["exact_match"],
        "doc_hash": f"hash of {doc}",
        "exact_match": passed,
        **more,
    }


def harness(folder, rows, **results):
    """Write samples and results as lm-eval does; return the path of the results."""
    folder.mkdir()
    put(folder / "samples_sums.jsonl", *rows)
    (folder / "results.json").write_text(json.dumps({"results": {"sums": {}}, **results}))
    return str(folder / "results.json")


def test_lm_eval_says_its_version_its_shots_and_other_documents(tmp_path):
    a = harness(tmp_path / "a", [sample(n, 0) for n in range(6)], versions={"sums": 1}, **{"n-shot": {"sums": 0}})
    rows = [sample(n, 1, **({"doc_hash": "another"} if n == 2 else {})) for n in range(6)]
    b = harness(tmp_path / "b", rows, versions={"sums": 2}, **{"n-shot": {"sums": 0}})
    found = pair(calipers.compare(a, b))
    assert found.notes == [
        "excluded, because the same id has another document: 2 (1 in all)",
        "task version differs: 1 in a/results.json, 2 in b/results.json",
    ]
    assert (found.alignment.common, found.alignment.only_first.count) == (5, 0)
    assert found.flips.fixes[0].answers == ("said 0", "said 0")


def test_documents_under_other_numbers_find_each_other(tmp_path):
    a = harness(tmp_path / "a", [sample(n, n % 2) for n in range(6)])
    b = harness(tmp_path / "b", [sample(n, 1) | {"doc_id": n + 1} for n in range(5)])
    found = pair(calipers.compare(a, b))
    assert (found.alignment.by, found.alignment.common) == ("content", 5)
    assert found.notes == ["no id has the same document in both runs"]


def test_the_same_ids_of_other_documents_are_no_common_tasks(tmp_path):
    """Both number their documents from 0, so a note must say why equal ids are not the same task."""
    a = harness(tmp_path / "a", [sample(n, 1) for n in range(3)])
    b = harness(tmp_path / "b", [sample(n, 1, doc_hash=f"other {n}") for n in range(3)])
    with pytest.raises(InputError, match="have no task in common: no id has the same document in both runs"):
        calipers.compare(a, b)


def test_systems_meet_under_their_own_words(tmp_path):
    """lm-eval's exact_match and NeMo Gym's reward are each the only reward of their run."""
    a = str(tmp_path / "a" / "samples_sums.jsonl")
    harness(tmp_path / "a", [sample(n, n % 2) for n in range(6)])
    b = put(
        tmp_path / "b.jsonl",
        *(
            {
                "_ng_task_index": n,
                "_ng_rollout_index": 0,
                "reward": 1.0,
                "response": {"output": [{"type": "message", "content": [{"type": "output_text", "text": "one"}]}]},
            }
            for n in range(6)
        ),
    )
    found = pair(calipers.compare(a, b, metric="mean_reward"))
    assert found.findings[0].delta == 0.5
    assert "the reward is 'exact_match' in samples_sums.jsonl and 'reward' in b.jsonl" in found.notes
    assert found.flips.fixes[0].answers == ("said 0", "one")


def test_rewards_that_only_one_run_has_are_left_out_aloud(tmp_path):
    a = put(tmp_path / "a.jsonl", *({"task": t, "rewards": {"f1": 0.5, "acc": 1}} for t in "uvw"))
    b = put(tmp_path / "b.jsonl", *({"task": t, "rewards": {"acc": 0, "em": 1}} for t in "uvw"))
    found = pair(calipers.compare(a, b, metric="mean_reward"))
    assert [finding.metric for finding in found.findings] == ["mean_reward(reward=acc)"]
    assert list(found.notes) == [
        "mean_reward(reward=f1) is excluded, because only a.jsonl has it",
        "mean_reward(reward=em) is excluded, because only b.jsonl has it",
    ]
    with pytest.raises(InputError, match=r"no reward in a\.jsonl named 'em'"):
        calipers.compare(a, b, metric="mean_reward", reward="em")


def test_a_single_reward_meets_its_namesake_among_several(tmp_path):
    """One scorer before, three after: the common one is compared without --reward."""
    one = put(tmp_path / "one.jsonl", *({"task": t, "rewards": {"match": 1}} for t in "tuv"))
    rows = ({"task": t, "rewards": {"match": 0, "style": 1}} for t in "tuv")
    two = put(tmp_path / "two.jsonl", *rows)
    found = calipers.compare(one, two, metric="mean_reward")
    assert found["mean_reward(reward=match)"].delta == -1
    assert pair(found).notes == ["mean_reward(reward=style) is excluded, because only two.jsonl has it"]
    turned = calipers.compare(two, one, metric="mean_reward")
    assert turned["mean_reward(reward=match)"].delta == 1


def test_plans_say_what_was_set_otherwise(tmp_path):
    paths = []
    for name, temperature in (("a", 0.0), ("b", 0.7)):
        folder = tmp_path / name
        folder.mkdir()
        plan = {
            "schema": "calipers.plan/1",
            "identity": {"model": name, "tasks": name * 40, "sampling": {"temperature": temperature, "stop": []}},
            "dataset": "d",
            "model": name,
            "samples": 1,
            "tasks": [{"task": "t"}, {"task": "u"}, {"task": "v"}],
        }
        (folder / "plan.json").write_text(json.dumps(plan))
        group = {"model": name, "dataset": "d"}
        put(folder / "rollouts.jsonl", *({"task": t, "reward": 1, **group} for t in "tu"))
        paths.append(str(folder))
    found = pair(calipers.compare(*paths))
    missing = [note_of(remark) for remark in found.remarks if remark.severity == "note"]
    assert missing == [f"{name}: 1 of 3 rollouts of these tasks is missing (excluded)" for name in "ab"]
    assert found.notes[0].startswith("the content of the tasks (with targets and verifiers) differs: aaaa")
    assert found.notes[1:] == ["sampling.temperature differs: 0.0 in a, 0.7 in b"]
    assert found.findings[0].undefined_tasks == 1  # v is owed in both


def test_a_metric_of_all_documents_is_drawn_again(tmp_path):
    """F1 is not a mean over documents: its pairs of target and answer are read from the samples."""
    targets = [n % 2 for n in range(40)]
    right = [sample(n, 1, f1=[t, t]) for n, t in enumerate(targets)]
    wrong = [sample(n, 0, f1=[t, 1 - t if n % 4 else t]) for n, t in enumerate(targets)]
    a, b = harness(tmp_path / "a", wrong), harness(tmp_path / "b", right)
    found = {one.metric: one for one in pair(calipers.compare(a, b)).findings}["f1"]
    assert (found.second, found.method, found.verdict, found.higher_is_better) == (
        1,
        "paired_bootstrap",
        "better",
        True,
    )
    assert found.first == pytest.approx(_f1(wrong))
    assert found.delta == pytest.approx(1 - found.first)


def _f1(rows):
    pairs = [row["f1"] for row in rows]
    hits = sum(t == a == 1 for t, a in pairs)
    return 2 * hits / (sum(t for t, _ in pairs) + sum(a for _, a in pairs))
