"""The page of a matrix: its lines at 80 and 120 columns, in Markdown, and with more models and benchmarks."""

from functools import cache

import pytest
from analyses.matrix.rows import rows_of, share, suite_rows

import calipers
from calipers.analyses.matrix.document import document
from calipers.reports import terminal
from calipers.reports.untrusted_text import width

NARROW = """\
5 benchmarks, 2 models                               mean_reward, 95 % intervals
B is better than A by 0.030 over five benchmarks.
95 % interval of the mean difference: +0.004 to +0.057.
No single benchmark decides it.

A  Claude-3.5-Sonnet-20240620
B  Claude-3.5-Sonnet-20241022

benchmark       tasks  A                     B                      B − A
────────────────────────────────────────────────────────────────────────────────
atcoder-easy      133  0.940 [0.885, 0.970]  0.962 [0.915, 0.984]  +0.023  ~
atcoder-hard      128  0.031 [0.012, 0.078]  0.055 [0.026, 0.109]  +0.023  ~
leetcode-easy     101  0.960 [0.902, 0.985]  0.980 [0.930, 0.995]  +0.020  ~
leetcode-hard      65  0.200 [0.120, 0.313]  0.246 [0.157, 0.364]  +0.046  ~
leetcode-medium   153  0.693 [0.615, 0.761]  0.732 [0.656, 0.796]  +0.039  ~
────────────────────────────────────────────────────────────────────────────────
macro mean        580  0.565 [0.537, 0.594]  0.595 [0.566, 0.625]  +0.030  ▲
missing                0                     0
cost                   not recorded          not recorded

▲ B better   ▼ B worse   = equivalent   ~ undecided   (paired; Holm over 5)
"""


def page(matrix, columns=80, **more):
    return terminal.render(document(matrix, **more), columns=columns)


@cache
def suite():
    return calipers.matrix(suite_rows())


@cache
def many(models, benchmarks):
    shares = {
        (f"bench-{b}", f"model-{m}"): share(0.2 + 0.1 * m, 60 + b) for m in range(models) for b in range(benchmarks)
    }
    return calipers.matrix(rows_of(shares))


def test_two_models_at_80_columns():
    assert page(suite()) == NARROW


def test_at_120_columns_the_differences_are_drawn():
    lines = page(suite(), 120).splitlines()
    head = next(line for line in lines if line.startswith("benchmark"))
    assert "95 % interval" in head
    assert "−0.1" in head
    assert "+0.2" in head
    hard = next(line for line in lines if line.startswith("atcoder-hard"))
    assert "┼" in hard
    mean = next(line for line in lines if line.startswith("macro mean"))
    assert "│" in mean  # zero is outside of its interval
    assert mean.endswith("▲")
    assert max(map(len, lines)) == 120


@pytest.mark.parametrize("columns", [80, 100, 120, 200])
@pytest.mark.parametrize("models", [1, 2, 3, 4, 6])
def test_a_page_keeps_to_its_width_and_to_25_lines(models, columns):
    lines = page(many(models, 5), columns).splitlines()
    assert max(map(len, lines)) <= (80 if columns < 110 else 120)
    assert len(lines) <= 25


def test_long_names_of_benchmarks_lose_their_middle():
    rows = [{**row, "dataset": f"a-very-long-prefix-of-a-benchmark-{row['dataset']}"} for row in suite_rows()]
    text = page(calipers.matrix(rows))
    assert max(map(len, text.splitlines())) <= 80
    assert "…" in text
    assert "…ode-easy " in text


def test_short_names_stand_over_their_columns():
    text = page(many(2, 3))
    assert "A model-0" in text
    assert "\nA  " not in text
    assert "model-1 is better than model-0 by 0.104 over three benchmarks." in text


def test_one_model_has_a_column_and_the_mean():
    text = page(many(1, 5))
    assert "model-0 scores 0.210 over five benchmarks." in text
    assert "macro mean" in text
    assert "B − A" not in text
    assert "▲" not in text


def test_three_models_have_no_difference_column_and_a_mark_on_the_best():
    text = page(many(3, 4))
    assert "B − A" not in text
    marked = [line for line in text.splitlines() if "▲" in line]
    assert marked[-1].startswith("▲ better than every other model   (paired; Holm over 12)")
    assert all(line.rstrip().endswith("▲") for line in marked[:-1])


def test_more_models_are_turned_and_the_leaderboard_is_named():
    text = page(many(6, 5), where="runs/")
    lines = text.splitlines()
    first = next(number for number, line in enumerate(lines) if line.startswith("model "))
    assert lines[first + 2].startswith("model-5")
    assert "calipers leaderboard runs/" in text


def test_many_benchmarks_are_cut_unless_all_are_asked_for():
    matrix = many(2, 20)
    assert "… 9 more benchmarks: --all" in page(matrix)
    assert "… 9 more benchmarks: --details" in page(matrix, option="--details")
    whole = page(matrix, every=True)
    assert "more:" not in whole
    assert whole.count("\nbench-") == 20


