"""Java: found, and new enough for Spark."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

from lakefeed.errors import JavaError

_OLDEST = 17
_REMEDY = "install it, for example with `apt-get install openjdk-17-jre-headless`, or set JAVA_HOME"


def require_java() -> int:
    """Return the major version of the Java that Spark will use.

    Raises JavaError in one sentence otherwise.
    """
    java = _find()
    if java is None:
        raise JavaError(f"Java {_OLDEST} or newer is needed and was not found: {_REMEDY}.")
    version = _version(java)
    if version is None:
        raise JavaError(f"Java {_OLDEST} or newer is needed and {java} does not start: {_REMEDY}.")
    if version < _OLDEST:
        raise JavaError(f"Java {_OLDEST} or newer is needed and {java} is Java {version}: {_REMEDY}.")
    return version


def _find() -> str | None:
    home = os.environ.get("JAVA_HOME")
    if home:
        java = Path(home) / "bin" / "java"
        return str(java) if java.exists() else None
    return shutil.which("java")


def _version(java: str) -> int | None:
    try:
        asked = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=60, check=False)
    except OSError:
        return None
    found = re.search(r'version "(?:1\.)?(\d+)', asked.stderr + asked.stdout)
    return int(found.group(1)) if asked.returncode == 0 and found else None
