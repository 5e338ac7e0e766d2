"""Names and texts in data that look like commands for a CI runner, in every command that prints them."""

import csv
import io
import json

import pytest
from cli.running import calipers

NAME = "::error::x ##[error]y"


@pytest.fixture
def data(tmp_path):
    """Rollouts in a file of such a name, whose model, agent, dataset, tasks, labels and columns have such names."""
    for file, better in ((NAME, 0), ("b.jsonl", 1)):
        with open(tmp_path / file, "w") as out:
            for number in range(24):
                row = {"task": f"{NAME}{number // 4}", "sample": number % 4, "reward": float(number % 3 > better)}
                row |= {"model": NAME + file, "agent": NAME, "dataset": NAME, "::label::": NAME, "::n::": number}
                out.write(json.dumps(row | {"completion": "\n::error::z", "answer": "::error::1"}) + "\n")
    return tmp_path


def commands_in(text):
    return [line for line in text.splitlines() if line.lstrip().startswith("::")]


@pytest.mark.parametrize("github", ["true", None])
@pytest.mark.parametrize(
    "words",
    [
        *(
            ["score", NAME, "--by", "::label::", "--metric", "mean(column=::n::)", "--format", shape]
            for shape in ("table", "md", "csv", "json")
        ),
        *(["compare", NAME, "b.jsonl", "--format", shape] for shape in ("table", "md", "csv", "json")),
        *(["items", NAME, "--format", shape] for shape in ("table", "md", "csv", "json")),
        *(["leaderboard", NAME, "b.jsonl", "--format", shape] for shape in ("table", "md", "csv", "json")),
        *(["curve", NAME, "--format", shape] for shape in ("table", "md", "csv")),
        ["score", "::error::gone"],
        ["score", NAME, "--metric", "::error::m"],
        ["score", NAME, "--dialect", "::error::d"],
        ["check", "::error::gone"],
        ["explain", "::error::m"],
        ["::error::command"],
    ],
    ids=lambda words: " ".join(words).replace(NAME, "NAME"),
)
def test_no_line_that_is_printed_is_a_command(data, words, github):
    done = calipers(*words, cwd=data, GITHUB_ACTIONS=github or "")
    assert commands_in(done.stdout) == []
    assert commands_in(done.stderr) == []
    if github:
        assert "##[" not in done.stdout + done.stderr
    assert "rror::" in done.stdout + done.stderr  # the data is there


def test_a_value_for_programs_stays_what_it_is(data):
    done = calipers("score", NAME, "--format", "csv", cwd=data)
    row = next(csv.DictReader(io.StringIO(done.stdout)))
    assert row["dataset"] == NAME
    done = calipers("score", NAME, "--format", "json", cwd=data, GITHUB_ACTIONS="true")
    assert json.loads(done.stdout)["groups"][0]["dataset"] == NAME
