"""Simulate honest runs and cheats for `calipers audit`: how often it finds anything, and how often it finds the cheat.

    python -m bench.simulations.audit [RUNS] [POWER_RUNS]

A run has 125 tasks with 8 samples each. Each cheat has a stated size. The tests are in `tests/analyses/test_audit.py`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np

from calipers.analyses.audit import Audit, AuditEvidence, audited, rows_of

TASKS, SAMPLES = 125, 8
Record = dict[str, Any]
Rng = np.random.Generator


def honest(rng: Rng, *, spread: float = 0.2, letters: bool = False, tasks: int = TASKS) -> list[Record]:
    """An honest run at temperature 1: fresh texts, starts in planned order, durations to the millisecond."""
    chances = rng.beta(0.8, 0.8, tasks)
    records, clock = [], 0.0
    for task in range(tasks):
        usual = float(rng.lognormal(1.0, 0.5))
        for sample in range(SAMPLES):
            clock += float(rng.exponential(0.2))
            passed = bool(rng.random() < chances[task])
            latency = round(max(0.3, usual * (1 + spread * rng.standard_normal())), 3)
            text = rng.choice(list("ABCD")) if letters else _text(rng)
            records.append(_record(task, sample, passed, str(text), clock, latency))
    return records


def _text(rng: Rng, words: int = 60) -> str:
    return " ".join(f"w{number}" for number in rng.integers(0, 5000, words))


def _record(task: int, sample: int, passed: bool, text: str, start: float, latency: float) -> Record:
    usage = {"output_tokens": max(len(text) // 4, 1), "latency_s": latency}
    return {
        "task": f"t{task}", "sample": sample, "reward": float(passed), "outcome": "scored", "completion": text,
        "usage": usage, "started_at": start, "finished_at": start + latency, "seed": 1000 * task + sample,
        "request_id": f"r{task}-{sample}-{text[:20]}-{start:.3f}", "max_tokens": 4096,
    }  # fmt: skip


def temperature_zero(rng: Rng) -> list[Record]:
    """Every sample of a task has the same text and the same reward; durations spread by 20 %."""
    records = honest(rng)
    first = {record["task"]: record for record in reversed(records)}
    return [
        {**each, "completion": first[each["task"]]["completion"], "reward": first[each["task"]]["reward"]}
        for each in records
    ]


def letters(rng: Rng) -> list[Record]:
    """Answers of one letter."""
    return honest(rng, letters=True)


def replayed(rng: Rng) -> list[Record]:
    """A replayed log: completions in a few milliseconds, from a log at temperature 0."""
    return [
        {**each, "usage": {**each["usage"], "latency_s": round(float(rng.exponential(0.002)), 3)}, "request_id": None}
        for each in temperature_zero(rng)
    ]


def cached(rng: Rng) -> list[Record]:
    """A cache answers nine of ten samples, with the request id and the text of the first, in a millisecond or two."""
    records = temperature_zero(rng)
    ids = {each["task"]: each["request_id"] for each in reversed(records)}
    kept = []
    for each in records:
        if each["sample"] and rng.random() < 0.9:
            usage = {**each["usage"], "latency_s": round(float(rng.uniform(0, 0.003)), 3)}
            each = {**each, "usage": usage, "request_id": ids[each["task"]]}
        kept.append(each)
    return kept


def rate_limited(rng: Rng) -> list[Record]:
    """A tenth of the requests meet a 429: some are repeated at once, others fail and are run again later."""
    kept = []
    for each in honest(rng):
        draw = rng.random()
        if draw < 0.07:
            each = {
                **each,
                "retries": 1,
                "started_at": each["started_at"] + 30,
                "finished_at": each["finished_at"] + 30,
            }
        elif draw < 0.1:
            failed = {**each, "outcome": "client_failed", "request_id": None, "completion": None}
            failed.pop("reward")
            kept.append(failed)
            each = {
                **each,
                "attempt": 2,
                "started_at": each["started_at"] + 600,
                "finished_at": each["finished_at"] + 600,
            }
        kept.append(each)
    return kept


def ties(rng: Rng) -> list[Record]:
    """Starts in whole seconds, graded rewards of five steps, durations in tenths of a second."""
    kept = []
    for each in honest(rng):
        usage = {**each["usage"], "latency_s": round(each["usage"]["latency_s"], 1)}
        reward = 1.0 if each["reward"] else float(rng.integers(0, 4)) / 4
        kept.append({**each, "reward": reward, "started_at": float(int(each["started_at"])), "usage": usage})
    return kept


def gaps(rng: Rng) -> list[Record]:
    """A twentieth of the rollouts failed outside the model and are recorded as such."""
    kept = []
    for each in honest(rng):
        if rng.random() < 0.05:
            each = {**each, "outcome": "client_failed", "completion": None}
            each.pop("reward")
        kept.append(each)
    return kept


REAL: Mapping[str, Callable[[Rng], list[Record]]] = {
    "temperature 0": temperature_zero,
    "temperature 1": honest,
    "one-letter answers": letters,
    "replayed log": replayed,
    "cached log": cached,
    "retries after 429": rate_limited,
    "ties": ties,
    "recorded gaps": gaps,
}


def _by_task(records: list[Record], share: float, rng: Rng) -> tuple[dict[str, list[Record]], set[str]]:
    tasks: dict[str, list[Record]] = {}
    for each in records:
        tasks.setdefault(each["task"], []).append(each)
    some = rng.choice(list(tasks), round(share * len(tasks)), replace=False)
    return tasks, set(some.tolist())


def until_passed(rng: Rng, share: float = 0.5) -> list[Record]:
    """Half of the tasks: up to 8 more samples, until one passes; the seeds and ids are made to fit."""
    tasks, cheated = _by_task(honest(rng), share, rng)
    for name in cheated:
        chance = float(np.mean([each["reward"] for each in tasks[name]])) * 0.8 + 0.1
        for _ in range(8):
            if tasks[name][-1]["reward"]:
                break
            last = tasks[name][-1]
            sample = last["sample"] + 1
            more = _record(
                int(name[1:]), sample, bool(rng.random() < chance), _text(rng), last["started_at"] + 0.1, 1.001
            )
            tasks[name].append({**more, "seed": last["seed"] + 1})
    return [each for some in tasks.values() for each in some]


def stopped(rng: Rng, share: float = 0.5) -> list[Record]:
    """Half of the tasks: no more samples after the first pass."""
    tasks, cheated = _by_task(honest(rng), share, rng)
    for name in cheated:
        first = next((at for at, each in enumerate(tasks[name]) if each["reward"]), SAMPLES - 1)
        tasks[name] = tasks[name][: first + 1]
    return [each for some in tasks.values() for each in some]


def run_again(rng: Rng, share: float = 0.5) -> list[Record]:
    """Half of the tasks: failures are run again once at the end, and the record is silently replaced."""
    records = honest(rng)
    tasks, cheated = _by_task(records, share, rng)
    end = records[-1]["started_at"] + 60
    for name in cheated:
        chance = float(np.mean([each["reward"] for each in tasks[name]]))
        for each in tasks[name]:
            if not each["reward"]:
                late = end + 60 * rng.random()
                each |= {"reward": float(rng.random() < chance), "started_at": late, "finished_at": late + 1}
    return records


def copies(rng: Rng, count: int = 10) -> list[Record]:
    """Temperature 0, and 10 records that are copies of another sample of their task, duration included."""
    records = temperature_zero(rng)
    for at in rng.choice(np.arange(1, len(records)), count, replace=False).tolist():
        at = at if records[at]["sample"] else at + 1
        records[at]["usage"] = {**records[at - 1]["usage"]}
    return records


def same_draws(rng: Rng) -> list[Record]:
    """Temperature 1 with log-probabilities that say that no text comes twice: 3 texts do."""
    records = [{**each, "completion_logprob": -float(rng.uniform(60, 200))} for each in honest(rng)]
    for at in rng.choice(np.arange(1, TASKS), 3, replace=False).tolist():
        records[SAMPLES * at + 1]["completion"] = records[SAMPLES * at]["completion"]
    return records


def _two(rng: Rng) -> tuple[int, int]:
    one, other = rng.choice(TASKS, 2, replace=False).tolist()
    return SAMPLES * one, SAMPLES * other


def answer_elsewhere(rng: Rng) -> list[Record]:
    """One passing completion of 300 characters is handed in for another task, and passes."""
    records = honest(rng)
    one, other = _two(rng)
    records[one] |= {"completion": _text(rng, 80), "reward": 1.0}
    records[other] |= {"completion": records[one]["completion"], "reward": 1.0}
    return records


def failures_removed(rng: Rng) -> list[Record]:
    """One failure in the middle of a task is removed."""
    records = honest(rng)
    failed = [at for at, each in enumerate(records) if not each["reward"] and 0 < each["sample"] < SAMPLES - 1]
    del records[int(rng.choice(failed))]
    return records


def seeds_skipped(rng: Rng) -> list[Record]:
    """In one task three draws were thrown away: its seeds skip them."""
    records = honest(rng)
    at, _ = _two(rng)
    for place in range(at + 4, at + SAMPLES):
        records[place]["seed"] += 3
    return records


def backwards(rng: Rng) -> list[Record]:
    """One made-up record ends before it starts."""
    records = honest(rng)
    at, _ = _two(rng)
    records[at]["finished_at"] = records[at]["started_at"] - 1
    return records


def too_fast(rng: Rng) -> list[Record]:
    """One made-up record has 40,000 tokens in two seconds."""
    records = honest(rng)
    at, _ = _two(rng)
    records[at] |= {"usage": {"output_tokens": 40_000, "latency_s": 2.113}, "max_tokens": 64_000}
    return records


def too_long(rng: Rng) -> list[Record]:
    """One record has more output tokens than max_tokens: it was made with other settings."""
    records = honest(rng)
    at, _ = _two(rng)
    records[at]["usage"] = {"output_tokens": 5000, "latency_s": 41.207}
    return records


def replaced(rng: Rng) -> list[Record]:
    """One scored failure has a second attempt, which passes."""
    records = honest(rng)
    at = int(rng.choice([at for at, each in enumerate(records) if not each["reward"]]))
    again = {**records[at], "attempt": 2, "reward": 1.0, "completion": _text(rng), "request_id": "again"}
    return [*records, again]


def reused_id(rng: Rng) -> list[Record]:
    """Two records have one request id and different completions."""
    records = honest(rng)
    one, other = _two(rng)
    records[one]["request_id"] = records[other]["request_id"]
    return records


def oracle(rng: Rng) -> list[Record]:
    """One completion has the reference solution word by word."""
    records = honest(rng)
    for each in records:
        each["target"] = f"solution of {each['task']} " + "x" * 200
    at, _ = _two(rng)
    records[at]["completion"] = f"ls\n{records[at]['target']}\ndone"
    return records


CHEATS: Mapping[str, tuple[Callable[[Rng], list[Record]], str, float]] = {  # name -> (run, rule, least power)
    "samples added until one passes, half of the tasks": (until_passed, "last_is_pass", 0.99),
    "stopped at the first pass, half of the tasks": (stopped, "last_is_pass", 0.9),
    "failures silently run again, half of the tasks": (run_again, "start_follows_outcome", 0.95),
    "10 copied records at temperature 0": (copies, "copied_records", 0.95),
    "3 texts twice, with log-probabilities": (same_draws, "same_text", 1.0),
    "1 answer handed in for another task": (answer_elsewhere, "same_text_elsewhere", 1.0),
    "1 failure removed": (failures_removed, "ledger", 1.0),
    "1 task with seeds thrown away": (seeds_skipped, "seeds", 1.0),
    "1 record that ends before it starts": (backwards, "times", 1.0),
    "1 record faster than any server": (too_fast, "token_rate", 1.0),
    "1 record longer than max_tokens": (too_long, "tokens", 1.0),
    "1 failure replaced by a second attempt": (replaced, "attempts", 1.0),
    "1 request id with two completions": (reused_id, "requests", 1.0),
    "1 completion with the reference solution": (oracle, "gold_text", 1.0),
}

DOSES = (0.05, 0.1, 0.2, 0.5)


def look(records: list[Record], seed: int = 0) -> Audit:
    """The audit of these records."""
    return audited(AuditEvidence(list(rows_of(records)), seed=seed))


def share_found(make: Callable[[Rng], list[Record]], runs: int, rule: str | None = None, seed: int = 0) -> float:
    """The share of runs with a finding of this rule, or with any."""
    count = 0
    for run in range(runs):
        findings = look(make(np.random.default_rng([seed, run])), run).findings
        count += any(rule in (None, each.rule) for each in findings)
    return count / runs


def main(runs: int, power: int) -> None:
    """Print both tables."""
    print(f"{TASKS} tasks x {SAMPLES} samples\n")
    print("| honest run | runs | with any finding |\n|---|---|---|")
    print(f"| simulated | {runs} | {share_found(honest, runs):.1%} |")
    each = max(100 // len(REAL) + 1, runs // 20)
    for name, make in REAL.items():
        print(f"| {name} | {each} | {share_found(make, each, seed=1):.1%} |")
    print("\n| cheat | rule | found |\n|---|---|---|")
    for name, (make, rule, _) in CHEATS.items():
        print(f"| {name} | {rule} | {share_found(make, power, rule, seed=2):.1%} |")
    print(
        "\n| share of tasks cheated | "
        + " | ".join(f"{dose:.0%}" for dose in DOSES)
        + " |\n|---|"
        + "---|" * len(DOSES)
    )
    shares: Mapping[Callable[..., list[Record]], str] = {
        until_passed: "last_is_pass",
        stopped: "last_is_pass",
        run_again: "start_follows_outcome",
    }
    for cheat, rule in shares.items():
        found = [share_found(partial(cheat, share=dose), power, rule, seed=3) for dose in DOSES]
        words = (cheat.__doc__ or "").replace("Half of the tasks: ", "").rstrip(".")
        print(f"| {words} | " + " | ".join(f"{each:.0%}" for each in found) + " |")


if __name__ == "__main__":
    main(*(int(text) for text in (sys.argv[1:] or ["500", "200"])))
