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
from calipers.web.island import WhatIfSettings, pair_island, run_island, what_if_data, what_if_section
from calipers.web.markup import Markup
from calipers.web.page import HtmlPage, html
from calipers.web.report_data import report_data

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
        "rewards": rng.choice(
            [[0, 1], [0, 1], [1], [0], [0, 0.5, 1], [0.1, 0.2, 0.3, 0.7], [-1, 2], [0, 0.5, 0.8, 1.5]]
        ),
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
        result = calipers.score(rollouts, METRICS, threshold=1)
        island = run_island(rollouts, result, result.groups[0], WhatIfSettings([], keys=["level", "topic"]))
        for text, switches, settings in changes_of(rng, rows):
            if settings["exclude"] and not island["slices"]:
                continue
            name = asked(text, switches["threshold"])
            expected = calipers.score(rollouts, name, threshold=1, **settings)[name]
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
        comparison = compare(old, new, metrics=METRICS, threshold=1)
        pair = comparison.contests[0].pairs[0]
        island = pair_island((old, new), ("A", "B"), comparison, pair, WhatIfSettings([], keys=["level", "topic"]))
        for text, switches, settings in changes_of(rng, first):
            name = asked(text, switches["threshold"])
            again = compare(old, new, metrics=name, threshold=1, **settings)
            expected, observed = again[name], again.evidences[0].observed
            (shown,) = compute(island, [change_of(island, text, **switches)])
            same(shown, observed.value, observed.interval)
            assert shown["p"] == (observed.p and pytest.approx(observed.p, rel=SIX_DIGITS))
            assert shown["verdict"] == expected.as_observed
            if expected.compared_on == "all_samples":
                assert shown["tasks"] == expected.tasks


def test_students_t_has_ten_digits(compute, opened, tmp_path):
    script = (files("calipers.web") / "assets" / "what_if.js").read_text()
    (tmp_path / "page.html").write_text(f"<script>{script}</script>")
    page = opened(tmp_path / "page.html")
    cases = [
        (t, freedom) for t in (0.0, 0.1, 1.0, 2.5, 3.0, 7.0, 30.0) for freedom in (1, 1.7, 3, 9.5, 39, 250, 1e4, 1e6)
    ]
    tails = page.evaluate("(cases) => cases.map(([t, freedom]) => whatIf.upperTail(t, freedom))", cases)
    assert tails == pytest.approx([scipy.stats.t.sf(t, freedom) for t, freedom in cases], rel=1e-9)
    quantiles = page.evaluate(
        "(all) => all.map((freedom) => whatIf.quantile(0.025, freedom))", [f for _, f in cases[:8]]
    )
    assert quantiles == pytest.approx([scipy.stats.t.isf(0.025, freedom) for _, freedom in cases[:8]], rel=1e-10)
    normal = page.evaluate("[0, 0.5, 2.9, 3.1, 8].map((z) => whatIf.upperTail(z, Infinity))")
    assert normal == pytest.approx([scipy.stats.norm.sf(z) for z in (0, 0.5, 2.9, 3.1, 8)], rel=1e-12)


def written(tmp_path, *sources, **settings):
    """A page with nothing but the panel of these sources."""
    shown = report_data(sources, texts=False, **settings)
    island = what_if_data(shown)
    section = what_if_section(shown, island)
    page = HtmlPage("What if", [], Markup("<h1>Result</h1>"), [section], data={"what_if": island})
    path = tmp_path / "page.html"
    path.write_text(html(page), encoding="utf-8")
    return path


def printed(page):
    """What the command that the panel shows prints, as JSON."""
    command = page.locator(".what-if .command code").text_content()
    shell = f'calipers() {{ "{sys.executable}" -m calipers "$@"; }}; {command} --format json'
    done = subprocess.run(["bash", "-c", shell], capture_output=True, check=True, env={"LC_ALL": "C.UTF-8"})
    return json.loads(done.stdout)


def row(page, name):
    """The cells of a row of the panel, as texts."""
    cells = page.locator(".what-if tbody tr").filter(has=page.locator("b", has_text=name)).locator("td")
    return [cells.nth(number).inner_text() for number in (0, 2, 3)]


