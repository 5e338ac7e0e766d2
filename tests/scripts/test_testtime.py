import importlib.util
import json
import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).parents[2] / "scripts" / "testtime.py"
spec = importlib.util.spec_from_file_location("script_testtime", SCRIPT)
testtime = importlib.util.module_from_spec(spec)
spec.loader.exec_module(testtime)

# what spends and what does not: here, in a child that is waited for, and in one that lives on
TESTS = """
import resource, subprocess, sys
import pytest

SPEND = "import resource, sys\\nwhile sum(resource.getrusage(resource.RUSAGE_SELF)[:2]) < 0.3: pass\\n"

def test_nothing(): pass
def test_here():
    before = sum(resource.getrusage(resource.RUSAGE_SELF)[:2])
    while sum(resource.getrusage(resource.RUSAGE_SELF)[:2]) < before + 0.3: pass
def test_child(): subprocess.run([sys.executable, "-c", SPEND], check=True)

@pytest.fixture(scope="module")
def server():
    with subprocess.Popen([sys.executable, "-c", SPEND + "print(flush=True); sys.stdin.read()"],
                          stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        yield process
        process.stdin.close()

def test_server(server): server.stdout.readline()
def test_afterwards(server): pass
"""


def test_a_test_is_charged_with_its_own_time_and_that_of_its_children(tmp_path):
    (tmp_path / "test_some.py").write_text(TESTS)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    command = [sys.executable, str(SCRIPT), "-n0", "-p", "no:schemathesis", "--top", "3", "--write", "figures.json"]
    done = subprocess.run([*command, "test_some.py"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    figures = json.loads((tmp_path / "figures.json").read_text())
    seconds = {name.rpartition("::")[2]: took for name, took in figures["tests"].items()}
    assert {name for name, took in seconds.items() if took >= 0.29} >= {"test_here", "test_child", "test_server"}
    assert max(seconds["test_nothing"], seconds["test_afterwards"]) < 0.29
    assert figures["total"] >= 0.9
    assert "everything: 5 tests" in done.stdout
    assert len([line for line in done.stdout.splitlines() if "test_some.py::" in line]) == 3


def test_the_heaviest_come_first_and_then_the_folders():
    seconds = {"tests/a/test_x.py::one": 1.0, "tests/b/test_y.py::two": 3.0, testtime.COLLECTED: 0.5}
    assert testtime.table(seconds, 5.0, 1).splitlines() == [
        "       s     %  test",
        "    3.00  60.0  tests/b/test_y.py::two",
        "       s     %  folder",
        "    3.00  60.0  tests/b",
        "    1.00  20.0  tests/a",
        "    0.50  10.0  (start and collection)",
        "    5.00 100.0  everything: 2 tests, 0.1 min of processor time",
    ]
