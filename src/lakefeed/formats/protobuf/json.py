"""The JSON text of messages that cannot be columns, by the JSON mapping of Protobuf."""

from __future__ import annotations

import json
from typing import Any

from lakefeed.formats.protobuf.message import Message
from lakefeed.formats.refusal import Misfit


def json_text(message: Message, content: Any) -> str:
    """The JSON of a message, given as its bytes or as it was parsed. Raises Misfit.

    Keys are sorted, as a map has no order of its own and the same message shall always be the same text.
    """
    from google.protobuf import json_format
    from google.protobuf.message import DecodeError
    from google.protobuf.message_factory import GetMessageClass

    try:
        parsed = (
            GetMessageClass(message.descriptor).FromString(content) if type(content) is bytes else content
        )
        value = json_format.MessageToDict(parsed, preserving_proto_field_name=True)
    except DecodeError:
        raise Misfit("bad_protobuf", f"expected a message {message.name}, got other bytes") from None
    except (json_format.Error, TypeError, ValueError) as error:
        raise Misfit("bad_protobuf", f"a message {message.name} that JSON cannot hold: {error}") from None
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), sort_keys=True)


def as_written(message: Message, content: bytes) -> bool:
    """Whether Protobuf writes the message that it reads here with the same bytes.

    Then it has left out nothing and cut no number. Others may be sound too: fields have no order.
    """
    from google.protobuf.message import DecodeError
    from google.protobuf.message_factory import GetMessageClass

    try:
        parsed = GetMessageClass(message.descriptor).FromString(content)
    except DecodeError:
        return False
    parsed.DiscardUnknownFields()
    return bool(parsed.SerializePartialToString(deterministic=True) == content)
