"""The history of keyed rows: changes are points in a sequence, and what lies between two is an interval."""
