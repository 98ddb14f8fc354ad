"""moto's server, with conditional writes as S3 has them: of two at the same moment, one succeeds.

moto looks whether there is an object and then writes it, in two steps, in as many threads as there are
requests. Two of them may both find none. Its DynamoDB does the same.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterable
from typing import Any

from moto.moto_server.werkzeug_app import DomainDispatcherApplication, MotoRequestHandler, create_backend_app
from werkzeug.serving import run_simple


class OneAtATime:
    """Lets one conditional write in at a time."""

    def __init__(self, app: Any) -> None:
        self._app, self._lock = app, threading.Lock()

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        dynamodb = str(environ.get("HTTP_X_AMZ_TARGET", "")).startswith("DynamoDB")
        if "HTTP_IF_NONE_MATCH" not in environ and not dynamodb:
            answer: Iterable[bytes] = self._app(environ, start_response)
            return answer
        with self._lock:
            return list(self._app(environ, start_response))


if __name__ == "__main__":
    app = OneAtATime(DomainDispatcherApplication(create_backend_app))
    run_simple("127.0.0.1", int(sys.argv[1]), app, threaded=True, request_handler=MotoRequestHandler)
