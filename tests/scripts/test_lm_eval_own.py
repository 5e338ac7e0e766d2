"""The list of lm-evaluation-harness' own tests: what pytest would find, and nothing else."""

from __future__ import annotations

import importlib.util
import json
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]
_spec = importlib.util.spec_from_file_location("script_lm_eval_own", ROOT / "scripts" / "lm_eval_own.py")
script = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(script)

THEIRS = """
import unittest
import pytest

@pytest.fixture
def test_folder():
    pass

def helper():
    pass

async def test_alone():
    pass

class Base:
    def test_inherited(self):
        pass

class TestMore(Base):
    def test_own(self):
        pass

    def helper(self):
        pass

class Old(unittest.TestCase):
    def test_old(self):
        pass
"""


def test_tests_are_listed_as_pytest_finds_them(tmp_path):
    (tmp_path / "tests" / "models").mkdir(parents=True)
    (tmp_path / "tests" / "models" / "test_one.py").write_text(THEIRS)
    (tmp_path / "tests" / "test_none.py").write_text("def helper():\n    pass\n")
    for words in (
        ("init", "-q"),
        ("-c", "user.name=x", "-c", "user.email=x@y", "commit", "-q", "--allow-empty", "-mx"),
    ):
        subprocess.run(["git", "-C", str(tmp_path), *words], check=True)
    listed = json.loads(script._listed(tmp_path))
    assert listed["tests"] == {
        "models/test_one.py": ["test_alone", "TestMore::test_inherited", "TestMore::test_own", "Old::test_old"]
    }
    assert len(listed["commit"]) == 40
