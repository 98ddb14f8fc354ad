"""Programs from Debian's packages, unpacked into the cache: needs no root, and nothing is installed."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from support.cache import cache, locked

PROMETHEUS = "prometheus"
CHROMIUM = "chromium-headless-shell"
POSTGRES = "postgresql-15"
WRK = "wrk"
FETCH_SECONDS = 600


class PackageNotFetched(Exception):
    """A package could not be fetched; the text says what apt-get said and what to do."""


def promtool() -> list[str]:
    """The command that checks metrics and rules."""
    return [str(unpacked(PROMETHEUS) / "usr/bin/promtool")]


def chromium() -> tuple[Path, dict[str, str]]:
    """A headless Chromium, and the environment that it needs to find its libraries."""
    folder = unpacked(CHROMIUM, with_dependencies=True)
    libraries = sorted({str(file.parent) for file in folder.glob("usr/lib/**/*.so*")})
    found = next(path for path in folder.glob("usr/lib/chromium/*headless*") if os.access(path, os.X_OK))
    return found, {"LD_LIBRARY_PATH": ":".join(libraries)}


def postgres() -> tuple[Path, dict[str, str]]:
    """The folder of Postgres' programs (server, psql, pg_basebackup), and the environment that they need."""
    folder = unpacked(POSTGRES, "postgresql-client-15", with_dependencies=True)
    libraries = sorted({str(file.parent) for file in folder.glob("usr/lib/*/*.so*")})
    return folder / "usr/lib/postgresql/15/bin", {"LD_LIBRARY_PATH": ":".join(libraries)}


def wrk() -> tuple[Path, dict[str, str]]:
    """A client that loads an HTTP server, and the environment that it needs."""
    folder = unpacked(WRK, with_dependencies=True)
    libraries = sorted({str(file.parent) for file in folder.glob("usr/lib/**/*.so*")})
    return folder / "usr/bin/wrk", {"LD_LIBRARY_PATH": ":".join(libraries)}


def unpacked(package: str, *parts: str, with_dependencies: bool = False) -> Path:
    """The folder of what a package and its parts would install; fetched once, safe in many processes."""
    folder = cache("debian") / package
    if not folder.is_dir():
        with locked(cache("debian")):
            if not folder.is_dir():
                _fetch([package, *parts], folder, with_dependencies)
    return folder


def _fetch(packages: Sequence[str], folder: Path, with_dependencies: bool) -> None:
    print(f"Fetching {packages[0]} ...", file=sys.stderr, flush=True)
    names = list(packages)
    if with_dependencies:
        # What is installed already is not listed, so that only what is missing is fetched.
        planned = _apt("install", "--no-install-recommends", "--yes", "--print-uris", *packages)
        names = sorted({*re.findall(r"' ([a-z0-9.+-]+)_\S+\.deb ", planned), *packages})
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".fetching-") as temporary:
        # apt-get fetches as a user of its own when it is run by root.
        Path(temporary).chmod(0o755)
        _apt("download", *names, cwd=Path(temporary))
        root = Path(temporary) / "root"
        for file in Path(temporary).glob("*.deb"):
            subprocess.run(["dpkg-deb", "--extract", str(file), str(root)], check=True, timeout=120)
        # The rename is what makes a folder that is there a folder that is whole.
        root.rename(folder)


def _apt(verb: str, *words: str, cwd: Path | None = None) -> str:
    command = ["apt-get", "-qq", "-o", "Debug::NoLocking=1", verb, *words]
    done = _run(command, cwd)
    if done.returncode and os.geteuid() == 0:
        _run(["apt-get", "-qq", "update"], None)
        done = _run(command, cwd)
    if done.returncode:
        raise PackageNotFetched(
            f"{' '.join(command)} failed: {done.stderr.strip()[-400:]}\n"
            "Run 'apt-get update' as root, or set LAKEFEED_DEBIAN to a folder that has them unpacked."
        )
    return done.stdout


def _run(command: list[str], cwd: Path | None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=FETCH_SECONDS)


if __name__ == "__main__":
    try:
        unpacked(PROMETHEUS)
        unpacked(CHROMIUM, with_dependencies=True)
        postgres()
        wrk()
    except PackageNotFetched as error:
        sys.exit(str(error))
