"""The files below one prefix of an object store, as a file system of Arrow."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from queue import Full, Queue
from threading import Event
from typing import Any

import obstore
import pyarrow as pa
import pyarrow.fs as pafs
from obstore.exceptions import AlreadyExistsError, BaseError
from obstore.store import AzureStore, GCSStore, ObjectStore, S3Store

from lakefeed.stores.aws_profile import profile_credentials
from lakefeed.stores.location import bucket_of
from lakefeed.stores.lock_table import LockTable
from lakefeed.stores.options import client_options, endpoint, is_unsafe, lock_options

_HEAD_BYTES = 256 * 1024
"""What is read when a file is opened: it tells the size as well, and is all of a small file."""
_PART_BYTES = 8 * 2**20
"""A larger file is uploaded in parts of this size, while the next are being made."""
_PARTS_AT_ONCE = 4
"""As many wait in memory at most: whoever writes faster than the store takes waits."""
_WHOLE_BYTES = 32 * 2**20
"""A stream of at most so many bytes is read in one piece."""
_NO_BUCKET = re.compile(
    r"NoSuchBucket|ContainerNotFound|FilesystemNotFound|specified bucket does not exist", re.I
)
_SYSTEM = re.compile(r'code: (\d+),\s*kind: \w+,\s*message: "([^"]+)"')
_CAUSES = re.compile(r"TimedOut|failed to lookup address information[^\"\n]*")

_LISTINGS = 8
"""Prefixes that are listed, and objects that are asked for, side by side."""
_PAGE = 1000
"""So many objects a store tells at once."""
Listed = tuple[str, int, int, str | None]
"""An object: its path, size, time in microseconds since 1970, and tag."""
_ACCOUNT = ("azure_storage_account_name", "account_name")


class StoreError(OSError):
    """A request to a store that failed: it says nothing about the content of a file."""


class ObjectFiles(pafs.FileSystemHandler):  # type: ignore[misc]
    """The objects below a table's prefix; a directory is what lies before a slash. Safe in many threads."""

    def __init__(self, uri: str, storage: Mapping[str, str]) -> None:
        """Nothing is asked of the store yet."""
        self.uri = uri
        self.unsafe = is_unsafe(uri, storage)
        """Whether commits are to be made without protection against a second writer."""
        locking = lock_options(uri, storage)
        self.lock = None if locking is None else LockTable(uri, locking)
        """By which writers of a log keep apart, where the store itself is not to do it."""
        self.endpoint = endpoint(uri, storage)
        """The server, where it is none of those that are known by their cloud."""
        self._storage = dict(storage)
        with translated():
            self.objects = _client(uri, storage)

    def beside(self, uri: str) -> ObjectFiles:
        """Another location, with the options of this one."""
        return self if uri == self.uri else ObjectFiles(uri, self._storage)

    def get_type_name(self) -> str:
        """How Arrow calls this kind of file system."""
        return "lakefeed-objects"

    def normalize_path(self, path: str) -> str:
        """Paths are keys, and are left as they are."""
        return path

    def get_file_info(self, paths: Sequence[str]) -> list[pafs.FileInfo]:
        """What lies at each path: a request for a file, two for a directory or nothing; in parallel."""
        if len(paths) < 2:
            return [self._info(path) for path in paths]
        with ThreadPoolExecutor(_LISTINGS) as pool:
            return list(pool.map(self._info, paths))

    def get_file_info_selector(self, selector: pafs.FileSelector) -> list[pafs.FileInfo]:
        """All that lies below a directory; nothing where there is none, as a store has no directories."""
        prefix = selector.base_dir.strip("/")
        with translated():
            if selector.recursive:
                return [_file(one) for one in obstore.list(self.objects, prefix or None).collect()]
            found = obstore.list_with_delimiter(self.objects, prefix or None)
        folders = [pafs.FileInfo(path, pafs.FileType.Directory) for path in found["common_prefixes"]]
        return [*folders, *(_file(one) for one in found["objects"])]

    def create_dir(self, path: str, recursive: bool) -> None:
        """A store has no directories."""

    def delete_dir(self, path: str) -> None:
        """Delete all below it."""
        self.delete_dir_contents(path)

    def delete_dir_contents(self, path: str, missing_dir_ok: bool = False) -> None:
        """Delete all below it."""
        self._delete_below(path)

    def delete_root_dir_contents(self) -> None:
        """Delete all that is there."""
        self._delete_below("")

    def delete_file(self, path: str) -> None:
        """Delete one file. Most stores do not tell whether there was one."""
        with translated():
            obstore.delete(self.objects, path)

    def move(self, src: str, dest: str) -> None:
        """Copy, then delete: a store cannot rename."""
        with translated():
            obstore.rename(self.objects, src, dest)

    def copy_file(self, src: str, dest: str) -> None:
        """Copy within the store."""
        with translated():
            obstore.copy(self.objects, src, dest)

    def open_input_stream(self, path: str) -> pa.NativeFile:
        """Read a file from its beginning, with one request."""
        with translated():
            found = obstore.get(self.objects, path)
            if found.meta["size"] <= _WHOLE_BYTES:
                return pa.BufferReader(pa.py_buffer(found.bytes()))
        return pa.PythonFile(io.BufferedReader(_Download(found), _PART_BYTES), mode="r")

    def open_input_file(self, path: str) -> pa.NativeFile:
        """Read anywhere in a file."""
        with translated():
            try:
                found = obstore.get(self.objects, path, options={"range": (0, _HEAD_BYTES)})
                head, size = found.bytes().to_bytes(), found.meta["size"]
            except BaseError:
                # An empty file has no beginning.
                if (size := obstore.head(self.objects, path)["size"]) != 0:
                    raise
                head = b""
        if size <= len(head):
            return pa.BufferReader(pa.py_buffer(head))
        return pa.PythonFile(_Pieces(self.objects, path, head, size), mode="r")

    def open_output_stream(self, path: str, metadata: Mapping[str, str] | None) -> pa.NativeFile:
        """Write a file, which is there when it is closed and not before."""
        return pa.PythonFile(_Upload(self.objects, path), mode="w")

    def open_append_stream(self, path: str, metadata: Mapping[str, str] | None) -> pa.NativeFile:
        """No store can."""
        raise NotImplementedError("an object store cannot append to a file")

    def put_new(self, path: str, content: bytes) -> str | None:
        """Make an object that nobody has made; its tag. Raises FileExistsError where somebody has.

        Where an answer was lost and the request was repeated, that somebody may have been this call.
        """
        with translated():
            return _tag(obstore.put(self.objects, path, content, mode="create", use_multipart=False))

    def put(self, path: str, content: bytes) -> str | None:
        """Make an object, whether or not there is one; its tag."""
        with translated():
            return _tag(obstore.put(self.objects, path, content, use_multipart=False))

    def tag(self, path: str) -> str | None:
        """By which the object at a path differs from any other that was there; None where there is none."""
        with translated():
            try:
                return _tag(obstore.head(self.objects, path))
            except FileNotFoundError:
                return None

    def get(self, path: str) -> tuple[bytes, str | None]:
        """All of an object, and its tag. Raises FileNotFoundError where there is none."""
        with translated():
            found = obstore.get(self.objects, path)
            return found.bytes().to_bytes(), _tag(found.meta)

    def listed(self) -> Iterator[Listed]:
        """Every object. Prefixes side by side, unless all objects are in one; few pages are in memory."""
        with translated():
            begin = next(iter(obstore.list(self.objects, chunk_size=_PAGE)), [])
            if len(begin) < _PAGE:
                yield from map(_listed, begin)
                return
            if not any("/" in one["path"] for one in begin):
                yield from self.paged()
                return
            first = obstore.list_with_delimiter(self.objects)
            yield from map(_listed, first["objects"])
            yield from self._listed_below(first["common_prefixes"])

    def _listed_below(self, prefixes: Sequence[str]) -> Iterator[Listed]:
        pages: Queue[Sequence[Any] | None] = Queue(2 * _LISTINGS)
        over = Event()

        def put(page: Sequence[Any] | None) -> None:
            while not over.is_set():
                with suppress(Full):
                    return pages.put(page, timeout=1)

        def read(prefix: str) -> None:
            try:
                for page in obstore.list(self.objects, prefix, chunk_size=_PAGE):
                    put(page)
                    if over.is_set():
                        return
            finally:
                put(None)

        with ThreadPoolExecutor(_LISTINGS) as pool:
            reading = [pool.submit(read, prefix) for prefix in prefixes]
            try:
                left = len(reading)
                while left:
                    if (page := pages.get()) is None:
                        left -= 1
                    else:
                        yield from map(_listed, page)
                for one in reading:
                    one.result()
            finally:
                over.set()
                for one in reading:
                    one.cancel()

    def paged(self) -> Iterator[Listed]:
        """Every object, in the order of the store."""
        with translated():
            for part in obstore.list(self.objects, chunk_size=_PAGE):
                yield from map(_listed, part)

    def listed_after(self, path: str) -> Iterator[Listed]:
        """The objects whose paths sort behind one; a store lists no others."""
        with translated():
            for part in obstore.list(self.objects, offset=path):
                # Azure's emulator does not know where to begin.
                yield from (_listed(one) for one in part if one["path"] > path)

    def found(self, paths: Sequence[str]) -> list[Listed]:
        """Those of the objects at some paths that are there; a request for each, side by side."""
        with ThreadPoolExecutor(_LISTINGS) as pool:
            return [one for one in pool.map(self._found, paths) if one is not None]

    def _found(self, path: str) -> Listed | None:
        with translated():
            try:
                return _listed(obstore.head(self.objects, path))
            except FileNotFoundError:
                return None

    def names_after(self, path: str) -> list[str]:
        """The names of the files behind a path in its directory, in order; those before are not listed."""
        folder = path.rpartition("/")[0]
        with translated():
            found = obstore.list(self.objects, folder or None, offset=path).collect()
        # Azure's emulator does not know where to begin.
        return sorted(one["path"].removeprefix(f"{folder}/") for one in found if one["path"] > path)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ObjectFiles) and other.uri == self.uri

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash(self.uri)

    def _info(self, path: str) -> pafs.FileInfo:
        with translated():
            try:
                return _file(obstore.head(self.objects, path)) if path else _nothing(path)
            except FileNotFoundError:
                if next(iter(obstore.list(self.objects, path, chunk_size=1)), None):
                    return pafs.FileInfo(path, pafs.FileType.Directory)
        return _nothing(path)

    def _delete_below(self, path: str) -> None:
        with translated():
            found = obstore.list(self.objects, path.strip("/") or None).collect()
            obstore.delete(self.objects, [one["path"] for one in found])


