import ast
import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
_spec = importlib.util.spec_from_file_location("script_house", ROOT / "scripts" / "house.py")
script = importlib.util.module_from_spec(_spec)
sys.modules[_spec.name] = script  # a dataclass looks its module up
_spec.loader.exec_module(script)


def house(**sources):
    """Modules of a small house: dots are written as two underscores."""
    named = {f"calipers.{name.replace('__', '.')}": text for name, text in sources.items()}
    return {name: (script.SOURCE / f"{name.replace('.', '/')}.py", ast.parse(text)) for name, text in named.items()}


def test_imports_are_seen_however_they_are_written():
    known = house(
        a__one="import calipers.b.two\nfrom calipers.c import three\nfrom calipers.c.three import X",
        b__two="INDEX = {'x': 'calipers.c.three:X'}",  # an index names modules in strings
        c__three="import json",
    )
    users = script.importers(known)
    assert users["calipers.c.three"] == {"calipers.a.one", "calipers.b.two"}
    assert users["calipers.b.two"] == {"calipers.a.one"}


def test_a_file_that_serves_one_beside_it():
    known = house(
        a__one="from calipers.a.two import X\nfrom calipers.b.three import Y",
        a__two="X = 1",  # its one importer lies beside it
        b__three="Y = 1",  # its one importer lies elsewhere
    )
    assert script.kept_by_one(known) == ["calipers.a.two"]


@pytest.mark.parametrize(
    ("name", "systems"),
    [
        ("calipers.systems.harbor.read", {"harbor"}),
        ("calipers.systems.lm_eval.read", {"lm_eval"}),
        ("calipers.systems.nemo_gym.aggregate", {"nemo_gym"}),
        ("calipers.systems.nemo_gym.read", {"nemo_gym"}),
        ("calipers.systems.harbor.trials.via_harbor", {"harbor"}),
        ("calipers.stats.paired", set()),
    ],
)
def test_the_system_in_a_name(name, systems):
    assert script.systems_of(name) == systems


def test_a_class_name_in_two_files_and_a_local_counted_once_a_function():
    known = house(a="class X: pass\ndef f():\n    found = 1\n    found = 2", b="class X: pass\nclass Y: pass")
    assert script.classes(known) == ["X"]
    assert script.locals_of(known) == {"found": 1}


def test_the_picture_is_what_the_import_graph_says():
    done = subprocess.run([sys.executable, ROOT / "scripts" / "house_picture.py"], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
