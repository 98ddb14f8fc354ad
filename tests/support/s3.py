"""A real S3 server on loopback that keeps its objects in memory."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Any
from urllib.error import URLError
from urllib.request import urlopen

import boto3

from support.processes import free_port, spawn, tail, wait_until

START_SECONDS = 60
REGION = "us-east-1"
KEY = "test-key"
SECRET = "test-secret"


class S3Server:
    """A `moto_server`; `storage` is what a pipeline file puts under `storage:` to reach it."""

    def __init__(self) -> None:
        self._log = Path(tempfile.mkdtemp(prefix="lakefeed-s3-")) / "server.log"
        port = free_port()
        self.endpoint = f"http://127.0.0.1:{port}"
        self._process = spawn(
            [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)], stdout=self._log
        )
        try:
            wait_until(
                self._answers, START_SECONDS, lambda: f"moto_server does not answer:\n{tail(self._log)}"
            )
        except BaseException:
            self.close()
            raise

    @property
    def storage(self) -> dict[str, str]:
        """The storage options of deltalake for this server."""
        return {
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_ACCESS_KEY_ID": KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET,
            "AWS_REGION": REGION,
            "AWS_ALLOW_HTTP": "true",
        }

    @property
    def client(self) -> Any:
        """A boto3 client of this server."""
        return boto3.client(
            "s3",
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

    def close(self) -> None:
        """End the server; its objects go with it."""
        self._process.kill()
        self._process.wait()
        self._log.unlink(missing_ok=True)
        self._log.parent.rmdir()

    def __enter__(self) -> S3Server:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _answers(self) -> bool:
        code = self._process.poll()
        assert code is None, f"moto_server ended with code {code}:\n{tail(self._log)}"
        try:
            with urlopen(f"{self.endpoint}/moto-api/", timeout=1):
                return True
        except (URLError, TimeoutError):
            return False
