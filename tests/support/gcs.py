"""An emulator of Google's cloud storage on loopback, behind a door that speaks Google's XML.

fake-gcs-server takes objects by Google's JSON only; the clients of delta-rs and obstore speak the XML that
the real store has as well. The door translates one into the other, and the condition of a write with it: the
emulator is who decides it.
"""

from __future__ import annotations

import json
import threading
import uuid
from datetime import datetime
from email.utils import format_datetime
from typing import Any
from urllib.parse import parse_qs, quote, unquote, urlencode, urlsplit
from urllib.request import Request, urlopen
from xml.sax.saxutils import escape

from support.door import Door, command_of, serve
from support.object_server import ObjectServer
from support.programs import fake_gcs

_SEAM = "a-seam-that-no-object-has-5f2b8c"


class GcsServer(ObjectServer):
    """The door; the emulator behind it is `inner`."""

    scheme = "gs"

    def __init__(self) -> None:
        self.inner = _Emulator()
        command = command_of("support.gcs", self.inner.endpoint)
        super().__init__(lambda port: [*command, str(port)], "/-/here")

    def storage_through(self, endpoint: str) -> dict[str, str]:
        account = {
            "gcs_base_url": endpoint,
            "disable_oauth": True,
            "client_email": "",
            "private_key": "",
            "private_key_id": "",
        }
        return {"GOOGLE_SERVICE_ACCOUNT_KEY": json.dumps(account), "ALLOW_HTTP": "true"}

    def create_bucket(self, name: str) -> None:
        headers = {"Content-Type": "application/json"}
        body = json.dumps({"name": name}).encode()
        with urlopen(Request(f"{self.inner.endpoint}/storage/v1/b?project=test", body, headers), timeout=60):
            pass

    def close(self) -> None:
        super().close()
        self.inner.close()


class _Emulator(ObjectServer):
    def __init__(self) -> None:
        options = ["-scheme", "http", "-host", "127.0.0.1", "-backend", "memory", "-log-level", "error"]
        super().__init__(
            lambda port: [*fake_gcs(), *options, "-public-host", f"127.0.0.1:{port}", "-port", str(port)],
            "/_internal/healthcheck",
        )


