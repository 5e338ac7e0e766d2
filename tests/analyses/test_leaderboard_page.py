"""The page of a leaderboard: its lines at several widths, its sentences, and hostile names."""

import csv
import io
import json
import re

import pytest
from analyses.leaderboard_rows import MODELS, problem_rows
from analyses.test_leaderboard import rows_of, spread

import calipers
from calipers.analyses.leaderboard import Board, Standing, document, sentences, tie_lanes, tie_letters
from calipers.reports.csv import render as as_csv
from calipers.reports.terminal import render
from calipers.reports.untrusted_text import width, without_middle

HOSTILE = [
    "<script>x</script>",
    "\x1b[31mred",
    "a|b`c",
    "::error::x",
    "=HYPERLINK(1)",
    "名" * 60,
    "x" * 500,
    "y\u202ez",
]


@pytest.fixture(scope="module")
def report():
    return calipers.leaderboard(problem_rows())


def test_the_page_is_25_lines_of_80_columns_and_the_table_begins_at_once(report):
    lines = render(report.page(), columns=80).splitlines()
    assert len(lines) == 25
    assert max(map(width, lines)) == 80
    assert lines[0].startswith("lcb-repair, 17 models   ")
    assert lines[0].endswith("   mean_reward, 713 tasks, 95 % confidence")
    assert lines[1] == "O1-Mini-2024-09-12 is first of 17: 0.696 (0.660 to 0.729)."
    assert lines[2] == "16 of 136 pairs are ties. As the pick of 17 it is less than 0.001 too good."
    assert lines[4].split() == ["tied", "#", "model", "value", "95", "%", "interval", "may", "rank"]
    assert lines[6].split() == ["1", "O1-Mini-2024-09-12", "0.696", "0.660", "to", "0.729", "1"]
    assert lines[11:13] == [
        "│┌     6  GPT-4O-2024-05-13           0.491  0.454 to 0.528  5 to 8",
        "└│┌    7  GPT-4O-2024-08-06           0.477  0.440 to 0.514  5 to 10",
    ]
    assert lines[24] == 'Models joined under "tied" cannot be told apart. Every pair: --pairs'


def test_from_110_columns_on_intervals_are_drawn(report):
    narrow, wide = (render(report.page(), columns=columns).splitlines() for columns in (109, 110))
    assert not any("●" in line for line in narrow)
    assert sum("●" in line for line in wide) == 17
    assert "0                              1" in wide[4]
    assert max(map(width, wide)) <= 110


def test_bars_join_exactly_what_is_tied_with_its_neighbours(report):
    board = report.boards[0]
    lanes = tie_lanes(board)
    for first, last in board.bars:
        lane = [position for position in range(len(lanes[first])) if lanes[first][position] == "┌"]
        assert any(
            lanes[last][position : position + 1] == "└"
            and all(lanes[place][position : position + 1] == "│" for place in range(first + 1, last))
            for position in lane
        )
    assert sum(text.count("┌") for text in lanes) == sum(text.count("└") for text in lanes) == len(board.bars)


def test_without_utf_8_letters_stand_for_the_bars(report):
    lines = render(report.page(), columns=80, ascii_only=True)
    assert lines.isascii()
    assert "?" not in lines
    rows = {line.split()[1 if line[0] == " " else 2]: line[:4].strip() for line in lines.splitlines()[6:23]}
    letters = dict(zip([place.name for place in report.boards[0].places], tie_letters(report.boards[0]), strict=True))
    assert list(rows.values()) == list(letters.values())
    assert rows["GPT-4O-2024-08-06"] == "abc"


def board_of(bars, count):
    return Board("d", "m", True, 9, 0, [place(n, bars) for n in range(count)], bars=bars)


def place(number, bars):
    ties = {other for first, last in bars if first <= number <= last for other in range(first, last + 1)} - {number}
    return Standing(f"m{number}", "", None, None, 0.5, None, 0, 9, place=number + 1, tied_with=[f"m{n}" for n in ties])


