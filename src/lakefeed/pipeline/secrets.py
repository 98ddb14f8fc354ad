"""Which values of a pipeline are secrets, and how they are kept out of everything that is shown."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote

if TYPE_CHECKING:
    from lakefeed.pipeline.pipeline import Pipeline

Path = tuple[str | int, ...]
"""The way to a value in the pipeline file, by keys and list indexes."""

MASK = "***"
OPTION_MAPS = frozenset({"options", "storage", "conf"})
"""The maps that are passed on to clients; whatever else a file holds is read by Lakefeed itself."""

# Shorter values are not searched for in texts: replacing every `ab` would destroy the text and hide nothing.
_SHORTEST_SEARCHED = 4
_TOO_PLAIN_TO_SEARCH = frozenset({"true", "false", "none", "null"})

_SECRET_WORDS = re.compile(
    r"pass(word|wd|phrase)|(?<![a-z])pwd(?![a-z])|secret|token|credential|signature|jaas|authorization"
    r"|user\.?info|connection[._-]?string"
    r"|(?<![a-z])sas(?![a-z])|(?<=.)key(?!store|tab|space|s(?![a-z]))"
)
_ALWAYS_SECRET = re.compile(r"pass(word|wd|phrase)")
# Names that end so point at a secret or at the code that fetches it, and are no secret themselves.
_POINTERS = re.compile(r"(url|uri|endpoint|location|file|path|class|provider|type|serializer|enabled?|name)$")
# Keys whose text says how to connect, with a login in it: a URI, or words such as `host=db password=x`.
_CONNECTION_KEYS = re.compile(r"(^|_)(connection|conninfo|dsn)(_|$)")
_CONNECTION_WORDS = re.compile(r"""(\s*\w+\s*=\s*('(\\.|[^'\\])*'|(\\.|[^\s'\\])*)(?=\s|$))*\s*""", re.DOTALL)
_CONNECTION_URI = re.compile(r"""[\w+.:-]+://([^\s/"]*@)?[^\s@#"'<>]*""")
_SECRET_PARAMETER = (
    r"(?:[\w.-]*(?:pass(?:word|wd|phrase)|pwd|secret|token|signature|credential"
    r"|(?:api|access|account|shared|private)[._-]?key)[\w.-]*|sig)"
)
# The quote that ends a text in JSON ends the password as well.
_URL_PASSWORD = re.compile(r"""(?<=://)([^\s/:@]*):((?:[^\s/"]|"(?![,:}\]]))+)(?=@)""")
_URL_PARAMETER = re.compile(rf"""(?<=[?&])({_SECRET_PARAMETER})=([^\s&#"'<>]+)""", re.IGNORECASE)
_PARAMETER = re.compile(
    rf"""(?<![\w.-])({_SECRET_PARAMETER}\s*=\s*)(?!\*\*\*)('(?:\\.|[^'\\])*'|"(?:\\.|[^"\\])*"|(?:\\.|[^\s\\])+)""",
    re.IGNORECASE | re.DOTALL,
)


def is_secret_key(name: str) -> bool:
    """Whether the name of an option says that its value is a secret."""
    folded = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", ".", name).lower()
    if _ALWAYS_SECRET.search(folded) and not re.search(r"(location|file|path)$", folded):
        return True
    return bool(_SECRET_WORDS.search(folded)) and not _POINTERS.search(folded)


def is_secret_at(path: Path) -> bool:
    """Whether the key at a path holds a secret; the looser rule counts in maps that go to clients."""
    keys = [step for step in path if isinstance(step, str)]
    # Samples of events are made up, and a test that hides what it compares is of no use.
    if not keys or keys[0] == "tests":
        return False
    if in_option_map(path):
        return is_secret_key(keys[-1])
    # Several tokens stand below `token`, by the names of those who have them.
    named = keys[-2].lower() == "token" if len(keys) > 1 else False
    return named or bool(
        _ALWAYS_SECRET.search(keys[-1].lower()) or re.search(r"secret|token", keys[-1].lower())
    )


def mask_urls(text: str) -> str:
    """Hide the password in every `scheme://user:password@host`, and secrets among a URL's parameters."""
    return _URL_PARAMETER.sub(rf"\1={MASK}", _URL_PASSWORD.sub(rf"\1:{MASK}", text))


def mask_text(text: str, path: Path) -> str:
    """Hide the secrets inside a text of the file, such as the password in `host=db password=x`.

    A connection whose parts cannot be told apart is hidden whole.
    """
    if is_connection(path) and not (_CONNECTION_URI if "://" in text else _CONNECTION_WORDS).fullmatch(text):
        return MASK
    clean = mask_urls(text)
    return _PARAMETER.sub(rf"\1{MASK}", clean) if is_connection(path) or in_option_map(path) else clean


def _inside(text: str, path: Path) -> Iterator[str]:
    """Every secret inside a text of the file, as it is written and as a client reads it."""
    if MASK == mask_text(text, path) != text:
        yield text
    for match in (*_URL_PASSWORD.finditer(text), *_URL_PARAMETER.finditer(text)):
        yield from (match[2], unquote(match[2]))
    if is_connection(path) or in_option_map(path):
        for match in _PARAMETER.finditer(text):
            plain = match[2][1:-1] if match[2][0] in "'\"" else match[2]
            # Some connections part their words by other signs than a space.
            yield from (plain, re.sub(r"\\(.)", r"\1", plain, flags=re.DOTALL), re.split("[;&,]", plain)[0])


def is_connection(path: Path) -> bool:
    """Whether a text says how to connect, and may have a login in it."""
    keys = [step for step in path if isinstance(step, str)]
    return bool(keys) and keys[0] != "tests" and bool(_CONNECTION_KEYS.search(keys[-1].lower()))


