"""The what-if panel: what its script computes is what the command prints, and what it shows is what was computed."""

import json
import random
import subprocess
import sys
from importlib.resources import files

import pytest
import scipy.stats

import calipers
from calipers.analyses.compare.compare import compare
from calipers.pipeline import read
from calipers.web.gather import gather
from calipers.web.island import Settings, of_pair, of_run, what_if_data, what_if_section
from calipers.web.markup import Markup
from calipers.web.page import Page, html

ARITH, NEXT = (str(files("calipers") / "examples" / name) for name in ("arith.jsonl", "arith_next.jsonl"))
METRICS = ["mean_reward", "pass_rate", "solved_rate", "pass@1", "pass@2", "pass@4", "pass^2", "pass^3"]
SIX_DIGITS = 1e-6


@pytest.fixture(scope="module")
def compute(browser, tmp_path_factory):
    """``compute(island, changes)``: what the script makes of an island under each change."""
    path = tmp_path_factory.mktemp("script") / "page.html"
    path.write_text(f"<script>{(files('calipers.web') / 'assets' / 'what_if.js').read_text()}</script>")
    page = browser.new_page()
    page.goto(path.as_uri())
    yield lambda island, changes: page.evaluate(
        "([island, changes]) => changes.map((change) => whatIf.compute(island, change))", [island, changes]
    )
    page.close()


def change_of(island, text, *, missing="gap", threshold=1.0, drop=None, cluster=None):
    """The change that the switches make of a metric of the island."""
    metric = next(each for each in island["metrics"] if each["text"] == text)
    return {"metric": {**metric, "threshold": threshold}, "missing": missing, "drop": drop, "cluster": cluster}


def asked(text, threshold):
    """The metric as the command takes it."""
    return text if threshold == 1 or text == "mean_reward" else f"{text}(threshold={threshold})"


def same(shown, value, interval):
    """Whether the script found this value and interval, to six digits; None where there is none."""
    numbers = [value, *(interval or [])]
    found = [shown["value"], *(shown["interval"] or [])]
    assert [number is None for number in found] == [number is None for number in numbers], (shown, numbers)
    for one, other in zip(found, numbers, strict=True):
        assert one is None or one == pytest.approx(other, rel=SIX_DIGITS, abs=1e-12)


def rows_of(rng, *, tasks, samples, rewards, missing, level, uneven=False):
    """Rollouts of a random run: each task has its own chance of a good reward."""
    rows = []
    for task in range(tasks):
        chance = rng.choice([0, 0.2, 0.5, 0.9, 1])
        for sample in range(rng.randint(1, samples) if uneven else samples):
            row = {"task": f"t{task:03}", "sample": sample, "level": level[task], "topic": f"x{task // 3}"}
            if rng.random() < missing:
                row["outcome"] = "client_failed"
            else:
                row["reward"] = rewards[-1] if rng.random() < chance else rng.choice(rewards)
            rows.append(row)
    return rows


def table_of(rng):
    """The settings of a random table, among them what is hard: one task, one sample, all alike, no range."""
    tasks = rng.choice([1, 2, 3, 5, 12, 40])
    return {
        "tasks": tasks,
        "samples": rng.choice([1, 1, 2, 4, 8]),
        "rewards": rng.choice([[0, 1], [0, 1], [1], [0], [0, 0.5, 1], [0.1, 0.2, 0.3, 0.7], [-1, 2], [0, 0.5, 0.8, 1.5]]),
        "missing": rng.choice([0, 0, 0.1, 0.4]),
        "level": [rng.choice(["easy", "hard"]) for _ in range(tasks)],
        "uneven": rng.random() < 0.3,
    }


