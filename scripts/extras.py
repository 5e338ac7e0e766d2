"""Measure the size of each extra of Calipers, in megabytes on disk beyond the core.

    python scripts/extras.py             all extras except hf and ray, which install torch and ray
    python scripts/extras.py hf ray      these extras

pip installs each extra with its dependencies into a temporary folder, and the folder is measured.
"""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).parents[1]
HEAVY = ("hf", "ray")
TOGETHER = ("most", "all", "dev")  # combinations of other extras


def main(names: list[str]) -> int:
    """Print a line for the core and one for each extra."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    core, extras = project["dependencies"], project["optional-dependencies"]
    chosen = names or [name for name in extras if name not in (*HEAVY, *TOGETHER)]
    if unknown := [name for name in chosen if name not in extras]:
        print(f"no extra named {unknown[0]!r}; expected {', '.join(extras)}", file=sys.stderr)
        return 2
    base = weight(core)
    print(f"core: {base:,.0f} MB")
    for name in chosen:
        print(f"{name}: {weight([*core, *extras[name]]) - base:,.0f} MB more")
    if not names:
        members = extras["most"][0].partition("[")[2].rstrip("]").split(",")
        together = [need for name in members for need in extras[name]]
        print(f"most: {weight([*core, *together]) - base:,.0f} MB more")
    return 0


def weight(needs: list[str]) -> float:
    """The size of packages with their dependencies, in MB (1,000,000 bytes)."""
    with TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "pip", "install", "-qq", "--no-compile", "--target", folder, *needs]
        subprocess.run(command, check=True)
        return sum(path.stat().st_size for path in Path(folder).rglob("*") if path.is_file()) / 1e6


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
