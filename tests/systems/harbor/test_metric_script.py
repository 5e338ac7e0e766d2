"""Metric scripts in the sandbox: Harbor's contract, and all ways in which a script can fail."""

from __future__ import annotations

import json
import os
import socket
import sys
import uuid
from dataclasses import replace
from pathlib import Path
from textwrap import dedent

import pytest
from harbor_datasets import write_dataset
from isolate.captive import alive
from systems.harbor.metric_page import PAGE, put

from calipers.errors import InputError, SandboxError
from calipers.isolate import Limits, Mechanism
from calipers.isolate.launch import NAMES, attempt
from calipers.systems.harbor.metric_script import (
    LONGEST_STDERR,
    Declaration,
    ScriptError,
    Unusable,
    check_ready,
    declared,
    output_of,
    run_script,
    scrubbed,
    stderr_tail,
)

GOLDEN = Path(__file__).parents[2] / "golden" / "harbor"
SHORT = Limits(seconds=1.0, memory_mb=256, processes=8, disk_mb=4, output_bytes=1 << 16)
ENDLESS = replace(SHORT, seconds=0.25)  # for scripts that would never end, however slow the machine is
KINDS = {"RuntimeError": "exit", "FileNotFoundError": "no_output", "JSONDecodeError": "no_json"}
SECRET = "sk-not-for-scripts-51ab"


@pytest.fixture(params=NAMES)
def mechanism(request: pytest.FixtureRequest) -> Mechanism:
    found = attempt(request.param)
    if not isinstance(found, Mechanism):
        pytest.skip(found)
    return found


@pytest.mark.parametrize(
    ("rewards", "mean"),
    [
        ([{"reward": 1.0}, {"reward": 0.0}, {"reward": 1.0}, {"reward": 0.0}], 0.5),
        ([{"reward": 1.0}, None, {"reward": 1.0}, None], 0.5),  # null counts 0, as the page says
        ([{"accuracy": 1}, {"f1": 0.5}], 0.75),  # one key each, whatever it is called
        ([], 0),
    ],
)
def test_the_page_as_printed(tmp_path, mechanism, rewards, mean):
    (tmp_path / "metric.py").write_text(PAGE)
    assert run_script(tmp_path / "metric.py", rewards, mechanism=mechanism) == {"mean": mean}


def test_the_page_refuses_two_keys_in_its_own_words(tmp_path, mechanism):
    (tmp_path / "metric.py").write_text(PAGE)
    with pytest.raises(ScriptError, match=r"Expected exactly one key in reward dictionary, got 2$") as failure:
        run_script(tmp_path / "metric.py", [{"a": 1, "b": 0}], mechanism=mechanism)
    assert (failure.value.kind, failure.value.message) == ("exit", "it ended with exit status 1")
    assert failure.value.exit_code == 3


@pytest.mark.parametrize("path", sorted(GOLDEN.glob("uv_script_*.json")), ids=lambda path: path.stem)
def test_what_harbor_itself_makes_of_a_script(path):
    case = json.loads(path.read_text())
    script, rewards, expected = case["input"]["script"], case["input"]["rewards"], case["expected"]
    if script is None:  # Harbor refuses the job
        with pytest.raises(InputError, match="no such file"):
            run_script(Path("nowhere/metric.py"), rewards)
    elif isinstance(expected, dict) and "error" in expected:
        with pytest.raises(ScriptError) as failure:
            output_of(script.encode(), rewards)
        assert failure.value.kind == KINDS[expected["error"]["type"]]
    else:
        assert output_of(script.encode(), rewards) == expected


@pytest.mark.parametrize("value", ["[1, 2]", "3", '"text"', "null", "true"])
def test_only_an_object_is_a_metric(tmp_path, value):
    """Harbor accepts a list, and crashes when it prints the job's progress."""
    script = put(tmp_path, f"open(target, 'w').write({value!r})")
    with pytest.raises(ScriptError, match="expected an object") as failure:
        run_script(script, [])
    assert failure.value.kind == "no_object"


