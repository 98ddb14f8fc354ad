"""A YAML text as plain data that remembers the line of every key and what came from variables."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import yaml

from lakefeed.errors import Problem
from lakefeed.pipeline.loading.checks.consistency import dotted
from lakefeed.pipeline.loading.syntax import syntax_error, without_snippets
from lakefeed.pipeline.loading.variables import Substitution, substitute
from lakefeed.pipeline.secrets import Path

if TYPE_CHECKING:
    from lakefeed.pipeline.section import Section

_MOST_NODES = 10_000
_DEEPEST = 50
_PLAIN = "tag:lakefeed:plain"
_HALF = "contains half of a surrogate pair; write the character itself, in UTF-8"
_JSON_NUMBER = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?")
_KNOWN_TAGS = {_PLAIN, *(f"tag:yaml.org,2002:{kind}" for kind in ("map", "seq", "str"))}

# YAML takes the colon in `meta: struct<ip: string>` for a second key. Nobody expects to need quotes there.
_TYPE_WITH_COLON = re.compile(
    r"""^([ ]*[^\s:#"'{\[]+[ ]*:[ ]+)"""
    r"""((?:struct|array|list|map)[ ]*<[^#"\\\n]*>(?:[ ]+not[ ]+null)?)([ ]*(?:\#.*)?)$""",
    re.MULTILINE | re.IGNORECASE,
)


class _Loader(yaml.SafeLoader):
    """Composes nodes and types nothing: `no` stays a word and `2026-11-15` a text."""

    yaml_implicit_resolvers: dict[str, Any] = {}  # noqa: RUF012


_Loader.add_implicit_resolver(_PLAIN, re.compile(r".*", re.DOTALL), None)


class Unset(str):
    """Stands for a text that holds an unset variable, so that everything else can still be checked."""

    __slots__ = ()


class WrittenNumber(str):
    """A number of the file whose digits another notation would lose, such as 9.90 or 1e5."""

    __slots__ = ()


@dataclass
class Document:
    """What a text holds, and where: `lines` and `substitutions` are by the path to the value."""

    file: str
    data: Any = None
    lines: dict[Path, int] = field(default_factory=dict)
    files: dict[Path, str] = field(default_factory=dict)
    substitutions: dict[Path, Substitution] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)
    model: type[Section] | None = None
    """The model that reads the data, where it is not that of a whole pipeline."""
    broken: yaml.YAMLError | None = None
    """What the parser itself said of a text that is no YAML."""

    def problem(self, path: Path, message: str) -> Problem:
        """A problem at a path; its line is that of the nearest key that exists."""
        for length in range(len(path), 0, -1):
            if path[:length] in self.lines:
                near = path[:length]
                return Problem(self.files.get(near, self.file), self.lines[near], dotted(path), message)
        return Problem(self.file, self.lines.get((), 1), dotted(path), message)

    def at(self, path: Path) -> Any:
        """The value at a path; KeyError if there is none."""
        value = self.data
        for step in path:
            value = below(value, step)
        return value


def below(value: Any, step: str | int) -> Any:
    """The value under a key or at an index; KeyError if there is none."""
    if isinstance(value, dict) and step in value:
        return value[step]
    if isinstance(value, list) and isinstance(step, int) and 0 <= step < len(value):
        return value[step]
    raise KeyError(step)


def read_document(text: str, file: str, environment: Mapping[str, str], line: int | None = None) -> Document:
    """Read a YAML text; what is wrong with it is in the document's problems. `line` stands for all lines."""
    document = Document(file)
    try:
        root = _composed(text)
    except yaml.YAMLError as error:
        number, what = syntax_error(error, text)
        document.problems.append(Problem(file, line or number, "", f"not valid YAML: {what}"))
        document.broken = without_snippets(error)
        return document
    except RecursionError:
        document.problems.append(Problem(file, line or 1, "", f"nested deeper than {_DEEPEST} levels"))
        return document
    if root is not None:
        try:
            document.data = _Reader(document, environment, line).value(root, ())
        except _TooLarge as error:
            document.problems.append(Problem(file, line or error.line, "", str(error)))
        except RecursionError:
            document.problems.append(Problem(file, line or 1, "", "an alias refers to itself"))
    return document


def _composed(text: str) -> yaml.Node | None:
    try:
        root: yaml.Node | None = yaml.compose(text, Loader=_Loader)
    except yaml.MarkedYAMLError:
        quoted = _TYPE_WITH_COLON.sub(r'\1"\2"\3', text)
        if quoted == text:
            raise
        root = yaml.compose(quoted, Loader=_Loader)
    return root


class _TooLarge(Exception):
    """The text unfolds to more than a pipeline file can sensibly hold."""

    def __init__(self, message: str, line: int) -> None:
        super().__init__(message)
        self.line = line


