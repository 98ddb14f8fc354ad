"""Files that look alike in two folders: the same name below each folder, and the same size."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Rows = npt.NDArray[np.int64]


def alike(names: pa.Array, sizes: pa.Array, paths: pa.Array, their_sizes: pa.Array) -> tuple[Rows, Rows]:
    """Pairs of a name below one folder and a path below another that ends with it, both of one size.

    Returns the rows of the names and those of the paths. The other folder need not be known: of several
    paths that end with a name the last one counts, and each path is in one pair, with the longest name.
    """
    names, depths = pc.cast(names, pa.string()), pc.count_substring(names, "/").to_numpy(zero_copy_only=False)
    free = np.ones(len(paths), np.bool_)
    pairs: list[tuple[Rows, Rows]] = []
    for depth in np.unique(depths)[::-1].tolist():
        ours, theirs = np.flatnonzero(depths == depth), np.flatnonzero(free)
        ends = pc.replace_substring_regex(
            paths.take(pa.array(theirs)), rf"^.*?((?:[^/]+/){{{depth}}}[^/]+)$", r"\1"
        )
        # Of equal values the first is returned, hence the last path comes first.
        ends, theirs = ends.take(pa.array(np.arange(len(theirs))[::-1])), theirs[::-1]
        keys = _keys(ends, their_sizes.take(pa.array(theirs)))
        at = pc.index_in(_keys(names.take(pa.array(ours)), sizes.take(pa.array(ours))), value_set=keys)
        there = np.flatnonzero(at.is_valid().to_numpy(zero_copy_only=False))
        chosen = theirs[at.drop_null().to_numpy()]
        free[chosen] = False
        pairs.append((ours[there], chosen))
    if not pairs:
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    return np.concatenate([one for one, _ in pairs]), np.concatenate([other for _, other in pairs])


def names_below(base: str, paths: pa.Array) -> pa.Array:
    """The part of each path below a folder; of one that is the folder itself, its name."""
    head = f"{base.rstrip('/')}/"
    below = pc.utf8_slice_codeunits(paths, len(head))
    name = pc.replace_substring_regex(paths, r"^.*/", "")
    return pc.if_else(pc.starts_with(paths, head), below, name)


def _keys(names: pa.Array, sizes: pa.Array) -> pa.Array:
    return pc.binary_join_element_wise(sizes.cast(pa.string()), names, "/")
