"""``nemo_gym``, lent: its names lead to our modules as long as the real package is not installed."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Final

PACKAGE: Final = "nemo_gym"

PARTS: Final = {  # what we lend -> where its names live
    "nemo_gym": "",
    "nemo_gym.base_resources_server": "calipers.compat.nemo_gym.base_resources_server",
    "nemo_gym.reward_profile": "calipers.compat.nemo_gym.reward_profile",
}


class _Lender(MetaPathFinder, Loader):
    """Finds the parts of ``nemo_gym`` that exist here, and says so when asked for another."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname.partition(".")[0] != PACKAGE:
            return None
        if fullname not in PARTS:
            there = ", ".join(part for part, home in PARTS.items() if home)
            # without its name attribute: `from nemo_gym import x` would hide this text behind one of its own
            raise ModuleNotFoundError(
                f"Calipers lends {there}, but not {fullname}; install nemo_gym itself to have all of it"
            )
        return ModuleSpec(fullname, self, is_package=True)

    def exec_module(self, module: ModuleType) -> None:
        if home := PARTS[module.__name__]:
            source = importlib.import_module(home)
            module.__doc__ = source.__doc__
            vars(module).update({name: getattr(source, name) for name in ("__all__", *source.__all__)})


_LENDER: Final = _Lender()


def activate() -> bool:
    """Make ``nemo_gym`` importable; False, and nothing is done, where the real one is installed.

    Doing it twice is doing it once.
    """
    if _LENDER in sys.meta_path:
        return True
    if _installed():
        return False
    sys.modules.pop(PACKAGE, None)  # a folder of that name, imported before
    sys.meta_path.insert(0, _LENDER)
    return True


def deactivate() -> None:
    """Take ``nemo_gym`` back."""
    if _LENDER in sys.meta_path:
        sys.meta_path.remove(_LENDER)
    for part in PARTS:
        module = sys.modules.get(part)
        if module is not None and module.__spec__ is not None and module.__spec__.loader is _LENDER:
            del sys.modules[part]


def _installed() -> bool:
    """Whether a real ``nemo_gym`` is there; a mere folder of that name is not one."""
    if PACKAGE in sys.modules:
        spec = sys.modules[PACKAGE].__spec__
        return spec is None or spec.origin is not None
    spec = importlib.util.find_spec(PACKAGE)
    return spec is not None and spec.origin is not None
