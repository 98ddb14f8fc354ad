"""The lock table in DynamoDB by which writers of one Delta log in S3 keep apart, as Spark's Delta has it.

Its keys and attributes are those of `S3DynamoDBLogStore`, so that Spark and Lakefeed may write to one table.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from threading import Lock
from typing import Any

from lakefeed.backoff import backoff
from lakefeed.errors import StoreUnavailable, TableError
from lakefeed.stores.location import bucket_of
from lakefeed.stores.options import LockOptions

_KEPT_SECONDS = 86_400
"""For how long an entry stays behind its commit: by then every writer sees the file itself."""
_TRIES = 10
_MAKING = Lock()
_SCHEMES = ("s3a", "s3")
_DENIED = ("AccessDenied", "NotAuthorized")
_UNKNOWN = (
    "UnrecognizedClient",
    "InvalidSignature",
    "InvalidClientTokenId",
    "IncompleteSignature",
    "MissingAuthenticationToken",
)


@dataclass(frozen=True)
class LockEntry:
    """What the lock table holds of one version, under one spelling of the table's path."""

    table_path: str
    file_name: str
    temp_path: str
    """Where the content of the version lies, relative to the log."""
    complete: bool


class LockTable:
    """The entries of one Delta table. Its client is made when it is asked for; safe in many threads.

    Spark spells the path of a table as its users do, `s3a://` or `s3://`, and only looks under that spelling.
    So a version is taken under both, in one transaction, and looked up under both.
    """

    def __init__(self, uri: str, options: LockOptions) -> None:
        bucket = bucket_of(uri)
        self.uri, self.options = uri, options
        self._paths = [f"{scheme}://{bucket.name}/{bucket.prefix}" for scheme in _SCHEMES]

    def entries(self, file_name: str) -> list[LockEntry]:
        """What is known of a version."""
        found = []
        for path in self._paths:
            with self._told():
                found.append(
                    self._client.get_item(
                        TableName=self.options.table, Key=_key(path, file_name), ConsistentRead=True
                    )
                )
        return [_entry(one["Item"]) for one in found if one.get("Item")]

    def newest(self) -> list[LockEntry]:
        """The newest version that is known under each spelling."""
        return [
            _entry(item)
            for path in self._paths
            for item in self._query(path, ScanIndexForward=False, Limit=1)
        ]

    def take(self, file_name: str, temp_path: str) -> list[LockEntry]:
        """Take a version: of many writers, one succeeds. Raises FileExistsError for all others.

        From then on it is committed: whoever comes by puts the content in place, if this writer does not.
        """
        taken = [LockEntry(path, file_name, temp_path, False) for path in self._paths]
        for attempt in range(1, _TRIES + 1):
            try:
                return self._put_new(taken)
            except _Busy:
                time.sleep(backoff(attempt, 0.02, 0.5))
            except _Refused:
                # The client repeats a request whose answer was lost: then the entries are its own.
                if {entry.temp_path for entry in self.entries(file_name)} == {temp_path}:
                    return taken
                break
        raise FileExistsError(f"{file_name} is in the lock table {self.options.table}, or about to be")

    def _put_new(self, entries: list[LockEntry]) -> list[LockEntry]:
        puts = [
            {
                "Put": {
                    "TableName": self.options.table,
                    "Item": _item(entry),
                    "ConditionExpression": "attribute_not_exists(fileName)",
                }
            }
            for entry in entries
        ]
        with self._told():
            self._client.transact_write_items(TransactItems=puts)
        return entries

    def complete(self, entries: Sequence[LockEntry]) -> None:
        """Say that the content of a version is in place."""
        with self._told(), suppress(_Busy):
            # Whoever is at it as well completes the same entry.
            for entry in entries:
                done = _item(replace(entry, complete=True))
                self._client.put_item(TableName=self.options.table, Item=done)

    def forget(self) -> None:
        """Delete all entries of the Delta table, which is no more."""
        for path in self._paths:
            for item in self._query(path):
                with self._told():
                    self._client.delete_item(
                        TableName=self.options.table, Key=_key(path, item["fileName"]["S"])
                    )

    def _query(self, path: str, **how: Any) -> Iterator[Mapping[str, Any]]:
        more: dict[str, Any] = {}
        while True:
            with self._told():
                found = self._client.query(
                    TableName=self.options.table,
                    ConsistentRead=True,
                    KeyConditionExpression="tablePath = :path",
                    ExpressionAttributeValues={":path": {"S": path}},
                    **how,
                    **more,
                )
            yield from found["Items"]
            if "Limit" in how or "LastEvaluatedKey" not in found:
                return
            more = {"ExclusiveStartKey": found["LastEvaluatedKey"]}

    @property
    def _client(self) -> Any:
        # One that many threads ask for at once is made once.
        with self._told(), _MAKING:
            return _client_for(self.options)

    @contextmanager
    def _told(self) -> Iterator[None]:
        """Turn what botocore raises into TableError or StoreUnavailable, with what to do."""
        try:
            from botocore.exceptions import BotoCoreError, ClientError, NoCredentialsError, ProfileNotFound
        except ImportError:
            raise TableError(
                f"{self.uri}: AWS_S3_LOCKING_PROVIDER: dynamodb needs botocore.\n"
                "Install it: pip install 'lakefeed[dynamodb]'"
            ) from None
        try:
            yield
        except ClientError as error:
            raise self._refusal(error) from error
        except (NoCredentialsError, ProfileNotFound) as error:
            raise self._error(TableError, str(error), _KEYS) from error
        except (BotoCoreError, OSError, ValueError) as error:
            kind = TableError if isinstance(error, ValueError) else StoreUnavailable
            raise self._error(kind, str(error), "Check that DynamoDB can be reached.") from error

    def _refusal(self, error: Any) -> Exception:
        said = error.response.get("Error", {})
        code, text = said.get("Code", ""), said.get("Message", "")
        reasons = {one.get("Code") for one in error.response.get("CancellationReasons", ())}
        if "ConditionalCheckFailed" in reasons:
            return _Refused()
        if "TransactionConflict" in reasons or code == "TransactionConflictException":
            return _Busy()
        name, region = self.options.table, self.options.region
        if code == "ResourceNotFoundException":
            return TableError(
                f"{self.uri}: there is no lock table {name} in DynamoDB in {region}. Create it:\n"
                f"aws dynamodb create-table --region {region} --table-name {name} --billing-mode "
                "PAY_PER_REQUEST --attribute-definitions AttributeName=tablePath,AttributeType=S "
                "AttributeName=fileName,AttributeType=S --key-schema AttributeName=tablePath,KeyType=HASH "
                "AttributeName=fileName,KeyType=RANGE"
            )
        if code.startswith(_DENIED):
            remedy = f"Give the credentials {_RIGHTS} on it."
            return self._error(TableError, f"access was refused: {text}", remedy)
        if code.startswith(_UNKNOWN) or code.startswith("ExpiredToken"):
            return self._error(TableError, f"the credentials are not accepted: {text}", _KEYS)
        if code.startswith("Validation"):
            return self._error(
                TableError, text, "Its keys must be tablePath (HASH) and fileName (RANGE), both text."
            )
        return self._error(StoreUnavailable, f"{code}: {text}", "The commit is tried again.")

    def _error(self, kind: type[TableError], what: str, remedy: str) -> TableError:
        return kind(f"{self.uri}: the lock table {self.options.table} in DynamoDB: {what}\n{remedy}")