def pick(page, switch, text):
    """Click an option of a switch."""
    page.locator(f'[data-switch="{switch}"] label').filter(has_text=text).click()


def test_missing_as_zero_is_the_reference_and_the_command_prints_it(opened, tmp_path):
    page = opened(written(tmp_path, ARITH, by=["difficulty"]))
    pick(page, "missing", "count as 0")
    assert row(page, "Result") == ["0.440", "0.339 to 0.546", "40 tasks"]
    assert row(page, "What if") == ["0.422", "0.326 to 0.524", "40 tasks"]
    estimate = printed(page)["groups"][0]["metrics"]["mean_reward"]
    assert estimate["value"] == 0.421875
    assert estimate["interval"] == pytest.approx([0.326312, 0.523670], abs=5e-7)
    assert page.evaluate("location.hash") == "#w=missing:zero"


def test_k_is_a_switch_where_the_metric_has_one(opened, tmp_path):
    page = opened(written(tmp_path, ARITH))
    assert page.locator('[data-switch="k"]').is_hidden()
    pick(page, "metric", "pass@4")
    pick(page, "k", "2")
    shown = row(page, "What if")
    estimate = printed(page)["groups"][0]["metrics"]["pass@2"]
    assert shown[0] == f"{estimate['value']:.3f}"
    assert page.evaluate("location.hash") == "#w=metric:pass@4;k:2"


def test_an_address_restores_the_switches_and_a_changed_verdict_is_marked(opened, tmp_path):
    page = opened(written(tmp_path, ARITH, NEXT, by=["difficulty"]), anchor="w=missing:zero;drop:difficulty=hard")
    assert row(page, "Result") == ["+0.110", "+0.052 to +0.168", "▲ better\np = 0.0005"]
    assert row(page, "What if") == ["+0.038", "−0.054 to +0.129", "~ undecided\np = 0.40"]
    banner = page.get_by_role("status")
    assert banner.inner_text().startswith("As observed: better → undecided. Missing counted as 0; hard excluded")
    assert "changed" in banner.get_attribute("class")
    assert (
        page.locator(".what-if-strip").inner_text().startswith("What if: 2 changes. As observed: better → undecided.")
    )
    finding = printed(page)["contests"][0]["pairs"][0]["findings"][0]
    assert (finding["verdict"], finding["tasks"]) == ("undecided", 20)
    assert finding["delta"] == pytest.approx(0.0375)
    page.locator(".what-if-strip button").click()
    assert page.locator(".what-if-strip").is_hidden()
    assert page.evaluate("location.hash") == ""
    assert page.locator(".what-if tbody tr").count() == 1


def test_a_verdict_that_stays_is_said_as_plainly(opened, tmp_path):
    page = opened(written(tmp_path, ARITH, NEXT), anchor="w=missing:zero")
    assert row(page, "What if") == ["+0.091", "+0.031 to +0.150", "▲ better\np = 0.004"]
    assert page.get_by_role("status").inner_text().startswith("As observed still better. ")


def test_the_arrow_keys_move_a_switch(opened, tmp_path):
    page = opened(written(tmp_path, ARITH))
    page.locator('[data-switch="missing"] input').first.focus()
    page.keyboard.press("ArrowRight")
    assert row(page, "What if")[0] == "0.422"


def test_an_address_that_names_what_is_not_there_changes_nothing(opened, tmp_path):
    wrong = "w=missing:one;drop:difficulty=none;drop:%E0%A4%A=x;k:-1;threshold:high;metric:no;cluster:no;x"
    page = opened(written(tmp_path, ARITH, by=["difficulty"]), anchor=wrong)
    assert page.locator(".what-if tbody tr").count() == 1


