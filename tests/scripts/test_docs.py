import importlib.util
import socket
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).parents[2] / "scripts"


def script(name):
    spec = importlib.util.spec_from_file_location(f"script_{name}", SCRIPTS / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


docs = script("docs")

OLD = "# A page\n\n<!-- output: echo hello -->\nsomething old\n<!-- /output -->\n\nThe end.\n"
NEW = "# A page\n\n<!-- output: echo hello -->\n```console\n$ echo hello\nhello\n```\n<!-- /output -->\n\nThe end.\n"


def test_a_page_shows_what_the_command_prints():
    assert docs.renewed(OLD, "page.md") == NEW
    assert docs.renewed(NEW, "page.md") == NEW


def test_a_page_without_commands_stays_as_it_is():
    assert docs.renewed("# A page\n", "page.md") == "# A page\n"


@pytest.mark.parametrize("page", ["<!-- output: echo -->\n", "<!-- /output -->\n", f"<!-- output: echo -->\n{OLD}"])
def test_markers_that_do_not_pair(page):
    with pytest.raises(SystemExit, match=r"page\.md: its output markers do not pair"):
        docs.renewed(page, "page.md")


@pytest.fixture
def place():
    with docs.prepared() as prepared:
        yield prepared


def test_an_error_may_be_shown_but_not_a_breakdown(place):
    assert docs.output("echo wrong >&2; exit 2", place) == "wrong\n"
    with pytest.raises(SystemExit, match="no-such-command"):
        docs.output("no-such-command", place)


def test_standard_output_alone(place):
    assert docs.output("echo note >&2; echo table", place, notes=False) == "table\n"
    with pytest.raises(SystemExit, match="why it failed"):
        docs.output("echo why it failed >&2; exit 2", place, notes=False)


RUN = "<!-- run: {0} -->\n```sh\n{1}{0}\n```\n\n```text\n{2}\n```\n<!-- /run -->\n"
SERVER = "<!-- server: python3 examples/arithmetic_server.py -->\n"


def test_a_block_to_copy():
    made = RUN.format("echo note >&2; echo table", "", "table")
    assert docs.renewed("<!-- run: echo note >&2; echo table -->\n<!-- /run -->\n", "page.md") == made
    start = "python3 examples/arithmetic_server.py &\n"
    bare = "".join(f"<!-- run: echo {number} -->\n<!-- /run -->\n" for number in (1, 2))
    made = RUN.format("echo 1", start, "1") + RUN.format("echo 2", "", "2")
    assert docs.renewed(SERVER + bare, "page.md") == SERVER + made


def test_a_file_is_shown_as_it_is():
    made = docs.renewed("<!-- file: examples/my_verifier.py -->\n<!-- /file -->\n", "page.md")
    content = (docs.ROOT / "examples" / "my_verifier.py").read_text()
    assert made == f"<!-- file: examples/my_verifier.py -->\n```python\n{content}```\n<!-- /file -->\n"


@pytest.mark.parametrize("folder", ["", f"{docs.ROOT}"])
def test_no_page_names_this_machine(place, folder):
    with pytest.raises(SystemExit, match="useless to a reader"):
        docs.output(f"cd {folder or '.'} && pwd", place)


def test_fences_hold_whatever_is_printed(place):
    assert docs.shown("printf '```\\n'", place).startswith("````console\n")


def test_commands_of_a_page_share_a_folder_that_is_gone_afterwards():
    page = "".join(
        f"<!-- output: {command} -->\n<!-- /output -->\n"
        for command in ("echo 7 > it", "cat it", "test -e runs || echo no runs")
    )
    made = docs.renewed(page, "page.md")
    assert "$ cat it\n7\n" in made
    assert "\nno runs\n" in made  # what runs left in this repository is not there
    assert not (docs.ROOT / "it").exists()


ASKS = """import json, urllib.request
chat = json.dumps({"model": "calc-1", "messages": [{"role": "user", "content": "What is 2 + 2?"}]}).encode()
print(json.load(urllib.request.urlopen("http://127.0.0.1:8000/v1/chat/completions", chat))["choices"][0])
"""


def test_a_server_runs_as_long_as_its_page_needs_it():
    with docs.prepared("python3 examples/arithmetic_server.py") as first:
        with docs.prepared("python3 examples/arithmetic_server.py") as second:  # the port of the first is taken
            assert first.address != second.address
            (second.folder / "ask.py").write_text(ASKS.replace(docs.ADDRESS, second.address))
            assert "2 + 2 = 4" in docs.output("python3 ask.py", second)
            assert docs.output(f"echo {docs.ADDRESS}", second) == f"{docs.ADDRESS}\n"
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", int(second.address.partition(":")[2])))
    with pytest.raises(SystemExit, match="it does not start"), docs.prepared("python3 -c pass"):
        pass


def test_a_page_with_a_server_is_rewritten_if_more_than_times_change():
    page = f"{SERVER}<!-- output: echo {{}} -->\n```console\n$ echo {{}}\n{{}}\n```\n<!-- /output -->\n"
    same = page.format("took 2.1 s", "took 2.1 s", "took 14 min 16 s")
    assert docs.renewed(same, "page.md") == same
    other = page.format("solved 3", "solved 3", "solved 4")
    assert "\nsolved 3\n" in docs.renewed(other, "page.md")


@pytest.mark.parametrize(
    ("old", "new", "same"),
    [
        (
            "cost  33 tokens, $0.055, 14 min 16 s; per solved task 2 s",
            "cost  33 tokens, $0.055, 9 ms; per solved task 1 h 2 min",
            True,
        ),
        ("cost  33 tokens, 2.1 s", "cost  34 tokens, 2.1 s", False),
        ("latency_p50 ↓   0.0429  –\n─────", "latency_p50 ↓  10.5  –\n────────", True),
        ("total: 5 input_tokens, 3.07 latency_s", "total: 5 input_tokens, 1,003 latency_s", True),
        ("4 samples", "5 samples", False),
    ],
)
def test_what_a_clock_measured(old, new, same):
    assert (docs.without_times(old) == docs.without_times(new)) is same


def test_the_page_of_metrics_has_a_section_for_each():
    page = docs.metrics_page()
    assert page.count("\n## `") == len(docs.METRIC_CARDS)


def test_the_command_is_the_one_of_this_environment(place):
    assert docs.output("calipers --version", place).startswith("calipers ")


@pytest.mark.parametrize("arguments", [["--chek"], ["docs/no_such_page.md"], ["Makefile"]])
def test_wrong_arguments_are_refused(capsys, arguments):
    assert docs.main(arguments) == 2
    assert capsys.readouterr().err == "usage: python scripts/docs.py [--check] [README.md | docs/PAGE.md]...\n"


def test_the_bundled_example_is_what_its_script_makes(tmp_path, monkeypatch):
    example = script("make_example")
    bundled = contents(example.HOME)
    monkeypatch.setattr(example, "HOME", tmp_path)
    example.main()
    assert contents(tmp_path) == bundled


def test_the_data_of_the_recipes_is_what_its_script_makes(tmp_path, monkeypatch):
    data = script("make_recipe_data")
    monkeypatch.setattr(data, "HOME", tmp_path)
    data.main()
    made = contents(tmp_path)
    assert sorted(made) == ["questions.csv", "twenty_models.csv"]
    assert all((docs.ROOT / "examples" / name).read_bytes() == content for name, content in made.items())


def contents(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
