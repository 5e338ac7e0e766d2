"""The bench of draws: what it times, and what it says of the figures."""

import json

from bench.draws import DRAWS, TITLES, Drawn, _turned, draws_section


def test_a_target_is_met_or_missed_one_by_one_and_together():
    found = [
        Drawn("bootstrap of a mean", 1_319, 0.3, 0.2),
        Drawn(TITLES["flips"], 100_000, 0.5, 1.0),
        Drawn(TITLES["paired"], 100_000, 4.6, None),
    ]
    text = draws_section(found)
    assert "| 1,319 | 0.30 | <= 0.2 s: **missed** |" in text
    assert "| 100,000 | 0.50 | <= 1 s: met |" in text
    assert "together take 5.10 s (target: < 5 s: **missed**)" in text


def test_each_kind_of_draws_is_one_that_runs():
    assert DRAWS.keys() == TITLES.keys()
    for make in DRAWS.values():
        assert make(50)() is not None


def test_the_second_run_is_the_first_but_for_one_rollout_in_twenty():
    lines = [f'{{"task":"t","sample":{n},"reward":{n % 2}.0}}\n' for n in range(2_000)]
    turned = [json.loads(line) for line in _turned(iter(lines))]
    changed = sum(row["reward"] != row["sample"] % 2 for row in turned)
    assert [row["sample"] for row in turned] == list(range(2_000))
    assert 60 <= changed <= 140
