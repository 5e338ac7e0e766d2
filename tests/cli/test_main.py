import os
import subprocess
import sys
from types import ModuleType

import click
import pytest
from cli.running import ARITH, MAIN, SECONDS, calipers, refused, rewards, run

import calipers as library
from calipers.cli import BUG, CLOSED_PIPE, COMMANDS, INTERRUPTED


@pytest.fixture
def command(monkeypatch):
    """Add a command that runs a given function; return its name."""

    def add(does):
        module = ModuleType("somebodys_commands")
        module.does = click.command()(does)
        monkeypatch.setitem(sys.modules, module.__name__, module)
        monkeypatch.setitem(COMMANDS, "does", (f"{module.__name__}:does", "What it is told."))
        return "does"

    return add


def test_without_a_command_it_helps(tmp_path):
    done = calipers(cwd=tmp_path)
    assert done.returncode == 0
    assert all(f"  {name} " in done.stdout for name in COMMANDS)
    assert done.stdout == calipers("--help", cwd=tmp_path).stdout == calipers("-h", cwd=tmp_path).stdout


def test_the_version(tmp_path):
    assert calipers("--version", cwd=tmp_path).stdout == f"calipers {library.__version__}\n"


def test_it_is_a_module_too(tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "calipers", "--version"], cwd=tmp_path, capture_output=True, timeout=SECONDS, check=True
    )
    assert done.stdout.decode() == f"calipers {library.__version__}\n"


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_helps(tmp_path, name):
    done = calipers(name, "-h", cwd=tmp_path)
    assert done.returncode == 0
    assert done.stdout.startswith(f"Usage: calipers {name} ")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["scroe"], "no command named 'scroe'; did you mean 'score' or 'rescore'?"),
        (["--verison"], "no option '--verison'; did you mean '--version'?"),
        (["explain"], "missing argument 'WORD'; see calipers explain --help"),
        (["explain", "--dialect"], "option '--dialect' requires an argument; see calipers explain --help"),
        (["list", "metrics", "more"], "got unexpected extra argument ('more'); see calipers list --help"),
    ],
)
def test_wrong_usage_is_one_line(tmp_path, arguments, said):
    assert refused(*arguments, cwd=tmp_path).replace("(more)", "('more')") == said


def test_an_argument_that_is_not_utf_8_is_named(tmp_path):
    rewards(tmp_path)
    said = refused("score", "rewards.json", "--by=\udcff", cwd=tmp_path)
    assert said == "'--by=\\udcff' is not UTF-8; expected text in UTF-8"


def test_a_plugin_with_a_name_too_long_for_a_file_is_no_bug(tmp_path):
    rewards(tmp_path)
    assert "no such file or module" in refused("score", "rewards.json", "--plugin", "x" * 300, cwd=tmp_path)


def test_our_bug_says_that_it_is_ours(command, capsys):
    def does():
        return {}["nothing"]

    assert run([command(does)]) == BUG
    said = "this is a bug in Calipers: KeyError: 'nothing'; run again with -v for the traceback\n"
    assert capsys.readouterr() == ("", said)


def test_our_bug_shows_its_traceback_when_asked(command, capsys):
    name = command(click.option("-v", is_flag=True, expose_value=False)(lambda: {}["nothing"]))
    assert run([name, "-v"]) == BUG
    said = capsys.readouterr().err
    assert said.startswith("Traceback (most recent call last):\n")
    assert said.endswith("\nthis is a bug in Calipers: KeyError: 'nothing'\n")


def test_what_an_error_quotes_cannot_reach_the_terminal(command, capsys):
    def does():
        raise library.InputError("a\x1b[2Jb\nc\u202ed")

    assert run([command(does)]) == 2
    assert capsys.readouterr().err == "a\ufffd[2Jb c\ufffdd\n"


