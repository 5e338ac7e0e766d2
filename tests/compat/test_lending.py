import importlib
import importlib.util
import subprocess
import sys

import pytest
from compat.packages import put
from waiting import PATIENCE

import calipers.compat
from calipers.compat import EVSYS, activate, borrowing, deactivate
from calipers.names import LENT, METRICS

REAL = """
_held = {}
def register_metric(name):
    return lambda cls: _held.setdefault(name, cls)
def list_metrics():
    return ["avg", *sorted(_held)]
def get_metric(name):
    return _held[name]
"""


@pytest.fixture
def real(tmp_path, monkeypatch):
    """An ``evsys_sdk`` that somebody installed."""
    package = tmp_path / "evsys_sdk"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "registry.py").write_text(REAL)
    monkeypatch.syspath_prepend(tmp_path)
    yield package
    for name in [name for name in sys.modules if name.partition(".")[0] == "evsys_sdk"]:
        del sys.modules[name]


def fresh(program, **settings):
    """What a fresh interpreter prints."""
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False, **settings)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_nothing_is_lent_before_it_is_asked_for():
    program = "import calipers, calipers.compat, importlib.util as u; print(u.find_spec('evsys_sdk'))"
    assert fresh(program) == "None"


def test_the_door_opens_without_arithmetic():
    program = "import sys, calipers.compat; print({'numpy', 'polars', 'calipers.pipeline'} & {*sys.modules})"
    assert fresh(program) == "set()"


@pytest.mark.parametrize(
    "statement",
    [
        "import evsys_sdk.registry; evsys_sdk.registry.register_metric",
        "from evsys_sdk.registry import register_metric, get_metric, list_metrics, schema_for, Registry",
        "from evsys_sdk import registry; registry.get_metric('avg')",
        "from evsys_sdk.protocols import Metric",
        "from evsys_sdk.metrics import basic; basic.PASS_THRESHOLD",
        "import evsys_sdk.metrics.basic as basic; basic.PassRate",
        "from evsys_sdk.metrics.basic import *; PassAt3",
    ],
)
def test_every_form_of_import_works(statement):
    assert activate()
    exec(statement, {})


def test_what_is_lent_are_modules_of_their_own_over_one_registry():
    activate()
    activate()
    registry = importlib.import_module("evsys_sdk.registry")
    assert (registry.__name__, registry.__spec__.name) == ("evsys_sdk.registry", "evsys_sdk.registry")
    assert importlib.util.find_spec("evsys_sdk.metrics").submodule_search_locations == []
    from calipers.systems.evsys import lent

    assert lent.__spec__.name == "calipers.systems.evsys.lent"
    assert registry.get_metric == lent.get_metric
    assert [type(finder).__name__ for finder in sys.meta_path].count("_Lender") == 1


@pytest.mark.parametrize(
    ("statement", "part"),
    [
        ("import evsys_sdk.algorithms", "evsys_sdk.algorithms"),
        ("from evsys_sdk import algorithms", "evsys_sdk.algorithms"),
        ("from evsys_sdk.algorithms import rl", "evsys_sdk.algorithms"),
        ("from evsys_sdk import Experiment", "evsys_sdk.Experiment"),
        ("from evsys_sdk.training.loop import TrainingLoop", "evsys_sdk.training.loop"),
        ("from evsys_sdk.verifiers.classes import FormatOnly", "evsys_sdk.verifiers.classes"),
        ("import evsys_sdk.inference.openai", "evsys_sdk.inference.openai"),
        ("import evsys_sdk.metrics.advanced", "evsys_sdk.metrics.advanced"),
    ],
)
def test_a_part_that_is_not_lent_says_which_are(statement, part):
    activate()
    with pytest.raises(ImportError) as caught:
        exec(statement, {})
    lent = ", ".join(name for name, home in LENT[EVSYS].items() if home)
    assert str(caught.value) == f"Calipers provides {lent}, but not {part}; install evsys_sdk to get all of it"


