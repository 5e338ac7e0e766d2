"""Count lm-evaluation-harness' own tests: which are ported as test cases of Calipers, and why others are not.

    python scripts/lm_eval_own.py                   run the cases and print the counts
    python scripts/lm_eval_own.py --write           also write them into docs/benchmarks-lm-eval.md
    python scripts/lm_eval_own.py --names CHECKOUT  list the tests of a checkout of lm-evaluation-harness again

The last command writes tests/golden/lm_eval_own/theirs.json. Then port the new tests in it, or give a reason for each.
"""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, TypeGuard

import pytest

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "tests" / "golden" / "lm_eval_own"
PAGE = ROOT / "docs" / "benchmarks-lm-eval.md"


def main(arguments: list[str]) -> int:
    """Run the cases, print the counts, and write them if requested."""
    if arguments[:1] == ["--names"] and len(arguments) == 2:
        (FOLDER / "theirs.json").write_text(_listed(Path(arguments[1])), encoding="utf-8")
        return 0
    if arguments not in ([], ["--write"]):
        print(__doc__, file=sys.stderr)
        return 2
    counted = _Counted()
    code = pytest.main([str(FOLDER), "-q", "-p", "no:cacheprovider", "--deselect", _OF_THE_PAGE], plugins=[counted])
    if code:
        return int(code)
    sys.path.insert(0, str(ROOT / "tests"))
    ledger = import_module("golden.lm_eval_own.ledger")
    counts = ledger.counts(counted.passed)
    print(ledger.line(counts))
    print(ledger.section(counts))
    if arguments:
        page = PAGE.read_text(encoding="utf-8")
        PAGE.write_text(ledger.with_section(page, ledger.section(counts)), encoding="utf-8")
    return 0


_OF_THE_PAGE = f"{FOLDER.relative_to(ROOT)}/test_ledger.py::test_the_page_says_what_a_run_counts"


class _Counted:
    """A pytest plugin that collects the cases that pass."""

    def __init__(self) -> None:
        self.passed: list[str] = []  # ids of cases: `file::test.number`

    def pytest_runtest_logreport(self, report: Any) -> None:
        """Add the id of a case that passed."""
        _, bracket, case = report.nodeid.partition("[")
        if report.when == "call" and report.passed and bracket:
            self.passed.append(case.removesuffix("]"))


def _listed(checkout: Path) -> str:
    """The tests of a checkout by file, as pytest collects them; skipped tests count."""
    git = ["git", "-C", str(checkout), "rev-parse", "HEAD"]
    commit = subprocess.run(git, capture_output=True, text=True, check=True).stdout.strip()
    tests = {}
    for path in sorted((checkout / "tests").rglob("test_*.py")):
        if names := list(_tests(ast.parse(path.read_text(encoding="utf-8")))):
            tests[path.relative_to(checkout / "tests").as_posix()] = names
    return json.dumps({"commit": commit, "tests": tests}, indent=1) + "\n"


def _tests(module: ast.Module) -> Iterator[str]:
    classes = {node.name: node for node in module.body if isinstance(node, ast.ClassDef)}
    for node in module.body:
        if isinstance(node, ast.ClassDef):
            bases = [base.id for base in node.bases if isinstance(base, ast.Name)]
            dotted = [base.attr for base in node.bases if isinstance(base, ast.Attribute)]
            if node.name.startswith("Test") or "TestCase" in dotted:
                yield from (f"{node.name}::{name}" for name in _methods(node, bases, classes))
        elif _is_test(node):
            yield node.name


def _is_test(node: ast.AST) -> TypeGuard[ast.FunctionDef | ast.AsyncFunctionDef]:
    """Whether a node is a test function; a fixture is not, whatever its name."""
    if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) or not node.name.startswith("test_"):
        return False
    return not any("fixture" in ast.unparse(decorator) for decorator in node.decorator_list)


def _methods(node: ast.ClassDef, bases: list[str], classes: Mapping[str, ast.ClassDef]) -> list[str]:
    names: dict[str, None] = {}  # an ordered set: an overriding test counts once
    for body in (*(classes[base].body for base in bases if base in classes), node.body):
        for member in body:
            if _is_test(member):
                names[member.name] = None
    return list(names)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