@lru_cache(maxsize=16)
def _client_for(options: LockOptions) -> Any:
    """One client for all tables with the same lock table; it serves many threads."""
    from botocore.config import Config
    from botocore.session import Session

    config = Config(
        connect_timeout=options.connect_timeout,
        read_timeout=options.timeout,
        retries={"mode": "standard", "total_max_attempts": 5},
        proxies={"http": options.proxy, "https": options.proxy} if options.proxy else None,
    )
    return Session().create_client(
        "dynamodb",
        region_name=options.region,
        endpoint_url=options.endpoint or None,
        aws_access_key_id=options.access_key_id or None,
        aws_secret_access_key=options.secret_access_key or None,
        aws_session_token=options.session_token or None,
        config=config,
    )


_RIGHTS = "dynamodb:GetItem, PutItem, DeleteItem and Query"
_KEYS = (
    "Set AWS_ACCESS_KEY_ID_DYNAMODB and AWS_SECRET_ACCESS_KEY_DYNAMODB, or those without _DYNAMODB, or give "
    "the machine a role."
)


class _Refused(Exception):
    """Another writer has taken the version."""


class _Busy(Exception):
    """Another writer is about to change the same entries."""


def _key(path: str, file_name: str) -> dict[str, Any]:
    return {"tablePath": {"S": path}, "fileName": {"S": file_name}}


def _item(entry: LockEntry) -> dict[str, Any]:
    until = {"expireTime": {"N": str(int(time.time()) + _KEPT_SECONDS)}} if entry.complete else {}
    return {
        **_key(entry.table_path, entry.file_name),
        "tempPath": {"S": entry.temp_path},
        # A text, not a boolean.
        "complete": {"S": "true" if entry.complete else "false"},
        **until,
    }


def _entry(item: Mapping[str, Any]) -> LockEntry:
    path, name, temp, complete = (item[key]["S"] for key in ("tablePath", "fileName", "tempPath", "complete"))
    return LockEntry(path, name, temp, complete == "true")
