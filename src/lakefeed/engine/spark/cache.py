"""What a machine keeps to start Spark sooner: a class archive for the JVM, and a home without zipped Python.

Both lie in the user's cache, are made when they are missing, and may be deleted at any time.
"""

from __future__ import annotations

import hashlib
import logging
import os
import subprocess
from pathlib import Path

import pyspark

from lakefeed.figures import readable_size

_log = logging.getLogger("lakefeed")
_EXIT_TIMEOUT = 60


def cache_folder() -> Path:
    """The cache of this Spark installation."""
    root = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "lakefeed"
    # The JVM takes an archive only for the very class path that it was made with.
    installation = hashlib.sha256(pyspark.__file__.encode()).hexdigest()[:12]
    return root / f"spark-{pyspark.__version__}-{installation}"


def slim_home() -> str | None:
    """A Spark home without `python/lib`, so that workers import the installed pyspark.

    Python compiles everything that it imports from Spark's own zip files anew, in each of the processes
    that a stream starts one after the other: seconds before the first batch. None where the cache cannot
    be written.
    """
    home = cache_folder() / "home"
    try:
        home.mkdir(parents=True, exist_ok=True)
        for name in ("bin", "jars", "sbin"):
            link = home / name
            if not link.exists():
                link.unlink(missing_ok=True)
                link.symlink_to(Path(pyspark.__file__).parent / name)
    except FileExistsError:
        pass
    except OSError:
        return None
    return str(home)


class ClassArchive:
    """The archive of Spark's classes for this Java, or a first run that makes it when the JVM ends well."""

    def __init__(self, java: int) -> None:
        self._file = cache_folder() / f"java{java}.jsa"
        self._part = self._file.with_suffix(f".{os.getpid()}.part")

    def options(self) -> str:
        """What to tell the JVM. An archive that does not fit is passed over by it in silence."""
        if self._file.exists():
            return self.found()
        return f'"-XX:ArchiveClassesAtExit={self._part}"' if self._file.parent.exists() else ""

    def found(self) -> str:
        """What to tell a JVM that makes no archive itself."""
        return f'-Xshare:auto "-XX:SharedArchiveFile={self._file}"' if self._file.exists() else ""

    def keep(self, jvm: subprocess.Popen[bytes]) -> None:
        """Wait for the JVM to write the archive, if this run makes it."""
        if self._file.exists():
            return
        if self._file.parent.exists():
            _log.info("caching Spark's classes for a faster next start: some seconds, this once")
        try:
            ended = jvm.wait(_EXIT_TIMEOUT)
        except subprocess.TimeoutExpired:
            return
        if ended == 0 and self._part.exists():
            self._part.rename(self._file)
            _log.info(
                "cached Spark's classes in %s (%s) for a faster next start; you can delete this folder "
                "at any time",
                self._file.parent,
                readable_size(self._file.stat().st_size),
            )
        else:
            self._part.unlink(missing_ok=True)
