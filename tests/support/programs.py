"""Programs that tests need and that come from npm, Go or pip, installed once into the cache."""

from __future__ import annotations

import hashlib
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from shutil import which

from support.cache import cache, locked

AZURITE = "azurite@3.35.0"
FAKE_GCS = "github.com/fsouza/fake-gcs-server@v1.55.1"
SCHEDULERS = Path(__file__).with_name("schedulers.txt")
INSTALL_SECONDS = 900


class ProgramNotInstalled(Exception):
    """A program could not be installed; the text says why and what to do."""


def azurite() -> list[str]:
    """The command of Microsoft's emulator of Azure's blobs."""
    node = _tool("node", "Node.js 18 or later, for Azurite: apt-get install nodejs npm")
    return [node, str(_installed("azurite", _npm) / "node_modules/azurite/dist/src/blob/main.js")]


def fake_gcs() -> list[str]:
    """The command of an emulator of Google's cloud storage."""
    return [str(_installed("fake-gcs-server", _go) / "fake-gcs-server")]


def schedulers() -> Path:
    """A folder for PYTHONPATH with Airflow and Dagster.

    They are not packages of `.venv`, as Dagster needs an older version of one that is there.
    """
    content = SCHEDULERS.read_bytes() + f"{sys.version_info[:2]}".encode()
    return _installed(f"schedulers-{hashlib.sha256(content).hexdigest()[:8]}", _pip)


def _pip(folder: Path) -> list[str]:
    # The list is complete: without a resolver and byte code, the installation takes half the time.
    quick = ["--no-deps", "--no-compile", "--quiet", "--disable-pip-version-check"]
    return [sys.executable, "-m", "pip", "install", *quick, "--target", str(folder), "-r", str(SCHEDULERS)]


def _npm(folder: Path) -> list[str]:
    npm = _tool("npm", "npm, for Azurite: apt-get install npm")
    return [npm, "install", "--no-audit", "--no-fund", "--loglevel=error", "--prefix", str(folder), AZURITE]


def _go(folder: Path) -> list[str]:
    # Never with cgo: then a C compiler would be needed as well.
    go = _tool("go", "Go 1.24 or later, for fake-gcs-server: see https://go.dev/doc/install")
    return ["env", f"GOBIN={folder}", "CGO_ENABLED=0", go, "install", FAKE_GCS]


def _tool(name: str, needed: str) -> str:
    found = which(name)
    if found is None:
        raise ProgramNotInstalled(f"{name} was not found. Install {needed}")
    return found


def _installed(name: str, command: Callable[[Path], list[str]]) -> Path:
    folder = cache("programs") / name
    if folder.is_dir():
        return folder
    with locked(cache("programs")):
        if not folder.is_dir():
            _install(name, command, folder)
    return folder


def _install(name: str, command: Callable[[Path], list[str]], folder: Path) -> None:
    print(f"Installing {name} ...", file=sys.stderr, flush=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".installing-") as temporary:
        made = Path(temporary) / name
        made.mkdir()
        done = subprocess.run(command(made), capture_output=True, text=True, timeout=INSTALL_SECONDS)
        if done.returncode:
            raise ProgramNotInstalled(
                f"{name} could not be installed: {(done.stderr or done.stdout).strip()[-400:]}\n"
                f"Check the network, or set LAKEFEED_PROGRAMS to a folder that holds {name}/."
            )
        # The rename is what makes a folder that is there a folder that is whole.
        made.rename(folder)


if __name__ == "__main__":
    try:
        azurite()
        fake_gcs()
        schedulers()
    except ProgramNotInstalled as error:
        sys.exit(str(error))