@pytest.mark.parametrize(
    "name", ["m{}", "a-name-of-a-model-that-has-many-parts-and-more-parts-{:02d}", "模型-🚀-é-模型-{}"]
)
@pytest.mark.parametrize(("models", "benchmarks"), [(1, 30), (2, 1), (2, 12), (3, 5), (4, 5), (4, 12), (5, 2), (30, 1)])
def test_a_page_has_at_most_25_lines_of_80_columns(name, models, benchmarks):
    shares = {(f"b{b}", name.format(m)): share(0.3 + 0.01 * m, 40) for m in range(models) for b in range(benchmarks)}
    matrix = calipers.matrix(rows_of(shares))
    lines = page(matrix).splitlines()
    assert len(lines) <= 25
    assert max(map(width, lines)) <= 80
    every = page(matrix, every=True)
    assert "--all" not in every


def test_one_benchmark_has_no_mean():
    text = page(many(2, 1))
    assert "macro mean" not in text
    assert "(paired)" in text


def test_costs_and_gaps_of_a_model_are_of_all_its_benchmarks():
    rows = suite_rows()
    rows = [{**row, "cost_usd": 0.01} if row["dataset"] != "atcoder-hard" else row for row in rows]
    rows[0] = {**rows[0], "reward": None, "outcome": "client_failed"}
    lines = page(calipers.matrix(rows)).splitlines()
    assert next(line for line in lines if line.startswith("cost")).split("  ")[-1] == "$4.52 (4 of 5)"
    assert "1 of 580" in next(line for line in lines if line.startswith("missing"))


def test_markdown_has_the_same_rows_and_intervals_in_columns_of_their_own():
    text = suite().to_markdown()
    assert (
        "**Claude-3.5-Sonnet-20241022 is better than Claude-3.5-Sonnet-20240620 by 0.030 over five benchmarks.**"
        in text
    )
    assert text.count("\n| ") == 1 + 1 + 5 + 1 + 2
    assert "| macro mean | 580 | 0.565 | 0.537 to 0.594 |" in text
    assert "· ├" not in text


def test_without_utf_8_the_signs_are_ascii():
    text = terminal.render(document(suite()), columns=120, ascii_only=True)
    assert text.isascii()
    mean = next(line for line in text.splitlines() if line.startswith("macro mean"))
    assert mean.endswith(">")


def test_a_notebook_has_the_answer_the_matrix_and_its_letters():
    view = suite()._repr_html_()
    assert "is better than" in view
    assert "A Claude-3.5-Sonnet-20240620, B Claude-3.5-Sonnet-20241022." in view
    assert "No single benchmark decides it." in view
    assert len(view) < 6_000


def test_hostile_names_do_no_harm():
    rows = rows_of({("x\x1b[31m|", model): share(0.5) for model in ("<i>\u202e", "b`|")})
    matrix = calipers.matrix(rows)
    for text in (page(matrix), matrix.to_markdown(), matrix._repr_html_()):
        assert "\x1b" not in text
        assert "\u202e" not in text
    assert "<i>" not in matrix._repr_html_()


def test_differences_below_twelve_decimals_have_no_picture():
    rows = [
        {"dataset": dataset, "model": model, "task": str(task), "reward": 1e-13 * (task % size)}
        for dataset in ("d1", "d2")
        for model, size in (("a", 3), ("b", 4))
        for task in range(30)
    ]
    for report in (calipers.matrix(rows), calipers.compare(rows)):  # the rounded ends of their axis are equal
        assert "<svg" not in report._repr_html_()
        assert terminal.render(report.page(), columns=150)


@pytest.mark.parametrize(
    ("gains", "word", "sentence"),
    [((0.5, -0.5), "undecided", "Each benchmark is decided alone."), ((0.5, 0.5), "better", "alone, too.")],
)
def test_benchmarks_are_decided_too_only_if_their_mean_is(gains, word, sentence):
    parts = {f"part-{n}": (60, 10, 0, 30) if gain > 0 else (60, 10, 30, 0) for n, gain in enumerate(gains)}
    found = calipers.matrix(suite_rows(parts))
    assert found.mean.pairs[0].verdict == word
    assert sentence in page(found)


def test_the_highest_value_is_undecided_equivalent_or_not_compared():
    def rows(model, passed, tasks=60):
        return [{"dataset": "x", "task": t, "model": model, "reward": float(t < passed)} for t in range(tasks)]

    equal = [*rows("a", 30), *rows("b", 30), *rows("c", 30)]
    assert "a has the highest value, 0.500; undecided against b, c." in page(calipers.matrix(equal))
    assert "a has the highest value, 0.500; equivalent to b, c." in page(calipers.matrix(equal, margin=0.3))
    finished = calipers.score(rows("c", 50))
    assert "0.833; not compared with every other." in page(calipers.matrix(equal[:120], finished))
