import json

import pytest
from cli.running import calipers, refused

from calipers.cli.demo import _shell


@pytest.fixture(scope="module")
def tour(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tour")
    return folder, calipers("demo", cwd=folder)


def test_it_ends_with_the_table_and_the_path_of_the_result(tour):
    folder, done = tour
    assert done.returncode == 0
    assert "demo/run/result.json" in done.stderr.splitlines()  # the run's own last word
    said = "\ndemo/result.json and demo/run have the results with all digits.\nOpen demo/report.html in a browser.\n"
    assert done.stdout.endswith(said)
    assert "tiny-calculator passes 44" in (folder / "demo" / "report.html").read_text()
    document = json.loads((folder / "demo" / "result.json").read_text())
    assert document["schema"] == "calipers.result/1"
    assert document["inputs"][0]["path"] == "demo/arith.jsonl"


def test_it_shows_both_meanings_of_a_word(tour):
    text = tour[1].stdout
    evsys, native = (
        text.index("pass@3: any pass among the first 3 samples, in order"),
        text.index("The unbiased estimator of Chen et al. (2021)"),
    )
    assert evsys < native
    assert "\ndifficulty " in text
    assert str(tour[0]) not in text


def test_what_it_shows_are_the_commands_themselves(tour):
    """Every command it prints can be run again, and prints the same."""
    folder, done = tour
    shown = done.stdout.replace(" \\\n   ", "").split("\n$ calipers ")[1:]
    assert len(shown) == 5
    for part in shown:
        command, _, output = part.partition("\n\n")
        again = calipers(*[word.strip("'") for word in _words(command)], cwd=folder)
        assert output.startswith(again.stdout)


def _words(command):
    import shlex

    return shlex.split(command)


def test_twice_is_no_error_but_another_file_is_not_overwritten(tmp_path):
    assert calipers("demo", "--out", "here", cwd=tmp_path).returncode == 0
    assert calipers("demo", "--out", "here", cwd=tmp_path).returncode == 0
    (tmp_path / "here" / "rewards.json").write_text("[]")
    said = "here/rewards.json: already exists and is not part of the demo; choose another --out"
    assert refused("demo", "--out", "here", cwd=tmp_path) == said


def test_somebody_elses_result_is_not_overwritten(tmp_path):
    (tmp_path / "result.json").write_text("precious")
    refused("demo", "--out", ".", cwd=tmp_path)
    assert (tmp_path / "result.json").read_text() == "precious"


def test_a_folder_that_cannot_be(tmp_path):
    (tmp_path / "taken").touch()
    assert refused("demo", "--out", "taken", cwd=tmp_path).startswith("taken/arith: cannot be created as a folder")


def test_a_long_command_breaks_before_an_option():
    words = ["score", "a.jsonl", *(word for k in range(9) for word in ("--metric", f"mean(column=f{k})"))]
    lines = _shell(words).splitlines()
    assert all(line.endswith(" \\") for line in lines[:-1])
    assert all(line.startswith("    --metric 'mean(") for line in lines[1:])
