"""``calipers convert`` as a user types it."""

import json

import pytest
from cli.running import ARITH, calipers, refused


@pytest.mark.parametrize("out", ["a.jsonl", "a.jsonl.gz", "a.jsonl.zst", "a.parquet"])
def test_a_converted_file_has_the_same_score(tmp_path, out):
    done = calipers("convert", ARITH, out, cwd=tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (0, f"{out}: 320 rollouts, converted from native\n", "")
    scores = [
        json.loads(calipers("score", path, "--by", "difficulty", "--format", "json", cwd=tmp_path).stdout)
        for path in (ARITH, out)
    ]
    assert scores[0]["digest"] == scores[1]["digest"]


def test_columns_and_truth_are_those_of_score(tmp_path):
    (tmp_path / "in.csv").write_text("id,grade,level\na,yes,1\nb,no,2\n")
    named = ("--columns", "task=id,reward=grade", "--truth", "yes=1,no=0")
    assert calipers("convert", "in.csv", "out.jsonl", *named, cwd=tmp_path).returncode == 0
    rows = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert rows == [
        {"task": "a", "sample": 0, "reward": 1.0, "level": 1},
        {"task": "b", "sample": 0, "reward": 0.0, "level": 2},
    ]


def test_an_existing_file_stays_unless_forced(tmp_path):
    (tmp_path / "out.jsonl").write_text("mine")
    message = refused("convert", ARITH, "out.jsonl", cwd=tmp_path)
    assert message == "out.jsonl: already exists; --force replaces it"
    assert calipers("convert", ARITH, "out.jsonl", "--force", "--no-texts", cwd=tmp_path).returncode == 0
    assert '"prompt"' not in (tmp_path / "out.jsonl").read_text()


def test_an_ending_that_is_none(tmp_path):
    message = refused("convert", ARITH, "out.xlsx", cwd=tmp_path)
    assert message.startswith("out.xlsx: its ending names no format; expected .jsonl, .jsonl.gz, .jsonl.zst, .parquet")
