"""What a message of a queue says about objects of S3: as S3 sends it, through SNS, or through EventBridge."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import unquote_plus

Created = tuple[str, str]
"""The bucket and the key of an object that was created."""


def created_objects(body: str) -> list[Created] | None:
    """The objects that were created; none by a test event or a removal. None for what S3 has not sent."""
    try:
        return _created(json.loads(body))
    except (ValueError, KeyError, TypeError, AttributeError):
        return None


def _created(message: Any) -> list[Created] | None:
    if message.get("Type") == "Notification":
        # SNS puts the message into one of its own, unless the subscription says `RawMessageDelivery`.
        return _created(json.loads(message["Message"]))
    if message.get("Event") == "s3:TestEvent":
        # S3 sends it when somebody sets the notification up.
        return []
    if message.get("source") == "aws.s3":
        detail = message["detail"]
        created = message["detail-type"] == "Object Created"
        return [(detail["bucket"]["name"], detail["object"]["key"])] if created else []
    if "Records" not in message:
        return None
    return [
        # Keys are encoded as in a form of HTML: a plus sign is a space.
        (one["s3"]["bucket"]["name"], unquote_plus(one["s3"]["object"]["key"]))
        for one in message["Records"]
        if one["eventName"].removeprefix("s3:").startswith("ObjectCreated")
    ]
