"""Spark's functions on Arrow's columns: only those that give exactly what Spark gives, for every value."""