def in_option_map(path: Path) -> bool:
    """Whether a value goes to a client as it is, under a name that Lakefeed need not know."""
    return len(path) > 1 and path[-2] in OPTION_MAPS


def without_secrets(value: Any, path: Path, is_hidden: Callable[[Path], bool]) -> Any:
    """A copy of the part of the file at `path` in which hidden values and secrets inside texts are masked."""
    if isinstance(value, dict):
        return {key: without_secrets(item, (*path, key), is_hidden) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(without_secrets(item, (*path, at), is_hidden) for at, item in enumerate(value))
    if not isinstance(value, str):
        return value
    return MASK if is_hidden(path) else mask_text(value, path)


def for_repr(name: str | None, value: Any) -> Any:
    """A field as a repr may show it: where a value came from is not known here, so no option is shown."""
    return without_secrets(value, (name or "",), lambda path: in_option_map(path) or is_secret_at(path))


def scalars(value: Any, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    """Every scalar of some data, with its path."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield from scalars(item, (*path, key))
    elif isinstance(value, list | tuple):
        for at, item in enumerate(value):
            yield from scalars(item, (*path, at))
    else:
        yield path, value


def secret_strings(data: Any, path: Path = (), hidden: Collection[Path] = ()) -> Iterator[str]:
    """Every secret in a part of the file: by the name of its key, inside a text, or at a `hidden` path."""
    for at, value in scalars(data, path):
        if isinstance(value, str | int | float) and (at in hidden or is_secret_at(at)):
            yield str(value)
        # Samples of events may hold any URL; what is in them must not be searched for everywhere.
        if isinstance(value, str) and at[:1] != ("tests",):
            yield from _inside(value, at)


def secrets_of(pipeline: Pipeline) -> Iterator[str]:
    """Every secret that a pipeline holds."""
    data = pipeline.model_dump(mode="json", by_alias=True, exclude_none=True)
    return secret_strings(data, (), pipeline.hidden_paths)


def masked(pipeline: Pipeline) -> dict[str, Any]:
    """The effective pipeline file, defaults included, fit to be shown to anybody."""
    hidden = pipeline.hidden_paths
    data: dict[str, Any] = pipeline.model_dump(mode="json", by_alias=True, exclude_none=True)
    shown: dict[str, Any] = without_secrets(data, (), lambda path: path in hidden or is_secret_at(path))
    return shown


_COMMAND = re.compile(r"(\blakefeed (?:[a-z-]+ )+)FILE\b")


class Redactor(logging.Filter):
    """Replaces every secret of a pipeline in any text; as a logging filter, in every record that passes.

    It also names the pipeline file in commands to type, as few of the places that write them know it.
    A secret of fewer than four characters is masked where it stands in the file, but not searched for.
    """

    def __init__(self, secrets: Iterable[str] = (), file: str | None = None) -> None:
        """Know the secrets, also as they look inside JSON, in a Python repr and in a URL.

        `file` is the pipeline file as it is typed in a shell.
        """
        super().__init__()
        self._file = file
        searched = {text for text in secrets if len(text) >= _SHORTEST_SEARCHED}
        searched -= {text for text in searched if text.lower() in _TOO_PLAIN_TO_SEARCH}
        looks = {
            look
            for text in searched
            for look in (text, json.dumps(text)[1:-1], repr(text)[1:-1], quote(text, ""))
        }
        # Longest first: a secret that begins with another one must not be left with its end showing.
        ordered = sorted(looks, key=len, reverse=True)
        self._secrets = re.compile("|".join(re.escape(look) for look in ordered)) if ordered else None

    @classmethod
    def of(cls, pipeline: Pipeline) -> Redactor:
        """A redactor for every secret that the pipeline holds."""
        return cls(secrets_of(pipeline), pipeline.file_argument)

    @contextmanager
    def guarding(self) -> Iterator[None]:
        """Let errors and log lines pass only without secrets.

        What caused an error stays behind, as it may show some.
        """
        failure: Exception | None = None
        logs = [logging.getLogger(name) for name in ("lakefeed", "lakefeed.kafka")]
        for log in logs:
            log.addFilter(self)
        try:
            yield
        except Exception as error:
            failure = self._clean(error)
        finally:
            for log in logs:
                log.removeFilter(self)
        if failure is not None:
            raise failure from None

    def _clean(self, error: Exception) -> Exception:
        """The error without secrets and causes.

        One that does not make its text from its arguments gives way to an error that tells its name.
        """
        error.args = tuple(self._plain(argument) for argument in error.args)
        error.__cause__ = error.__context__ = None
        if self.redact(str(error)) == str(error):
            return error
        return RuntimeError(f"{type(error).__name__}: {self.redact(str(error))}")

    def _plain(self, value: Any) -> Any:
        text = str(value)
        return value if self.redact(text) == text else self.redact(text)

    def redact(self, text: str) -> str:
        """The text without secrets, and with the pipeline file in the commands that it names."""
        if self._file is not None:
            text = _COMMAND.sub(lambda found: f"{found[1]}{self._file}", text)
        return mask_urls(self._secrets.sub(MASK, text) if self._secrets else text)

    def filter(self, record: logging.LogRecord) -> bool:
        """Let every record pass, its message and traceback redacted."""
        record.msg, record.args = self.redact(record.getMessage()), None
        if record.exc_info:
            record.exc_text = logging.Formatter().formatException(record.exc_info)
            record.exc_info = None
        if record.exc_text:
            record.exc_text = self.redact(record.exc_text)
        if record.stack_info:
            record.stack_info = self.redact(record.stack_info)
        return True
