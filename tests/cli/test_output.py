import io
import json
import os
import stat
import sys

import pytest
from cli.running import ARITH, calipers, refused
from making import rollouts

import calipers as library
from calipers.cli.output import Target, rendered, show_result, standard_output, write
from calipers.errors import InputError
from calipers.reports.document import Document, Sentence
from calipers.reports.untrusted_text import safe_json


def test_the_file_is_replaced_in_one_step(tmp_path):
    path = tmp_path / "result.json"
    path.write_text("before")
    Target(str(path)).write(b"after")
    assert path.read_text() == "after"
    assert [file.name for file in tmp_path.iterdir()] == ["result.json"]


def test_a_new_file_has_the_rights_that_any_file_gets(tmp_path):
    (tmp_path / "other").touch()
    Target(str(tmp_path / "result.json")).write(b"{}")
    modes = {stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()}
    assert len(modes) == 1


def test_a_link_stays_a_link(tmp_path):
    (tmp_path / "real.json").touch()
    (tmp_path / "link.json").symlink_to("real.json")
    Target(str(tmp_path / "link.json")).write(b"{}")
    assert (tmp_path / "link.json").is_symlink()
    assert (tmp_path / "real.json").read_bytes() == b"{}"


def test_a_device_is_written_to_not_replaced():
    Target(os.devnull).write(b"{}")
    assert stat.S_ISCHR(os.stat(os.devnull).st_mode)


def test_a_pipe_is_written_to_by_its_name():
    """As in ``--out >(gzip > result.json.gz)`` of bash."""
    reader, writer = os.pipe()
    Target(f"/dev/fd/{writer}").write(b"{}")
    os.close(writer)
    assert os.read(reader, 100) == b"{}"
    os.close(reader)


def test_what_cannot_be_written_leaves_nothing_behind(tmp_path):
    target = Target(str(tmp_path / "result.json"))
    (tmp_path / "result.json").mkdir()  # created in the meantime
    with pytest.raises(InputError, match=r"result\.json: cannot be written \(.+\)"):
        target.write(b"{}")
    assert [path.name for path in tmp_path.iterdir()] == ["result.json"]


@pytest.mark.parametrize(
    ("path", "wrong"),
    [
        ("", "'' is not a file; expected a path, such as result.json"),
        ("no/result.json", "there is no folder 'no'"),
        ("-", "'-' is not a file"),
        ("in.jsonl", "is one of the files to be read"),
        ("./in.jsonl", "is one of the files to be read"),
    ],
)
def test_where_no_result_can_go(tmp_path, monkeypatch, path, wrong):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match=wrong):
        Target(path, ["-", "in.jsonl"])


@pytest.mark.parametrize(
    ("arguments", "lost"),
    [
        (["gate", ARITH, "--history", "f", "--out", "./f"], "all nights"),
        (["merge", "p.partial", "--expect", "f", "--out", "./f"], "the list of inputs"),
        (["score", ARITH, "--verifier-errors", "f", "--out", "./f"], "the self-test"),
        (["certify", ARITH, "--key", "f", "-o", "./f", "--force"], "the private key"),
        (["certify", ARITH, "--plan", "f", "--time-stamp-request", "./f", "--force"], "the plan"),
        (["certify", ARITH, "--show", "add-00", "--tree", "f", "-o", "./f", "--force"], "the salts"),
        (["preregister", "suite.yaml", "--key", "f", "-o", "./f", "--force"], "the private key"),
    ],
)
def test_a_file_that_an_option_reads_is_not_replaced(tmp_path, arguments, lost):
    (tmp_path / "f").write_text(lost)
    assert refused(*arguments, cwd=tmp_path) == "./f: is one of the files to be read; expected another file"
    assert (tmp_path / "f").read_text() == lost


