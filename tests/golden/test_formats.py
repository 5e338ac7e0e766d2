"""Files that the real writers of other systems wrote: what we read of them, against what is in them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import calipers
from calipers.formats.read import read
from calipers.rollouts.labels import slices
from calipers.rollouts.record import OUTCOMES, label
from calipers.rollouts.table import Rollouts

FOLDER = Path(__file__).parent / "formats"


def expected(system: str) -> dict[str, Any]:
    return json.loads((FOLDER / system / "expected.json").read_text())


def table(system: str, *paths: str, labels: tuple[str, ...] = ("step", "split")) -> Rollouts:
    return read([str(FOLDER / system / path) for path in paths], labels=labels)[0]


def chosen(rollouts: Rollouts, **labels: Any) -> Rollouts:
    """The rollouts with these labels, or of this agent, model or dataset."""
    parts = list(rollouts.groups())
    for key in ("agent", "model", "dataset"):
        if key in labels:
            wanted = labels.pop(key)
            parts = [part for part in parts if dict(zip(("agent", "model", "dataset"), part.keys[0]))[key] == wanted]
    assert len(parts) == 1, [part.keys[0] for part in parts]
    part = parts[0]
    for key, value in labels.items():
        code, names = slices(part, key, label)
        part = part.where(code == names.index(label(value)))
    return part


def numbers(part: Rollouts, rewards: dict[str, str]) -> dict[str, Any]:
    """What the vectors have of some rollouts: their rewards by the names that the vectors use."""
    counts = np.bincount(part.outcome, minlength=len(OUTCOMES))
    return {
        "rollouts": len(part),
        "tasks": len(part.tasks),
        "outcomes": {word: int(count) for word, count in zip(OUTCOMES, counts, strict=True) if count},
        "rewards": {name: moments(part, ours) for name, ours in rewards.items() if ours in part.rewards},
    }


def moments(part: Rollouts, reward: str) -> dict[str, float]:
    from calipers.rollouts.ledger import contributed

    column = contributed(part, reward)
    code = part.task[column.given]
    values = column.values[column.given]
    size = np.bincount(code, minlength=len(part.tasks))
    means = np.bincount(code, values, len(part.tasks))[size > 0] / size[size > 0]
    return {"n": len(values), "pooled_mean": values.mean(), "mean_of_task_means": means.mean()}


def check(system: str, key: str, part: Rollouts, names: dict[str, str] | None = None) -> None:
    """Hold some rollouts against one entry of ``read``; ``names`` are ours of its rewards, where they differ."""
    wanted = expected(system)["read"][key]
    found = numbers(part, {name: (names or {}).get(name, name) for name in wanted["rewards"]})
    assert found["rewards"].keys() == wanted["rewards"].keys()
    for name, reward in wanted["rewards"].items():
        assert found["rewards"][name] == pytest.approx(reward, abs=1e-12)
    assert {**found, "rewards": {}} == {**wanted, "rewards": {}}


@pytest.mark.parametrize("step", [0, 20, 40])
def test_verl_validation(step):
    check("verl", f"validation step {step}", chosen(table("verl", "validation"), step=step))


@pytest.mark.parametrize("step", [1, 2])
def test_verl_sessions_are_rollouts(step):
    check("verl", f"rollout_v1 step {step}", chosen(table("verl", "rollout_v1"), step=step))


@pytest.mark.parametrize("step", [2, 4])
def test_trl(step):
    check("trl", f"step {step}", chosen(table("trl", "completions"), step=step))


def test_verifiers():
    check("verifiers_v1", "", chosen(table("verifiers_v1", "traces.jsonl")))


@pytest.mark.parametrize("step", ["0 eval", "1 train", "2 train", "2 eval", "10 eval"])
@pytest.mark.parametrize("agent", ["solver", "judge"])
def test_prime_rl(step, agent):
    number, split = step.split()
    part = chosen(table("prime_rl", "rollouts"), agent=agent, step=int(number), split=split)
    apart = expected("prime_rl")["read"].get(f"step {step} (no trace)")
    if apart and agent == "solver":  # the vectors list episodes without a trace apart; they are the policy's
        wanted = expected("prime_rl")["read"][f"step {step} solver"]
        found = numbers(part, {name: name for name in wanted["rewards"]})
        assert found["rollouts"] == wanted["rollouts"] + apart["rollouts"]
        assert found["outcomes"] == {
            "scored": wanted["outcomes"]["scored"],
            "client_failed": wanted["outcomes"]["client_failed"] + apart["outcomes"]["client_failed"],
        }
        assert found["rewards"]["correct"] == pytest.approx(wanted["rewards"]["correct"], abs=1e-12)
    else:
        check("prime_rl", f"step {step} {agent}", part)


@pytest.mark.parametrize("system", ["verifiers_v0", "verifiers_v0_old"])
def test_verifiers_v0(system):
    check(system, "", chosen(table(system, "results.jsonl")))


@pytest.mark.parametrize("key", expected("skyrl")["read"])
def test_skyrl(key):
    step, _, dataset = key.partition(" ")
    part = chosen(table("skyrl", "dumped_evals"), dataset=dataset, step=int(step.split("_")[2]))
    check("skyrl", key, part)


@pytest.mark.parametrize("key", expected("nemo_rl")["read"])
def test_nemo_rl(key):
    split, _, step = key.partition("_data_step")
    check("nemo_rl", key, chosen(table("nemo_rl", ""), split=split, step=int(step)))


@pytest.mark.parametrize("step", [1, 2, 3])
def test_open_instruct(step):
    part = chosen(table("open_instruct", ""), step=step)
    assert part.keys == [(None, "acme/tiny-1", None)]
    check("open_instruct", f"step {step}", part)


def test_tinker_evaluations():
    check("tinker_cookbook", "eval gsm8k", chosen(table("tinker_cookbook", "eval"), dataset="gsm8k"))


@pytest.mark.parametrize("iteration", [0, 1])
def test_tinker_summaries(iteration):
    path = f"iteration_00000{iteration}/train_rollout_summaries.jsonl"
    part = chosen(table("tinker_cookbook", path), step=iteration, split="train")
    check("tinker_cookbook", f"train iteration {iteration}", part)


@pytest.mark.parametrize("file", ["results.json", "results.jsonl"])
@pytest.mark.parametrize("column", expected("promptfoo")["read"])
def test_promptfoo(file, column):
    model, _, agent = column.partition(" | ")
    check("promptfoo", column, chosen(table("promptfoo", file), model=model, agent=agent))


def test_openai_evals():
    check("openai_evals", "", chosen(table("openai_evals", "log_a.jsonl"), model="acme/tiny-1"))


@pytest.mark.parametrize("system", ["every_eval_ever", "every_eval_ever_export"])
def test_every_eval_ever(system):
    """The vectors list each result apart: here they are rewards of one rollout, and an error is a gap of each."""
    part = chosen(table(system, "data"))
    entries = expected(system)["read"]
    failed = entries.pop("(none)", {"rollouts": 0})["rollouts"]
    assert len(part) == failed + max(entry["rollouts"] for entry in entries.values())
    for result, entry in entries.items():
        assert moments(part, result) == pytest.approx(entry["rewards"]["score"], abs=1e-12)


@pytest.mark.parametrize("file", ["golden_a.eval", "golden_a.json", "chunked_a.eval"])
def test_inspect(file):
    part = chosen(table("inspect", file))
    wanted = expected("inspect")["read"]
    names = {"f1": "parts.f1", "len": "parts.len"}  # a scorer with several values names them after itself
    found = numbers(part, {name: names.get(name, name) for name in wanted["rewards"]})
    for name, reward in wanted["rewards"].items():
        assert found["rewards"][name] == pytest.approx(reward, abs=1e-12)
    assert {**found, "rewards": {}} == {**wanted, "rewards": {}}


@pytest.mark.parametrize("file", ["golden_a.eval", "golden_a.json", "chunked_a.eval"])
def test_metadata_of_inspect_wherever_it_is(file):
    part = chosen(table("inspect", file, labels=("level", "tags.src")))
    assert slices(part, "level", label)[1] == ["easy", "hard"]
    assert slices(part, "tags.src", label)[1] == ["s0", "s1"]


def own_verl() -> list[tuple[str, str, int, float]]:
    """(file, reward, k, what verl itself logs as best@k)."""
    return [
        (file, name.split("/")[2], int(name.split("@")[1].split("/")[0]), value)
        for file, entry in expected("verl")["own"].items()
        for name, value in entry.get("own", {}).items()
        if "/best@" in name and name.endswith("/mean")
    ]


@pytest.mark.parametrize(("file", "reward", "k", "value"), own_verl())
def test_best_of_verl_is_reproduced_and_is_not_pass_at_k(file, reward, k, value):
    result = calipers.score(FOLDER / "verl" / file, [f"bootstrap_best@{k}", f"max@{k}"], reward=reward)
    assert result[f"bootstrap_best@{k}"].value == pytest.approx(value, abs=1e-12)
    assert result[f"max@{k}"].value > value


@pytest.mark.parametrize("step", ["step_0/eval", "step_1/train", "step_2/train", "step_2/eval", "step_10/eval"])
def test_pass_at_k_of_prime_rl_is_ours_over_tasks_with_k_rollouts_left(step):
    own = expected("prime_rl")["own"][step]
    names = [f"pass{mark}{k}" for mark in "@^" for k in (1, 2, 4)]
    path = FOLDER / "prime_rl" / "rollouts" / step / "all" / "traces.jsonl"
    solver = next(g for g in calipers.score(path, [*names, "pooled_mean"]).groups if g.agent == "solver")
    for name in names:
        assert solver[name].value == pytest.approx(own[f"effective/solver/{name}"], abs=1e-12)
    assert solver["pooled_mean"].value == pytest.approx(own["effective/solver/avg@4"], abs=1e-12)


def test_verifiers_v0_counts_errors_as_zero():
    own = expected("verifiers_v0")["own"]
    path = FOLDER / "verifiers_v0" / "results.jsonl"
    names = ["pooled_mean", *(f"pass{mark}{k}(threshold=0.5)" for mark in "@^" for k in (1, 2, 4))]
    group = calipers.score(path, names, missing="zero").groups[0]
    assert group["pooled_mean"].value == pytest.approx(own["avg_reward"], abs=1e-12)
    for k in ("1", "2", "4"):
        assert group[f"pass@{k}(threshold=0.5)"].value == pytest.approx(own["pass_at_k"][k], abs=1e-12)
        assert group[f"pass^{k}(threshold=0.5)"].value == pytest.approx(own["pass_all_k"][k], abs=1e-12)


def test_promptfoo_counts_errors_as_failures():
    own = expected("promptfoo")["own"]
    groups = calipers.score(FOLDER / "promptfoo" / "results.json", "pass_rate", reward="pass", missing="zero").groups
    passed = sum(group["pass_rate"].value * group.ledger.planned for group in groups)
    assert (round(passed), sum(group.ledger.planned for group in groups)) == (own["successes"], 72)
    left = calipers.score(FOLDER / "promptfoo" / "results.json", "pass_rate", reward="pass").groups
    assert sum(group.ledger.planned - group.ledger.gaps for group in left) == 56


POSITIVE = "threshold=1e-300"  # any reward above 0


@pytest.mark.parametrize("step", [10, 20])
def test_skyrl_looks_at_the_last_token(step):
    own = expected("skyrl")["own"][f"global_step_{step}_evals"]
    folder = FOLDER / "skyrl" / "dumped_evals" / f"global_step_{step}_evals"
    reward = "last_token_score" if own["token_level_scores"] else "score"
    for group in calipers.score(folder, f"pass@4({POSITIVE})", reward=reward).groups:
        name = group.dataset.replace("/", "_")
        assert group[f"pass@4({POSITIVE})"].value == pytest.approx(own["own"][f"eval/{name}/pass_at_4"], abs=1e-12)
    for group in calipers.score(folder, "pooled_mean", reward="score").groups:
        name = group.dataset.replace("/", "_")
        assert group["pooled_mean"].value == pytest.approx(own["own"][f"eval/{name}/avg_score"], abs=1e-12)


@pytest.mark.parametrize("step", [0, 10])
def test_nemo_rl_counts_any_positive_reward(step):
    own = expected("nemo_rl")["own"][f"val_data_step{step}.jsonl"]["own"]
    names = ["pooled_mean", f"pass@4({POSITIVE})"]
    result = calipers.score(FOLDER / "nemo_rl" / f"val_data_step{step}.jsonl", names)
    assert [result[name].value for name in names] == pytest.approx([own["accuracy"], own["pass_k"]], abs=1e-12)


def test_tinker_counts_any_positive_reward():
    own = expected("tinker_cookbook")["own"]["eval/gsm8k/trajectories.jsonl"]["own"]
    names = [f"{name}({POSITIVE})" for name in ("pass_rate", "pass@1", "pass@4")]
    result = calipers.score(FOLDER / "tinker_cookbook" / "eval", names, missing="zero")
    wanted = [own["score"], own["pass_at_k"]["1"], own["pass_at_k"]["4"]]
    assert [result[name].value for name in names] == pytest.approx(wanted, abs=1e-12)


def test_openai_evals_agrees():
    result = calipers.score(FOLDER / "openai_evals" / "log_a.jsonl", "pass_rate")
    assert result["pass_rate"].value == pytest.approx(expected("openai_evals")["own"]["accuracy"], abs=1e-12)
