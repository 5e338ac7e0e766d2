"""Every test of lm-evaluation-harness is ported or has a reason, and the page says how many."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

from golden.lm_eval_own.ledger import HEADING, REASONS, TESTS, counts, line, named, reason, section, with_section
from golden.lm_eval_own.ported import CASES

HERE = Path(__file__).parent
PAGE = Path(__file__).parents[3] / "docs" / "benchmarks-lm-eval.md"


def cases():
    """The ids of all cases here."""
    for path in sorted(HERE.glob("test_*.py")):
        import_module(f"golden.lm_eval_own.{path.stem}")
    return CASES


def test_a_case_names_a_test_that_is_there():
    assert set(cases().values()) - set(TESTS) == set()


def test_a_test_is_ported_or_has_a_reason():
    ported = set(cases().values())
    assert [test for test in TESTS if test not in ported and reason(test) is None] == []


def test_every_reason_is_needed():
    left = {named(test) for test in TESTS} - {None}
    used = {named(test) for test in set(TESTS) - set(cases().values())}
    assert set(REASONS) - left == set()
    assert set(REASONS) - used == set()


def test_counts_by_file_and_reason_add_up():
    found = counts(cases())
    print(line(found))
    assert found.cases.total() == len(cases())
    assert len(found.cases) + found.reasons().total() == len(TESTS)
    assert line(found).startswith(f"{len(TESTS)} tests there, ported {len(found.cases)} as {len(cases())} cases")


def test_the_page_says_what_a_run_counts():
    page = PAGE.read_text(encoding="utf-8")
    assert section(counts(cases())) in page, "run python scripts/lm_eval_own.py --write"
    assert page.count(HEADING) == 1


def test_the_section_takes_the_place_of_the_old_one():
    text = section(counts([]))
    assert with_section("# A\n", text) == f"# A\n\n{text}"
    assert with_section(f"# A\n\n{HEADING}\n\nold\n", text) == f"# A\n\n{text}"
    assert with_section(f"# A\n\n{HEADING}\n\nold\n\n## B\n", text) == f"# A\n\n{text}\n## B\n"