def test_more_than_four_lanes_are_numbers():
    four, five = ([(first, first + lanes - 1) for first in range(6)] for lanes in (4, 5))
    assert tie_lanes(board_of(four, 9))[3] == "└││┌"
    assert tie_lanes(board_of(five, 11))[4] == "tied with 8"
    assert tie_lanes(board_of(five, 11))[10] == ""
    assert tie_lanes(board_of(five, 11))[9] == "tied with 4"


def test_more_than_17_models_are_cut_unless_all_are_asked_for():
    models = {f"model-{number:02}": spread(number / 40) for number in range(37)}
    report = calipers.leaderboard(rows_of(models))
    lines = render(report.page(), columns=80).splitlines()
    assert len(lines) == 25
    assert lines[23] == "… 20 more: --all"
    assert "model-36" in lines[6]
    assert len(render(document(report, every=True), columns=80).splitlines()) == 8 + 37
    assert len(report.rows()) == 37
    pairs = render(document(report, pairs=True), columns=80).splitlines()
    assert sum(line.startswith("model-") for line in pairs[25:]) == 37 * 36 / 2


def test_a_tie_on_top_says_so():
    tied = {"a": spread(0.52), "b": spread(0.5), "c": spread(0.1), "d": spread(0.02)}
    first, second = sentences(calipers.leaderboard(rows_of(tied)).boards[0])
    assert first == "a leads 4 models, tied with 1 of them."
    assert second.startswith("2 of 6 pairs are ties. As the pick of 4 it is about 0.0")
    both = sentences(calipers.leaderboard(rows_of({"a": spread(0.52), "b": spread(0.5)})).boards[0])
    assert both[0] == "a leads 2 models, tied with the other."
    assert both[1].startswith("The only pair is a tie. As the pick of 2 it is about 0.0")


def test_cost_and_missing_stand_there_where_there_are_any(report):
    assert "cost" not in str(report).split()
    assert "missing" not in str(report).split()
    rows = [{**row, "cost_usd": 0.01} for row in rows_of({"a": spread(0.9), "b": spread(0.2)})]
    rows[0] = {**rows[0], "reward": None, "outcome": "client_failed"}
    head, _, first, second = str(calipers.leaderboard(rows)).splitlines()[4:8]
    assert head.split()[-2:] == ["cost", "missing"]
    assert first.split()[-2:] == ["$0.60", "1"]
    assert second.split()[-2:] == ["$0.60", "0"]
    assert "60 tasks" in str(calipers.leaderboard(rows))


def test_a_baseline_fits_80_columns(report):
    board = calipers.leaderboard(problem_rows(), baseline="Mistral-Large")
    lines = render(board.page(), columns=80).splitlines()
    assert len(lines) == 25
    assert max(map(width, lines)) <= 80
    by_model = {line.split()[-5]: line for line in lines[6:23] if "▲" in line or "▼" in line}
    assert sum("▲" in line for line in lines[6:23]) == sum(
        standing.verdict == "better" for standing in board.boards[0].places
    )
    assert by_model
    assert lines[24] == "Tied: cannot be told apart. ▲ better than the baseline, ▼ worse, ~ undecided"
    plain = render(board.page(), columns=80, ascii_only=True).splitlines()
    assert plain[24] == "Tied: cannot be told apart. > better than the baseline, < worse, ~ undecided"
    assert "| verdict |" in board.to_markdown()


def test_the_same_rows_in_every_format(report):
    board = report.boards[0]
    table = list(csv.DictReader(io.StringIO(as_csv(report.page()))))
    assert [row["model"] for row in table] == [place.name for place in board.places]
    assert table[6]["rank_set"] == "5 to 10"
    assert table[6]["tied_with"].split("; ") == list(board.places[6].tied_with)
    assert [row["ties"] for row in table] == tie_letters(board)
    data = json.loads(report.to_json())
    assert data["schema"] == "calipers.leaderboard/1"
    assert data["boards"][0]["places"][6]["rank_set"] == [5, 10]
    assert data["boards"][0]["places"][6]["tier"] == int(table[6]["tier"])
    assert len(data["boards"][0]["pairs"]) == 136
    markdown = report.to_markdown()
    assert all(f"| `{name}` |" in markdown for name in MODELS)
    assert "| abc | 7 | `GPT-4O-2024-08-06` | 0.477 | 0.440 to 0.514 | 5 to 10 |" in markdown
    assert calipers.Leaderboard.from_json(report.to_json()).to_json() == report.to_json()


