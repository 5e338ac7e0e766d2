"""What an audit finds in planted cheats, and not in honest runs; `bench/simulations/audit.py` has the large runs."""

import json
import os
from pathlib import Path

import numpy as np
import pytest

from bench.simulations.audit import CHEATS, REAL, honest, look, share_found
from calipers.analyses.audit import IMPOSSIBLE, AuditEvidence, against_strong_runs, audit, audited, rows_of
from calipers.errors import CalipersError, InputError
from calipers.running.perform import sample_seed

GOLDEN = Path(__file__).parents[1] / "golden"


@pytest.mark.parametrize("name", CHEATS)
def test_a_cheat_is_found_by_name(name):
    make, rule, least = CHEATS[name]
    assert share_found(make, 3, rule, seed=11) >= (1 if least == 1 else 2 / 3)


def test_honest_runs_have_few_findings():
    """At most 5 % have any: of 20 runs, more than 4 would be rarer than 1 in 1,000."""
    runs = [make for make in REAL.values() for _ in range(2)] + [honest] * 4
    found = [look(make(np.random.default_rng([7, run])), run).findings for run, make in enumerate(runs)]
    assert sum(map(bool, found)) <= 4
    assert not [each for some in found for each in some if each.kind == IMPOSSIBLE]


def test_what_is_not_recorded_is_said():
    records = [{"task": f"t{at // 4}", "sample": at % 4, "reward": at % 2} for at in range(40)]
    unknown = " ".join(look(records).unknown)
    for what in ("start times", "durations", "seeds", "request ids", "silent retries cannot be excluded"):
        assert what in unknown


def readable():
    for folder, _, files in os.walk(GOLDEN / "formats"):
        yield from (folder, *(os.path.join(folder, name) for name in files if not name.endswith((".py", ".md"))))
    yield str(GOLDEN / "harbor" / "job_small")


def test_no_impossible_rule_fires_on_a_file_that_another_system_wrote():
    """A rule that fires there is a list: `empty_passes` did."""
    tried = 0
    for path in readable():
        try:
            done = audit(path)
        except CalipersError:
            continue
        tried += 1
        assert not done.findings, path
    assert tried > 30


def test_a_huge_sample_number_is_a_hole_that_is_not_counted_out():
    records = [{"task": "t", "sample": sample, "reward": 1} for sample in (0, 10**12)]
    (finding,) = look(records).findings
    assert finding.examples == ["task 't' has no sample 1, 2, 3"]


def test_huge_rewards_are_audited_without_a_warning(tmp_path):
    rows = [{"task": "t", "sample": at, "reward": 1e308} for at in range(2)]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert audit(tmp_path / "a.jsonl", tmp_path / "a.jsonl").rollouts == 2


def test_a_probability_above_one_is_one():
    records = [{"task": "t", "sample": at, "reward": 1, "completion": "7", "sum_logprob": 1e5} for at in range(2)]
    assert not look(records).findings


@pytest.mark.parametrize("odd", [{"split": ["train"]}, {"step": {"epoch": 1}}, {"perturbed_from": ["t0"]}])
def test_labels_that_are_lists_or_objects_are_read(odd):
    records = [{"task": f"t{at}", "sample": 0, "reward": 1.0, "completion": "7", **odd} for at in range(3)]
    assert not look(records).findings


def test_a_pass_without_an_answer_is_a_list():
    records = honest(np.random.default_rng(0), tasks=5)
    records[3] |= {"completion": " ", "reward": 1.0}
    [listed] = [each for each in look(records).lists if each.rule == "empty_passes"]
    assert (listed.count, listed.examples) == (1, ["task 't0' sample 3"])


def runs(strong, wrong_key):
    for at in range(2 * strong):
        rows = [
            {
                "task": f"t{task}",
                "answer": "B" if task == wrong_key or (task + at) % 5 else "A",
                "reward": float(task != wrong_key),
            }
            for task in range(30)
        ]
        yield AuditEvidence(list(rows_of(rows)))


@pytest.mark.parametrize(("strong", "kind"), [(4, None), (8, IMPOSSIBLE)])
def test_a_key_against_every_strong_run(strong, kind):
    """A finding from eight strong runs on, a list below."""
    [verdict] = against_strong_runs(list(runs(strong, 3)))
    assert "task 't3'" in verdict.examples[0]
    assert getattr(verdict, "kind", None) == kind


def test_a_sample_that_passes_is_no_key_against_strong_runs():
    """What the last sample says is not what the run says."""
    rows = [
        {"task": "t", "sample": sample, "answer": "AB"[sample], "reward": float(sample == 0)} for sample in range(2)
    ]
    assert not [*against_strong_runs([AuditEvidence(list(rows_of(rows)))] * 16)]