@pytest.mark.parametrize(
    "arguments",
    [
        ["gate", ARITH, "--require", "mean_reward > 0", "--junit", "f", "--out", "./f"],
        ["watch", "run", "--once", "--junit", "f", "--out", "./f"],
        ["curve", ARITH, "--out", "f", "--plot", "./f"],
        ["certify", ARITH, "-o", "f", "--time-stamp-request", "./f"],
    ],
)
def test_two_options_do_not_write_the_same_file(tmp_path, arguments):
    assert refused(*arguments, cwd=tmp_path) == "./f: would be written twice; expected a file for each"


def test_a_certificate_is_not_written_to_the_file_of_its_tree(tmp_path):
    refusal = refused("certify", ARITH, "-o", "./result.tree", cwd=tmp_path)
    assert refusal == "./result.tree: would be written twice; expected a file for each"


@pytest.mark.parametrize(
    "arguments",
    [
        ["convert", ARITH, "{}.jsonl"],
        ["score", ARITH, "--partial", "{}"],
        ["report", ARITH, "-o", "{}"],
        ["certify", ARITH, "-o", "{}", "--time-stamp-request", "{}.tsq"],
        ["certify", "--new-key", "{}"],
        ["run", "suite.csv", "--model", "python/model.py:answer", "--out", "{}"],
        ["demo", "--out", "{}"],
    ],
)
def test_the_name_of_a_file_is_no_command_for_a_runner_or_a_terminal(tmp_path, arguments):
    (tmp_path / "suite.csv").write_text("question,answer\n1 + 1,2\n")
    (tmp_path / "model.py").write_text("def answer(prompt):\n    return '2'\n")
    done = calipers(*(argument.format("::error::a\x1b[2J\n::b") for argument in arguments), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    printed = done.stdout + done.stderr
    assert "error::a" in printed
    assert "\x1b" not in printed
    assert [line for line in printed.splitlines() if line.startswith("::")] == []


def test_a_page_of_plain_lines_fits_the_terminal(monkeypatch):
    page = Document(lambda: [Sentence("word " * 40)], dict)
    assert max(map(len, rendered(page, "table").splitlines())) == 99
    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.setenv("TERM", "xterm")
    assert max(map(len, rendered(page, "table").splitlines())) == 99  # standard output is not a terminal
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    assert max(map(len, rendered(page, "table").splitlines())) == 59
    assert len(rendered(page, "md").splitlines()) == 1
    monkeypatch.setattr(sys, "stdout", None)
    assert max(map(len, rendered(page, "table").splitlines())) == 99


def test_a_program_gets_utf8_whatever_the_terminal_speaks(monkeypatch):
    raw = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(raw, encoding="ascii"))
    write("é\n")
    assert raw.getvalue() == "é\n".encode()


def test_a_name_that_is_no_utf8_is_shown_escaped(monkeypatch):
    terminal = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
    monkeypatch.setattr(sys, "stdout", terminal)
    write("x\udcff.html: 84 KB\n")
    assert terminal.buffer.getvalue() == b"x\\udcff.html: 84 KB\n"


def test_a_closed_output_is_said(monkeypatch):
    monkeypatch.setattr(sys, "stdout", None)
    with pytest.raises(InputError, match="standard output: is closed"), standard_output():
        pass


def test_json_hides_no_escapes_and_loses_nothing():
    result = library.score(rollouts({"task": "a", "reward": 1, "model": "x\x9b2J\u202e\u200f🙂"}))
    text = safe_json(result.to_json())
    assert "\x9b" not in text
    assert "\u202e" not in text
    assert "🙂" in text
    assert json.loads(text) == json.loads(result.to_json())


@pytest.mark.parametrize(
    ("shape", "start"),
    [("table", "rollouts  "), ("json", "{\n"), ("csv", "dataset,model,agent,"), ("md", "### `rollouts`\n")],
)
def test_every_shape(capsys, shape, start):
    show_result(library.score([[1, 0]]), shape)
    assert capsys.readouterr().out.startswith(start)


def test_a_file_that_is_replaced_stays_as_private_as_it_was(tmp_path):
    path = tmp_path / "result.json"
    path.write_text("old")
    path.chmod(0o600)
    Target(str(path)).write(b"new")
    assert (path.read_bytes(), path.stat().st_mode & 0o777) == (b"new", 0o600)