WRONG = {
    "fails": ("sys.exit('no rewards here')", "exit", "it ended with exit status 1: no rewards here"),
    "is no Python": ("def metric(:", "exit", "SyntaxError"),
    "dies": ("os.kill(os.getpid(), 11)", "exit", "it ended with SIGSEGV"),
    "leaves nothing": ("print(json.dumps({'mean': 1}))", "no_output", "it left no metric.json"),
    "leaves a folder": ("os.mkdir(target)", "no_output", "it left no metric.json"),
    "leaves a link": ("os.symlink('/etc/passwd', target)", "no_output", "it left no metric.json"),
    "leaves a pipe": ("os.mkfifo(target)", "no_output", "it left no metric.json"),
    "leaves too much": ("leave({'a': 'x' * 100_000})", "no_output", "of at most"),
    "leaves rubbish": ("open(target, 'w').write('mean=1')", "no_json", "metric.json is not JSON"),
    "leaves no text": ("open(target, 'wb').write(bytes(range(128, 256)))", "no_json", "metric.json is not JSON"),
    "leaves an abyss": ("open(target, 'w').write('[' * 50_000)", "no_json", "metric.json is not JSON"),
    "hangs": ("time.sleep(1000)", "stopped", "it was stopped: it reached its limit of 0.25 s"),
    "spins": ("while True: pass", "stopped", "it reached its limit of 0.25 s"),
    "prints without end": ("while True: print('x' * 4096)", "stopped", "it reached its limit of 0.25 s"),
    "complains without end": ("while True: sys.stderr.write('x' * 4096)", "stopped", "it reached its limit of 0.25 s"),
    "forks without end": (
        """
        while True:
            try: os.fork()
            except OSError: pass
        """,
        "stopped",
        "it reached its limit of 0.25 s",
    ),
    "takes all memory": ("x = b'x' * (10 << 30)", "exit", "MemoryError"),
    "fills the disk": (
        """
        with open("/tmp/big", "wb") as file:
            while True: file.write(b"x" * (1 << 20))
        """,
        "exit",
        "OSError",
    ),
    "fills the folder of its output": (
        """
        for number in range(1000):
            with open(f"{os.path.dirname(target)}/{number}", "wb") as file: file.write(b"x" * (1 << 20))
        """,
        "exit",
        "No space left on device",
    ),
}


@pytest.mark.parametrize(("code", "kind", "said"), WRONG.values(), ids=WRONG)
def test_a_script_that(tmp_path, mechanism, code, kind, said):
    script, marker = marked(tmp_path, code)
    limits = ENDLESS if kind == "stopped" else SHORT
    with pytest.raises(ScriptError) as failure:
        run_script(script, [{"reward": 1.0}], limits=limits, mechanism=mechanism)
    assert failure.value.kind == kind
    assert said in str(failure.value)
    assert alive(marker) == []


def test_children_that_are_left_do_not_stay(tmp_path, mechanism):
    code = """
        leave({"mean": 1})
        if os.fork() == 0:
            os.setsid()
            time.sleep(1000)
    """
    script, marker = marked(tmp_path, code)
    assert run_script(script, [], mechanism=mechanism) == {"mean": 1}
    assert alive(marker) == []


def marked(folder: Path, code: str) -> tuple[Path, str]:
    """A script that restarts itself with a word that identifies its processes, and the word."""
    marker = f"marker-{uuid.uuid4().hex}"
    again = f"if {marker!r} not in sys.argv: os.execv(sys.executable, [sys.executable, *sys.argv, {marker!r}])"
    return put(folder, f"{again}\n{dedent(code)}"), marker


