"""Jars that tests need, fetched once with the Ivy that pyspark carries. Needs Java and nothing else."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import tempfile
import time
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from support.cache import cache, locked

ATTEMPTS = 3
ATTEMPT_SECONDS = 600


@dataclass(frozen=True)
class Artifact:
    """A Maven artifact; fetching it brings what it depends on, unless it is wanted alone."""

    organisation: str
    name: str
    version: str
    alone: bool = False
    archive: bool = False
    """Whether it is a whole program in a `.tar.gz`, which is unpacked."""

    def __str__(self) -> str:
        return f"{self.organisation}:{self.name}:{self.version}"


BROKER = Artifact("org.apache.kafka", "kafka_2.13", "4.3.1")
BROKER_LOG = Artifact("org.apache.logging.log4j", "log4j-slf4j-impl", "2.25.4")
"""The broker's jars have no logging backend: without this one it dies without saying why."""
DELTA_FOR_SPARK = Artifact("io.delta", "delta-spark_4.2_2.13", "4.4.0")
S3_FOR_SPARK = (
    Artifact("org.apache.hadoop", "hadoop-aws", "3.5.0", alone=True),
    Artifact("software.amazon.awssdk", "s3-transfer-manager", "2.35.4"),
    Artifact("software.amazon.s3.analyticsaccelerator", "analyticsaccelerator-s3", "1.3.1", alone=True),
)
"""Hadoop's client of S3 with the parts of Amazon's SDK that it needs: 18 MB in place of the bundle's 686."""

REGISTRY = Artifact("io.apicurio", "apicurio-registry-app", "3.0.9", archive=True)
"""A schema registry that speaks Confluent's API and keeps everything in memory."""

# Its own description names a parent that the repositories do not hold, so descriptions are left alone.
_ARCHIVE_SETTINGS = """
<ivysettings>
  <settings defaultResolver="central"/>
  <resolvers><ibiblio name="central" m2compatible="true" usepoms="false"/></resolvers>
</ivysettings>
"""
_ARCHIVE = """
<ivy-module version="2.0" xmlns:m="http://ant.apache.org/ivy/maven">
  <info organisation="lakefeed" module="tests"/>
  <configurations><conf name="default"/></configurations>
  <dependencies>
    <dependency org="{organisation}" name="{name}" rev="{version}" transitive="false" conf="default->default">
      <artifact name="{name}" type="tar.gz" ext="tar.gz" m:classifier="all"/>
    </dependency>
  </dependencies>
</ivy-module>
"""


class JarsNotFetched(Exception):
    """An artifact could not be fetched; the text says which one and what Ivy said."""


def fetch(artifact: Artifact) -> Path:
    """The folder with the artifact's jars, downloaded unless they are there; safe in many processes."""
    folder = cache("jars") / f"{artifact.name}-{artifact.version}"
    if folder.is_dir():
        return folder

    with locked(cache("jars")):
        if not folder.is_dir():
            _download(artifact, folder)
    return folder


def java() -> str:
    """The Java to run, found the way that Spark finds it."""
    home = os.environ.get("JAVA_HOME")
    return str(Path(home) / "bin" / "java") if home else "java"


def spark_jars() -> Path:
    """The folder of the jars that pyspark carries, found without importing it."""
    spec = find_spec("pyspark")
    assert spec is not None and spec.origin is not None, "pyspark is not installed: run 'make test'"
    return Path(spec.origin).parent / "jars"


def delta_jars() -> list[Path]:
    """Delta's jars without those that Spark carries in a version of its own."""
    return _not_carried(DELTA_FOR_SPARK)


def s3_jars() -> list[Path]:
    """The jars by which Spark reaches S3."""
    return [jar for artifact in S3_FOR_SPARK for jar in _not_carried(artifact)]


def _not_carried(artifact: Artifact) -> list[Path]:
    carried = {_artifact(jar) for jar in spark_jars().glob("*.jar")}
    return sorted(jar for jar in fetch(artifact).glob("*.jar") if _artifact(jar) not in carried)


def _artifact(jar: Path) -> str:
    return jar.stem.rpartition("-")[0]


def _download(artifact: Artifact, folder: Path) -> None:
    print(f"Fetching {artifact} ...", file=sys.stderr, flush=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".fetching-") as temporary:
        jars = Path(temporary) / "jars"
        for attempt in range(1, ATTEMPTS + 1):
            said = _run_ivy(artifact, jars, fetched=Path(temporary) / "ivy")
            if said is None:
                # The rename is what makes a folder that is there a folder that is whole.
                jars.rename(folder)
                return
            if attempt < ATTEMPTS:
                time.sleep(2 * attempt)
    raise JarsNotFetched(
        f"{artifact} could not be fetched in {ATTEMPTS} attempts; Ivy said: {said}\n"
        f"Check the network, or set LAKEFEED_JARS to a folder that already holds {folder.name}/."
    )


def _run_ivy(artifact: Artifact, jars: Path, fetched: Path) -> str | None:
    """None when all jars are there, else what Ivy said."""
    ivy = next(spark_jars().glob("ivy-*.jar"))
    command = [java(), "-cp", str(ivy), "org.apache.ivy.Main"]
    if artifact.archive:
        command += _archive_arguments(artifact, fetched.parent)
    else:
        command += ["-dependency", artifact.organisation, artifact.name, artifact.version]
    command += ["-retrieve", f"{jars}/[artifact]-[revision].[ext]"]
    command += ["-cache", str(fetched), "-confs", "default" if artifact.archive else "default,runtime"]
    command += ["-notransitive"] if artifact.alone else []
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=ATTEMPT_SECONDS)
    except subprocess.TimeoutExpired:
        return f"nothing within {ATTEMPT_SECONDS} s"
    except FileNotFoundError:
        raise JarsNotFetched(
            f"Java 17 is needed and {command[0]} was not found: run 'make java' to see what to install."
        ) from None
    for archive in jars.glob("*.tar.gz"):
        with tarfile.open(archive) as packed:
            packed.extractall(jars, filter="data")
        archive.unlink()
    if done.returncode == 0 and any(jars.glob("*.jar")):
        return None
    return _reason(done.stdout + done.stderr)


def _archive_arguments(artifact: Artifact, folder: Path) -> list[str]:
    (folder / "ivysettings.xml").write_text(_ARCHIVE_SETTINGS)
    described = {"organisation": artifact.organisation, "name": artifact.name, "version": artifact.version}
    (folder / "ivy.xml").write_text(_ARCHIVE.format(**described))
    return ["-settings", str(folder / "ivysettings.xml"), "-ivy", str(folder / "ivy.xml")]


def _reason(output: str) -> str:
    lines = [line.strip(" \t:") for line in output.splitlines()]
    telling = [line for line in lines if "not found" in line or "FAILED" in line or "Exception" in line]
    return (telling or [line for line in lines if line] or ["nothing"])[-1]


if __name__ == "__main__":
    try:
        for needed in (BROKER, BROKER_LOG, DELTA_FOR_SPARK, *S3_FOR_SPARK, REGISTRY):
            fetch(needed)
    except JarsNotFetched as error:
        sys.exit(str(error))