@pytest.mark.parametrize(
    ("statement", "name", "nearest"),
    [
        ("from evsys_sdk import Benchmrk", "Benchmrk", "Benchmark"),  # not the module
        ("from evsys_sdk import list_metric", "list_metric", "list_metrics"),
        ("from evsys_sdk import benchmrk", "benchmrk", "benchmark"),
        ("import evsys_sdk.trainng", "trainng", "training"),
        ("from evsys_sdk.trainng.trajectory import Turn", "trainng", "training"),
        ("from evsys_sdk.registry import regster_metric", "registry.regster_metric", "registry.register_metric"),
        (
            "from evsys_sdk.inference.mock import MockInferenc",
            "inference.mock.MockInferenc",
            "inference.mock.MockInference",
        ),
    ],
)
def test_a_name_nobody_knows_says_the_nearest(statement, name, nearest):
    activate()
    with pytest.raises(ImportError) as caught:
        exec(statement, {})
    right = f"did you mean evsys_sdk.{nearest}? Install evsys_sdk to get all of it"
    assert str(caught.value) == f"Calipers does not provide evsys_sdk.{name}; {right}"


def test_nothing_of_the_package_is_loaded_before_it_is_asked_for():
    program = (
        "import sys; from calipers.compat import activate; activate()\n"
        "import evsys_sdk; print(evsys_sdk.__version__, 'numpy' in sys.modules, 'Benchmark' in dir(evsys_sdk))\n"
        "print(evsys_sdk.Benchmark.__name__)\n"
        "try: evsys_sdk.Nothing\nexcept AttributeError as error: print(error)"
    )
    assert fresh(program).splitlines() == [
        "0.1.0 False False",
        "Benchmark",
        "module 'evsys_sdk' has no attribute 'Nothing'",
    ]


def test_what_is_lent_can_be_taken_back():
    activate()
    importlib.import_module("evsys_sdk.metrics.basic")
    deactivate()
    deactivate()
    assert importlib.util.find_spec("evsys_sdk") is None
    assert [name for name in sys.modules if name.startswith("evsys_sdk")] == []


def test_the_real_package_wins(real):
    assert not activate()
    assert importlib.import_module("evsys_sdk").__file__ == str(real / "__init__.py")
    assert not activate()  # also when it is imported already


def test_what_the_real_registry_holds_is_known_here(real, tmp_path, monkeypatch):
    """The entry point's name is not the decorator's, so only their registry can tell."""
    code = "from evsys_sdk.registry import register_metric\n@register_metric('brought')\nclass Brought:\n    pass\n"
    put(tmp_path, "brings-real", code, {"evsys_sdk.metrics": {"another": "brings_real:Brought"}})
    monkeypatch.syspath_prepend(tmp_path)
    assert METRICS.plugin("brought").__name__ == "Brought"
    assert "avg" not in METRICS.added  # theirs, and in the dialect's table


def test_a_folder_of_logs_is_not_the_real_package(tmp_path):
    """EvSys writes ./evsys_sdk/experiments/... by default, and Python takes any folder for a package."""
    (tmp_path / "evsys_sdk" / "experiments").mkdir(parents=True)
    program = (
        "import evsys_sdk; before = evsys_sdk.__file__\n"
        "from calipers.compat import activate; print(before, activate())\n"
        "from evsys_sdk.registry import list_metrics; print(len(list_metrics()))"
    )
    assert fresh(program, cwd=tmp_path).split() == ["None", "True", "6"]


def test_a_module_put_in_place_by_hand_counts_as_real(monkeypatch):
    monkeypatch.setitem(sys.modules, "evsys_sdk", type(sys)("evsys_sdk"))
    assert not activate()


def test_what_a_failed_module_registered_is_taken_back():
    def fail():
        from evsys_sdk.registry import register_metric

        for module in ("tests", "a_module_that_did_not_load"):
            register_metric(f"of_{module}")(type("Plugin", (), {"__module__": module}))
        raise RuntimeError("later")

    sys.modules.setdefault("tests", type(sys)("tests"))
    with pytest.raises(RuntimeError, match="later"), borrowing():
        fail()
    assert list(METRICS.added) == ["of_tests"]


def test_the_public_names_are_there():
    assert [name for name in calipers.compat.__all__ if not callable(getattr(calipers.compat, name))] == []
    with pytest.raises(AttributeError, match="no attribute 'lend'"):
        calipers.compat.lend  # noqa: B018
