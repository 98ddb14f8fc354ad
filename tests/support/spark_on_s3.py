"""Spark's Delta on S3, with the log store that `deploy/spark` holds and with Delta's own."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path
from zipfile import ZipFile

from support.delta_spark import DeltaSpark
from support.jars import delta_jars, java, s3_jars, spark_jars

SOURCE = Path(__file__).resolve().parents[2] / "deploy" / "spark" / "ConditionalLogStore.java"
LOG_STORE = "lakefeed.ConditionalLogStore"


def spark_on_s3(storage: Mapping[str, str], log_store: Path) -> DeltaSpark:
    """Spark that reaches the server that Lakefeed's options lead to.

    Under `s3a://` it commits by the log store in the jar, under `s3://` by Delta's own.
    """
    settings = {
        "spark.hadoop.fs.s3.impl": "org.apache.hadoop.fs.s3a.S3AFileSystem",
        "spark.hadoop.fs.s3a.endpoint": storage["AWS_ENDPOINT_URL"],
        "spark.hadoop.fs.s3a.endpoint.region": storage["AWS_REGION"],
        "spark.hadoop.fs.s3a.access.key": storage["AWS_ACCESS_KEY_ID"],
        "spark.hadoop.fs.s3a.secret.key": storage["AWS_SECRET_ACCESS_KEY"],
        "spark.hadoop.fs.s3a.path.style.access": "true",
        "spark.delta.logStore.s3a.impl": LOG_STORE,
    }
    return DeltaSpark(settings, [*s3_jars(), log_store])


def log_store_jar(folder: Path) -> Path:
    """The log store as a jar, compiled by the compiler that Spark carries: a JRE has none."""
    (folder / "classes").mkdir()
    carried = [str(jar) for jar in spark_jars().glob("*.jar")]
    compiler = ["-cp", ":".join(carried), "org.codehaus.commons.compiler.samples.CompilerDemo"]
    classes = ":".join([*carried, *map(str, delta_jars())])
    command = [java(), *compiler, "-d", str(folder / "classes"), "-classpath", classes, str(SOURCE)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    compiled = sorted((folder / "classes").rglob("*.class"))
    assert done.returncode == 0 and compiled, done.stdout + done.stderr
    jar = folder / "log-store.jar"
    with ZipFile(jar, "w") as packed:
        for file in compiled:
            packed.write(file, file.relative_to(folder / "classes"))
    return jar