class _Reader:
    """Turns nodes into data, once per read."""

    def __init__(self, document: Document, environment: Mapping[str, str], line: int | None) -> None:
        self._document = document
        self._environment = environment
        self._line = line
        self._nodes = 0

    def value(self, node: yaml.Node, path: Path) -> Any:
        """The data of a node; problems go to the document."""
        self._count(node, path)
        self._document.lines.setdefault(path, self._line_of(node))
        if node.tag not in _KNOWN_TAGS:
            tag = node.tag.replace("tag:yaml.org,2002:", "!!")
            self._report(node, path, f"the tag {tag} is not supported; write the value without it")
            return Unset("")
        if isinstance(node, yaml.MappingNode):
            return self._mapping(node, path)
        if isinstance(node, yaml.SequenceNode):
            return [self.value(item, (*path, at)) for at, item in enumerate(node.value)]
        assert isinstance(node, yaml.ScalarNode)
        return self._scalar(node, path)

    def _count(self, node: yaml.Node, path: Path) -> None:
        self._nodes += 1
        if self._nodes > _MOST_NODES:
            raise _TooLarge(f"more than {_MOST_NODES:,} values, aliases unfolded", self._line_of(node))
        if len(path) > _DEEPEST:
            raise _TooLarge(f"nested deeper than {_DEEPEST} levels", self._line_of(node))

    def _mapping(self, node: yaml.MappingNode, path: Path) -> dict[str, Any]:
        data: dict[str, Any] = {}
        merged: list[yaml.Node] = []
        for key_node, value_node in node.value:
            if not isinstance(key_node, yaml.ScalarNode) or key_node.tag not in _KNOWN_TAGS:
                self._report(key_node, path, "a key must be a plain text")
                continue
            key_node.value = _paired(key_node.value)
            if not _is_text(key_node.value):
                self._report(key_node, path, f"a key {_HALF}")
            elif key_node.tag == _PLAIN and key_node.value[:1].isspace():
                # A plain key begins with none of the spaces that YAML knows, but editors know others.
                self._report(key_node, (), "a no-break space in the indentation; indent with plain spaces")
            elif key_node.tag == _PLAIN and key_node.value == "<<":
                merged.append(value_node)
            elif key_node.value in data:
                first = self._document.lines[(*path, key_node.value)]
                self._report(key_node, (*path, key_node.value), f"is given twice; first in line {first}")
            else:
                self._document.lines[(*path, key_node.value)] = self._line_of(key_node)
                data[key_node.value] = self.value(value_node, (*path, key_node.value))
        for value_node in merged:
            self._merge(value_node, path, data)
        return data

    def _merge(self, node: yaml.Node, path: Path, data: dict[str, Any]) -> None:
        """Add the keys of `<<: *anchor` that the mapping does not have itself."""
        mappings = node.value if isinstance(node, yaml.SequenceNode) else [node]
        for mapping in mappings:
            self._count(mapping, path)
            if not isinstance(mapping, yaml.MappingNode):
                self._report(node, (*path, "<<"), "expected an alias of a mapping")
                continue
            missing = [
                (key, value)
                for key, value in mapping.value
                if not (isinstance(key, yaml.ScalarNode) and key.value in data)
            ]
            data |= self._mapping(
                yaml.MappingNode(mapping.tag, missing, mapping.start_mark, mapping.end_mark), path
            )

    def _scalar(self, node: yaml.ScalarNode, path: Path) -> Any:
        put_in = substitute(_paired(node.value), self._environment)
        for message in put_in.problems:
            self._report(node, path, message)
        if not _is_text(put_in.text):
            self._report(node, path, f"the text {_HALF}")
            return Unset("")
        if put_in.problems:
            return Unset(put_in.text)
        if put_in.changed:
            self._document.substitutions[path] = put_in
        # An empty variable is an empty text; only what is written as nothing is nothing.
        return typed(put_in.text) if node.tag == _PLAIN and (put_in.text or not node.value) else put_in.text

    def _report(self, node: yaml.Node, path: Path, message: str) -> None:
        self._document.problems.append(
            Problem(self._document.file, self._line_of(node), dotted(path), message)
        )

    def _line_of(self, node: yaml.Node) -> int:
        return self._line or node.start_mark.line + 1


def _paired(text: str) -> str:
    r"""Put the halves of `"\ud83d\ude00"` together, as JSON writes them; PyYAML leaves them apart."""
    return re.sub(
        "[\ud800-\udbff][\udc00-\udfff]",
        lambda pair: pair[0].encode("utf-16-le", "surrogatepass").decode("utf-16-le"),
        text,
    )


def _is_text(text: str) -> bool:
    return re.search("[\ud800-\udfff]", text) is None


def typed(text: str) -> Any:
    """The value of a scalar without quotes.

    A number that is not in its shortest form, such as 007 or 1_000, stays a text: fields that want a number
    read it all the same, and options that are passed on keep it as it was written.
    """
    if text in ("", "~", "null"):
        return None
    if text in ("true", "false"):
        return text == "true"
    for kind in (int, float):
        try:
            number = kind(text)
        except ValueError:
            continue
        if repr(number) == text and text not in ("nan", "inf", "-inf"):
            return number
    return WrittenNumber(text) if _JSON_NUMBER.fullmatch(text) else text
