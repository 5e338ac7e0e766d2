import importlib.util
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


def test_an_error_may_be_shown_but_not_a_breakdown():
    assert docs.output("echo wrong >&2; exit 2") == "wrong\n"
    with pytest.raises(SystemExit, match="no-such-command"):
        docs.output("no-such-command")


def test_no_page_names_this_machine():
    with pytest.raises(SystemExit, match="useless to a reader"):
        docs.output("pwd")


def test_fences_hold_whatever_is_printed():
    assert docs.shown("printf '```\\n'").startswith("````console\n")


def test_the_page_of_metrics_has_a_section_for_each():
    page = docs.metrics_page()
    assert page.count("\n## `") == len(docs.CARDS)


def test_the_command_is_the_one_of_this_environment():
    assert docs.output("calipers --version").startswith("calipers ")


def test_wrong_arguments_are_refused(capsys):
    assert docs.main(["--chek"]) == 2
    assert capsys.readouterr().err == "usage: python scripts/docs.py [--check]\n"


def test_the_bundled_example_is_what_its_script_makes(tmp_path, monkeypatch):
    example = script("make_example")
    bundled = contents(example.HOME)
    monkeypatch.setattr(example, "HOME", tmp_path)
    example.main()
    assert contents(tmp_path) == bundled


def contents(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
