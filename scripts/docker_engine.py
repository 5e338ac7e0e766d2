"""Start a private Docker engine, run a command with it, and stop the engine: `make test-docker`.

The engine lives in a temporary directory: its images, containers and socket are private and are deleted with it.
Missing parts of dockerd, compose v2 and buildx, and the base image, are unpacked from the Debian packages of the mirror
that apt is configured with. Nothing is installed, and no image registry is used. The command finds the engine through
DOCKER_HOST, and CALIPERS_DOCKER is set. The exit code is 75, with the reason, if no engine can be started.

Harbor enforces network policies by a second container (a sidecar), whose image it would pull. This script makes that
image from the same packages and Harbor's own scripts; only its proxy is replaced by egress_proxy.py. If Podman is
installed, it gets its own store in the same directory. If one of the two is not available, CALIPERS_NO_SIDECAR or
CALIPERS_NO_PODMAN has the reason.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

NOT_SET_UP: Final = 75
NEWER: Final = "trixie"  # the oldest suite of Debian with compose v2 and buildx
KEYS: Final = "/usr/share/keyrings/debian-archive-keyring.gpg"
PLUGINS: Final = ("docker-compose", "docker-buildx")
IMAGE: Final = "python:3.12-slim"  # the name that the tasks of the tests build from
BASE: Final = ("bash", "coreutils", "dash", "findutils", "grep", "procps", "python3-minimal", "sed", "tar")
SIDECAR: Final = ("gzip", "mawk", "nftables")  # what Harbor's scripts for network policies call
PODMAN_COMPOSE: Final = ("podman-compose", "python3-dotenv", "python3-yaml")
PROXY: Final = Path(__file__).with_name("egress_proxy.py")
FETCHING: Final = 180.0  # seconds for one call of apt
STARTING: Final = 60.0  # seconds until the engine answers
STOPPING: Final = 30.0


class NotSetUp(Exception):
    """The reason why there is no engine."""


def main() -> int:
    """Run the command with an engine; returns its exit code, or 75."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--parts", type=Path, default=Path(".docker-parts"), help="the folder for downloaded parts")
    parser.add_argument("command", nargs=argparse.REMAINDER, help="-- and the command")
    given = parser.parse_args()
    command = given.command[1:] if given.command[:1] == ["--"] else given.command
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # the engine is stopped then, too
    try:
        with tempfile.TemporaryDirectory(prefix="calipers-docker-", ignore_cleanup_errors=True) as scratch:
            environment = parts(given.parts.absolute(), Path(scratch))
            return beside_engine(command, environment, given.parts.absolute() / "image.tar", Path(scratch))
    except NotSetUp as error:
        print(f"no Docker engine can be started: {error}", file=sys.stderr)
        return NOT_SET_UP


def parts(kept: Path, scratch: Path) -> dict[str, str]:
    """Environment variables with docker, dockerd, compose and buildx on the path; missing parts are fetched once."""
    if sys.platform != "linux" or os.geteuid():
        raise NotSetUp("only root on Linux can start an engine")
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
        for name in ("iptables", "ip6tables"):  # as the package's installation script does
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
    """The folders of libraries below a root; libraries that the machine has are removed, as two versions conflict."""
    folders = [*root.glob("usr/lib/*-linux-gnu"), *root.glob("lib/*-linux-gnu")]
    for folder in folders:
        for path in folder.iterdir():
            if not path.is_dir() and ("/" / path.relative_to(root)).exists():
                path.unlink()
    return folders


def base_image(kept: Path, scratch: Path) -> None:
    """Make the archive of a root directory with a shell, the usual tools, Python and the sidecar's tools."""
    if (kept / "image.tar").is_file():
        return
    root = scratch / "image"
    fetch(root, NEWER, [*BASE, *SIDECAR], scratch)
    (root / "etc/passwd").write_text("root:x:0:0:root:/home:/bin/bash\n")  # as the packages' installation scripts do
    (root / "etc/group").write_text("root:x:0:\n")
    (root / "usr/bin/awk").symlink_to("mawk")
    for name in ("home", "proc", "sys", "dev", "tmp"):
        (root / name).mkdir(exist_ok=True)
    (root / "tmp").chmod(0o1777)
    shutil.rmtree(root / "usr/share/doc", ignore_errors=True)
    shutil.rmtree(root / "usr/share/locale", ignore_errors=True)
    subprocess.run(["tar", "-C", str(root), "-cf", str(kept / "image.part"), "."], check=True)
    (kept / "image.part").rename(kept / "image.tar")


def fetch(target: Path, release: str, names: Sequence[str], scratch: Path, *, alone: bool = False) -> Path:
    """Unpack packages of a suite, with dependencies unless ``alone``, into a directory that is complete or absent."""
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
    (state / "status").touch()  # an empty list of installed packages, so that apt ignores those of this machine
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
    """Run apt; NotSetUp with its last error if it fails."""
    try:
        apt = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=FETCHING)
    except subprocess.TimeoutExpired:
        raise NotSetUp(f"apt did not end within {FETCHING:.0f} seconds") from None
    if apt.returncode:
        lines = [line for line in apt.stderr.splitlines() if line.strip()]
        raise NotSetUp(f"apt failed: {lines[-1] if lines else apt.returncode}")