def test_inside_are_no_secrets_and_nothing_of_the_machine(tmp_path, mechanism, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", SECRET)
    kept = tmp_path / "key"
    kept.write_text(SECRET)
    code = f"""
        def read(path):
            try: return open(path).read()
            except OSError as error: return type(error).__name__
        def walked(top):
            return [path for path, _, _ in os.walk(top)]
        leave({{
            "environment": dict(os.environ),
            "beside": sorted(os.listdir(os.path.dirname(os.path.abspath(__file__)))),
            "work": sorted(os.listdir(os.path.dirname(source))),
            "files": [read({str(kept)!r}), read("/proc/1/environ"), read("/etc/shadow")],
            "home": os.listdir(os.path.expanduser("~")),
            "user": os.getuid(),
            "commands": os.path.exists("/bin/sh"),
        }})
    """
    found = run_script(put(tmp_path, code), [None], mechanism=mechanism)
    assert SECRET not in json.dumps(found)
    assert found["files"] == ["FileNotFoundError"] * 3
    assert found["beside"] == ["metric.py"]
    assert set(found["work"]) <= {"rewards.jsonl", "metric.json"}
    assert (found["home"], found["user"], found["commands"]) == ([], 65534, False)


def test_inside_is_no_network(tmp_path, mechanism):
    with socket.create_server(("127.0.0.1", 0)) as server:
        code = f"""
            import socket
            said = []
            for host, port in (("127.0.0.1", {server.getsockname()[1]}), ("192.0.2.1", 80)):
                try:
                    socket.create_connection((host, port), 1)
                    said.append("reached")
                except OSError:
                    said.append("refused")
            leave({{"said": said}})
        """
        assert run_script(put(tmp_path, code), [], mechanism=mechanism) == {"said": ["refused", "refused"]}


def test_nothing_but_the_standard_library_without_a_declaration(tmp_path, mechanism):
    code = """
        import importlib.util
        found = [name for name in ("numpy", "click", "calipers", "pip") if importlib.util.find_spec(name)]
        leave({"found": found, "apart": sys.prefix != sys.base_prefix})
    """
    assert run_script(put(tmp_path, code), [], mechanism=mechanism) == {"found": [], "apart": True}


def test_the_input_cannot_be_changed(tmp_path, mechanism):
    code = """
        try: open(source, "w")
        except OSError: leave({"refused": 1})
    """
    assert run_script(put(tmp_path, code), [], mechanism=mechanism) == {"refused": 1}


def test_the_same_rewards_give_the_same_numbers(tmp_path):
    """Strings have the same hash in every run, so that sets have the same order."""
    script = put(tmp_path, "leave({'order': list({str(number) for number in range(50)})})")
    assert run_script(script, []) == run_script(script, [])


@pytest.mark.parametrize("made", ["nothing", "folder", "long"])
def test_what_is_no_script(tmp_path, made):
    path = tmp_path / "metric.py"
    if made == "folder":
        path.mkdir()
    elif made == "long":
        path.write_bytes(b"#" * (2 << 20))
    said = {"nothing": "no such file", "folder": "is a directory", "long": "is longer than 1 MiB"}[made]
    with pytest.raises(InputError, match=f"metric.py: {said}; expected a Python script"):
        run_script(path, [])


@pytest.mark.parametrize(
    ("stderr", "shown"),
    [
        (b"", ""),
        (b"one\n\n  two\t three\n", "one / two three"),
        (b"x" * 10_000, "x" * LONGEST_STDERR),
        (b"first\n" + b"y" * LONGEST_STDERR, "y" * LONGEST_STDERR),  # whole lines, from the end
        (
            b"\xff\x1b]0;title\x07",
            "\N{REPLACEMENT CHARACTER}\N{REPLACEMENT CHARACTER}]0;title\N{REPLACEMENT CHARACTER}",
        ),
    ],
)
def test_last_words_are_safe_to_show(stderr, shown):
    assert stderr_tail(stderr) == shown


def test_words_are_scrubbed(monkeypatch):
    monkeypatch.setenv("SOME_TOKEN", SECRET)
    said = f"GET https://user:{SECRET}@host/simple with {SECRET}"
    assert scrubbed(said) == "GET https://[secret]@host/simple with [secret]"
    assert os.environ["SOME_TOKEN"] == SECRET


# Before a run, it is checked that the metric scripts of its datasets can have a sandbox


def test_a_dataset_with_a_script_needs_a_sandbox_before_it_is_run(tmp_path, monkeypatch):
    attempt.cache_clear()
    monkeypatch.setenv("PATH", str(tmp_path))
    write_dataset(tmp_path / "set", 1)
    try:
        check_ready([str(tmp_path / "set"), "a-name@1.0", "x" * 300])  # no script, and no folders
        (tmp_path / "set" / "metric.py").write_text("")
        with pytest.raises(SandboxError, match="metric scripts run in a sandbox, and no sandbox works on this machine"):
            check_ready([str(tmp_path / "set")])
    finally:
        attempt.cache_clear()


# The comment block in which a script declares its requirements


HERE = "{}.{}".format(*sys.version_info[:2])


def block(*lines: str) -> bytes:
    return "\n".join(["import json", "# /// script", *(f"# {line}" for line in lines), "# ///", ""]).encode()


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        (b"", Declaration()),
        (b"print(1)", Declaration()),
        (PAGE.encode(), Declaration()),
        (b"# /// other\n# dependencies = ['a']\n# ///\n", Declaration()),  # somebody else's block
        (b"    # /// script\n# dependencies = ['a']\n", Declaration()),  # no block: it does not begin its line
        (block("dependencies = ['b', 'a', 'b']"), Declaration(("a", "b"))),
        (block("dependencies = [", "  'numpy>=2',", "]"), Declaration(("numpy>=2",))),
        (block("dependencies = ['a']").replace(b"\n", b"\r\n"), Declaration(("a",))),
        (b"# /// script\n# dependencies = ['a']\n#\n# ///", Declaration(("a",))),  # no newline at the end
        (block("dependencies = ['a']", "[tool.uv]", "exclude-newer = '2026-01-01'"), Declaration(("a",), "2026-01-01")),
        (block("[tool.other]", "x = 1"), Declaration()),
        (block(f"requires-python = '>={HERE},<4'"), Declaration()),
        (block(f"requires-python = '~={HERE}'"), Declaration()),
        (block(f"requires-python = '=={HERE}.*, !=2.7'"), Declaration()),
        (block("requires-python = ''"), Declaration()),
    ],
)
def test_what_is_declared(source, expected):
    assert declared(source) == expected


