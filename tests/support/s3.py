"""A real S3 server on loopback that keeps its objects in memory."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import boto3

from support.object_server import ObjectServer

REGION = "us-east-1"
KEY = "test-key"
SECRET = "test-secret"


class S3Server(ObjectServer):
    """A `moto_server`, which speaks DynamoDB as well."""

    scheme = "s3"

    def __init__(self) -> None:
        tests = Path(__file__).resolve().parents[1]
        command = ["env", f"PYTHONPATH={tests}", sys.executable, "-m", "support.moto"]
        super().__init__(lambda port: [*command, str(port)], "/moto-api/")

    def storage_through(self, endpoint: str) -> dict[str, str]:
        return {
            "AWS_ENDPOINT_URL": endpoint,
            "AWS_ACCESS_KEY_ID": KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET,
            "AWS_REGION": REGION,
            "AWS_ALLOW_HTTP": "true",
        }

    @property
    def client(self) -> Any:
        """A boto3 client of this server."""
        return self.service("s3")

    def service(self, name: str) -> Any:
        """A boto3 client of one of its services."""
        return boto3.client(
            name,
            endpoint_url=self.endpoint,
            aws_access_key_id=KEY,
            aws_secret_access_key=SECRET,
            region_name=REGION,
        )

    def create_bucket(self, name: str) -> None:
        self.client.create_bucket(Bucket=name)

    def keys(self, bucket: str, prefix: str = "") -> list[str]:
        """The keys of all objects under a prefix, in order."""
        pages = self.client.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix)
        return [found["Key"] for page in pages for found in page.get("Contents", [])]
