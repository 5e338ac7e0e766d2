import json
import re
from dataclasses import replace
from importlib.resources import files

import pytest

from calipers import score
from calipers.analyses.compare.compare import compare
from calipers.web import report
from calipers.web.markup import joined, one_line
from calipers.web.page import html
from calipers.web.pair_page import bars, changes_of, differing, pair_page, shown_changes, usual_answers
from calipers.web.report_data import PairData, report_data

ARITH, NEXT = (str(files("calipers") / "examples" / name) for name in ("arith.jsonl", "arith_next.jsonl"))


def heads(page):
    return [section.head for section in page.sections]


def words(markup):
    return re.sub(r"\s+", " ", re.sub("<[^>]*>", " ", markup))


def test_the_answer_and_its_badge_come_first():
    page = pair_page(report_data([ARITH, NEXT], by="difficulty"))
    said = words(page.top)
    assert page.title == (
        "Not decided: the missing rollouts decide (22 of 320 of next-calculator, 17 of tiny-calculator)."
    )
    assert "As seen next-calculator is better than tiny-calculator by 0.110; that holds unless" in said
    assert "~ Undecided" in said
    assert "Paired over 40 common tasks" in said
    assert "17 rollouts of A and 22 of B are missing and excluded." in said
    assert "B is worse" in said


def test_the_slices_say_their_verdicts_and_what_would_decide():
    page = pair_page(report_data([ARITH, NEXT], by="difficulty"))
    section = next(section for section in page.sections if section.head == "By difficulty")
    assert "Each p is adjusted for the number of slices; the headline is not." in section.note
    said = words(section.body)
    assert "~ undecided" in said
    ways = r"about \d+ new tasks, or 20 with \d+ samples each"
    assert re.search(rf"easy is undecided: {ways}, would decide it with 80 % chance if the true difference is", said)


