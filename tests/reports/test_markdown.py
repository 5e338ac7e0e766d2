import re

import pytest
from reports.shown import HARMFUL, estimate, group, hostile, ledger, result

from calipers.reports import markdown
from calipers.reports.document import Document, Name, Row, Table, TableColumn
from calipers.reports.markdown import code
from calipers.reports.result import Slice, document
from calipers.stats.suite import Means, SuiteMeans
from calipers.stats.variance import Split


def render(made):
    return markdown.render(document(made, details=True))


def test_a_page():
    parts = {"easy": Slice(ledger(), {"pass@3": estimate(undefined_tasks=1)})}
    made = result(group(dataset="sums", breakdowns={"level": parts}, totals={"cost_usd": 0.5}))
    assert render(made).splitlines() == [
        "### `sums`",
        "",
        "4 tasks; 12 planned = 9 scored + 1 refused + 2 client\\_failed; 2 missing (excluded)",
        "",
        "| metric | value | ± stderr | 95 % interval | n | what it is |",
        "| --- | ---: | ---: | --- | --- | --- |",
        "| `pass@3` ↑ | 0.7500 | 0.2500 | 0.3000 to 0.9500 | 4 tasks, 12 samples "
        "| unbiased estimate: probability of a pass in 3 samples (Chen et al. 2021) |",
        "",
        "- `easy`: 12 planned = 9 scored + 1 refused + 2 client\\_failed; 2 missing (excluded)",
        "",
        "| by `level` | metric | value | ± stderr | 95 % interval | n |  |",
        "| --- | --- | ---: | ---: | --- | --- | --- |",
        "| `easy` | `pass@3` ↑ | 0.7500 | 0.2500 | 0.3000 to 0.9500 | 4 tasks, 12 samples "
        "| 1 task has fewer than 3 samples |",
        "",
        "total: $0.50",
        "",
        "`rollouts.jsonl` (native, 12 rollouts); `native` definitions; missing rollouts excluded; seed 0; "
        f"digest `{made.digest[:23]}`",
    ]


def test_warnings_and_slices_that_hold_each_by_itself():
    parts = {value: Slice(ledger(), {"pass@3": estimate()}) for value in ("easy", "hard")}
    text = render(result(group(warnings=["task a_b has 90 % of it"], breakdowns={"level": parts}))).splitlines()
    assert "**Warning:** task a\\_b has 90 % of it" in text
    assert "each slice has its own interval, not adjusted for the number of slices" in text


def test_means_over_datasets_and_advice():
    mean = estimate(signature="mean_reward|seed:0")
    absent = estimate(None, stderr=None, interval=None, why="no value on 'b|c'")
    over = SuiteMeans(None, "m", ["a", "b|c"], {"pass@3": Means(estimate(), absent)})
    made = group({"mean_reward": mean}, variance={"x": Split(1, 1, 2), "y": Split(1, 1, 2)})
    text = render(result(made, suites=[over])).splitlines()
    assert text[-16:-3] == [
        f"mean reward (`x`): {Split(1, 1, 2).advice}",
        "",
        f"mean reward (`y`): {Split(1, 1, 2).advice}",
        "",
        "### `2 datasets · m`",
        "",
        "`a`, `b\\|c`",
        "",
        "| over datasets | metric | value | ± stderr | 95 % interval | n |  |",
        "| --- | --- | ---: | ---: | --- | --- | --- |",
        "| macro | `pass@3` ↑ | 0.7500 | 0.2500 | 0.3000 to 0.9500 | 4 tasks, 12 samples |  |",
        "| micro | `pass@3` ↑ | – | – |  | 4 tasks, 12 samples | `no value on 'b\\|c'` |",
        "",
    ]


def test_no_slices_are_said():
    assert "\nby `level`: no rollouts\n" in render(result(group(breakdowns={"level": {}})))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("easy", "`easy`"),
        ("@somebody", "`@somebody`"),
        ("![x](http://here)", "`![x](http://here)`"),
        ("<script>", "`<script>`"),
        ("a|b", "`a\\|b`"),
        ("`", "`` ` ``"),
        ("a``b", "```a``b```"),
        ("", "`   `"),
        ("a\nb", "`a b`"),
    ],
)
def test_a_name_is_only_a_name(text, expected):
    assert code(text) == expected


def test_nothing_a_file_says_is_rendered():
    text = render(hostile())
    assert [character for character in HARMFUL if character in text] == []
    bare = re.sub(r"`[^`\n]*`", "", text)  # the text outside of code spans
    assert "evil" not in bare
    assert all(
        line.startswith(("#", "|", "-", "4 tasks", "total", "mean reward", "macro", "`"))
        for line in text.splitlines()
        if line
    )


@pytest.mark.parametrize("details", [False, True])
def test_no_name_in_a_sentence_is_a_link_an_image_or_a_mention(details):
    """The sentence, the warnings and the exceptions contain untrusted names in our own text."""
    name = "![x](http://evil) @you WWW.evil #12"
    attacked = group(
        dataset=name,
        model=name,
        warnings=[f"task {name} has 90 % of it"],
        ledger=ledger(exceptions={name: 1}),
    )
    text = markdown.render(document(result(attacked), details=details))
    assert text.count("evil") > 4
    assert not re.search(r"(?<!\\)\[x|@you|http://|WWW\.|#12", re.sub(r"`[^`\n]*`", "", text))


def test_every_row_has_as_many_cells():
    cells = [len(re.findall(r"(?<!\\)\|", line)) for line in render(hostile()).splitlines() if line.startswith("|")]
    assert {*cells} == {7, 8}


def test_long_names_of_a_column_stay_apart_and_keep_their_ends():
    names = [f"{'organisation-with-a-name/' * 3}{size}-instruct-v2" for size in ("8b", "70b")]
    rows = [Row([Name(name, 40), "1"]) for name in (*names, "x" * 10_000_000)]
    table = Table([TableColumn("model"), TableColumn("value")], rows)
    text = markdown.render(Document(lambda: [table], dict))
    cells = re.findall(r"`(.*)`", text)
    assert len(set(cells)) == 3
    assert all(len(cell) <= 40 for cell in cells)
    assert [cell[-8:] for cell in cells[:2]] == ["truct-v2"] * 2