def changes_of(rng, rows):
    """Settings of the switches, and the same as arguments of `score` and `compare`."""
    levels = sorted({row["level"] for row in rows})
    for _ in range(4):
        text = rng.choice(METRICS)
        missing = rng.choice(["gap", "zero"])
        threshold = rng.choice([1.0, 1.0, 0.5, 0.2])
        drop = rng.choice([None, levels[0]]) if len(levels) > 1 else None
        cluster = rng.choice([None, "topic"]) if len({row["topic"] for row in rows}) > 1 else None
        switches = {
            "missing": missing,
            "threshold": threshold,
            "cluster": cluster,
            "drop": drop and {"key": "level", "value": drop},
        }
        exclude = [f"level={drop}"] if drop else []
        yield text, switches, {"missing": missing, "cluster": cluster, "exclude": exclude}


@pytest.mark.parametrize("seed", range(20))
def test_a_score_is_that_of_the_command(seed, compute):
    rng = random.Random(seed)
    for _ in range(10):
        rows = rows_of(rng, **table_of(rng))
        if not any("reward" in row for row in rows):
            continue
        rollouts = read(rows, labels=["level", "topic"])
        result = calipers.score(rollouts, METRICS)
        island = of_run(rollouts, result, result.groups[0], Settings([], keys=["level", "topic"]))
        for text, switches, settings in changes_of(rng, rows):
            if settings["exclude"] and not island["slices"]:
                continue
            name = asked(text, switches["threshold"])
            expected = calipers.score(rollouts, name, **settings)[name]
            (shown,) = compute(island, [change_of(island, text, **switches)])
            same(shown, expected.value, expected.interval)
            assert shown["tasks"] == expected.tasks
            assert shown.get("method") == expected.method


@pytest.mark.parametrize("seed", range(20))
def test_a_difference_and_its_verdict_are_those_of_the_command(seed, compute):
    rng = random.Random(1000 + seed)
    for _ in range(10):
        table = table_of(rng)
        first, second = (rows_of(rng, **table | {"uneven": rng.random() < 0.2}) for _ in range(2))
        if rng.random() < 0.15:
            second = first  # no task differs
        if not all(any("reward" in row for row in rows) for rows in (first, second)):
            continue
        old, new = (read(rows, labels=["level", "topic"]) for rows in (first, second))
        comparison = compare(old, new, metrics=METRICS)
        pair = comparison.contests[0].pairs[0]
        island = of_pair((old, new), ("A", "B"), comparison, pair, Settings([], keys=["level", "topic"]))
        for text, switches, settings in changes_of(rng, first):
            name = asked(text, switches["threshold"])
            expected = compare(old, new, metrics=name, **settings)[name]
            (shown,) = compute(island, [change_of(island, text, **switches)])
            same(shown, expected.delta, expected.interval)
            assert shown["p"] == (expected.p and pytest.approx(expected.p, rel=SIX_DIGITS))
            assert (shown["verdict"], shown["tasks"]) == (expected.verdict, expected.tasks)


def test_students_t_has_ten_digits(compute, opened, tmp_path):
    script = (files("calipers.web") / "assets" / "what_if.js").read_text()
    (tmp_path / "page.html").write_text(f"<script>{script}</script>")
    page = opened(tmp_path / "page.html")
    cases = [(t, freedom) for t in (0.0, 0.1, 1.0, 2.5, 3.0, 7.0, 30.0) for freedom in (1, 1.7, 3, 9.5, 39, 250, 1e4, 1e6)]
    tails = page.evaluate("(cases) => cases.map(([t, freedom]) => whatIf.upperTail(t, freedom))", cases)
    assert tails == pytest.approx([scipy.stats.t.sf(t, freedom) for t, freedom in cases], rel=1e-9)
    quantiles = page.evaluate("(all) => all.map((freedom) => whatIf.quantile(0.025, freedom))", [f for _, f in cases[:8]])
    assert quantiles == pytest.approx([scipy.stats.t.isf(0.025, freedom) for _, freedom in cases[:8]], rel=1e-10)
    normal = page.evaluate("[0, 0.5, 2.9, 3.1, 8].map((z) => whatIf.upperTail(z, Infinity))")
    assert normal == pytest.approx([scipy.stats.norm.sf(z) for z in (0, 0.5, 2.9, 3.1, 8)], rel=1e-12)
