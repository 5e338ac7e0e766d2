"""The house rules that no type checker sees. The import contract itself stands in pyproject.toml."""

from __future__ import annotations

import ast
import importlib.util
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from waiting import PATIENCE

import calipers
from calipers import names

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "calipers"
FILES = {path.relative_to(SOURCE).as_posix(): path for path in sorted(SOURCE.rglob("*.py"))}

MAY_WAIT = re.compile(
    r"(clients|verifiers|running)/|systems/\w+/(collect|jobs|serve|lent|trials)/|systems/nemo_gym/hooks\.py$|systems/evsys/benchmark\.py$"
)  # the rooms that may say async
NAMELESS = {"base", "common", "handler", "helper", "helpers", "impl", "manager", "misc", "util", "utils"}
HEAVY = {"aiohttp", "numpy", "polars", "rich", "scipy"}

# Written so that this file does not match itself.
REGISTRY = re.compile(r"pypi\.(?:org|python\.org)|pythonhosted\.org|(?:npmjs|anaconda|yarnpkg)\.(?:org|com)|crates\.io")
MACHINE = re.compile(r"(?<![\w.)}\]/-])/(?:work|root|farm)(?![\w-])")


def test_only_some_rooms_wait():
    waits = (ast.AsyncFunctionDef, ast.AsyncFor, ast.AsyncWith, ast.Await)
    found = {
        name
        for name, path in FILES.items()
        if any(isinstance(node, waits) for node in ast.walk(ast.parse(path.read_text())))
    }
    assert {name for name in found if not MAY_WAIT.match(name)} == set()


def test_every_file_is_named_after_its_data():
    assert [name for name in FILES if NAMELESS & {*Path(name).with_suffix("").parts}] == []


def test_public_names_are_sorted_and_there():
    public = [name for name in calipers.__all__ if not name.startswith("_")]
    assert public == sorted(set(public))
    assert [name for name in calipers.__all__ if getattr(calipers, name, None) is None] == []


def test_type_checkers_see_the_same_public_names():
    """The imports under TYPE_CHECKING are a second list of the same names, module by module."""
    page = ast.parse((SOURCE / "__init__.py").read_text())
    homes = next(
        ast.literal_eval(node.value)
        for node in page.body
        if isinstance(node, ast.Assign) and "_HOME" in ast.dump(node.targets[0])
    )
    block = next(node for node in page.body if isinstance(node, ast.If))
    typed = {alias.name: node.module for node in block.body if isinstance(node, ast.ImportFrom) for alias in node.names}
    assert typed == homes


COMMAND = """
import json, sys
from calipers.cli import main
try:
    main()
except SystemExit as stop:
    assert not stop.code, stop.code
print(json.dumps(sorted(sys.modules)), file=sys.stderr)
"""


@pytest.mark.parametrize("asked", ["--help", "--version", "list metrics", "explain pass@3"])
def test_a_question_loads_nothing_heavy(asked):
    assert HEAVY & loaded_by(COMMAND, *asked.split()) == set()


def test_the_import_loads_nothing_heavy():
    assert HEAVY & loaded_by("import json, sys, calipers; print(json.dumps([*sys.modules]), file=sys.stderr)") == set()


def loaded_by(program: str, *arguments: str) -> set[str]:
    """The modules a fresh interpreter holds after a program, which lists them in its last line of stderr."""
    command = [sys.executable, "-c", program, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert done.returncode == 0, done.stderr
    return set(json.loads(done.stderr.splitlines()[-1]))


def test_no_file_names_a_registry_or_a_machine():
    """A lock to one host, or a path that exists on one computer, is of no use to anybody else."""
    found = [
        f"{path.relative_to(ROOT)}:{number}: {match[0]}"
        for path in tracked()
        for number, line in enumerate(path.read_text(errors="ignore").splitlines(), 1)
        if (match := REGISTRY.search(line) or MACHINE.search(line))
    ]
    assert found == []


def tracked() -> list[Path]:
    """Every file git holds or is about to; without git, every file that is not hidden."""
    listing = ["git", "-C", str(ROOT), "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    try:
        names = subprocess.run(listing, capture_output=True, text=True, timeout=PATIENCE, check=True).stdout.split("\0")
        paths = [ROOT / name for name in names if name]
    except (OSError, subprocess.CalledProcessError):
        paths = [path for path in ROOT.rglob("*") if not any(p.startswith(".") for p in path.relative_to(ROOT).parts)]
    return [path for path in paths if path.is_file() and not path.is_symlink()]


NAMERS = ("names.py", "__init__.py", "cli/", "systems/")  # what may say where another system's code lives
SYSTEM = re.compile(r"calipers\.systems\.\w")


def test_the_spine_names_no_system_in_a_string_either():
    found = {
        name: node.value
        for name, path in FILES.items()
        if not name.startswith(NAMERS)
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and SYSTEM.search(node.value)
    }
    assert found == {}


def test_systems_do_not_name_each_other():
    found = {
        (name, other)
        for name, path in FILES.items()
        if name.startswith("systems/") and name.count("/") > 1
        for other in re.findall(r"calipers\.systems\.(\w+)", path.read_text())
        if other not in (name.split("/")[1], "system")
    }
    assert found == set()


def test_every_system_has_its_words_and_formats_named():
    """A name in names.py leads somewhere: a moved file would be found out only by who asks for it."""
    for index in (names.FORMATS, names.DIALECTS):
        assert [entry for entry in index.entries if index.load(entry) is None] == []
    targets = (names.METRIC_SCRIPTS, names.BENCHMARK_ENGINE, names.RUN_SECTION, *names.BENCHMARK_CACHES)
    for target in (*targets, names.TASK_LIBRARY, names.DOCUMENT_TABLES):
        assert names.load(target) is not None
    homes = [home for parts in names.LENT.values() for home in parts.values() if home]
    assert [home for home in homes if importlib.util.find_spec(home) is None] == []


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="not a checkout: nothing can be ignored")
def test_git_ignores_no_source():
    """A folder called runs/ or build/ would be left out of every commit without a word."""
    asked = ["git", "-C", str(ROOT), "ls-files", "--others", "--ignored", "--exclude-standard", "--", "src", "tests"]
    done = subprocess.run(asked, capture_output=True, text=True, check=True)
    assert [name for name in done.stdout.splitlines() if name.endswith(".py")] == []
