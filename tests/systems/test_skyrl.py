"""SkyRL's dumps: its own numbers beside them, and the steps of trajectories, which are no rollouts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from cli.running import calipers as command

import calipers
from calipers.errors import InputError
from calipers.formats.read import read

GOLDEN = Path(__file__).parents[1] / "golden"
STEPS = GOLDEN / "catchup" / "skyrl_stepwise" / "dumped_evals" / "global_step_5_evals"


def dump(folder, prompts, scores, own=None, name="d"):
    rows = [
        {"input_prompt": prompt, "output_response": "a", "score": score, "data_source": name}
        for prompt, score in zip(prompts, scores, strict=True)
    ]
    path = folder / f"{name.replace('/', '_')}.jsonl"
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    if own is not None:
        (folder / "aggregated_results.jsonl").write_text(own if isinstance(own, str) else f"{json.dumps(own)}\n")
    return path


@pytest.mark.parametrize("path", [STEPS, STEPS / "d.jsonl", STEPS.parent])
def test_steps_were_scored_as_rollouts(tmp_path, path):
    answer = command("score", str(path), cwd=tmp_path)
    assert answer.returncode == 2
    assert answer.stdout == ""
    expected = (
        "rows are steps, not trajectories: SkyRL's avg_score is 0.3750, the rows' mean 0.1579; expected a row for"
    )
    assert expected in answer.stderr


def test_steps_without_the_aggregate_are_told_by_their_prompts(tmp_path):
    (tmp_path / "d.jsonl").write_bytes((STEPS / "d.jsonl").read_bytes())
    with pytest.raises(InputError, match="rows are steps, not trajectories: some prompts continue"):
        read([str(tmp_path / "d.jsonl")])
    result = calipers.score(tmp_path / "d.jsonl", input_format="skyrl")
    assert result.groups[0].ledger.planned == 57
    assert any("its rows may be steps" in note for note in result.notes)


def test_prompts_that_continue_others_are_rollouts_if_the_numbers_agree(tmp_path):
    path = dump(tmp_path, ["q", "q and more"], [1.0, 0.0], {"eval/d/avg_score": 0.5})
    assert calipers.score(path)["mean_reward"].value == 0.5


def test_one_prompt_several_times_is_no_continuation(tmp_path):
    assert calipers.score(dump(tmp_path, ["q", "q", "r"], [1.0, 0.0, 1.0]))["mean_reward"].value == 0.75


def test_the_slash_of_a_data_source_is_an_underscore_in_its_key(tmp_path):
    path = dump(tmp_path, ["q", "r"], [1.0, 0.0], {"eval/openai_gsm8k/avg_score": 0.5}, name="openai/gsm8k")
    [check] = calipers.score(path).checks
    assert (check.system, check.metric, check.agrees) == ("skyrl", "eval/openai_gsm8k/avg_score", True)


@pytest.mark.parametrize(
    "own",
    [
        "",
        "{",
        "[]",
        '{"eval/d/avg_score": NaN}',
        '{"eval/d/avg_score": null}',
        '{"eval/d/avg_score": ' + "1" * 5000 + "}",
    ],
    ids=range(6),
)
def test_an_aggregate_without_a_number_says_nothing(tmp_path, own):
    result = calipers.score(dump(tmp_path, ["q", "r"], [1.0, 0.0], own))
    assert (result.checks, result["mean_reward"].value) == ([], 0.5)


@pytest.mark.parametrize("digits", ["0.5" + "0" * 5000, "0.4999999999999999", "0.5"])
def test_an_aggregate_of_many_digits_is_compared(tmp_path, digits):
    [check] = calipers.score(dump(tmp_path, ["q", "r"], [1.0, 0.0], f'{{"eval/d/avg_score": {digits}}}')).checks
    assert check.agrees


def test_an_aggregate_without_rows_is_no_rollouts(tmp_path):
    dump(tmp_path, [], [], {"eval/d/avg_score": 0.5})
    with pytest.raises(InputError, match="no rollouts"):
        read([str(tmp_path / "d.jsonl")])
