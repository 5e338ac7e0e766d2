"""The environment in a results file of lm-evaluation-harness: commits, versions, the machine, the model."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from collections.abc import Iterable
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from calipers import __version__

if TYPE_CHECKING:
    from calipers.running.job import Job

LIBRARIES: Final = ("numpy", "torch", "transformers", "tokenizers", "accelerate", "peft", "datasets", "jinja2")
NOT_INSTALLED: Final = "N/A"
SECONDS: Final = 10.0  # for one call of git


def environment() -> dict[str, Any]:
    """The blocks on the commit of the working directory, the versions and the machine."""
    above = Path(os.getcwd()).parent
    return {
        "git_hash": _git(["describe", "--always"], Path(os.getcwd())),
        "pretty_env_info": machine(),
        "transformers_version": _version("transformers"),
        "upper_git_hash": _git(["rev-parse", "HEAD"], above) if (above / ".git").exists() else None,
    }


def machine() -> str:
    """The machine and the versions in lines, from Python's own information: no program is run."""
    lines = [
        f"calipers version: {__version__}",
        f"PyTorch version: {_version('torch')}",
        *_accelerators(),
        "",
        f"OS: {_system()} ({platform.machine()})",
        f"Python version: {' '.join(sys.version.split())} ({sys.maxsize.bit_length() + 1}-bit runtime)",
        f"Python platform: {platform.platform()}",
        f"CPUs: {os.cpu_count()}",
        "",
        "Versions of relevant libraries:",
        *(f"{name}=={found}" for name, found in _installed(LIBRARIES)),
    ]
    return "\n".join(lines)


def _accelerators() -> list[str]:
    """CUDA as torch reports it, if torch is loaded."""
    torch: Any = sys.modules.get("torch")
    if torch is None:
        return []
    available = bool(torch.cuda.is_available())
    names = [torch.cuda.get_device_name(number) for number in range(torch.cuda.device_count())] if available else []
    return [
        f"Is CUDA available: {available}",
        f"CUDA used to build PyTorch: {torch.version.cuda or NOT_INSTALLED}",
        *(f"GPU {number}: {name}" for number, name in enumerate(names)),
    ]


def _system() -> str:
    try:
        return platform.freedesktop_os_release()["PRETTY_NAME"]
    except (OSError, KeyError):
        return f"{platform.system()} {platform.release()}"


def _installed(names: Iterable[str]) -> list[tuple[str, str]]:
    return [(name, found) for name in names if (found := _version(name)) != NOT_INSTALLED]


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return NOT_INSTALLED


def _git(words: list[str], folder: Path) -> str | None:
    """The output of git in a folder; None without git, a repository or a commit."""
    try:
        done = subprocess.run(["git", *words], cwd=folder, capture_output=True, text=True, timeout=SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired, UnicodeDecodeError):
        return None
    return done.stdout.strip() or None if done.returncode == 0 else None


def model_blocks(job: Job) -> tuple[dict[str, Any], dict[str, Any]]:
    """The facts about a local model: for ``config``, and next to it; empty if it was not loaded or is on a server.

    A run that reads every answer from the log loads no model.
    """
    kind, _, name = job.model.partition("/")
    loaded: Any = sys.modules.get("calipers.clients.huggingface.client")
    if kind != "hf" or loaded is None:
        return {}, {}
    facts = loaded.facts(name, job.model_args)
    return ({}, {}) if facts is None else facts
