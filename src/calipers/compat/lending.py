"""Other systems' packages, lent: their names lead to our modules as long as the real package is not installed."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Final

from calipers.names import METRICS, VERIFIERS, Index

EVSYS: Final = "evsys_sdk"
GYM: Final = "nemo_gym"

PARTS: Final = {  # what we lend -> where its names live; a package need not have any
    "evsys_sdk": "",
    "evsys_sdk.benchmark": "calipers.compat.evsys.benchmark",
    "evsys_sdk.inference": "calipers.compat.evsys.inference",
    "evsys_sdk.metrics": "",
    "evsys_sdk.metrics.basic": "calipers.compat.evsys.basic",
    "evsys_sdk.protocols": "calipers.compat.evsys.protocols",
    "evsys_sdk.registry": "calipers.compat.evsys.registry",
    "evsys_sdk.verifiers": "calipers.compat.evsys.verifiers",
    "evsys_sdk.verifiers.fns": "calipers.compat.evsys.fns",
}
GYM_PARTS: Final = {
    "nemo_gym": "",
    "nemo_gym.base_resources_server": "calipers.systems.nemo_gym.lent.base_resources_server",
    "nemo_gym.reward_profile": "calipers.systems.nemo_gym.lent.reward_profile",
    "nemo_gym.server_utils": "calipers.systems.nemo_gym.lent.server_utils",
}
PACKAGES: Final[Mapping[str, Mapping[str, str]]] = {EVSYS: PARTS, GYM: GYM_PARTS}


class _Lender(MetaPathFinder, Loader):
    """Finds the parts of packages that exist here, and says so when asked for another."""

    def __init__(self) -> None:
        self.lent: set[str] = set()

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        package = fullname.partition(".")[0]
        if package not in self.lent:
            return None
        parts = PACKAGES[package]
        if fullname not in parts:
            there = ", ".join(part for part, home in parts.items() if home)
            # without its name attribute: `from evsys_sdk import x` would hide this text behind one of its own
            raise ModuleNotFoundError(
                f"Calipers lends {there}, but not {fullname}; install {package} itself to have all of it"
            )
        return ModuleSpec(fullname, self, is_package=True)  # so that Python asks here for what is below it, too

    def exec_module(self, module: ModuleType) -> None:
        if home := PACKAGES[module.__name__.partition(".")[0]][module.__name__]:
            source = _imported(home, module.__name__)
            module.__doc__ = source.__doc__
            vars(module).update({name: getattr(source, name) for name in ("__all__", *source.__all__)})


def _imported(home: str, part: str) -> ModuleType:
    try:
        return importlib.import_module(home)
    except ModuleNotFoundError as error:
        if error.name != "pydantic":
            raise
        right = "pip install 'calipers[serve]' brings it"
        raise ModuleNotFoundError(f"{part} is lent with pydantic, which is not installed; {right}") from None


_LENDER: Final = _Lender()


def activate(package: str = EVSYS) -> bool:
    """Make ``evsys_sdk`` or ``nemo_gym`` importable; False, and nothing is done, where the real one is installed.

    Doing it twice is doing it once.
    """
    if package in _LENDER.lent:
        return True
    if _installed(package):
        return False
    sys.modules.pop(package, None)  # a folder of that name, imported before
    _LENDER.lent.add(package)
    if _LENDER not in sys.meta_path:
        sys.meta_path.insert(0, _LENDER)
    return True


def deactivate(package: str = EVSYS) -> None:
    """Take a package back; what was registered stays."""
    _LENDER.lent.discard(package)
    if not _LENDER.lent and _LENDER in sys.meta_path:
        sys.meta_path.remove(_LENDER)
    for part in PACKAGES[package]:
        module = sys.modules.get(part)
        if module is not None and module.__spec__ is not None and module.__spec__.loader is _LENDER:
            del sys.modules[part]


def _installed(package: str) -> bool:
    """Whether the real package is there. A mere folder is not one: EvSys keeps its logs in such a folder."""
    if package in sys.modules:
        spec = sys.modules[package].__spec__
        return spec is None or spec.origin is not None
    spec = importlib.util.find_spec(package)
    return spec is not None and spec.origin is not None


@contextmanager
def borrowing() -> Iterator[None]:
    """Run somebody's EvSys code inside: ``evsys_sdk`` is there, and what is registered is known here.

    What a module registered before it failed to load is taken back.
    """
    before = {index.kind: set(index.added) for index in (METRICS, VERIFIERS)}
    lent = activate()
    try:
        yield
    except BaseException:
        for index in (METRICS, VERIFIERS):
            _take_back(index, set(index.added) - before[index.kind])
        raise
    if not lent:
        _adopt()


def _take_back(index: Index, names: set[str]) -> None:
    gone = [name for name in names if getattr(index.added[name], "__module__", "") not in sys.modules]
    if gone:
        from calipers.compat.evsys.registry import METRIC_REGISTRY
        from calipers.compat.evsys.verifiers import VERIFIER_REGISTRY

        for name in gone:
            (METRIC_REGISTRY if index is METRICS else VERIFIER_REGISTRY).unregister(name)


def _adopt() -> None:
    """Add what the real registry holds beyond its own metrics, if it was imported at all."""
    registry = sys.modules.get("evsys_sdk.registry")
    if registry is None:
        return
    from calipers.dialects.evsys import EVSYS

    for name in registry.list_metrics():
        if name not in (EVSYS.metrics or ()):
            METRICS.add(name, registry.get_metric(name))
