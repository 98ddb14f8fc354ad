"""What Spark says about a text that it cannot use, made short."""

from __future__ import annotations

import re

_STATE = re.compile(r"\s*SQLSTATE: \w+")
_CLASS = re.compile(r"^\[([A-Z0-9_.]+)\]\s*")
_PLAN = re.compile(r"\n\s*\n|\n== ")
_OF_JAVA = frozenset(["long overflow", "integer overflow", "BigInteger would overflow supported range"])
"""What Java says where Spark has no words and no class of its own."""
_POSITION = re.compile(r"line (\d+),? pos (\d+)")


class SparkWords:
    """What an exception of Spark's says: its error class, its sentence and the position in the text."""

    def __init__(self, message: str) -> None:
        text = message.strip()
        found = _CLASS.match(text)
        position = _POSITION.search(text)
        self.code = found[1] if found else ""
        self.line, self.column = (int(position[1]), int(position[2]) + 1) if position else (0, 0)
        without = _CLASS.sub("", text)
        # The sentence may quote a value of any kind: what ends it is the last state, else a blank line.
        ends = [at.start() for at in _STATE.finditer(without)][-1:]
        ends = ends or [at.start() for at in (_PLAN.search(without),) if at]
        self.sentence = without[: ends[0] if ends else len(without)].strip()
        if self.sentence in _OF_JAVA:
            self.code = "ARITHMETIC_OVERFLOW"

    def __str__(self) -> str:
        position = f" at character {self.column}" if self.column else ""
        position += f" of line {self.line}" if self.line > 1 else ""
        hint = ", ".join(each for each in (self.code, position.strip()) if each)
        sentence = " ".join(self.sentence.split())
        return f"{sentence} ({hint})" if hint else sentence


def spark_words(error: Exception) -> SparkWords | None:
    """What an exception that crossed from the JVM says; None for one that is not Spark's.

    A bare gateway raises py4j's exception around that of Java, a session raises one of pyspark's own.
    """
    java = getattr(error, "java_exception", None) or getattr(error, "_origin", None)
    message = java.getMessage() if java is not None else None
    return SparkWords(message) if message else None
