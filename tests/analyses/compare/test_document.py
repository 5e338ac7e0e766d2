import csv
import io
import json
import re
from importlib.resources import files

import pytest

from calipers.analyses.compare import Finding, Run
from calipers.analyses.compare.compare import compare
from calipers.analyses.compare.document import document, figures, settings, shown_names
from calipers.reports import csv as renderer
from calipers.reports import markdown, terminal

FAMILY = "org/one-model-of-many-that-begin-alike-2026-"
SHORT = "org/one-model-of-ma…t-begin-alike-2026-"
MIDDLE = "x" * 30, "y" * 30


def run(name):
    return Run(name, "", None, None, None, 1, 1)


def finding(first, second, stderr, interval=None):
    return Finding(
        *("m", None, None, first, second, second - first, stderr, interval, 0.5, 0.5, 0.5, "floored_t", 9, 0, 9),
        *((9, 9), True, "undecided", "", None, None, None, None, None, None, ""),
    )


@pytest.mark.parametrize(
    ("names", "shown"),
    [
        (["a", "b"], ["a", "b"]),
        # cut at their ends both would be called the same
        ([f"{FAMILY}a", f"{FAMILY}b"], [f"{SHORT}a", f"{SHORT}b"]),
        # what differs stands in the middle: then nothing is cut, however long it is
        (["1".join(MIDDLE), "2".join(MIDDLE)], ["1".join(MIDDLE), "2".join(MIDDLE)]),
        (["evil\x1b[31m", "b"], ["evil\N{REPLACEMENT CHARACTER}[31m", "b"]),
    ],
)
def test_no_two_runs_are_called_the_same(names, shown):
    assert shown_names([run(name) for name in names]) == shown


@pytest.mark.parametrize(
    ("found", "shown"),
    [
        (finding(0.4, 0.5667, 0.0762, (0.0141, 0.3192)), ("0.4000", "0.5667", "+0.1667", "[+0.0141, +0.3192]")),
        (finding(0.01921, 0.01934, 0.00002), ("0.019210", "0.019340", "+0.000130", "–")),  # two digits of the error
        # the spread of draws that all say the same is the rounding of their sums
        (finding(1.1, 2.1, 5e-17, (1.0, 1.0)), ("1.1000", "2.1000", "+1.0000", "[+1.0000, +1.0000]")),
    ],
)
def test_figures_have_the_decimals_that_their_error_deserves(found, shown):
    assert figures(found) == shown


def tasks(*rewards, **more):
    return [{"task": f"t{n}", "reward": reward, **more} for n, reward in enumerate(rewards)]


def written(tmp_path, name, *rewards, latency):
    path = tmp_path / name
    rows = [{**row, "usage": {"latency_s": latency + n}} for n, row in enumerate(tasks(*rewards))]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.mark.parametrize(
    ("metrics", "test", "said"),
    [
        (["mean_reward"], "default", "paired t test (floored_t); confidence"),
        (
            ["mean_reward", "latency_p50"],
            "default",
            "paired t test (floored_t); paired bootstrap for latency_p50; confidence",
        ),
        (["latency_p50"], "sign-flip", "paired bootstrap; confidence"),  # no other test was made
        (
            ["mean_reward", "latency_p50"],
            "sign-flip",
            "paired bootstrap for latency_p50; intervals from the paired t test (floored_t)",
        ),
        (["mean_reward", "latency_p50"], "bootstrap", "paired bootstrap; confidence"),
    ],
)
def test_the_settings_name_the_tests_that_were_made(tmp_path, metrics, test, said):
    rewards = [1, 0, 1, 1, 0, 1, 0, 0]
    one = written(tmp_path, "a.jsonl", *rewards, latency=1.0)
    two = written(tmp_path, "b.jsonl", *rewards[1:], 1, latency=1.5)
    assert said in settings(compare(one, two, metric=metrics, test=test))


