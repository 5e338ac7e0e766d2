"""The packages a metric script declares, installed by uv before the script runs: wheels only, once per declaration.

::

    $XDG_CACHE_HOME/calipers/scripts/<hash of the declaration>/   what the sandbox shows as site-packages

Nothing of a wheel runs while it is installed. A folder is filled beside its place and renamed into it, so that
it is whole or not there; two processes that fill the same one do not disturb each other.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Final

from calipers.jobs.metric_script_declared import Declaration, Unusable
from calipers.sandbox.view import interpreter

SECONDS: Final = 600.0  # for one installation
FORM: Final = 1  # rises when a folder is filled in another way


def packages(declaration: Declaration) -> Path | None:
    """The folder that holds what a script declares; None when it declares nothing, `Unusable` when it cannot be had."""
    if not declaration.dependencies:
        return None
    place = cache() / _key(declaration)
    if place.is_dir():
        return place
    uv = find_uv()
    names = ", ".join(declaration.dependencies)
    if uv is None:
        raise Unusable(
            f"it declares {names}, which uv would install, and there is no uv; pip install 'calipers[harbor]'"
        )
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".new-", dir=place.parent) as beside:
            filled = Path(beside, "packages")
            filled.mkdir(mode=0o755)
            _install(uv, declaration, filled, beside)
            filled.chmod(0o755)  # the program in the sandbox is nobody, and reads it
            with suppress(OSError):  # somebody else was first, with the same
                filled.rename(place)
    except OSError as error:
        raise Unusable(f"{place.parent}: its dependencies cannot be kept there ({error.strerror})") from None
    if not place.is_dir():
        raise Unusable(f"{place}: its dependencies cannot be kept there; expected a folder")
    return place


def find_uv() -> str | None:
    """The command uv: of the package installed beside us, else of the system; None where there is none."""
    try:
        from uv import find_uv_bin
    except ImportError:
        return shutil.which("uv")
    try:
        return os.fspath(find_uv_bin())
    except FileNotFoundError:
        return shutil.which("uv")


def cache() -> Path:
    """Where the packages of scripts are kept."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    home = Path(base) if os.path.isabs(base) else Path.home() / ".cache"
    return home / "calipers" / "scripts"


def _key(declaration: Declaration) -> str:
    about = [FORM, declaration.dependencies, declaration.exclude_newer, sys.implementation.cache_tag]
    return hashlib.sha256(json.dumps([*about, platform.machine(), platform.libc_ver()[0]]).encode()).hexdigest()[:32]


def _install(uv: str, declaration: Declaration, folder: Path, cwd: str) -> None:
    """Have uv fill a folder. It runs in a folder of ours: a dataset's settings for uv are none of the user's."""
    newest = [f"--exclude-newer={declaration.exclude_newer}"] if declaration.exclude_newer else []
    command = [uv, "pip", "install", "--quiet", "--no-progress", "--color=never", f"--python={interpreter()}"]
    command += ["--no-build", "--link-mode=copy", "--compile-bytecode", f"--target={folder}", *newest]
    try:
        done = subprocess.run(
            [*command, "--", *declaration.dependencies],
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            umask=0o022,
            timeout=SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise Unusable(f"its dependencies were not installed within {SECONDS:g} s") from None
    if done.returncode:
        said = done.stderr.decode(errors="replace").strip()
        raise Unusable(f"its dependencies cannot be installed from wheels (uv: {' '.join(said.split())})")
