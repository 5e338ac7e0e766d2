"""``calipers report`` as a user types it."""

import re

import pytest
from cli.running import ARITH, calipers, lines, refused

from calipers import score


def test_it_writes_one_file_and_prints_its_path_and_size(tmp_path):
    done = calipers("report", ARITH, "--by", "difficulty", cwd=tmp_path)
    assert done.returncode == 0
    assert re.fullmatch(r"warning: .* are missing \(17 of 320\); [^\n]*\n", done.stderr)
    assert re.fullmatch(r"report\.html: \d+ KB\n", done.stdout)
    assert [path.name for path in tmp_path.iterdir()] == ["report.html"]
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "<h2>By difficulty</h2>" in page


def test_the_options(tmp_path):
    done = calipers(
        "report", ARITH, "-o", "x.html", "--no-texts", "--metric", "pass@2", "--missing", "zero", cwd=tmp_path
    )
    assert done.stdout.startswith("x.html: ")
    page = (tmp_path / "x.html").read_text(encoding="utf-8")
    assert "passes 59\xa0% of the tasks of arith within 2 samples" in page
    assert "missing and counted as 0" in page
    assert "makes 172" not in page
    assert "--metric pass@2 --missing zero" in page


def test_the_command_of_the_page_prints_the_numbers_of_the_page(tmp_path):
    calipers("report", ARITH, "--by", "difficulty", cwd=tmp_path)
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    command = re.search(r'data-copy="calipers ([^"]*)"', page)[1].replace("&#39;", "")
    done = calipers(*command.split(), "--format", "json", cwd=tmp_path)
    digest = re.search(r'"digest": "(sha256:\w+)"', done.stdout)[1]
    assert f"Calipers · {digest}" in page


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["no.jsonl"], "no.jsonl: no such file; expected a file of rollouts, or - for standard input"),
        (["rows.jsonl", "--metric", "pas@3"], "no metric named 'pas@3'; did you mean 'pass@{k}' or 'gpass@{k}'?"),
        (["rows.jsonl", "-o", "rows.jsonl"], "rows.jsonl: is one of the files to be read; expected another file"),
        (["rows.jsonl", "-o", "no/x.html"], "no/x.html: there is no folder 'no'; create it first"),
        (
            ["result.json", "--by", "x"],
            "result.json: a result is finished, and --by cannot change it; expected its rollouts",
        ),
        (
            ["result.json", "--confidence", "0.9"],
            "result.json: a result is finished, and --confidence cannot change it; expected its rollouts",
        ),
        (
            ["result.json", "--columns", "reward=f1"],
            "result.json: a result is finished, and --columns cannot change it; expected its rollouts",
        ),
        (["bad.jsonl"], 'bad.jsonl:2: reward is "high"; expected a number or null'),
    ],
)
def test_a_mistake_is_one_line_and_nothing_is_written(tmp_path, arguments, said):
    lines(tmp_path, {"task": "a", "reward": 1}, name="rows.jsonl")
    lines(tmp_path, {"task": "a", "reward": 1}, {"task": "b", "reward": "high"}, name="bad.jsonl")
    (tmp_path / "result.json").write_text(score([[1], [0]]).to_json())
    before = (tmp_path / "rows.jsonl").read_bytes()
    assert refused("report", *arguments, cwd=tmp_path) == said
    assert {path.name for path in tmp_path.iterdir()} == {"rows.jsonl", "bad.jsonl", "result.json"}
    assert (tmp_path / "rows.jsonl").read_bytes() == before