@contextmanager
def translated() -> Iterator[None]:
    """Turn what obstore raises into an OSError, as a disk has them: of files that are there, or are not."""
    try:
        yield
    except FileNotFoundError as error:
        text = _said(error)
        # A file that is missing is no trouble, a bucket is.
        raise (StoreError if _NO_BUCKET.search(text) else FileNotFoundError)(text) from None
    except AlreadyExistsError as error:
        raise FileExistsError(_said(error)) from None
    except BaseError as error:
        raise StoreError(_said(error)) from None


def _said(error: Exception) -> str:
    """What an error says, and the cause that it has only among the structures that it prints as well."""
    text, _, structures = str(error).partition("\n\nDebug source:")
    if system := _SYSTEM.search(structures):
        return f"{text}\n{system[2]} (os error {system[1]})"
    cause = _CAUSES.search(structures)
    return f"{text}\n{'operation timed out' if cause[0] == 'TimedOut' else cause[0]}" if cause else text


def _client(uri: str, storage: Mapping[str, str]) -> ObjectStore:
    bucket = bucket_of(uri)
    made = {"prefix": bucket.prefix or None, **client_options(uri, storage)}
    match bucket.cloud:
        case "s3":
            return S3Store(bucket.name, credential_provider=profile_credentials(storage), **made)
        case "gcs":
            return GCSStore(bucket.name, **made)
        case "azure":
            if bucket.account:
                others = {key: value for key, value in made["config"].items() if key not in _ACCOUNT}
                made["config"] = {**others, "azure_storage_account_name": bucket.account}
            return AzureStore(bucket.name, **made)


