"""Files that are no YAML: each mistake is told in plain words, at the line where it was made."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from lakefeed.errors import PipelineFileError
from lakefeed.pipeline.loading.load import load

Problems = Callable[..., list[str]]

NO_COLON = "a colon is missing: write `key: value`, or `key:` above indented lines"
NO_SPACE = "a space is missing after the colon: write `key: value`"
COLON_IN_VALUE = 'a value holds a colon and a space; put quotes around it: key: "a: b"'
TOO_DEEP = "indented further than line {}, which holds a value already; begin both in one column"
NO_COLUMN = "its indentation fits no line above; the keys of a section begin in one column"
TAB = "a tab in the indentation; indent with spaces"
AFTER_END = "something follows a closed quote or bracket; put quotes around the whole value"

BROKEN = {
    "tab before a key": ("name: shop\nsources:\n\tclicks:\n\t\ttype: kafka\n", 3, TAB),
    "tab after spaces": ("name: shop\nsources:\n  \tclicks:\n", 3, TAB),
    "tab in a file from Windows": ("name: shop\r\nsources:\r\n\tclicks: 1\r\n", 3, TAB),
    "tab inside braces": ("name: shop\nflush: {rows: 1,\n\tbytes: 1MB}\n", 3, TAB),
    "tab after a colon": ("name:\tshop\nsources:\n  a: 1\n", 1, "a tab where a space is meant"),
    "key below a value": (
        "name: shop\nsources:\n  clicks:\n    type: kafka\n      brokers: here\n",
        5,
        TOO_DEEP.format(4),
    ),
    "section below a value": (
        "name: shop\n\n# what comes in\n sources:\n  clicks: 1\n",
        4,
        TOO_DEEP.format(1),
    ),
    "key between two columns": (
        "name: shop\nsources:\n  clicks:\n    type: kafka\n   brokers: here\n",
        5,
        NO_COLUMN,
    ),
    "first key indented": (
        "  name: shop\nsources:\n  clicks: 1\n",
        2,
        "begins further left than line 1; the top keys begin in one column",
    ),
    "list entry too far left": ("name: shop\ntopics:\n  - a\n - b\n", 4, NO_COLUMN),
    "no colon before a value": (
        "name: shop\nsources:\n  clicks:\n    type kafka\n    brokers: here\n",
        4,
        NO_COLON,
    ),
    "no colon in the first line": ("name shop\nsources:\n  a: 1\n", 1, NO_COLON),
    "equals for a colon": ("name = shop\nsources:\n  a: 1\n", 1, NO_COLON),
    "no colon in the last line": (
        "name: shop\nsources:\n  clicks:\n    brokers: here\n    type kafka\n",
        5,
        NO_COLON,
    ),
    "no colon after a section": ("name: shop\nsources\n  clicks:\n    type: kafka\n", 2, NO_COLON),
    "no colon after an inner section": ("name: shop\nsources:\n  clicks\n    type: kafka\n", 3, NO_COLON),
    "no space after the first colon": ("name:shop\nsources:\n  a: 1\n", 1, NO_SPACE),
    "no space after an inner colon": (
        "name: shop\nsources:\n  clicks:\n    type:kafka\n    brokers: here\n",
        4,
        NO_SPACE,
    ),
    "no space after the last colon": ("name: shop\nstate: here\nstop_timeout:30s\n", 3, NO_SPACE),
    "colon in a value": ("name: shop\nstate: my: state\nsources: 1\n", 2, COLON_IN_VALUE),
    "double quote not closed": (
        'name: "shop\nsources:\n  a: 1\n',
        1,
        'the quote (") that opens here is not closed',
    ),
    "single quote not closed": (
        "name: shop\nsources:\n  clicks:\n    brokers: 'here:9092\n    type: kafka\n",
        4,
        "the quote (') that opens here is not closed",
    ),
    "quote closed by the next one": (
        'name: "shop\nstate: "here"\n',
        1,
        'the quote (") that opens here is not closed',
    ),
    "apostrophe in single quotes": ("name: 'it's'\nstate: a\n", 1, AFTER_END),
    "words behind a quote": ('name: "shop" of mine\nstate: a\n', 1, AFTER_END),
    "list without brackets": ('name: shop\ntopics: "a", "b"\n', 2, AFTER_END),
    "bracket not closed": (
        "name: shop\nsources:\n  clicks:\n    topics: [a, b\n    type: kafka\n",
        4,
        "the [ that opens here is not closed",
    ),
    "bracket not closed at the end": ("name: shop\ntopics: [a,\n", 2, "the [ that opens here is not closed"),
    "brace not closed": (
        "name: shop\nflush: {interval: 5s\nsources:\n  a: {type: kafka}\n",
        2,
        "the { that opens here is not closed",
    ),
    "bracket closed by a brace": (
        "name: shop\ntopics: [a, b}\nstate: a\n",
        2,
        "the [ that opens here is closed by }",
    ),
    "one bracket too many": ("name: shop\ntopics: [a, b]]\nstate: a\n", 2, "] closes nothing that is open"),
    "no comma between keys": (
        "name: shop\nflush: {interval: 5s rows: 10}\n",
        2,
        "a comma is missing inside { }",
    ),
    "no comma between lines of JSON": (
        '{"name": "shop"\n "state": "a"}\n',
        2,
        "a comma is missing inside { }",
    ),
    "key among list entries": (
        "name: shop\ntopics:\n  - a\n  state: b\n",
        4,
        "a key among list entries; indent it as its section is, or begin it with `- `",
    ),
    "list entry among keys": (
        "name: shop\nflush:\n  rows: 1\n  - a\n",
        4,
        "a list entry among keys; a section holds either `key: value` lines or `- ` lines",
    ),
    "colon without a key": ("name: shop\n: 5\n", 2, "a colon without a key before it"),
    "value that begins with an at sign": (
        "name: @shop\n",
        1,
        "a value may not begin with @; put quotes around it",
    ),
    "value that begins with a star": (
        "name: shop\ntopic_pattern: *.clicks\n",
        2,
        "a value may not begin with *; put quotes around it",
    ),
    "alias without an anchor": (
        "name: shop\nstorage: *aws\n",
        2,
        "an alias (*) of an anchor (&) that is not defined above; put quotes around it if it is text",
    ),
    "anchor given twice": ("a: &a 1\nb: &a 2\n", 2, "this anchor (&) is given twice; first in line 1"),
    "backslash in double quotes": (
        'name: "C:\\data"\n',
        1,
        "a backslash inside double quotes begins an escape; use single quotes",
    ),
    "text behind a bar": (
        "name: shop\nstate: | here\n",
        2,
        "the text after | or > begins in the next line; quote a value that begins so",
    ),
    "two documents": (
        "name: a\n---\nname: b\n",
        2,
        "a second document begins here (---); a file holds one pipeline",
    ),
    "variable inside braces": (
        "a: {b: ${C}}\n",
        1,
        'inside { } and [ ], put quotes around "${NAME}"',
    ),
    "type with a colon": (
        "columns:\n  meta: [a, struct<ip: string, x: long>]\n  b: struct<a: 'x: y'>: 1\n",
        3,
        "put quotes around the type",
    ),
    "type that is indented too far": (
        "columns:\n  id: long\n    meta: struct<ip: string>\n",
        3,
        TOO_DEEP.format(2),
    ),
    "control character": ("name: shop\nstate: \x01\n", 2, "a character that may not be in a text file"),
}


@pytest.mark.parametrize(("text", "line", "message"), BROKEN.values(), ids=BROKEN)
def test_a_mistake_in_the_syntax_is_told_in_plain_words_at_its_line(
    problems: Problems, text: str, line: int, message: str
) -> None:
    assert problems(text) == [f"shop.yaml:{line}: not valid YAML: {message}"]


def test_a_key_that_is_given_twice_is_told_with_both_lines(problems: Problems, small: str) -> None:
    assert problems(small + "name: other\n") == ["shop.yaml:6: name: is given twice; first in line 1"]


def test_spaces_that_do_not_break_a_line_are_named(problems: Problems, small: str) -> None:
    text = small.replace("  clicks: {path", "\N{NO-BREAK SPACE} clicks: {path")

    assert "shop.yaml:5: a no-break space in the indentation; indent with plain spaces" in problems(text)


def test_what_the_parser_itself_says_comes_along_for_debugging_without_the_text_of_the_file(
    write: Callable[[str], Path],
) -> None:
    with pytest.raises(PipelineFileError) as caught:
        load(write("name: shop\nstorage:\n\tpassword: hunter2\n"))

    said = caught.value.__cause__
    assert isinstance(said, yaml.YAMLError)
    assert "cannot start any token" in str(said)
    assert "hunter2" not in str(said)
