"""Columns are shaped: partition columns, metadata columns, and the rows of dead letters."""
