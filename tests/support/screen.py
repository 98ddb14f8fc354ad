"""What a terminal shows after it was sent some text: as much of one as a progress display needs."""

from __future__ import annotations

import re

_PIECE = re.compile(r"\x1b\[(\??[0-9;]*)([A-Za-z])|\x1b.|\r|\n|[^\x1b\r\n]+")


def shown_by(text: str) -> list[str]:
    """The lines on the screen, empty ones left out; it is as long as need be and as wide as its lines."""
    lines, row, column = [""], 0, 0
    for piece in _PIECE.finditer(text):
        said, number, action = piece[0], piece[1] or "", piece[2]
        if said == "\n":
            row, column = row + 1, 0
            lines += [""] * (row + 1 - len(lines))
        elif said == "\r":
            column = 0
        elif action == "A":
            row = max(0, row - int(number or 1))
        elif action == "K":
            lines[row] = "" if number == "2" else lines[row][:column]
        elif not said.startswith("\x1b"):
            line = lines[row].ljust(column)
            lines[row] = line[:column] + said + line[column + len(said) :]
            column += len(said)
    return [line.rstrip() for line in lines if line.strip()]