def test_long_names_are_the_same_wherever_they_stand(tmp_path):
    """A run has the same name in the list of runs, the sentences and the ranks, on a page and in Markdown."""
    for letter in "abc":
        rows = tasks(*((n * 7 + ord(letter)) % 3 == 0 for n in range(12)), model=FAMILY + letter)
        (tmp_path / letter).with_suffix(".jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    found = compare(*(str(tmp_path / f"{letter}.jsonl") for letter in "abc"), metric="mean_reward")
    for text in (
        terminal.render(document(found, details=True), columns=1000),
        markdown.render(document(found, details=True)),
    ):
        for letter in "abc":
            # both sentences of its pairs, and the ranks; the page lists the runs, Markdown has them in headings
            assert text.count(SHORT + letter) >= 4


def test_more_runs_than_letters_stand_in_one_column(tmp_path):
    rows = [dict(row, model=f"m{place}") for place in range(27) for row in tasks(1, 0, place % 2)]
    path = tmp_path / "many.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    head = terminal.render(document(compare(str(path), metric="mean_reward", flips=0), details=True)).splitlines()[:27]
    assert [head[place].split("  ")[0] for place in (0, 8)] == ["1", "9"]
    assert {line.index("m") for line in head} == {4}


@pytest.mark.parametrize(
    ("metric", "words", "lists"),
    [
        ("mean_reward", "McNemar: 3 fixed, 1 broken", ("worse, 1", "better, 3")),
        # nobody says whether a flag is good: a task that has it now is not fixed
        ("mean(column=flag)", "McNemar: 3 from 0 to 1, 1 from 1 to 0", ("lower, 1", "higher, 3")),
    ],
)
def test_nothing_is_fixed_where_no_way_is_better(tmp_path, metric, words, lists):
    before, after = [0, 0, 0, 1, 1, 0, 1, 0], [1, 1, 1, 0, 1, 0, 1, 0]
    paths = []
    for name, flags in (("a", before), ("b", after)):
        rows = [dict(row, flag=flag) for row, flag in zip(tasks(*flags), flags, strict=True)]
        paths.append(tmp_path / f"{name}.jsonl")
        paths[-1].write_text("".join(json.dumps(row) + "\n" for row in rows))
    found = compare(*paths, metric=metric)
    page, summary = (
        terminal.render(document(found, details=True)).splitlines(),
        markdown.render(document(found, details=True)),
    )
    assert any(words in line for line in page)
    assert words.removeprefix("McNemar: ") in summary
    for said in lists:
        assert said in page
        assert f"| {said.partition(',')[0]} | first | second |" in summary


def test_rows_say_how_many_tasks_only_one_run_has(tmp_path):
    """A difference of four common tasks among ten is another one than of ten: the row is all a spreadsheet has."""
    one = written(tmp_path, "a.jsonl", *[1, 0] * 5, latency=1.0)
    two = written(tmp_path, "b.jsonl", *[0, 1] * 2, latency=1.0)
    (row,) = csv.DictReader(io.StringIO(renderer.render(document(compare(one, two, metric="mean_reward")))))
    shown = [row[name] for name in ("aligned_by", "common_tasks", "only_first", "only_second")]
    assert shown == ["id", "4", "6", "0"]


ARITH, NEXT = (str(files("calipers") / "examples" / name) for name in ("arith.jsonl", "arith_next.jsonl"))
PAGE = """\
arith                                               mean_reward, 40 common tasks
Not decided: the missing rollouts decide (22 of 320 of next-calculator, 17 of
  tiny-calculator).
As seen next-calculator is better than tiny-calculator by 0.110; that holds
  unless more than 11 of the 22 missing rollouts of next-calculator failed and
  all 17 of tiny-calculator passed. Retry them: calipers run ... --retry-failed.
  If their loss does not depend on the answers, --missing random says so.
  Difference +0.110, 95 % interval +0.052 to +0.168.

A  tiny-calculator   B  next-calculator

metric            A       B    B − A   95 % interval           p   verdict
────────────────────────────────────────────────────────────────────────────────
mean_reward   0.440   0.550   +0.110   +0.052 to +0.168   0.0005   ~ undecided

40 common tasks: 25 better, 6 same, 9 worse
  largest losses   mul-02 −0.357, add-18 −0.214, add-04 −0.125
  largest gains    add-14 +0.375, add-19 +0.375, mul-11 +0.375
missing          17 rollouts of A, 22 of B (excluded); bounds +0.038 to +0.159
warning: 5 % of the rollouts of tiny-calculator are missing: the verdict may
  depend on which rollouts are missing
warning: 7 % of the rollouts of next-calculator are missing: the verdict may
  depend on which rollouts are missing

{digest}…   more: --details   a page: calipers report
"""


def test_the_short_page_of_a_comparison_that_missing_rollouts_decide():
    found = compare(ARITH, NEXT, metric="mean_reward")
    text = terminal.render(document(found), columns=80)
    assert text == PAGE.format(digest=found.digest[:23])
    wide = terminal.render(document(found), columns=120)
    assert "+0.052 to +0.168   ·" in wide
    assert re.search(r"·│·+├─+●─+┤·+ ", wide)  # zero, and the interval right of it


def test_a_declared_assumption_ends_the_headline():
    found = compare(ARITH, NEXT, metric="mean_reward", missing="random")
    lines = terminal.render(document(found), columns=120).splitlines()
    assert " ".join(" ".join(lines[1:3]).split()) == (
        "next-calculator is better than tiny-calculator by 0.110, assuming that the missing rollouts are like the "
        "others (--missing random)."
    )
    assert found.to_dict()["assumed"] == "random"


def test_several_pairs_have_a_row_each():
    found = compare(str(files("calipers") / "examples" / "calculators.csv"), baseline="abacus")
    text = terminal.render(document(found), columns=80)
    lines = text.splitlines()
    assert len(lines) <= 25
    assert lines[1] == "6 of 6 differences are decided."
    assert re.search(r"^B − A +0.900 +0.650 +−0.250 +−0.357 to −0.143 +< 0.0001 +▼ worse$", text, re.MULTILINE)


@pytest.mark.parametrize(
    ("settings", "advice"),
    [
        (
            {},
            r"About [\d,]+ new tasks, tested on their own, would show a difference this large with 80 % chance; the",
        ),
        (
            {"cluster": "topic"},
            r"About [\d,]+ new clusters, tested on their own, would show a difference this large with 80 % chance; the",
        ),
        ({"anytime": True}, r"Add tasks to the runs and compare again: this test is valid after every batch\."),
        # fewer tasks show that it is within the margin than show the difference itself
        (
            {"margin": 0.2},
            r"If this is the true difference, about [\d,]+ new tasks, tested on their own, would decide it with",
        ),
    ],
)
def test_the_advice_says_what_new_tasks_would_show(settings, advice):
    old = [{"task": n, "topic": n // 2, "reward": n % 2} for n in range(20)]
    new = [row | {"reward": 1} if row["task"] in (2, 8) else row for row in old]
    page = " ".join(terminal.render(document(compare(old, new, metrics="mean_reward", **settings))).split())
    assert re.search(advice, page), page


def test_a_comparison_in_a_notebook():
    found = compare(ARITH, NEXT, metric="mean_reward")
    text = found._repr_html_().replace("\xa0", " ")
    assert text.partition(">")[0].endswith('overflow-x:auto"')  # a narrow page moves it in its own frame
    assert "Not decided: the missing rollouts decide (22 of 320 of next-calculator, 17 of tiny-calculator)." in text
    assert "~ undecided" in text
    assert "40 common tasks: 25 better, 6 same, 9 worse. 17 and 22 rollouts missing (excluded)." in text
    assert repr(found).startswith("<Comparison Not decided: the missing rollouts decide (22 of 320 of next-calculator")
