"""Start a private Docker engine, run a command with it, and stop the engine: `make test-docker`.

The engine lives in a temporary directory: its images, containers and socket are private and are deleted with it.
Missing parts of dockerd, compose v2 and buildx, and the base image, are unpacked from the Debian packages of the mirror
that apt is configured with. Nothing is installed, and no image registry is used. The command finds the engine through
DOCKER_HOST, and CALIPERS_DOCKER says that it exists. The exit code is 75, with the reason, if no engine can be started.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

NOT_SET_UP: Final = 75
NEWER: Final = "trixie"  # the oldest suite of Debian with compose v2 and buildx
KEYS: Final = "/usr/share/keyrings/debian-archive-keyring.gpg"
PLUGINS: Final = ("docker-compose", "docker-buildx")
IMAGE: Final = "python:3.12-slim"  # the name that the tasks of the tests build from
BASE: Final = ("bash", "coreutils", "dash", "findutils", "grep", "procps", "python3-minimal", "sed", "tar")
FETCHING: Final = 180.0  # seconds for one call of apt
STARTING: Final = 60.0  # seconds until the engine answers
STOPPING: Final = 30.0


class NotSetUp(Exception):
    """Why there is no engine."""


def main() -> int:
    """The command's exit code, or 75."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--parts", type=Path, default=Path(".docker-parts"), help="the folder for downloaded parts")
    parser.add_argument("command", nargs=argparse.REMAINDER, help="-- and the command")
    given = parser.parse_args()
    command = given.command[1:] if given.command[:1] == ["--"] else given.command
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # the engine is stopped then, too
    try:
        with tempfile.TemporaryDirectory(prefix="calipers-docker-", ignore_cleanup_errors=True) as scratch:
            environment = parts(given.parts.absolute(), Path(scratch))
            return beside_engine(command, environment, given.parts.absolute() / "base.tar", Path(scratch))
    except NotSetUp as error:
        print(f"no Docker engine can be started: {error}", file=sys.stderr)
        return NOT_SET_UP


def parts(kept: Path, scratch: Path) -> dict[str, str]:
    """The environment in which docker, dockerd, compose and buildx are; what is missing is fetched once."""
    if sys.platform != "linux" or os.geteuid():
        raise NotSetUp("only root on Linux can start one")
    kept.mkdir(exist_ok=True)
    (kept / ".gitignore").write_text("*\n")
    config = scratch / "config"
    (config / "cli-plugins").mkdir(parents=True)
    ours = {"DOCKER_CONFIG": str(config), "DOCKER_HOST": f"unix://{scratch}/docker.sock", "CALIPERS_DOCKER": "1"}
    environment = {**os.environ, **ours}
    engine = kept / "engine"
    if not (shutil.which("dockerd") and shutil.which("docker")):
        fetch(engine, suite(), ["docker.io", "iptables"], scratch)
        programs = [str(engine / folder) for folder in ("usr/sbin", "usr/bin", "sbin", "bin")]
        environment["PATH"] = os.pathsep.join([environment.get("PATH", os.defpath), *programs])
        environment["LD_LIBRARY_PATH"] = os.pathsep.join(map(str, missing_libraries(engine)))
        for name in ("iptables", "ip6tables"):  # what the package's own script would do
            if not (engine / "usr/sbin" / name).is_symlink():
                (engine / "usr/sbin" / name).symlink_to("xtables-nft-multi")
        environment["XTABLES_LIBDIR"] = str(next(engine.glob("usr/lib/*-linux-gnu/xtables"), ""))
    for name in PLUGINS:
        word = name.removeprefix("docker-")
        if not answers(["docker", word, "version"], environment):
            unpacked = fetch(kept / name, NEWER, [name], scratch, alone=True)
            shutil.copy2(unpacked / "usr/libexec/docker/cli-plugins" / name, config / "cli-plugins")
    base_image(kept, scratch)
    return environment


def missing_libraries(root: Path) -> list[Path]:
    """The folders of libraries below a root, without those that the machine has: two of one would not fit together."""
    folders = [*root.glob("usr/lib/*-linux-gnu"), *root.glob("lib/*-linux-gnu")]
    for folder in folders:
        for path in folder.iterdir():
            if not path.is_dir() and ("/" / path.relative_to(root)).exists():
                path.unlink()
    return folders


def base_image(kept: Path, scratch: Path) -> None:
    """A root directory with a shell, the usual tools and Python, as an archive."""
    if (kept / "base.tar").is_file():
        return
    root = scratch / "base"
    fetch(root, suite(), BASE, scratch)
    (root / "etc/passwd").write_text("root:x:0:0:root:/home:/bin/bash\n")  # what the packages' own scripts would do
    (root / "etc/group").write_text("root:x:0:\n")
    for name in ("home", "proc", "sys", "dev", "tmp"):
        (root / name).mkdir(exist_ok=True)
    (root / "tmp").chmod(0o1777)
    shutil.rmtree(root / "usr/share/doc", ignore_errors=True)
    shutil.rmtree(root / "usr/share/locale", ignore_errors=True)
    subprocess.run(["tar", "-C", str(root), "-cf", str(kept / "base.part"), "."], check=True)
    (kept / "base.part").rename(kept / "base.tar")


