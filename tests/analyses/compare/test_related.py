"""Runs of one benchmark are compared; runs of different benchmarks are refused without --force."""

from __future__ import annotations

import hashlib
import json
import re

import polars as pl
import pytest
from analyses.compare.test_align import harness, sample
from analyses.compare.writing import put
from systems.harbor.made import asked, job, result
from systems.inspect import made as inspect_made

import calipers
from calipers.errors import InputError

TASKS = 20
NAMES = "the datasets have different names: 'sums', 'capitals'"


def rows(dataset, tasks=TASKS, *, prompt=None, target=None, reward=1, start=0):
    """A record for each task; ``prompt`` and ``target`` are functions of its number."""
    of_task = {key: value for key, value in (("prompt", prompt), ("target", target)) if value is not None}
    return [
        {
            **{"task": str(n), "reward": reward if n % 2 else 0, "dataset": dataset},
            **{key: value(n) for key, value in of_task.items()},
        }
        for n in range(start, start + tasks)
    ]


def plus(n):
    return f"{n} + {n}"


def capital(n):
    return f"capital of country {n}"


def compared(folder, first, second, **settings):
    return calipers.compare(put(folder / "a.jsonl", *first), put(folder / "b.jsonl", *second), **settings)


def refusal(folder, first, second):
    with pytest.raises(InputError) as caught:
        compared(folder, first, second)
    text = str(caught.value)
    assert "\n" not in text
    assert text.endswith("; --force compares them anyway")
    return text


def notes_of(comparison):
    ((pair,),) = [contest.pairs for contest in comparison.contests]
    return [*comparison.notes, *pair.notes]


# unrelated


def test_other_targets_under_the_same_ids_are_refused(tmp_path):
    first = rows("sums", prompt=plus, target=lambda n: n)
    second = rows("capitals", prompt=plus, target=lambda n: n if n < 9 else f"city {n}")
    assert refusal(tmp_path, first, second) == (
        "a.jsonl (dataset 'sums') and b.jsonl (dataset 'capitals') look like runs of different benchmarks: "
        "of 20 tasks with the same id, 11 have another target; --force compares them anyway"
    )


def test_without_targets_other_prompts_are_refused(tmp_path):
    said = refusal(tmp_path, rows("sums", prompt=plus), rows("capitals", prompt=capital))
    assert "of 20 tasks with the same id, 20 have another prompt" in said


def test_a_task_without_a_target_is_known_by_its_prompt(tmp_path):
    first = rows("sums", prompt=plus, target=lambda n: n if n < 8 else None)
    second = rows("capitals", prompt=lambda n: plus(n) if n > 11 else capital(n), target=lambda n: f"city {n}")
    said = refusal(tmp_path, first, second)
    assert "of 20 tasks with the same id, 8 have another target and 4 have another prompt;" in said


def test_force_insists_and_the_reason_is_a_note(tmp_path):
    first, second = rows("sums", prompt=plus), rows("capitals", prompt=capital)
    notes = notes_of(compared(tmp_path, first, second, force=True))
    assert notes[0] == NAMES
    assert any("of 20 tasks with the same id, 20 have another prompt" in note for note in notes)


def test_few_common_tasks_are_refused(tmp_path):
    first, second = rows("sums", 100), rows("sums", 31, start=97)  # 97, 98 and 99 are in both runs
    said = "only 3 of their 100 and 31 tasks are in both, fewer than a tenth of the smaller run"
    assert said in refusal(tmp_path, first, second)
    assert any(said in note for note in notes_of(compared(tmp_path, first, second, force=True)))


def test_one_unrelated_run_of_three_is_named(tmp_path):
    paths = [
        put(tmp_path / f"{name}.jsonl", *rows(dataset, prompt=prompt))
        for name, dataset, prompt in (("a", "sums", plus), ("b", "sums", plus), ("c", "capitals", capital))
    ]
    with pytest.raises(InputError, match=r"a.jsonl \(dataset 'sums'\) and c.jsonl \(dataset 'capitals'\) look like"):
        calipers.compare(*paths)
    assert len(calipers.compare(*paths, force=True).contests[0].pairs) == 3


def benchmark(path, prompt, target):
    lines = [json.dumps({"id": f"q{n}", "prompt": prompt(n), "target": target(n)}) for n in range(12)]
    path.write_text("\n".join(lines) + "\n")
    return path