def test_twins_that_fail_where_the_original_passes():
    records = []
    for task in range(20):
        records.append({"task": f"t{task}", "reward": 1})
        records.append({"task": f"p{task}", "reward": int(task < 8), "metadata": {"perturbed_from": f"t{task}"}})
    [finding] = look(records).findings
    assert (finding.rule, finding.count, finding.p) == ("twin_tasks", 12, pytest.approx(2**-12))


def test_texts_that_many_tasks_have_are_templates():
    records = honest(np.random.default_rng(1))
    for record in records[::8]:
        record |= {"completion": "I cannot help with that. " * 20, "reward": 1.0}
    assert not [each for each in look(records).findings if each.rule == "same_text_elsewhere"]


def test_a_file_of_rollouts(tmp_path):
    make, rule, _ = CHEATS["1 failure replaced by a second attempt"]
    path = tmp_path / "run.jsonl"
    path.write_text("".join(json.dumps(record) + "\n" for record in make(np.random.default_rng(0))))
    done = audit(path)
    assert [each.rule for each in done.findings] == [rule]
    assert done.exit_code == 1
    assert json.loads(json.dumps(done.to_dict()))["findings"][0]["count"] == 1


def two_rewards(folder):
    """A file whose samples were drawn until `acc` passed, with a reward for the format that shows nothing of it."""
    path = folder / "run.jsonl"
    rng = np.random.default_rng(1)
    rows = [
        {"task": f"t{task}", "sample": sample, "rewards": {"fmt": float(rng.random() < 0.5), "acc": float(sample == 3)}}
        for task in range(40)
        for sample in range(4)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_a_reward_that_does_not_exist_is_refused(tmp_path):
    """It was audited as a run without rewards, in which nothing is found."""
    path = two_rewards(tmp_path)
    assert "last_is_pass" in [each.rule for each in audit(path, reward="acc").findings]
    with pytest.raises(InputError, match=r"no reward in .*run\.jsonl named 'acx'; did you mean 'acc'\?"):
        audit(path, reward="acx")


def test_several_rewards_need_a_choice(tmp_path):
    with pytest.raises(InputError, match=r"run\.jsonl: has several rewards \(acc, fmt\); choose one with --reward KEY"):
        audit(two_rewards(tmp_path))


def test_every_rollout_is_audited_by_the_same_reward(tmp_path):
    """A rollout without `reward` was audited by whichever other reward came first in its row."""
    rows = [{"task": f"t{at}", "reward": 0.0, "rewards": {"fmt": 1.0}, "completion": " "} for at in range(4)]
    rows[3]["reward"] = None
    (tmp_path / "run.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert "empty_passes" not in [each.rule for each in audit(tmp_path / "run.jsonl").lists]


def own_run(samples=4):
    """Records as a run of Calipers logs them, with the id and the seed of each request."""
    return [
        {
            "task": f"t{task}",
            "sample": sample,
            "reward": (task + sample) % 2,
            "completion": f"{task}/{sample}",
            "request": {"id": f"chatcmpl-{task}-{sample}", "seed": sample_seed(7, f"t{task}", sample)},
        }
        for task in range(10)
        for sample in range(samples)
    ]


def looked_at(records):
    return audited(AuditEvidence(list(rows_of(records)), planned_seed=7))


def test_the_requests_of_a_run_are_on_record():
    done = looked_at(own_run())
    assert not done.findings
    assert not [text for text in done.unknown if "seeds" in text or "request ids" in text]


def test_a_seed_that_was_not_planned_is_found():
    records = own_run()
    records[5]["request"]["seed"] += 1  # drawn once more, until it passed
    [found] = looked_at(records).findings
    assert (found.rule, found.count, found.examples) == ("seeds", 1, ["task 't1' sample 1"])


def test_one_request_has_one_completion():
    records = own_run()
    records[5]["request"]["id"] = records[6]["request"]["id"]
    [found] = looked_at(records).findings
    assert (found.rule, found.examples) == ("requests", ["chatcmpl-1-2"])


def test_a_server_that_counts_anew_is_no_finding():
    records = own_run()
    for record in records:
        record["request"]["id"] = "chatcmpl-0"
    done = looked_at(records)
    assert not done.findings
    assert [text for text in done.unknown if "request ids are not unique" in text]


def test_a_number_out_of_range_that_no_score_reads_is_named(tmp_path):
    (tmp_path / "run.jsonl").write_text('{"task": "a", "reward": 1, "metadata": {"x": 1e999}}\n')
    with pytest.raises(InputError, match=r"task 'a', sample 0: a number is out of range; expected at most 1.8e308"):
        audit(tmp_path / "run.jsonl")
