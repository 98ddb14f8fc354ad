"""Plain PySpark, tuned as a good engineer would: what Lakefeed is measured beside."""

from __future__ import annotations

from typing import TYPE_CHECKING

from support.jars import Artifact, delta_jars, fetch

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_MORE = [
    Artifact("org.apache.spark", "spark-sql-kafka-0-10_2.13", "4.2.0", alone=True),
    Artifact("org.apache.spark", "spark-token-provider-kafka-0-10_2.13", "4.0.0", alone=True),
    Artifact("org.apache.kafka", "kafka-clients", "3.9.2", alone=True),
    Artifact("org.apache.commons", "commons-pool2", "2.13.1", alone=True),
    Artifact("org.apache.spark", "spark-avro_2.13", "4.1.1", alone=True),
]
_SETTINGS = {
    "spark.master": "local[*]",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.memory": "4g",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "2",
    "spark.databricks.delta.snapshotPartitions": "2",
    # The default one writes a checksum beside each file of the checkpoint and costs more on a local disk.
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
}


def session() -> SparkSession:
    """A session with Delta, Kafka and Avro."""
    from pyspark.sql import SparkSession

    jars = [*delta_jars(), *(jar for artifact in _MORE for jar in fetch(artifact).glob("*.jar"))]
    builder = SparkSession.builder.config("spark.jars", ",".join(map(str, jars)))
    for key, value in _SETTINGS.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def events(spark: SparkSession, brokers: str, topic: str, **options: str) -> DataFrame:
    """A topic from its beginning, by Spark's own Kafka source."""
    reader = spark.readStream.format("kafka").option("kafka.bootstrap.servers", brokers)
    return reader.options(subscribe=topic, startingOffsets="earliest", **options).load()
