import importlib
import subprocess
import sys
from types import ModuleType

import pytest
from waiting import PATIENCE

from calipers.compat import GYM, activate, deactivate
from calipers.names import LENT
from calipers.systems.nemo_gym.lent import base_resources_server, reward_profile, server_utils


@pytest.fixture(autouse=True)
def _nothing_lent():
    deactivate(GYM)
    yield
    deactivate(GYM)


def test_it_is_there_while_it_is_lent():
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("nemo_gym.reward_profile")
    assert activate(GYM) is activate(GYM) is True
    from nemo_gym.base_resources_server import SimpleResourcesServer

    assert SimpleResourcesServer is base_resources_server.SimpleResourcesServer
    deactivate(GYM)
    assert not {*LENT[GYM]} & {*sys.modules}


def test_each_package_is_lent_by_itself():
    activate(GYM)
    assert importlib.util.find_spec("evsys_sdk") is None
    activate()
    deactivate(GYM)
    assert importlib.util.find_spec("evsys_sdk.registry") is not None
    deactivate()


def test_what_is_not_lent_is_said():
    activate(GYM)
    with pytest.raises(ModuleNotFoundError, match=r"but not nemo_gym\.sandbox; install nemo_gym to get all of it"):
        importlib.import_module("nemo_gym.sandbox")


def test_the_real_package_is_left_alone(monkeypatch):
    monkeypatch.setitem(sys.modules, "nemo_gym", ModuleType("nemo_gym"))
    assert activate(GYM) is False


@pytest.mark.parametrize("module", [base_resources_server, reward_profile, server_utils])
def test_every_name_is_there(module):
    assert [name for name in module.__all__ if getattr(module, name, None) is None] == []


@pytest.mark.parametrize(("hidden", "said"), [("pydantic", "calipers[serve]"), ("msgspec", "import of msgspec halted")])
def test_without_the_extra_it_says_what_is_missing(hidden, said):
    """Only the packages of the extra may be imported."""
    program = (
        "import sys; from calipers.compat import activate, GYM; activate(GYM)\n"
        f"sys.modules['{hidden}'] = None\n"
        "try:\n    import nemo_gym.base_resources_server\nexcept ModuleNotFoundError as error:\n    print(error)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    assert done.returncode == 0, done.stderr
    assert said in done.stdout


def test_each_module_has_the_names_that_are_lent():
    activate(GYM)
    modules = {part: importlib.import_module(part) for part in LENT[GYM]}
    assert [
        (part, name) for part, module in modules.items() for name in module.__all__ if not hasattr(module, name)
    ] == []
    assert modules["nemo_gym.judge"].__all__ == sorted(modules["nemo_gym.judge"].__all__)
    assert {*modules["nemo_gym"].__all__} == {"CACHE_DIR", "PARENT_DIR", "RESULTS_DIR", "ROOT_DIR", "WORKING_DIR"}
