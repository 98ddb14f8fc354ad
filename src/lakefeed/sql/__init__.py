"""Spark SQL between decoding and writing: `select`, `where` and `expect`.

Spark's own parser and analyzer, on the driver, make of each text an expression whose names and types are
resolved. Workers evaluate it with Arrow's kernels where every part of it means there exactly what it means in
Spark; otherwise the table takes the way through Spark's operators.
"""
