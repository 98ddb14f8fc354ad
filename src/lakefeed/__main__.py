"""`python -m lakefeed` is the same as `lakefeed`."""

from __future__ import annotations

from lakefeed.commands.app import main

if __name__ == "__main__":
    main()
