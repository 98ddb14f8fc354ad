"""SQL by Spark's own operators: what stands between the two halves of a task."""