def test_runs_of_two_benchmarks_are_refused_by_their_targets(tmp_path, monkeypatch):
    """The plan of a run keeps a hash of each target; the log has none."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "m.py").write_text("def four(prompt):\n    return '4'\n")
    files = [
        benchmark(tmp_path / "sums.jsonl", lambda n: "Which?", lambda n: str(n)),
        benchmark(tmp_path / "capitals.jsonl", lambda n: "Which?", lambda n: f"city {n}"),
        benchmark(tmp_path / "additions.jsonl", lambda n: "What is it?", lambda n: str(n)),
    ]
    for file in files:
        calipers.evaluate(file, "python/m.py:four", out=tmp_path / file.stem)
    calipers.evaluate(files[0], "python/m.py:four", out=tmp_path / "sums", limit=3)  # what was planned stays planned
    planned = json.loads((tmp_path / "sums" / "plan.json").read_text())["tasks"]
    assert len({task["target"] for task in planned}) == 12
    with pytest.raises(InputError, match=r"'sums'\) and capitals .* 12 have another target; --force"):
        calipers.compare("sums", "capitals")
    renamed = notes_of(calipers.compare("sums", "additions"))  # other prompts, the same targets
    assert "the datasets have different names: 'sums', 'additions'" in renamed


def test_a_gate_says_that_its_baseline_is_of_another_benchmark(tmp_path):
    old, new = (
        put(tmp_path / f"{name}.jsonl", *rows(dataset, prompt=prompt))
        for name, dataset, prompt in (("old", "sums", plus), ("new", "capitals", capital))
    )
    said = f"{re.escape(old)}: old.jsonl .* 20 have another prompt; expected a baseline of the same benchmark$"
    with pytest.raises(InputError, match=said) as caught:
        calipers.gate(new, require="delta(mean_reward) >= 0", baseline=old)
    assert "--force" not in str(caught.value)  # which it does not have


# related


def test_a_new_prompt_template_stays_comparable(tmp_path):
    notes = notes_of(compared(tmp_path, rows("sums", prompt=plus), rows("sums", prompt=lambda n: f"Q: {plus(n)}")))
    assert notes == ["the prompt differs in 20 of 20 common tasks (0, 1, 2, …)"]


def test_a_new_prompt_template_under_a_new_name_stays_comparable_by_its_targets(tmp_path):
    first = rows("sums", prompt=plus, target=lambda n: n)
    second = rows("capitals", prompt=lambda n: f"Q: {plus(n)}", target=lambda n: [f" {n}\n"])
    notes = notes_of(compared(tmp_path, first, second))
    assert notes == [NAMES, "the prompt differs in 20 of 20 common tasks (0, 1, 2, …)"]


@pytest.mark.parametrize("pilot", [1, 5, 20])
def test_a_pilot_stays_comparable_with_the_full_run(tmp_path, pilot):
    ((pair,),) = [contest.pairs for contest in compared(tmp_path, rows("sums", pilot), rows("sums", 1000)).contests]
    assert (pair.alignment.common, pair.alignment.only_second.count) == (pilot, 1000 - pilot)


def test_a_tenth_of_the_smaller_run_is_enough(tmp_path):
    assert compared(tmp_path, rows("sums", 100), rows("sums", 30, start=97)).contests


def test_half_of_the_tasks_may_have_changed(tmp_path):
    first, second = rows("sums", target=lambda n: n), rows("capitals", target=lambda n: n if n < 10 else f"city {n}")
    assert notes_of(compared(tmp_path, first, second)) == [NAMES]


def test_one_benchmark_under_the_names_of_two_systems_stays_comparable(tmp_path):
    """The harness has its own prompt template, but the targets are the same."""
    theirs = harness(tmp_path / "theirs", [sample(n, 1, target=str(n)) for n in range(TASKS)])
    ours = put(tmp_path / "a.jsonl", *rows("additions", prompt=plus, target=lambda n: n))
    notes = notes_of(calipers.compare(ours, theirs))
    assert notes[0] == "the datasets have different names: 'additions', 'sums'"
    assert "the prompt differs in 20 of 20 common tasks (0, 1, 2, …)" in notes
    others = put(tmp_path / "c.jsonl", *rows("capitals", prompt=capital, target=capital))
    with pytest.raises(InputError, match="20 have another target; --force"):
        calipers.compare(others, theirs)


def agent_job(folder, dataset, wording, checksum):
    """A job on twelve tasks with the given prompt of the agent."""
    trials = [
        result(f"t{n}__{folder.name}", {"reward": n % 2}, source=dataset, task_checksum=f"{checksum} {n}")
        for n in range(12)
    ]
    for trial in trials:
        trial["config"] = asked(trial["task_name"], dataset)
    path = job(folder, *trials)
    for trial in trials:
        told = folder / trial["trial_name"] / "agent" / "instruction.md"
        told.parent.mkdir()
        told.write_text(f"{wording} {trial['task_name']}")
    return path


def test_tasks_with_the_same_digest_are_the_same_however_an_agent_puts_them(tmp_path):
    first = agent_job(tmp_path / "a", "sums", "Solve", "sum of")
    second = agent_job(tmp_path / "b", "additions", "You are an agent. Solve", "sum of")
    assert notes_of(calipers.compare(first, second))[0] == "the datasets have different names: 'sums', 'additions'"
    third = agent_job(tmp_path / "c", "capitals", "Travel to", "another sum of")
    with pytest.raises(InputError, match="of 12 tasks with the same id, 12 have another prompt; --force"):
        calipers.compare(first, third)


def test_a_dataset_without_a_name_stays_comparable(tmp_path):
    notes = notes_of(compared(tmp_path, rows(None, prompt=plus), rows("capitals", prompt=capital)))
    assert notes == ["the prompt differs in 20 of 20 common tasks (0, 1, 2, …)"]


def test_records_without_texts_stay_comparable(tmp_path):
    assert notes_of(compared(tmp_path, rows("sums"), rows("capitals"))) == [NAMES]


# where a target stands


@pytest.mark.parametrize("kind", ["jsonl", "metadata", "csv", "parquet"])
def test_a_target_is_known_in_every_format(tmp_path, kind):
    paths = []
    for dataset, target in (("sums", plus), ("capitals", capital)):
        records, path = rows(dataset, target=target), tmp_path / f"{dataset}.{kind}"
        if kind == "metadata":
            records = [{**row, "metadata": {"target": row.pop("target")}} for row in records]
        if kind in ("csv", "parquet"):
            frame = pl.DataFrame(records)
            frame.write_csv(path) if kind == "csv" else frame.write_parquet(path)
        else:
            put(path, *records)
        paths.append(str(path))
    with pytest.raises(InputError, match="20 have another target; --force"):
        calipers.compare(*paths)


def test_a_key_that_has_another_role_is_no_target(tmp_path):
    first, second = rows("sums", target=plus), rows("capitals", target=capital)
    assert compared(tmp_path, first, second, columns={"answer": "target"}).notes == [NAMES]


def test_a_target_may_be_kept_as_its_hash_only(tmp_path):
    """The SHA-256 of the text, as the harness writes it beside the target."""
    hashes = [hashlib.sha256(str(n).encode()).hexdigest() for n in range(TASKS)]
    theirs = harness(tmp_path / "theirs", [sample(n, 1, target=None, target_hash=hashes[n]) for n in range(TASKS)])
    ours = put(tmp_path / "a.jsonl", *rows("additions", prompt=plus, target=lambda n: n))
    assert calipers.compare(ours, theirs).contests
    others = put(tmp_path / "c.jsonl", *rows("capitals", target=capital))
    with pytest.raises(InputError, match="20 have another target; --force"):
        calipers.compare(others, theirs)


def test_a_log_of_samples_knows_their_targets(tmp_path):
    header = inspect_made.header([str(n) for n in range(TASKS)])
    samples = [{**inspect_made.sample(str(n), "C"), "target": str(n)} for n in range(TASKS)]
    theirs = inspect_made.whole(tmp_path, header, *samples)
    ours = put(tmp_path / "a.jsonl", *rows("additions", prompt=plus, target=lambda n: n))
    assert calipers.compare(ours, theirs).contests
    others = put(tmp_path / "c.jsonl", *rows("capitals", target=capital))
    with pytest.raises(InputError, match="20 have another target; --force"):
        calipers.compare(others, theirs)