@pytest.mark.parametrize(
    ("source", "said"),
    [
        (b"\xff\xfe", "it is not text"),
        (block("dependencies = ["), "its block '# /// script' is not valid TOML"),
        (b"# /// script\n# dependencies = []\nimport json\n", "its block '# /// script' does not end"),
        (block("x = 1") + block("x = 1"), "it has 2 blocks '# /// script'; expected one"),
        (block("dependencies = 'numpy'"), "its dependencies are not a list of strings"),
        (block("dependencies = [1]"), "its dependencies are not a list of strings"),
        (block("dependencies = ['']"), "its dependency '' cannot be read"),
        (block("dependencies = ['-r /etc/passwd']"), "its dependency '-r /etc/passwd' cannot be read"),  # an option
        (block("dependencies = ['./beside']"), "its dependency './beside' cannot be read"),
        (block('dependencies = ["a\\nb"]'), "cannot be read"),
        (block("[tool.uv.sources]", "a = {git = 'https://x'}"), r"its \[tool.uv\] sets 'sources'"),
        (
            block("[tool.uv]", "index-url = 'https://x'"),
            (r"its \[tool.uv\] sets 'index-url'; " r"expected only exclude-newer"),
        ),
        (block("requires-python = '>=3.99'"), "it requires Python >=3.99, but this is 3"),
        (block("requires-python = '<3.11'"), "it requires Python <3.11, but this is 3"),
        (block(f"requires-python = '=={HERE}'"), "it requires Python =="),  # which is 3.11.0 alone
        (block("requires-python = 'new'"), "its requires-python is 'new'; expected one such as '>=3.11'"),
        (block("dependencies = " + "1" * 5000), "its block '# /// script' is not valid TOML"),
        (block("dependencies = " + "[" * 5000), "its block '# /// script' is not valid TOML"),
        (block(f"requires-python = '>={'1' * 5000}'"), "expected one such as '>=3.11'"),
        (block("requires-python = 3"), "its requires-python is 3; expected one such as '>=3.11'"),
    ],
)
def test_what_cannot_be_honoured(source, said):
    with pytest.raises(Unusable, match=said):
        declared(source)
