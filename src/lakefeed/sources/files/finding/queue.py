"""A queue of SQS with the events of a bucket, asked by botocore, which knows every kind of credentials."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from lakefeed.errors import SourceError, SourceUnavailable
from lakefeed.stores.options import normal

_AT_A_TIME = 10
"""What SQS takes and gives in one request."""
_SECONDS = 5.0
"""How long messages are taken before the files are looked at that they tell of."""
_REGION = re.compile(r"^sqs\.([a-z0-9-]+)\.amazonaws\.com|^([a-z0-9-]+)\.queue\.amazonaws\.com")
_RIGHTS = "sqs:ReceiveMessage, sqs:DeleteMessage and sqs:GetQueueAttributes"
_NAMES = {
    "aws_access_key_id": ("aws_access_key_id", "access_key_id"),
    "aws_secret_access_key": ("aws_secret_access_key", "secret_access_key"),
    "aws_session_token": ("aws_session_token", "aws_token", "session_token", "token"),
}


@dataclass(frozen=True)
class Message:
    """A message that was received; it comes again unless it is deleted."""

    receipt: str
    body: str


class Queue:
    """Receives and deletes messages. Used by one thread. Raises SourceUnavailable."""

    def __init__(self, url: str, storage: Mapping[str, str]) -> None:
        """Nobody is asked yet. Raises SourceError where botocore is missing."""
        self.url = url
        try:
            from botocore.config import Config
            from botocore.session import Session
        except ImportError:
            raise SourceError(
                "notify.sqs needs botocore, which is not installed.\nInstall it: pip install 'lakefeed[sqs]'"
            ) from None
        options, address = normal(storage), urlsplit(url)
        keys = {
            name: next((options[one] for one in names if options.get(one)), None)
            for name, names in _NAMES.items()
        }
        session = Session()
        region = _region(address.netloc, options) or session.get_config_variable("region") or "us-east-1"
        patience = Config(connect_timeout=3, read_timeout=10, retries={"total_max_attempts": 2})
        with self._errors():
            self._client = session.create_client(
                "sqs",
                region_name=region,
                endpoint_url=f"{address.scheme}://{address.netloc}",
                config=patience,
                **keys,
            )

    def receive(self) -> Iterator[Message]:
        """The messages that are there, for some seconds; others do not get them for a while."""
        until = time.monotonic() + _SECONDS
        while time.monotonic() < until:
            with self._errors():
                found = self._client.receive_message(QueueUrl=self.url, MaxNumberOfMessages=_AT_A_TIME)
            messages = found.get("Messages", [])
            if not messages:
                return
            yield from (Message(one["ReceiptHandle"], one["Body"]) for one in messages)

    def delete(self, messages: Sequence[Message]) -> None:
        """Take messages out of the queue. One that stays comes again, and does no harm."""
        for first in range(0, len(messages), _AT_A_TIME):
            some = messages[first : first + _AT_A_TIME]
            entries = [{"Id": str(at), "ReceiptHandle": one.receipt} for at, one in enumerate(some)]
            with self._errors():
                self._client.delete_message_batch(QueueUrl=self.url, Entries=entries)

    def waiting(self) -> int:
        """About how many messages are there."""
        with self._errors():
            found = self._client.get_queue_attributes(
                QueueUrl=self.url, AttributeNames=["ApproximateNumberOfMessages"]
            )
        return int(found["Attributes"]["ApproximateNumberOfMessages"])

    @contextmanager
    def _errors(self) -> Iterator[None]:
        from botocore.exceptions import BotoCoreError, ClientError

        try:
            yield
        except ClientError as error:
            said: dict[str, Any] = error.response.get("Error", {})
            code, text = str(said.get("Code", "")), str(said.get("Message", "")).strip()
            remedy = _remedy(f"{code} {text}")
            raise SourceUnavailable(f"the queue {self.url} refuses: {code}: {text}\n{remedy}") from None
        except (BotoCoreError, ValueError) as error:
            text = " ".join(str(error).split())
            raise SourceUnavailable(
                f"the queue {self.url} cannot be asked: {text}\n{_remedy(text)}"
            ) from None


def _region(host: str, options: Mapping[str, str]) -> str | None:
    """Where a queue is: its name says so, unless another server stands for Amazon's."""
    named = _REGION.search(host)
    if named:
        return named[1] or named[2]
    return options.get("aws_region") or options.get("region") or options.get("aws_default_region")


def _remedy(said: str) -> str:
    if "NonExistent" in said or "does not exist" in said:
        return "Make the queue, or correct `notify.sqs`."
    if re.search(
        r"AccessDenied|InvalidClientTokenId|SignatureDoesNotMatch|ExpiredToken|InvalidSecurity", said
    ):
        return f"Give the credentials of `storage`, or of the environment, the rights {_RIGHTS}."
    if "credentials" in said.lower():
        return "Set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or give this machine a role."
    return "Look at the network between here and there, and at `notify.sqs`."
