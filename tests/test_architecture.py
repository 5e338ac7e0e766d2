"""The house rules that no type checker sees. The import contract itself stands in pyproject.toml."""

from __future__ import annotations

import ast
import importlib.util
import inspect
import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from source import FILES, SOURCE, facts
from waiting import PATIENCE

import calipers
from calipers import names

ROOT = Path(__file__).parents[1]

MAY_WAIT = re.compile(
    r"(clients|engines|verifiers|running)/|systems/\w+/(collect|serve|lent|trials)/|systems/(evsys/(benchmark|evaluators)|lm_eval/client|nemo_gym/hooks)\.py$|web/viewer/"
)  # the rooms that may say async
NAMELESS = {"base", "common", "handler", "helper", "helpers", "impl", "manager", "misc", "util", "utils"}
HEAVY = {"aiohttp", "numpy", "polars", "rich", "scipy"}

# Written so that this file does not match itself.
REGISTRY = re.compile(r"pypi\.(?:org|python\.org)|pythonhosted\.org|(?:npmjs|anaconda|yarnpkg)\.(?:org|com)|crates\.io")
MACHINE = re.compile(r"(?<![\w.)}\]/-])/(?:work|root|farm)(?![\w-])")


def test_only_some_rooms_wait():
    found = {name for name, file in facts().items() if file.waits}
    assert any(MAY_WAIT.match(name) for name in found)
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
    typed = {
        alias.asname or alias.name: f"{node.module}:{alias.name}" if alias.asname else node.module
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
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
        name: text
        for name, file in facts().items()
        if not name.startswith(NAMERS)
        for text in file.strings
        if SYSTEM.search(text)
    }
    assert found == {}


SYSTEM_NAMES = {"evsys", "harbor", "inspect", "lm_eval", "nemo_gym"}
MAY_SAY = {  # who may say a system's name outside of its folder, and why
    "cli/demo.py": "a tour, which types a command with --dialect",
    "glossary.py": "formats are called after their systems",
    "compat.py": "it lends other systems' packages",
    "running/perform.py": "a field of a job",
    "running/settings.py": "a field of a job",
}


def test_no_door_and_no_analysis_knows_a_system_by_its_name():
    """No ``if dialect == "harbor"``: what a system does differently, it says in its `System` or its `Dialect`."""
    found = {
        (name, text)
        for name, file in facts().items()
        if not name.startswith(("names.py", "systems/")) and name not in MAY_SAY
        for text in file.strings
        if text in SYSTEM_NAMES
    }
    assert found == set()


def test_no_room_is_called_like_a_public_verb():
    """``calipers.score`` is a function: a module of that name would take its place once it is imported."""
    verbs = {name for name in calipers.__all__ if inspect.isfunction(getattr(calipers, name))}
    assert {"compare", "score"} <= verbs
    assert verbs & {name.partition("/")[0].removesuffix(".py") for name in FILES} == set()


UNREACHED = {  # what nothing in the house names, and why it stays
    "systems/harbor/trajectory.py:decode_trajectory": "compared with Harbor by its golden vectors",
    "systems/harbor/trajectory.py:usage_by_model": "likewise",
    "systems/harbor/wire.py:primary_reward": "likewise",
    "systems/harbor/lent/environment.py:_apply_network_policy": "called by Harbor",
    "systems/harbor/lent/environment.py:_validate_definition": "likewise",
    "reports/page.py:_repr_html_": "called by notebooks",
    "glossary.py:_repr_html_": "likewise",
}


def test_every_function_and_class_is_named_somewhere_else_in_the_house():
    """What only a test calls goes. A hook of Python's (``__getattr__``) is called by nobody.

    A private method that nobody names may be one whose base class was given another name for it: the workers of a
    rescore on a cluster were not ended, and now and then the command never ended either.
    """
    places: dict[str, set[tuple[str, int]]] = {}
    for name, file in facts().items():
        for word, line in file.named:
            places.setdefault(word, set()).add((name, line))
    unreached = {
        f"{name}:{inner}"
        for name, file in facts().items()
        for inner, first, last in file.defined
        if not inner.startswith("__")
        and all(where == name and first <= line <= last for where, line in places.get(inner, ()))
    }
    assert unreached == UNREACHED.keys()


def test_systems_do_not_name_each_other():
    found = {
        (name, other)
        for name, path in FILES.items()
        if name.startswith("systems/") and name != "systems/__init__.py"
        for other in re.findall(r"calipers\.systems\.(\w+)", path.read_text())
        if other != name.split("/")[1].removesuffix(".py")
    }
    assert found == set()


def test_every_system_has_its_words_and_formats_named():
    """A name in names.py leads somewhere: a moved file would be found out only by who asks for it."""
    for index in (names.FORMATS, names.DIALECTS, names.SYSTEMS):
        assert [entry for entry in index.entries if index.load(entry) is None] == []
    targets = (names.METRIC_SCRIPTS, names.BENCHMARK_ENGINE, names.RUN_SECTION, *names.BENCHMARK_CACHES)
    for target in (*targets, names.TASK_LIBRARY, names.DOCUMENT_TABLES, names.AGENT_RUNS):
        assert names.load(target) is not None
    for system in map(names.SYSTEMS.load, names.SYSTEMS.entries):
        functions = (system.page, system.numbers, system.run_page, *system.exports.values())
        assert [target for target in functions if target and not callable(names.load(target))] == []
    homes = [home.partition(":") for parts in names.LENT.values() for home in parts.values() if home]
    assert [home for home, _, _ in homes if importlib.util.find_spec(home) is None] == []
    targets = [f"{home}:{name}" for home, _, lent in homes for name in lent.split()]
    assert [target for target in targets if names.load(target) is None] == []


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="not a checkout: nothing can be ignored")
def test_git_ignores_no_source():
    """A folder called runs/ or build/ would be left out of every commit without a word."""
    asked = ["git", "-C", str(ROOT), "ls-files", "--others", "--ignored", "--exclude-standard", "--", "src", "tests"]
    done = subprocess.run(asked, capture_output=True, text=True, check=True)
    assert [name for name in done.stdout.splitlines() if name.endswith(".py")] == []


def test_the_schemas_of_our_files_keep_their_names():
    """A program reads them; a rename of a module may not change one."""
    written = {
        schema for path in FILES.values() for schema in re.findall(r'"calipers\.[a-z_.]+/\d+"', path.read_text())
    }
    names = "comparison curves documents gate items judge_check leaderboard matrix notification plan rescored result"
    certified = "audit certificate preregistration proof salts verification"
    watch = "watch watch_state watch_alarm best_step history"
    every = [*names.split(), *certified.split(), *watch.split(), "index", "partial", "stopped"]
    assert written == {f'"calipers.{name}/1"' for name in every}


def test_pages_import_from_the_front_page_alone():
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    lines = [line for page in pages for line in page.read_text().splitlines()]
    assert [line for line in lines if re.match(r"\s*(>>> |\.\.\. )?(from|import) calipers\.", line)] == []


def test_most_is_every_extra_but_torch_and_ray():
    """README says so."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    named = {name: set(re.findall(r"[a-z]+", extras[name][0].partition("[")[2])) for name in ("most", "all")}
    assert named["all"] == extras.keys() - {"most", "all", "dev"}
    assert named["all"] - named["most"] == {"hf", "ray"}