def test_an_interrupt_is_silent(command, capsys):
    def does():
        raise KeyboardInterrupt

    assert run([command(does)]) == INTERRUPTED
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize(
    "arguments", [["score", ARITH], ["score", ARITH, "--format", "json"], ["list", "metrics"], ["--help"], ["demo"]]
)
def test_a_reader_that_leaves_is_no_error(tmp_path, arguments):
    """As in ``calipers score ... | head -1``, but the reader has certainly closed the pipe."""
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-c", MAIN, *arguments]
    done = subprocess.run(command, cwd=tmp_path, stdout=writer, stderr=subprocess.PIPE, timeout=SECONDS, check=False)
    os.close(writer)
    assert (done.returncode, done.stderr) == (CLOSED_PIPE, b"")


@pytest.mark.parametrize(
    ("arguments", "code"),
    [(["score", "nowhere.jsonl"], 2), (["gate", ARITH, "--require", "value(nothing) > 0"], 2), (["certify", ARITH], 0)],
)
def test_errors_that_nobody_can_be_told_change_no_exit_code(tmp_path, arguments, code):
    """A full disk with ``2> log``: exit code 1 would mean a failed gate, and the remaining work would be lost."""
    with open("/dev/full", "wb") as full:
        command = [sys.executable, "-c", MAIN, *arguments]
        done = subprocess.run(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=full, timeout=SECONDS, check=False)
    assert done.returncode == code


def test_head_reads_what_it_wants(tmp_path):
    command = f'"{sys.executable}" -c "{MAIN}" score "{ARITH}" | head -1'
    done = subprocess.run(["sh", "-c", command], cwd=tmp_path, capture_output=True, timeout=SECONDS, check=False)
    assert (done.returncode, done.stdout.decode().split("  ")[0]) == (0, "arith · tiny-calculator")
    assert [line.partition(":")[0] for line in done.stderr.decode().splitlines()] == ["warning"]  # of missing rollouts
    assert done.stdout.count(b"\n") == 1


@pytest.mark.parametrize("arguments", [["score", ARITH], ["list", "metrics"], ["explain", "wilson"]])
def test_a_closed_output_is_one_line(tmp_path, arguments):
    """As in ``calipers list metrics >&-``, for which Python has no standard output at all."""
    command = ["sh", "-c", 'exec "$@" >&-', "sh", sys.executable, "-c", MAIN, *arguments]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, timeout=SECONDS, check=False)
    assert done.returncode == 2
    assert done.stderr.decode() == "standard output: is closed; expected an open standard output\n"


@pytest.mark.parametrize("arguments", [["score", ARITH], ["list", "metrics"], ["--help"]])
def test_a_full_disk_is_one_line(tmp_path, arguments):
    with open("/dev/full", "wb") as full:
        command = [sys.executable, "-c", MAIN, *arguments]
        done = subprocess.run(command, cwd=tmp_path, stdout=full, stderr=subprocess.PIPE, timeout=SECONDS, check=False)
    assert done.returncode == 2
    assert done.stderr.decode() == "standard output: cannot be written (No space left on device)\n"


def test_the_shell_can_complete(tmp_path):
    asked = {"_CALIPERS_COMPLETE": "bash_complete", "COMP_WORDS": "calipers score --mis", "COMP_CWORD": "2"}
    assert calipers(cwd=tmp_path, **asked).stdout == "plain,--missing\n"


@pytest.mark.parametrize(("given", "kept"), [(None, "20"), ("26", "26")])
def test_idle_threads_of_numpy_sleep_soon_unless_the_user_wants_otherwise(monkeypatch, given, kept):
    monkeypatch.delenv("OPENBLAS_THREAD_TIMEOUT", raising=False)
    if given:
        monkeypatch.setenv("OPENBLAS_THREAD_TIMEOUT", given)
    assert run(["--version"]) == 0
    assert os.environ["OPENBLAS_THREAD_TIMEOUT"] == kept


def test_the_command_is_not_hidden_by_a_module_of_its_own_name():
    program = "import calipers.cli.run, calipers.cli; calipers.cli.main(['--version'])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("calipers ")