class _Door(Door):
    uploads: dict[str, dict[int, bytes]] = {}  # noqa: RUF012 (of the process)
    buckets: set[str] = set()  # noqa: RUF012
    lock = threading.Lock()

    def take(self, body: bytes) -> None:
        parts = urlsplit(self.path)
        bucket, _, key = unquote(parts.path).lstrip("/").partition("/")
        query = {name: values[0] for name, values in parse_qs(parts.query, keep_blank_values=True).items()}
        if bucket == "-":
            self.answer(200)
        elif not key:
            self._list(bucket, query)
        elif "uploads" in query or "uploadId" in query:
            self._upload_parts(bucket, key, query, body)
        elif self.command == "PUT" and self.headers.get("x-goog-copy-source"):
            self._copy(bucket, key)
        elif self.command == "PUT":
            self._put(bucket, key, body)
        elif self.command == "DELETE":
            self._pass_on(bucket, "DELETE", _object(bucket, key))
        else:
            self._get(bucket, key)

    def _get(self, bucket: str, key: str) -> None:
        if self.command == "HEAD":
            found = self._pass_on(bucket, "GET", _object(bucket, key), answer=False)
            if found is not None:
                about = json.loads(found)
                self.answer(200, b"", [*_tags(about), ("Content-Length", about["size"])])
            return
        wanted = {"Range": self.headers["Range"]} if self.headers.get("Range") else {}
        status, content, headers = self.ask("GET", f"{_object(bucket, key)}?alt=media", headers=wanted)
        if status >= 400:
            return self._refuse(bucket, status)
        told = {name.lower(): value for name, value in headers}
        tags = [("ETag", f'"{told["x-goog-generation"]}"')]
        tags += [(name, told[name]) for name in ("last-modified", "content-range") if name in told]
        self.answer(status, content, tags)

    def _put(self, bucket: str, key: str, body: bytes) -> None:
        found = self._insert(bucket, key, body, self.headers.get("x-goog-if-generation-match"))
        if found is not None:
            self.answer(200, b"", _tags(json.loads(found)))

    def _insert(self, bucket: str, key: str, body: bytes, condition: str | None = None) -> bytes | None:
        if not self._has(bucket):
            # The emulator would make the bucket.
            return self._refuse(bucket, 404)
        # Of the ways in which the emulator takes an object, the plain one knows no condition.
        query = {"uploadType": "multipart"} | ({} if condition is None else {"ifGenerationMatch": condition})
        head = f"--{_SEAM}\r\nContent-Type: application/json\r\n\r\n{json.dumps({'name': key})}\r\n"
        head += f"--{_SEAM}\r\nContent-Type: application/octet-stream\r\n\r\n"
        whole = head.encode() + body + f"\r\n--{_SEAM}--".encode()
        kind = {"Content-Type": f"multipart/related; boundary={_SEAM}"}
        path = f"/upload/storage/v1/b/{bucket}/o?{urlencode(query)}"
        return self._pass_on(bucket, "POST", path, whole, kind, answer=False)

    def _copy(self, bucket: str, key: str) -> None:
        source, _, from_ = unquote(self.headers["x-goog-copy-source"]).lstrip("/").partition("/")
        condition = self.headers.get("x-goog-if-generation-match")
        query = f"?ifGenerationMatch={condition}" if condition is not None else ""
        to = _object(bucket, key).removeprefix("/storage/v1")
        found = self._pass_on(
            bucket, "POST", f"{_object(source, from_)}/rewriteTo{to}{query}", b"{}", answer=False
        )
        if found is not None:
            self.answer(200, b"<CopyObjectResult></CopyObjectResult>")

    def _upload_parts(self, bucket: str, key: str, query: dict[str, str], body: bytes) -> None:
        upload = query.get("uploadId", "")
        with self.lock:
            if "uploads" in query:
                upload = uuid.uuid4().hex
                self.uploads[upload] = {}
                return self.answer(200, _xml("InitiateMultipartUploadResult", "UploadId", upload))
            if self.command == "PUT":
                self.uploads[upload][int(query["partNumber"])] = body
                return self.answer(200, b"", [("ETag", f'"{query["partNumber"]}"')])
            parts = self.uploads.pop(upload)
        if self.command == "DELETE":
            return self.answer(204)
        whole = b"".join(parts[number] for number in sorted(parts))
        found = self._insert(bucket, key, whole)
        if found is not None:
            tag = _tag(json.loads(found))
            self.answer(200, _xml("CompleteMultipartUploadResult", "ETag", tag), [("ETag", tag)])

    def _list(self, bucket: str, query: dict[str, str]) -> None:
        names = {"prefix": "prefix", "delimiter": "delimiter", "start-after": "startOffset"}
        names |= {"continuation-token": "pageToken", "max-keys": "maxResults"}
        asked = {names[name]: value for name, value in query.items() if name in names}
        found = self._pass_on(bucket, "GET", f"/storage/v1/b/{bucket}/o?{urlencode(asked)}", answer=False)
        if found is None:
            return
        listed = json.loads(found)
        # Google's JSON begins with the offset, its XML behind it.
        items = [one for one in listed.get("items", []) if one["name"] != query.get("start-after")]
        text = "".join(
            f"<Contents><Key>{escape(one['name'])}</Key><Size>{one['size']}</Size>"
            f"<LastModified>{one['updated']}</LastModified><ETag>{escape(_tag(one))}</ETag></Contents>"
            for one in items
        )
        for prefix in listed.get("prefixes", []):
            text += f"<CommonPrefixes><Prefix>{escape(prefix)}</Prefix></CommonPrefixes>"
        if "nextPageToken" in listed:
            text += f"<NextContinuationToken>{escape(listed['nextPageToken'])}</NextContinuationToken>"
        self.answer(200, f"<ListBucketResult>{text}</ListBucketResult>".encode())

    def _pass_on(
        self,
        bucket: str,
        method: str,
        path: str,
        body: bytes | None = None,
        headers: dict[str, str] | None = None,
        *,
        answer: bool = True,
    ) -> bytes | None:
        """What the emulator says; None, and the error is told, where it refuses."""
        status, content, _ = self.ask(method, path, body, headers)
        if status >= 400:
            self._refuse(bucket, status)
            return None
        if answer:
            self.answer(status)
        return content

    def _has(self, bucket: str) -> bool:
        if bucket not in self.buckets and self.ask("GET", f"/storage/v1/b/{bucket}")[0] == 200:
            self.buckets.add(bucket)
        return bucket in self.buckets

    def _refuse(self, bucket: str, status: int) -> None:
        code = {404: "NoSuchKey", 412: "PreconditionFailed"}.get(status, "InternalError")
        if status == 404 and not self._has(bucket):
            code = "NoSuchBucket"
        self.answer(status, f"<Error><Code>{code}</Code><Message>{code}</Message></Error>".encode())


def _xml(kind: str, name: str, text: str) -> bytes:
    return f"<{kind}><{name}>{escape(text)}</{name}></{kind}>".encode()


def _object(bucket: str, key: str) -> str:
    return f"/storage/v1/b/{bucket}/o/{quote(key, safe='')}"


def _tags(about: dict[str, Any]) -> list[tuple[str, str]]:
    moment = datetime.fromisoformat(about["updated"])
    return [
        ("ETag", _tag(about)),
        ("x-goog-generation", about["generation"]),
        ("Last-Modified", format_datetime(moment, usegmt=True)),
    ]


def _tag(about: dict[str, Any]) -> str:
    return f'"{about["generation"]}"'


if __name__ == "__main__":
    serve(_Door)