def suite() -> str:
    """The suite of the Debian on this machine."""
    lines = Path("/etc/os-release").read_text().splitlines() if Path("/etc/os-release").is_file() else []
    release = dict(line.split("=", 1) for line in lines if "=" in line)
    if release.get("ID") != "debian" or "VERSION_CODENAME" not in release:
        raise NotSetUp("its parts come from Debian's packages, and this system is not Debian")
    return release["VERSION_CODENAME"].strip('"')


def mirror() -> str:
    """The mirror from which apt gets Debian's packages."""
    listing = ["apt-get", "indextargets", "--format", "$(REPO_URI) $(RELEASE)", "Created-By: Packages"]
    lines = subprocess.run(listing, capture_output=True, text=True).stdout.splitlines()
    for line in lines:
        address, _, release = line.partition(" ")
        if release == suite():
            return address
    raise NotSetUp(f"apt has no mirror of {suite()}")


def answers(command: Sequence[str], environment: Mapping[str, str]) -> bool:
    """Whether a command exits with 0."""
    try:
        return not subprocess.run(command, env=environment, capture_output=True, timeout=STARTING).returncode
    except (OSError, subprocess.TimeoutExpired):
        return False


def beside_engine(command: Sequence[str], environment: dict[str, str], base: Path, scratch: Path) -> int:
    """Start an engine with the base image, run the command, and stop the engine."""
    try:
        with engine(environment, scratch):
            if not answers(["docker", "import", str(base), IMAGE], environment):
                raise NotSetUp("docker import refused the base image")
            if not answers(["docker", "run", "--rm", IMAGE, "python3", "-c", ""], environment):
                raise NotSetUp("no container can be run here")
            environment |= sidecar(environment, scratch)
        if "CALIPERS_NO_SIDECAR" not in environment:
            environment |= named_probe(environment, scratch)
        with engine(environment, scratch), podman(environment, base, scratch) as more:
            return subprocess.run(command, env={**environment, **more}).returncode
    finally:
        shutil.rmtree(scratch / "data", ignore_errors=True)


@contextmanager
def engine(environment: Mapping[str, str], scratch: Path) -> Iterator[None]:
    """An engine that answers, until the end of the block."""
    folders = ["--data-root", str(scratch / "data"), "--exec-root", str(scratch / "exec")]
    socket = ["--host", environment["DOCKER_HOST"], "--pidfile", str(scratch / "pid")]
    mortal = ["setpriv", "--pdeathsig", "TERM"] if shutil.which("setpriv") else []
    program = shutil.which("dockerd", path=environment["PATH"])
    if program is None:
        raise NotSetUp("there is no dockerd")
    with (scratch / "log").open("wb") as log:
        process = subprocess.Popen([*mortal, program, *folders, *socket], env=environment, stdout=log, stderr=log)
    try:
        until = time.monotonic() + STARTING
        while not answers(["docker", "info"], environment):
            if process.poll() is not None or time.monotonic() > until:
                lines = (scratch / "log").read_text(errors="replace").splitlines() or ["nothing"]
                raise NotSetUp(f"dockerd did not start; its last output: {lines[-1]}")
            time.sleep(0.2)
        yield
    finally:
        cleared(environment)
        process.terminate()
        try:
            process.wait(STOPPING)
        except subprocess.TimeoutExpired:
            process.kill()


SIDECAR_NAMES: Final = """
import json, sys
from harbor.environments.docker.docker import DockerEnvironment as Docker
from harbor.utils.container_cache import docker_build_context_hash
context = Docker._EGRESS_CONTROL_SIDECAR_CONTEXT_PATH
key = docker_build_context_hash(
    context=context, dockerfile_path=context / "Dockerfile", build_args={}, platform=sys.argv[1]
)
name = f"{Docker._EGRESS_CONTROL_SIDECAR_DOCKER_NAME}--{key}"
print(json.dumps({"context": str(context), "image": name, "probe": Docker._EGRESS_CONTROL_KERNEL_PROBE_IMAGE}))
"""


