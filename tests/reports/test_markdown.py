import re

import pytest
from reports.shown import HARMFUL, estimate, group, hostile, ledger, result

from calipers.reports.markdown import code, render
from calipers.reports.result import Slice


def test_a_page():
    parts = {"easy": Slice(ledger(), {"pass@3": estimate(undefined_tasks=1)})}
    made = result(group(dataset="sums", breakdowns={"level": parts}, totals={"cost_usd": 0.5}))
    assert render(made).splitlines() == [
        "### `sums`",
        "",
        "4 tasks; 12 planned = 9 scored + 1 refused + 2 client\\_failed; 2 gaps, left out",
        "",
        "| metric | value | ± stderr | 95 % interval | n | what it is |",
        "| --- | ---: | ---: | --- | --- | --- |",
        "| `pass@3` ↑ | 0.7500 | 0.2500 | [0.3000, 0.9500] | 4 tasks, 12 samples "
        "| unbiased: the Codex estimator over all samples |",
        "",
        "- `easy`: 12 planned = 9 scored + 1 refused + 2 client\\_failed; 2 gaps, left out",
        "",
        "| by `level` | metric | value | ± stderr | 95 % interval | n |  |",
        "| --- | --- | ---: | ---: | --- | --- | --- |",
        "| `easy` | `pass@3` ↑ | 0.7500 | 0.2500 | [0.3000, 0.9500] | 4 tasks, 12 samples | 1 task undefined |",
        "",
        "total: 0.5000 `cost_usd`",
        "",
        f"`rollouts.jsonl` (native, 12 rollouts); dialect `native`, missing `gap`, seed 0, digest `{made.digest[:23]}`",
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
    bare = re.sub(r"`[^`\n]*`", "", text)  # what stands outside of code
    assert "evil" not in bare
    assert all(line.startswith(("#", "|", "-", "4 tasks", "total", "`")) for line in text.splitlines() if line)


def test_every_row_has_as_many_cells():
    cells = [len(re.findall(r"(?<!\\)\|", line)) for line in render(hostile()).splitlines() if line.startswith("|")]
    assert {*cells} == {7, 8}
