"""A lock table in DynamoDB, as `S3DynamoDBLogStore` of Spark's Delta makes it, and what it holds."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

from support.s3 import S3Server


class LockTableOf:
    """A lock table of its own for each test. `storage` leads a pipeline to it."""

    def __init__(self, s3: S3Server, endpoint: str | None = None) -> None:
        self.name = f"locks-{uuid4().hex[:8]}"
        self._client = s3.service("dynamodb")
        self._client.create_table(
            TableName=self.name,
            BillingMode="PAY_PER_REQUEST",
            AttributeDefinitions=[
                {"AttributeName": "tablePath", "AttributeType": "S"},
                {"AttributeName": "fileName", "AttributeType": "S"},
            ],
            KeySchema=[
                {"AttributeName": "tablePath", "KeyType": "HASH"},
                {"AttributeName": "fileName", "KeyType": "RANGE"},
            ],
        )
        self.storage = {
            **s3.storage_through(endpoint or s3.endpoint),
            "AWS_S3_LOCKING_PROVIDER": "dynamodb",
            "DELTA_DYNAMO_TABLE_NAME": self.name,
        }

    def items(self) -> list[dict[str, Any]]:
        """All entries as they lie there, without DynamoDB's types, ordered by their keys."""
        pages = self._client.get_paginator("scan").paginate(TableName=self.name, ConsistentRead=True)
        found = [
            {name: next(iter(value.values())) for name, value in item.items()}
            for page in pages
            for item in page["Items"]
        ]
        return sorted(found, key=lambda item: (item["tablePath"], item["fileName"]))

    def put(self, **attributes: str) -> None:
        """Write an entry as another writer would."""
        item = {name: {"N" if name == "expireTime" else "S": value} for name, value in attributes.items()}
        self._client.put_item(TableName=self.name, Item=item)

    def assert_every_version_went_through(self, path: str, versions: int) -> None:
        """Each version of a log, from the first on, was taken under both spellings and completed."""
        names = [f"{version:020d}.json" for version in range(versions)]
        for spelling in (path, path.replace("s3://", "s3a://")):
            found = {
                item["fileName"]: item["complete"] for item in self.items() if item["tablePath"] == spelling
            }
            assert found == dict.fromkeys(names, "true"), spelling


class LockedS3(S3Server):
    """The S3 server of another, with a lock table in front of each log."""

    def __init__(self, s3: S3Server) -> None:
        self.endpoint = s3.endpoint
        self.lock = LockTableOf(s3)

    @property
    def storage(self) -> dict[str, str]:
        return self.lock.storage