def _file(found: Any) -> pafs.FileInfo:
    return pafs.FileInfo(
        found["path"],
        pafs.FileType.File,
        size=found["size"],
        mtime_ns=int(found["last_modified"].timestamp() * 1000) * 1_000_000,
    )


def _listed(found: Any) -> Listed:
    return found["path"], found["size"], int(found["last_modified"].timestamp() * 1_000_000), _tag(found)


def _tag(found: Any) -> str | None:
    # In a listing, some stores leave the quotes out.
    return (found["e_tag"] or "").strip('"') or None


def _nothing(path: str) -> pafs.FileInfo:
    return pafs.FileInfo(path, pafs.FileType.NotFound if path else pafs.FileType.Directory)


class _Download(io.RawIOBase):
    """A large object as a stream: only a part of it is in memory."""

    def __init__(self, found: obstore.GetResult) -> None:
        self._parts = iter(found.stream(_PART_BYTES))
        self._part = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, target: Any) -> int:
        if not self._part:
            with translated():
                self._part = memoryview(next(self._parts, b""))
        count = min(len(target), len(self._part))
        target[:count] = self._part[:count]
        self._part = self._part[count:]
        return count


class _Pieces(io.RawIOBase):
    """An object that is read piece by piece; its beginning is known."""

    def __init__(self, objects: ObjectStore, path: str, head: bytes, size: int) -> None:
        self._objects, self._path, self._head, self._size = objects, path, head, size
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def size(self) -> int:
        return self._size

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._at = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        return self._at

    def read(self, count: int = -1) -> bytes:
        end = self._size if count is None or count < 0 else min(self._size, self._at + count)
        begin, self._at = self._at, max(self._at, end)
        if begin >= end:
            return b""
        if end <= len(self._head):
            return self._head[begin:end]
        with translated():
            return bytes(obstore.get_range(self._objects, self._path, start=begin, end=end))


class _Upload(io.RawIOBase):
    """A new object: a small one is one request; parts of another are sent while the next are written."""

    def __init__(self, objects: ObjectStore, path: str) -> None:
        self._objects, self._path = objects, path
        self._small = bytearray()
        self._large: obstore.WritableFile | None = None
        self._at = 0

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def write(self, content: Any) -> int:
        content = memoryview(content).cast("B")
        with translated():
            if self._large is None and len(self._small) + len(content) > _PART_BYTES:
                self._large = obstore.open_writer(
                    self._objects, self._path, buffer_size=_PART_BYTES, max_concurrency=_PARTS_AT_ONCE
                )
                self._large.write(bytes(self._small))
                self._small.clear()
            if self._large is None:
                self._small += content
            else:
                self._large.write(content)
        self._at += len(content)
        return len(content)

    def flush(self) -> None:
        """Parts are sent when they are full, not before."""

    def close(self) -> None:
        if self.closed:
            return
        super().close()
        with translated():
            if self._large is None:
                obstore.put(self._objects, self._path, bytes(self._small), use_multipart=False)
            else:
                self._large.close()
