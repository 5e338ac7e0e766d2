"""The numbers that other systems report themselves agree with ours in every file that their writers wrote.

Change one stored number, and there is one warning.
"""

from __future__ import annotations

import json
import math
import random
import re
import shutil
import zipfile
from collections import Counter
from contextlib import suppress
from pathlib import Path

import pytest
from cli.running import calipers as command

import calipers
from calipers.errors import CalipersError
from calipers.formats.read import read
from calipers.rollouts.checks import failed_checks

GOLDEN = Path(__file__).parent
EEE = "formats/every_eval_ever/data/modes/acme/tiny-1"
SHARDS = "catchup/inspect_shards"
PATHS = {  # a path -> how many numbers of its system are compared
    "formats/skyrl/dumped_evals": 6,
    "formats/openai_evals/log_a.jsonl": 1,
    "formats/tinker_cookbook/eval": 2,
    "formats/verifiers_v0": 1,
    "formats/verifiers_v0_old": 1,
    "formats/promptfoo/results.json": 15,
    EEE: 3,
    "formats/every_eval_ever_export": 1,
    "formats/inspect/golden_a.eval": 5,
    "formats/inspect/golden_a.json": 5,
    "formats/inspect/chunked_a.eval": 5,
    "harbor/job_small": 4,
    "lm_eval/e2e/gen_repeats": 5,
    "lm_eval/e2e/mc_group": 5,
    "lm_eval/e2e/rolling": 0,  # perplexities are no means over documents
}
WITHOUT = (  # files of systems that write no number of their own beside them, or whose number has another definition
    "formats/verl/validation",
    "formats/trl/completions",
    "formats/verifiers_v1",
    "formats/prime_rl/rollouts/step_2/eval/all/traces.jsonl",
    "formats/nemo_rl/val_data_step0.jsonl",
    "formats/open_instruct",
    "formats/tinker_cookbook/iteration_000000",
    "formats/promptfoo/results.jsonl",
    "catchup/promptfoo_0123/results.jsonl",
    "catchup/verl_sessions/2.jsonl",
)


@pytest.mark.parametrize("path", PATHS)
def test_no_golden_file_raises_a_false_alarm(path):
    table, _ = read([str(GOLDEN / path)])
    assert failed_checks(table.checks) == []
    assert len(table.checks) == PATHS[path]


@pytest.mark.parametrize("path", WITHOUT)
def test_a_file_without_a_number_of_its_own_has_no_checks(path):
    assert read([str(GOLDEN / path)])[0].checks == []


@pytest.mark.parametrize(
    "path",
    sorted(str(each.relative_to(GOLDEN)) for each in (GOLDEN / SHARDS).rglob("*.eval")),
)
def test_no_log_of_inspect_raises_a_false_alarm(path):
    table, _ = read([str(GOLDEN / path)])
    assert failed_checks(table.checks) == []
    assert len(table.checks) == 1


def gym_vectors():
    """The vectors of NeMo Gym that have rollouts and its own aggregate of them."""
    for path in sorted((GOLDEN / "nemo_gym").glob("*.json")):
        vector = json.loads(path.read_text())
        if vector["input_rollouts"] and vector.get("expected_aggregate") and path.stem not in GYM_REDEFINED:
            yield path.stem


GYM_REDEFINED = {"h02_hook_overrides_baseline"}  # the user's own code replaces mean/reward
GYM_NOT_COMPARED = {
    *("e11_sparse_columns_no_std", "e12_no_numeric_fields", "e14_numeric_strings"),  # no reward is a number
    *("e17_usage_beats_top_level_in_stats", "e26_failure_markers_are_averaged", "e27_numeric_agent_name_field"),
    "e31_overflow_to_null",
}


