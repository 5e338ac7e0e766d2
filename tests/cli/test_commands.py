import pytest
from cli.running import calipers

from calipers.cli import COMMANDS
from calipers.names import load

# A module's own name stands in what -X importtime prints, one line a module.
HEAVY = ("numpy", "polars", "scipy", "rich", "msgspec")


@pytest.mark.parametrize(("name", "entry"), COMMANDS.items())
def test_the_table_tells_the_truth(name, entry):
    target, text = entry
    command = load(target)
    assert command.name == name
    assert text.endswith(".")


@pytest.mark.parametrize(
    "arguments",
    [
        ["--help"],
        ["--version"],
        ["list", "metrics"],
        ["list", "dialects"],
        ["list", "formats"],
        ["list", "outcomes"],
        ["list", "methods"],
        ["explain", "percentile"],
        ["explain", "pass@3", "--dialect", "evsys"],
        ["explain", "evsys"],
        ["explain", "refused"],
        ["explain", "mid-p"],
        ["explain", "tango"],
        ["explain", "ledger"],
        ["list", "words"],
        ["score", "--help"],
        ["run", "--help"],
        ["compare", "--help"],
        ["gate", "--help"],
        ["plan", "--help"],
        ["collect", "--help"],
    ],
)
def test_a_question_loads_nothing_heavy(tmp_path, arguments):
    done = calipers(*arguments, cwd=tmp_path, PYTHONPROFILEIMPORTTIME="1")
    loaded = {line.rpartition("|")[2].strip().partition(".")[0] for line in done.stderr.splitlines()}
    assert "calipers" in loaded
    assert loaded & {*HEAVY} == set()


def test_the_help_loads_no_command(tmp_path):
    done = calipers("--help", cwd=tmp_path, PYTHONPROFILEIMPORTTIME="1")
    loaded = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert loaded & {target.partition(":")[0] for target, _ in COMMANDS.values()} == set()