def test_names_of_others_do_no_harm():
    report = calipers.leaderboard(rows_of({name: spread(0.1 + 0.1 * n) for n, name in enumerate(HOSTILE)}))
    page = render(report.page(), columns=80)
    assert max(map(width, page.splitlines())) <= 80
    assert not {"\x1b", "\u202e"} & set(page + report.to_markdown() + as_csv(report.page()) + report._repr_html_())
    assert "<script>" not in report._repr_html_()
    assert "<script>" not in report.to_markdown().replace("`<script>x</script>`", "")
    assert "'=HYPERLINK(1)" in as_csv(report.page())
    assert {place.name for place in report.boards[0].places} == set(HOSTILE)


def test_long_names_lose_their_middle_and_stay_apart():
    names = [f"{'x' * 30}-{letter}-{'y' * 30}" for letter in "ab"]
    short = without_middle(names, 21)
    assert len(set(short)) == 2
    assert without_middle(["名" * 30], 21) == ["名" * 6 + "…" + "名" * 4]
    assert without_middle(["a", "a"], 21) == ["a", "a"]


def test_unranked_models_have_their_reason_below(tmp_path):
    result = calipers.score(rows_of({"c": spread(0.7)}))
    lines = render(calipers.leaderboard(rows_of({"a": spread(0.9), "b": spread(0.3)}), result).page(), columns=80)
    assert "      –  c      0.700  0.574 to 0.802  –" in lines
    assert "Not ranked: c: a finished result without its rollouts: ranks compare models task\n  by task." in lines
    few = render(calipers.leaderboard(rows_of({"a": [1, 1], "b": [0, 1]})).page(), columns=80)
    assert "No model is ranked: 2 tasks or clusters are too few for ranks: by chance all may" in few
    assert "may rank" not in few


@pytest.mark.parametrize("pairs", [False, True])
@pytest.mark.parametrize("baseline", [None, "organisation-2222222-instruct-v2"])
def test_long_names_that_differ_in_their_middle_fit_beside_all_columns(pairs, baseline):
    rows = [
        {"task": f"t{t}", "model": f"organisation-{7 * str(n)}-instruct-v2", "reward": t % 7 < n, "usage": usage}
        for t in range(30)
        for n in range(2, 6)
        for usage in [{"cost_usd": 12.01}]
    ]
    rows += [{"task": "t1", "sample": 1, "model": row["model"], "outcome": "client_failed"} for row in rows[:4]]
    page = render(document(calipers.leaderboard(rows, baseline=baseline), pairs=pairs), columns=80)
    assert max(map(width, page.splitlines())) <= 80
    assert "missing" in page
    assert all(4 * str(n) in line for n, line in zip((5, 4, 3, 2), page.splitlines()[6:], strict=False))


def test_leaderboards_of_several_benchmarks_fit_a_page():
    rows = [
        {"dataset": f"d{dataset}", "model": f"m{model}", "task": f"t{task}", "reward": float((task + model) % 3 > 0)}
        for dataset in range(5)
        for model in range(8)
        for task in range(12)
    ]
    report = calipers.leaderboard(rows)
    lines = render(document(report)).splitlines()
    assert len(lines) <= 25
    assert lines[-1] == "… 3 more benchmarks: --all"
    assert "more benchmark" not in render(document(report, every=True))


def test_differences_of_values_in_the_thousands_have_no_decimals():
    rows = [
        {"task": task, "model": model, "reward": 1000.0 * (task % 7) + extra * (task % 3)}
        for model, extra in (("a", 0), ("b", 500))
        for task in range(40)
    ]
    page = render(document(calipers.leaderboard(rows, baseline="a")))
    assert "+488 " in page
    assert re.search(r"\[\+?\d+, \+\d+\]", page)
