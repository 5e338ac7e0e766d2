"""Packages that bring metrics: real ones that pip builds and installs, and bare ones, quickly put on the path."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from waiting import PATIENCE

Points = Mapping[str, Mapping[str, str]]  # group -> entry point -> module:object

# A wheel is a zip file: no build tool need be installed, and pip still builds and installs a real package.
BACKEND = """
import tomllib, zipfile
from pathlib import Path


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    project = tomllib.loads(Path("pyproject.toml").read_text())["project"]
    stem = f"{project['name'].replace('-', '_')}-{project['version']}"
    points = "".join(
        f"[{group}]\\n" + "".join(f"{name} = {value}\\n" for name, value in pairs.items())
        for group, pairs in project["entry-points"].items()
    )
    files = {path.as_posix(): path.read_text() for path in Path().glob("*/*.py")}
    info = f"{stem}.dist-info"
    about = {"Metadata-Version": "2.1", "Name": project["name"], "Version": project["version"]}
    wheel = {"Wheel-Version": "1.0", "Generator": "test", "Root-Is-Purelib": "true", "Tag": "py3-none-any"}
    for name, lines in {"METADATA": about, "WHEEL": wheel}.items():
        files[f"{info}/{name}"] = "".join(f"{key}: {value}\\n" for key, value in lines.items())
    files[f"{info}/entry_points.txt"] = points
    files[f"{info}/RECORD"] = "".join(f"{name},,\\n" for name in [*files, f"{info}/RECORD"])
    with zipfile.ZipFile(Path(wheel_directory) / f"{stem}-py3-none-any.whl", "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    return f"{stem}-py3-none-any.whl"
"""


def project(root: Path, name: str, code: str, points: Points) -> Path:
    """A project with one module, ``<name>.metrics``, ready for pip."""
    package = name.replace("-", "_")
    folder = root / name
    (folder / package).mkdir(parents=True)
    (folder / package / "__init__.py").write_text("")
    (folder / package / "metrics.py").write_text(code)
    (folder / "wheel_backend.py").write_text(BACKEND)
    tables = "".join(
        f'[project.entry-points."{group}"]\n' + "".join(f'"{entry}" = "{value}"\n' for entry, value in pairs.items())
        for group, pairs in points.items()
    )
    (folder / "pyproject.toml").write_text(
        '[build-system]\nrequires = []\nbuild-backend = "wheel_backend"\nbackend-path = ["."]\n'
        f'[project]\nname = "{name}"\nversion = "1.0"\n{tables}'
    )
    return folder


def pip_install(site: Path, *projects: Path) -> None:
    """Build and install projects into a folder, offline."""
    flags = ["--quiet", "--no-deps", "--no-build-isolation", "--no-index", "--target", str(site)]
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", *flags, *map(str, projects)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert done.returncode == 0, done.stderr


def put(site: Path, name: str, code: str, points: Points) -> None:
    """What an installed package looks like, one module ``<name>.py``, without the installing."""
    (site / f"{name.replace('-', '_')}.py").write_text(code)
    info = site / f"{name.replace('-', '_')}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "".join(
            f"[{group}]\n" + "".join(f"{entry} = {value}\n" for entry, value in pairs.items())
            for group, pairs in points.items()
        )
    )