def gym_checks(folder, name):
    """The checks of a vector's rollouts with its aggregate beside them."""
    vector = json.loads((GOLDEN / "nemo_gym" / f"{name}.json").read_text())
    rows, aggregate = vector["input_rollouts"], vector["expected_aggregate"]
    if isinstance(aggregate, dict):  # what a server answers for one agent, without its name
        aggregate = [{"agent_ref": {"name": "x"}, **aggregate}]
        rows = [{**row, "agent_ref": {"name": "x"}} for row in rows]
    (folder / "r.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    (folder / "r_aggregate_metrics.json").write_text(json.dumps(aggregate))
    return read([str(folder / "r.jsonl")])[0].checks


@pytest.mark.parametrize("name", list(gym_vectors()))
def test_no_vector_of_nemo_gym_raises_a_false_alarm(tmp_path, name):
    checks = gym_checks(tmp_path, name)
    assert failed_checks(checks) == []
    assert bool(checks) is (name not in GYM_NOT_COMPARED)


def test_a_mean_that_the_users_code_replaces_is_an_alarm(tmp_path):
    [check] = gym_checks(tmp_path, "h02_hook_overrides_baseline")
    assert (check.metric, check.theirs, check.agrees) == ("mean/reward of x", -1.0, False)


def test_the_offline_profile_of_nemo_gym_is_compared_too(tmp_path):
    checks = gym_checks(tmp_path, "c02_multiple_agents")
    (tmp_path / "r_aggregate_metrics.json").rename(tmp_path / "r_agent_metrics.json")
    assert read([str(tmp_path / "r.jsonl")])[0].checks == checks
    assert len(checks) == 2


def test_an_export_for_every_eval_ever_agrees_when_it_is_read_again(tmp_path):
    rows = [
        {"task": f"t{task}", "sample": n, "reward": (task + n) % 4 / 4, "model": "acme/m"}
        for task in range(9)
        for n in range(1 + task % 3)
    ]
    path = tmp_path / "rollouts.jsonl"
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    assert command("score", str(path), "--export", f"every_eval_ever={tmp_path / 'out'}", cwd=tmp_path).returncode == 0
    checks = read([str(tmp_path / "out")])[0].checks
    assert [(check.metric, check.agrees) for check in checks] == [("rollouts:mean_reward", True)]


def changed(path: Path, pattern: str) -> None:
    """Add 0.01, or 1 to a whole number, to the first number after a pattern in a file."""
    text = path.read_text()
    match = re.search(rf"({pattern})(-?[0-9.]+)", text)
    assert match is not None
    number = str(int(match[2]) + 1) if match[2].isdecimal() else repr(float(match[2]) + 0.01)
    path.write_text(text[: match.start(2)] + number + text[match.end(2) :])


@pytest.mark.parametrize(
    ("folder", "source", "file", "pattern", "metric"),
    [
        ("formats/openai_evals", "log_a.jsonl", "log_a.jsonl", '"final_report": {"accuracy": ', "accuracy"),
        ("formats/tinker_cookbook/eval/gsm8k", "trajectories.jsonl", "result.json", '"score": ', "score"),
        ("formats/verifiers_v0", "results.jsonl", "metadata.json", '"avg_reward": ', "avg_reward"),
        ("formats/promptfoo", "results.json", "results.json", '"stats": {\\s*"successes": ', "successes"),
        (EEE, ".", "*85.json", '"score_details": {\\s*"score": ', "includes:accuracy"),
        ("formats/inspect", "golden_a.json", "golden_a.json", '"name": "accuracy",\\s*"value": ', "includes accuracy"),
        ("harbor/job_small", ".", "result.json", '"mean": ', "terminus-2__coder-1__arith-mini mean"),
        ("harbor/job_small", ".", "result.json", '"2": ', "terminus-2__coder-1__arith-mini pass@2"),
        ("lm_eval/e2e/mc_group", ".", "results.json", '"acc_norm,none": ', "e2e_mc_alpha acc_norm,none"),
    ],
)
def test_one_changed_number_is_one_warning(tmp_path, folder, source, file, pattern, metric):
    copy = tmp_path / "copy"
    shutil.copytree(GOLDEN / folder, copy)
    [path] = copy.glob(file)
    changed(path, pattern)
    before, result = calipers.score(GOLDEN / folder / source), calipers.score(copy / source)
    assert result.digest == before.digest  # no value of ours changes
    [failed] = failed_checks(result.checks)
    assert failed.metric == metric
    [warning] = [note for note in result.notes if "may be read wrong" in note]
    assert warning.startswith(f"warning: {failed.system}'s own {metric} is ")
    assert [check for check in result.to_dict()["checks"] if not check["agrees"]] == [
        {"system": failed.system, "metric": metric, "theirs": failed.theirs, "ours": failed.ours, "agrees": False}
    ]


def test_a_changed_number_in_the_header_of_an_archive_is_a_warning(tmp_path):
    path = tmp_path / "log.eval"
    source = next((GOLDEN / SHARDS).rglob("*.eval"))
    with zipfile.ZipFile(source) as old, zipfile.ZipFile(path, "w") as new:
        for name in old.namelist():
            data = _member(source, name)
            if name == "header.json":
                header = json.loads(data)
                metrics = header["results"]["scores"][0]["metrics"]
                metrics["accuracy"]["value"] += 0.01
                data = json.dumps(header).encode()
            new.writestr(name, data)
    assert len(failed_checks(read([str(path)])[0].checks)) == 1


def _member(path: Path, name: str) -> bytes:
    from calipers.systems.inspect import Archive

    with Archive(str(path)) as archive:
        return archive.read(name)


def test_how_many_numbers_are_compared(tmp_path, capsys):
    """Prints how many numbers each system has in the golden files."""
    checks = [check for path in PATHS for check in read([str(GOLDEN / path)])[0].checks]
    checks += [check for name in gym_vectors() for check in gym_checks(tmp_path, name)]
    counts = Counter(check.system for check in checks)
    assert failed_checks(checks) == []
    with capsys.disabled():
        print(f"\n{counts.total()} numbers of other systems agree with ours:", dict(counts))
    assert set(counts) == {
        *("skyrl", "openai_evals", "tinker_eval", "verifiers_v0", "promptfoo", "every_eval_ever", "inspect"),
        *("harbor", "lm_eval", "nemo_gym"),
    }


ODD = (None, [], {}, "x", True, -1, 1e308, math.nan, 10**30, [[]], {"a": 1}, "0.5", 0.5)


def inner_paths(document, path=()):
    """The path of every value in a document; of a list, only of the first ones."""
    items = document.items() if isinstance(document, dict) else ()
    items = enumerate(document[:3]) if isinstance(document, list) else items
    for key, value in items:
        yield (*path, key)
        yield from inner_paths(value, (*path, key))


@pytest.mark.parametrize(
    ("folder", "source", "file"),
    [
        ("formats/tinker_cookbook/eval/gsm8k", "trajectories.jsonl", "result.json"),
        ("formats/verifiers_v0", "results.jsonl", "metadata.json"),
        (EEE, ".", "*85.json"),
        ("harbor/job_small", ".", "result.json"),
        ("lm_eval/e2e/mc_group", ".", "results.json"),
        ("formats/skyrl/dumped_evals/global_step_10_evals", "openai_gsm8k.jsonl", "aggregated_results.jsonl"),
    ],
)
def test_an_odd_value_in_a_document_of_numbers_is_never_a_crash(tmp_path, folder, source, file):
    copy = tmp_path / "copy"
    shutil.copytree(GOLDEN / folder, copy)
    [path] = copy.glob(file)
    text, rng = path.read_text(), random.Random(3)
    paths = list(inner_paths(json.loads(text)))
    for _ in range(40):
        document = json.loads(text)
        *outer, last = rng.choice(paths)
        inner = document
        for key in outer:
            inner = inner[key]
        inner[last] = rng.choice(ODD)
        path.write_text(json.dumps(document))
        with suppress(CalipersError):  # an error in one line is an answer
            read([str(copy / source)])
