"""The pipeline file: its models, loading with line numbers, units, types, secrets and the JSON Schema.

Nothing here imports Spark or a client library; connectors are imported when a file names them.
"""
