"""`names`: what columns are called whose fields have names that no Delta table takes."""

from __future__ import annotations

from typing import Literal

Names = Literal["clean", "lower", "keep", "strict"]
"""`clean`: with `_` for what a name may not contain; `lower`: in lower case too; `keep`: as they are, by
column mapping; `strict`: refused."""