def test_graded_rewards_have_thresholds_and_many_of_them_a_slider(opened, tmp_path):
    rng = random.Random(4)
    few = [{"task": n, "sample": s, "reward": rng.choice([0, 0.5, 0.8, 1])} for n in range(9) for s in range(4)]
    many = [{"task": n, "sample": s, "reward": round(rng.random(), 3)} for n in range(9) for s in range(4)]
    for rows, kind in ((few, "radio"), (many, "range")):
        path = tmp_path / f"{kind}.jsonl"
        path.write_text("\n".join(map(json.dumps, rows)))
        page = opened(written(tmp_path, str(path), metrics=["pass_rate", "pass@2"]))
        if kind == "radio":
            assert page.locator('[data-switch="threshold"] label').all_inner_texts() == ["0.5", "0.8", "1"]
            pick(page, "threshold", "0.5")
        else:
            page.locator('[data-switch="threshold"] input').focus()
            page.keyboard.press("Home")
        shown = row(page, "What if")[0]
        ((text, estimate),) = printed(page)["groups"][0]["metrics"].items()
        assert "threshold=" in text
        assert shown == f"{estimate['value']:.3f}"


def test_a_metric_without_a_closed_form_is_disabled_and_names_the_command(opened, tmp_path):
    page = opened(written(tmp_path, ARITH, metrics=["mean_reward", "max@2", "latency_p50"]))
    options = page.locator('[data-switch="metric"] input')
    assert [options.nth(n).is_disabled() for n in range(3)] == [False, True, True]
    pick(page, "missing", "count as 0")
    words = page.locator(".what-if .small").inner_text()
    assert "max@2, latency_p50. Run the command for this: calipers score" in words
    assert words.endswith("--metric max@2 --missing zero")


HOSTILE = ["<img src=x onerror=alert(1)>", 'it\'s "$(touch x)" `y` \\', "a\u202eb", "line\nend\x1b[31m", "a;b:c=d&e#f%"]


def test_hostile_names_are_text_and_words_of_the_command(opened, tmp_path):
    rows = [
        {"task": f"{n}", "sample": s, "reward": (n + s) % 2, "level": HOSTILE[n % 5]}
        for n in range(20)
        for s in range(2)
    ]
    path = tmp_path / "rows.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)))
    written_to = written(tmp_path, str(path), by=["level"])
    for value in HOSTILE:
        page = opened(written_to)
        options = page.locator('[data-switch="drop"] input')
        names = page.evaluate("JSON.parse(document.getElementById('data').textContent).what_if.slices[0].values")
        options.nth(1 + names.index(value)).check(force=True)
        assert printed(page)["groups"][0]["ledger"]["tasks"] == 16
        hash_of = page.evaluate("location.hash")
        again = opened(written_to, anchor=hash_of[1:])
        assert (
            again.locator(".what-if .command code").text_content()
            == page.locator(".what-if .command code").text_content()
        )
        assert page.locator(".what-if img").count() == 0


def test_a_page_that_does_not_find_its_own_numbers_computes_no_others(opened, tmp_path):
    path = written(tmp_path, ARITH)
    path.write_text(path.read_text().replace('"value":0.4401785714285714', '"value":0.44'))
    page = opened(path)
    assert page.locator("#what-if-panel").inner_text() == (
        "These numbers are not computed again in the page. Run the command for this."
    )


def test_print_shows_the_banner_without_the_switches(opened, tmp_path):
    page = opened(written(tmp_path, ARITH, NEXT, by=["difficulty"]), anchor="w=missing:zero;drop:difficulty=hard")
    page.emulate_media(media="print")
    assert page.get_by_role("status").is_visible()
    assert page.locator(".switches").is_hidden()


def test_the_link_and_the_command_can_be_copied(opened, tmp_path):
    page = opened(written(tmp_path, ARITH), anchor="w=missing:zero")
    for button, word in (("Copy link", "page.html#w=missing:zero"), ("Copy command", "--missing zero")):
        page.get_by_role("button", name=button).click()
        page.get_by_role("button", name="Copied").wait_for()
        page.evaluate(
            "document.body.append(document.createElement('textarea')); document.querySelector('textarea').focus()"
        )
        page.keyboard.press("Control+V")
        assert page.locator("textarea").input_value().endswith(word)
        page.evaluate("document.querySelector('textarea').remove()")


def test_without_scripts_the_command_is_named(opened, tmp_path):
    page = opened(written(tmp_path, ARITH), java_script_enabled=False)
    assert "Run the command for this: calipers score" in page.locator("#what-if").inner_text()