def fetch(target: Path, release: str, names: Sequence[str], scratch: Path, *, alone: bool = False) -> Path:
    """Unpack packages of a suite, with all they depend on unless ``alone``, into a directory that is made whole."""
    if target.is_dir():
        return target
    if not (shutil.which("apt-get") and shutil.which("dpkg")):
        raise NotSetUp(f"{', '.join(names)} cannot be fetched without apt")
    print(f"fetching {', '.join(names)}", flush=True)
    state = scratch / f"apt-{release}"
    for folder in ("lists/partial", "archives/partial"):
        (state / folder).mkdir(parents=True, exist_ok=True)
    (state / "sources").write_text(f"deb [signed-by={KEYS}] {mirror()} {release} main\n")
    settings = {
        "Dir::Etc::SourceList": state / "sources",
        "Dir::Etc::SourceParts": "-",
        "Dir::State::Lists": state / "lists",
        "Dir::State::Status": state / "status",
        "Dir::Cache": state,
        "Acquire::Languages": "none",
        "APT::Sandbox::User": "root",
        "APT::Install-Recommends": "false",
    }
    (state / "status").touch()  # nothing is installed: what this machine has is not looked at
    apt = ["apt-get", "-qq", *(word for name, value in settings.items() for word in ("-o", f"{name}={value}"))]
    if not any((state / "lists").glob("*Packages*")):
        fetched([*apt, "update"], state)
    archives = state / f"{target.name}-archives"
    archives.mkdir()
    apt += ["-o", f"Dir::Cache::Archives={archives}"]
    fetched([*apt, "download", *names] if alone else [*apt, "install", "-y", "--download-only", *names], archives)
    root = target.with_name(f"{target.name}.part")
    shutil.rmtree(root, ignore_errors=True)
    for package in sorted(archives.glob("*.deb")):
        subprocess.run(["dpkg", "-x", str(package), str(root)], check=True)
    root.rename(target)
    return target


def fetched(command: Sequence[str], folder: Path) -> None:
    """Run apt, or say what it complained of."""
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=FETCHING)
    except subprocess.TimeoutExpired:
        raise NotSetUp(f"apt did not end within {FETCHING:.0f} seconds") from None
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if line.strip()]
        raise NotSetUp(f"apt said: {lines[-1] if lines else done.returncode}")


def suite() -> str:
    """The suite of this machine's own Debian."""
    lines = Path("/etc/os-release").read_text().splitlines() if Path("/etc/os-release").is_file() else []
    release = dict(line.split("=", 1) for line in lines if "=" in line)
    if release.get("ID") != "debian" or "VERSION_CODENAME" not in release:
        raise NotSetUp("its parts are taken from Debian's packages, and this is another system")
    return release["VERSION_CODENAME"].strip('"')


def mirror() -> str:
    """The address that apt has Debian's packages from."""
    listing = ["apt-get", "indextargets", "--format", "$(REPO_URI) $(RELEASE)", "Created-By: Packages"]
    lines = subprocess.run(listing, capture_output=True, text=True).stdout.splitlines()
    for line in lines:
        address, _, release = line.partition(" ")
        if release == suite():
            return address
    raise NotSetUp(f"apt is configured with no mirror of {suite()}")


def answers(command: Sequence[str], environment: Mapping[str, str]) -> bool:
    """Whether a command ends well."""
    try:
        return not subprocess.run(command, env=environment, capture_output=True, timeout=STARTING).returncode
    except (OSError, subprocess.TimeoutExpired):
        return False


def beside_engine(command: Sequence[str], environment: dict[str, str], base: Path, scratch: Path) -> int:
    """Start an engine with the base image, run the command, and stop the engine."""
    folders = ["--data-root", str(scratch / "data"), "--exec-root", str(scratch / "exec")]
    socket = ["--host", environment["DOCKER_HOST"], "--pidfile", str(scratch / "pid")]
    mortal = ["setpriv", "--pdeathsig", "TERM"] if shutil.which("setpriv") else []
    program = shutil.which("dockerd", path=environment["PATH"])
    if program is None:
        raise NotSetUp("there is no dockerd")
    with (scratch / "log").open("wb") as log:
        engine = subprocess.Popen([*mortal, program, *folders, *socket], env=environment, stdout=log, stderr=log)
    try:
        until = time.monotonic() + STARTING
        while not answers(["docker", "info"], environment):
            if engine.poll() is not None or time.monotonic() > until:
                lines = (scratch / "log").read_text(errors="replace").splitlines() or ["nothing"]
                raise NotSetUp(f"dockerd did not start; it said: {lines[-1]}")
            time.sleep(0.2)
        if not answers(["docker", "import", str(base), IMAGE], environment):
            raise NotSetUp("docker import refused the base image")
        if not answers(["docker", "run", "--rm", IMAGE, "python3", "-c", ""], environment):
            raise NotSetUp("no container can be run here")
        return subprocess.run(command, env=environment).returncode
    finally:
        cleared(environment)
        engine.terminate()
        try:
            engine.wait(STOPPING)
        except subprocess.TimeoutExpired:
            engine.kill()


def cleared(environment: Mapping[str, str]) -> None:
    """Remove the containers and networks of the engine, whose bridges would outlive it."""
    listing = ["docker", "ps", "--all", "--quiet"]
    containers = subprocess.run(listing, env=environment, capture_output=True, text=True).stdout.split()
    for command in (["docker", "rm", "--force", *containers], ["docker", "network", "prune", "--force"]):
        answers(command, environment)


if __name__ == "__main__":
    sys.exit(main())