@pytest.mark.parametrize(
    ("settings", "advice"),
    [
        (
            {},
            r"About [\d,]+ new tasks, tested on their own, would show a difference this large with 80 % chance; the",
        ),
        (
            {"cluster": "topic"},
            r"About [\d,]+ new clusters, tested on their own, would show a difference this large with 80 % chance",
        ),
        ({"anytime": True}, r"Add tasks to the runs and compare again"),
        (
            {"margin": 0.2},
            r"If this is the true difference, about [\d,]+ new tasks, tested on their own, would decide it with",
        ),
    ],
)
def test_an_undecided_answer_says_what_the_terminal_says(settings, advice):
    old = [{"task": n, "topic": n // 2, "reward": n % 2} for n in range(20)]
    new = [row | {"reward": 1} if row["task"] in (2, 8) else row for row in old]
    page = pair_page(PairData(compare(old, new, metrics="mean_reward", **settings), None, None))
    assert re.search(advice, words(page.top).replace("\xa0", " ")), words(page.top)


@pytest.mark.parametrize(
    ("adjust", "note"),
    [
        ("none", "No p is adjusted for the number of slices."),
        ("holm", "Each p is adjusted, the headline's, too."),
    ],
)
def test_the_slices_say_whether_their_p_are_adjusted(adjust, note):
    comparison = compare(ARITH, NEXT, by="difficulty", adjust=adjust)
    page = pair_page(PairData(comparison, None, None))
    assert note in next(section for section in page.sections if section.head == "By difficulty").note
    assert ("p adjusted" in str(comparison)) == (adjust != "none")  # the head of the column said so of every p


def test_a_single_pass_or_fail_each_has_the_table_of_mcnemar():
    first = [[1]] * 30 + [[0]] * 20
    second = [[1]] * 22 + [[0]] * 8 + [[1]] * 15 + [[0]] * 5
    page = pair_page(report_data([first, second]))
    section = next(section for section in page.sections if section.head == "Both, one, neither")
    cells = re.findall(r"<b>(\d+)</b>", section.body)
    assert cells == ["22", "8", "15", "5"]  # both, only A, only B, neither
    assert "8 tasks only A solved, 15 only B." in words(section.body)
    assert "Both, one, neither" not in heads(pair_page(report_data([ARITH, NEXT])))


def test_a_margin_is_a_band_and_equivalence_a_verdict():
    many = [[1, 1, 0, 1]] * 150 + [[0, 1, 0, 0]] * 150
    comparison = compare(many, many, margin=0.05)
    page = pair_page(PairData(comparison, None, None))
    assert "= Equivalent" in page.top
    assert '<rect class="margin"' in page.top


def test_a_comparison_from_a_document_shows_what_it_has(tmp_path):
    comparison = compare(ARITH, NEXT, by="difficulty")
    (tmp_path / "comparison.json").write_text(comparison.to_json())
    made = report(str(tmp_path / "comparison.json"))
    assert made.title.startswith("Not decided: the missing rollouts decide (22 of 320 of next-calculator, 17 of")
    page = pair_page(report_data([str(tmp_path / "comparison.json")]))
    assert {"Both runs", "By difficulty", "Task by task", "What changed", "Provenance"} <= set(heads(page))
    assert not {"Ledger", "Score against cost", "What if"} & set(heads(page))
    drawn = next(section for section in page.sections if section.head == "Task by task")
    bars_drawn = len(re.findall('class="(?:up|down)"', drawn.body))
    assert drawn.note[1] == (
        f"The document lists {bars_drawn} of the 34 tasks that changed: the largest losses and gains."
    )


def test_several_pairs_stand_in_a_table():
    comparison = compare(ARITH, NEXT)
    contest = comparison.contests[0]
    doubled = replace(comparison, contests=[replace(contest, pairs=[*contest.pairs, *contest.pairs])])
    page = pair_page(PairData(doubled, None, None))
    assert page.title == "2 pairs of runs were compared."
    assert words(page.sections[0].body).count("~ undecided") == 2


def test_no_common_value_has_no_axis():
    comparison = compare(ARITH, NEXT)
    contest = comparison.contests[0]
    pair = contest.pairs[0]
    empty = replace(pair.findings[0], delta=None, interval=None, p=None, verdict="undecided", why="no task has a value")
    page = pair_page(
        PairData(replace(comparison, contests=[replace(contest, pairs=[replace(pair, findings=[empty])])]), None, None)
    )
    assert page.title == "Not decided: next-calculator against tiny-calculator."
    assert 'class="headline"' not in page.top


@pytest.mark.parametrize("texts", [True, False])
def test_the_command_gives_the_same_numbers(texts):
    page = html(pair_page(report_data([ARITH, NEXT], by="difficulty", texts=texts, missing="zero")))
    command = re.search(r'data-copy="([^"]*)"', page)[1]
    assert command == (
        f"calipers compare {ARITH} {NEXT} --metric mean_reward --metric pass_rate --by difficulty --missing zero"
    )


def written(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def test_the_commands_name_the_columns_that_were_read(tmp_path):
    paths = [
        written(
            tmp_path / f"{run}.jsonl",
            [{"id": f"t{t}", "score": "AB"[t % run == 0], "who": f"m{run}"} for t in range(9)],
        )
        for run in (2, 3, 4)
    ]
    read = {"columns": {"task": "id", "reward": "score", "model": "who"}, "truth": {"A": 0, "B": 1}}
    options = "--columns task=id,reward=score,model=who --truth a=0,b=1"
    for verb, sources in (("score", paths[:1]), ("compare", paths[:2]), ("leaderboard", paths)):
        command = re.findall(r'data-copy="([^"]*)"', report(*sources, **read).html)[-1]
        assert command.startswith(f"calipers {verb} {' '.join(sources)} {options} --metric mean_reward")


def test_the_command_of_a_finished_result_has_its_settings(tmp_path):
    (tmp_path / "result.json").write_text(score(ARITH, dialect="evsys", confidence=0.9).to_json())
    command = re.findall(r'data-copy="([^"]*)"', report(str(tmp_path / "result.json")).html)[-1]
    assert command.startswith(f"calipers score {ARITH} --dialect evsys --confidence 0.9 --metric mean_reward")


def test_the_island_has_the_texts_of_both_runs_for_each_listed_task():
    page = pair_page(report_data([ARITH, NEXT]))
    tasks = json.loads(json.dumps(page.data["changed"]))
    assert len(tasks) == 40
    assert {len(task["runs"]) for task in tasks} == {2}
    assert all(task["prompt"].startswith("What is ") for task in tasks)


def test_a_run_of_nothing_has_a_page():
    assert report([]).title == "The run has no mean_reward."


def test_runs_without_any_reward_have_a_page():
    first = [{"task": task, "sample": 0, "model": "p", "outcome": "client_failed"} for task in "ab"]
    second = [{"task": task, "sample": 0, "model": "q", "reward": 1} for task in "ab"]
    assert report(first, second).title == "Not decided: q against p."


@pytest.fixture(scope="module")
def pair():
    return report_data([ARITH, NEXT])


@pytest.fixture(scope="module")
def changes(pair):
    return changes_of(pair.comparison.contests[0].pairs[0], pair.first, pair.second, higher_is_better=True)


@pytest.mark.parametrize(
    ("first", "second", "marked"),
    [
        ("139", "219", ('<mark role="deletion">13</mark>9', '<mark role="insertion">21</mark>9')),
        ("161", "161", ("161", "161")),
        ("7250", "7170", ('7<mark role="deletion">25</mark>0', '7<mark role="insertion">17</mark>0')),
        ("aa", "aaa", ("aa", 'aa<mark role="insertion">a</mark>')),  # prefix and suffix do not overlap
        ("", "x", ("", '<mark role="insertion">x</mark>')),
        ("<b>", "<i>", ('&lt;<mark role="deletion">b</mark>&gt;', '&lt;<mark role="insertion">i</mark>&gt;')),
        (None, "x", ("–", "<code>x</code>")),
    ],
)
def test_what_differs_is_marked(first, second, marked):
    assert tuple(map(joined, differing(first, second))) == marked


def test_a_long_answer_is_cut_around_what_differs():
    first, second = f"{'a' * 500}X{'b' * 500}", f"{'a' * 500}Y{'b' * 500}"
    old, new = map(joined, differing(first, second))
    assert len(re.sub("<[^>]*>", "", old)) < 60
    assert ('<mark role="deletion">X</mark>' in old, '<mark role="insertion">Y</mark>' in new) == (True, True)


def test_a_text_stands_on_one_line():
    assert one_line("a\nb\tc", 20) == "a ⏎ b c"
    assert one_line("x" * 30, 10) == "x" * 9 + "…"


def test_every_common_task_is_there_the_largest_loss_first(pair, changes):
    assert len(changes) == 40
    gains = [change.gain for change in changes]
    assert gains == sorted(gains)
    assert [sum(change.way == way for change in changes) for way in ("better", "same", "worse")] == [25, 6, 9]
    assert changes[0].task == "mul-02"
    assert changes[0].delta == pytest.approx(-0.357, abs=1e-3)


def test_lower_is_better_turns_the_order_around(pair):
    turned = changes_of(pair.comparison.contests[0].pairs[0], pair.first, pair.second, higher_is_better=False)
    assert turned[0].delta > 0
    assert turned[0].way == "worse"


def test_the_usual_answer_is_the_most_frequent(pair):
    run = pair.first.rollouts
    code = list(run.table.tasks).index("add-18")
    assert usual_answers(run, [code]) == {code: "139"}


def test_only_so_many_tasks_are_listed(changes):
    many = changes * 20
    shown = shown_changes(many)
    assert len(shown) == 300
    assert (shown[0], shown[-1]) == (many[0], many[-1])


def test_bars_become_a_line_of_steps(changes):
    counts = {"better": 25, "same": 6, "worse": 9}
    few, many = bars(changes, counts), bars(changes * 20, counts)
    assert (few.count("<rect"), few.count("<circle"), few.count("<polyline")) == (34, 6, 0)
    assert (many.count("<rect"), many.count("<polyline")) == (0, 1)
    assert 'aria-label="40 tasks: 25 better, 6 same, 9 worse; the largest change is +0.375"' in few


def test_the_note_of_the_tasks_says_what_is_drawn():
    page = pair_page(report_data([[[1]] * 301, [[1]] * 300 + [[0]]]))
    drawn = next(section for section in page.sections if section.head == "Task by task")
    assert drawn.note == ["The line has the tasks in order of their score in B minus their score in A."]