def test_flagged_tasks_can_be_excluded(compute):
    rollouts = read(ARITH)
    result = calipers.score(rollouts, "mean_reward")
    flagged = list(rollouts.tasks[:3])
    island = run_island(rollouts, result, result.groups[0], WhatIfSettings([], flagged=flagged))
    (shown,) = compute(island, [change_of(island, "mean_reward", drop="flagged")])
    expected = calipers.score(rollouts, "mean_reward", exclude=[f"task={task}" for task in flagged])["mean_reward"]
    same(shown, expected.value, expected.interval)


def test_the_island_of_many_tasks_is_small():
    rng = random.Random(0)
    level = [rng.choice(["easy", "hard"]) for _ in range(2500)]
    rows = rows_of(rng, tasks=2500, samples=4, rewards=[0, 1], missing=0.05, level=level)
    rollouts = read(rows, labels=["level"])
    result = calipers.score(rollouts, "mean_reward")
    island = run_island(rollouts, result, result.groups[0], WhatIfSettings([], keys=["level"]))
    assert len(json.dumps(island, separators=(",", ":"))) < 53_000


def test_what_differs_by_rounding_is_alike(compute):
    labels = ["pair"]
    alike = [{"task": f"{n}", "reward": 1.4} for n in range(3)]  # 3 times 1.4, divided by 3, is not 1.4
    rollouts = read(alike)
    result = calipers.score(rollouts, "mean_reward")
    island = run_island(rollouts, result, result.groups[0], WhatIfSettings([]))
    (shown,) = compute(island, [change_of(island, "mean_reward")])
    assert (shown["interval"], result["mean_reward"].interval) == (None, None)
    thirds = [{"task": f"{n}", "sample": s, "reward": r} for n in range(12) for s, r in enumerate((0.1, 0.2))]
    whole = [{"task": f"{n}", "sample": s, "reward": r} for n in range(12) for s, r in enumerate((0.3, 0.0))]
    steps = ((0.1, 0.7), (0.3, 0.5))  # of the two tasks of a cluster, which cancel but for rounding
    down, up = (
        [{"task": f"{n}-{i}", "pair": n, "reward": r} for n in range(9) for i, r in enumerate(pair)] for pair in steps
    )
    for first, second, cluster in ((thirds, whole, None), (down, up, "pair")):
        old, new = (read(rows, labels=labels) for rows in (first, second))
        comparison = compare(old, new, metrics="mean_reward", cluster=cluster)
        pair = comparison.contests[0].pairs[0]
        island = pair_island((old, new), ("A", "B"), comparison, pair, WhatIfSettings([], cluster, keys=labels))
        (shown,) = compute(island, [change_of(island, "mean_reward", cluster=cluster)])
        expected = comparison["mean_reward"]
        same(shown, expected.delta, expected.interval)
        assert (shown["p"], expected.p) == (1, 1)


@pytest.mark.parametrize("size", [1e200, 1e-200])
def test_rewards_beyond_the_squares_of_numbers_are_no_error(size, opened, tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_text("\n".join(json.dumps({"task": n, "reward": -size * (n + 1)}) for n in range(4)))
    assert "What if" in opened(written(tmp_path, str(path))).locator("#what-if").inner_text()


def test_tasks_that_a_file_flags_can_be_excluded_in_the_page_and_by_its_command(opened, tmp_path):
    flags = tmp_path / "flags.txt"
    flags.write_text("add-00\nadd-01\nadd-05\n")
    page = opened(written(tmp_path, ARITH, flag=flags))
    assert "3 tasks are flagged by" in page.locator("#what-if").inner_text()
    pick(page, "drop", "3 flagged tasks")
    shown = row(page, "What if")
    estimate = printed(page)["groups"][0]["metrics"]["mean_reward"]
    assert shown[0] == f"{estimate['value']:.3f}" != "0.440"
    assert shown[1] == " to ".join(f"{end:.3f}" for end in estimate["interval"])
    assert shown[2] == "37 tasks"
    assert page.evaluate("location.hash") == "#w=drop:flagged"
    page = opened(written(tmp_path, ARITH, NEXT, flag=flags), anchor="w=drop:flagged")
    finding = printed(page)["contests"][0]["pairs"][0]["findings"][0]
    assert row(page, "What if")[0] == f"{finding['delta']:+.3f}"
    assert finding["tasks"] == 37