def sidecar(environment: Mapping[str, str], scratch: Path) -> dict[str, str]:
    """Build the image of Harbor's sidecar under the name that Harbor uses, or return the reason why not."""
    platform = printed(["docker", "version", "--format", "{{.Server.Os}}/{{.Server.Arch}}"], environment)
    python = Path(environment.get("CALIPERS_HARBOR") or "harbor").with_name("python")
    try:
        names = json.loads(printed([str(python), "-c", SIDECAR_NAMES, platform], environment))
    except ValueError:
        return {"CALIPERS_NO_SIDECAR": "this Harbor does not give the name of its sidecar"}
    (scratch / "probe").write_text(names["probe"])
    context = scratch / "sidecar"
    shutil.copytree(names["context"], context)
    shutil.copy2(PROXY, context / "gost")
    lines = (context / "Dockerfile").read_text().splitlines()
    lines = [f"FROM {IMAGE}" if line.startswith("FROM ") else line for line in lines]
    (context / "Dockerfile").write_text("\n".join([*lines, "COPY --chmod=755 gost /bin/gost", ""]))
    if not answers(["docker", "buildx", "build", "--load", "--tag", names["image"], str(context)], environment):
        return {"CALIPERS_NO_SIDECAR": "its image cannot be built here"}
    return {}


def named_probe(environment: Mapping[str, str], scratch: Path) -> dict[str, str]:
    """Give the base image the name and digest of the image with which Harbor probes the kernel, so that none is pulled.

    While the engine is stopped, the name can be added to its list of names. That is not possible if the engine stores
    its images in another way.
    """
    files = list(scratch.glob("data/image/*/repositories.json"))
    if not files:
        return {"CALIPERS_NO_SIDECAR": "this Docker stores the names of its images elsewhere"}
    names = json.loads(files[0].read_text())
    repositories = names["Repositories"]
    tagged, _, digest = (scratch / "probe").read_text().partition("@")
    repository = tagged.partition(":")[0]
    repositories[repository] = {f"{repository}@{digest}": repositories[IMAGE.partition(":")[0]][IMAGE]}
    files[0].write_text(json.dumps(names))
    return {}


@contextmanager
def podman(environment: Mapping[str, str], base: Path, scratch: Path) -> Iterator[dict[str, str]]:
    """Set up Podman with its own store and the base image.

    Yields the environment variables that the command needs for it, or that with the reason why Podman is not available.
    """
    if not shutil.which("podman"):
        yield {"CALIPERS_NO_PODMAN": "podman is not installed"}
        return
    home = scratch / "podman"
    (home / "bin").mkdir(parents=True)
    more = {"CONTAINERS_CONF": str(home / "containers.conf"), "CONTAINERS_STORAGE_CONF": str(home / "storage.conf")}
    limit = min(4096, resource.getrlimit(resource.RLIMIT_NPROC)[1] % (1 << 32))
    Path(more["CONTAINERS_CONF"]).write_text(
        f"""[containers]
default_ulimits = ["nofile=1024:1024", "nproc={limit}:{limit}"]
[network]
network_config_dir = "{home}/networks"
[engine]
cgroup_manager = "cgroupfs"
events_logger = "file"
static_dir = "{home}/static"
volume_path = "{home}/volumes"
{'runtime = "runc"' if shutil.which("runc") else ""}
"""
    )
    storage = f'[storage]\ndriver = "overlay"\ngraphroot = "{home}/store"\nrunroot = "{home}/run"\n'
    Path(more["CONTAINERS_STORAGE_CONF"]).write_text(storage)
    with_podman = {**environment, **more}
    del with_podman["DOCKER_CONFIG"]  # Podman fails if this folder has no logins
    try:
        if not answers(["podman-compose", "--in-pod=false", "version"], with_podman):
            unpacked = fetch(base.with_name("podman-compose"), NEWER, PODMAN_COMPOSE, scratch, alone=True)
            modules = unpacked / "usr/lib/python3/dist-packages"
            program = home / "bin/podman-compose"
            run = f'exec "{sys.executable}" -m podman_compose "$@"'
            program.write_text(f'#!/bin/sh\nPYTHONPATH="{modules}" {run}\n')
            program.chmod(0o755)
            more["PATH"] = with_podman["PATH"] = os.pathsep.join([str(program.parent), environment["PATH"]])
        if not answers(["podman", "import", str(base), IMAGE], with_podman):
            more = {"CALIPERS_NO_PODMAN": "podman import refused the base image"}
        elif not answers(["podman", "run", "--rm", IMAGE, "python3", "-c", ""], with_podman):
            more = {"CALIPERS_NO_PODMAN": "podman cannot run a container here"}
        yield more
    finally:
        for words in (["rm", "--all", "--force", "--time", "0"], ["network", "prune", "--force"]):
            answers(["podman", *words], with_podman)
        answers(["umount", str(home / "store/overlay")], environment)


def printed(command: Sequence[str], environment: Mapping[str, str]) -> str:
    """The output of a command; an empty text if it fails."""
    try:
        return subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=STARTING, check=True
        ).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return ""


def cleared(environment: Mapping[str, str]) -> None:
    """Remove the containers and networks of the engine, because their bridges would remain after it stops."""
    containers = printed(["docker", "ps", "--all", "--quiet"], environment).split()
    for command in (["docker", "rm", "--force", *containers], ["docker", "network", "prune", "--force"]):
        answers(command, environment)


if __name__ == "__main__":
    sys.exit(main())
