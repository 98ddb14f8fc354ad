"""The functions of the user's that tables of a pipeline name: read once for a run, and tried before it."""

from __future__ import annotations

from functools import cached_property

from lakefeed.errors import PipelineFileError, Problem, TableError
from lakefeed.pipeline.pipeline import Pipeline
from lakefeed.rows.user_code import UserCode, UserFunction, collect


class UserFunctions:
    """The functions in `python`, with the modules beside the pipeline file as they were first read."""

    def __init__(self, pipeline: Pipeline) -> None:
        self._pipeline = pipeline

    @cached_property
    def _code(self) -> UserCode:
        # One for all tables: what they import from each other is the same module.
        return collect(self._names.values(), self._pipeline.folder)

    @property
    def _names(self) -> dict[str, str]:
        return {name: table.python for name, table in self._pipeline.tables.items() if table.python}

    def of(self, table: str) -> UserFunction | None:
        """The function of a table."""
        name = self._names.get(table)
        return UserFunction(name, self._code) if name else None

    def check(self) -> None:
        """Import all of them; raises PipelineFileError with everything that is wrong."""
        problems: list[Problem] = []
        for table in self._names:
            try:
                function = self.of(table)
                assert function is not None
                function.load()
            except TableError as error:
                problems.append(self._pipeline.problem(("tables", table, "python"), str(error)))
        if problems:
            raise PipelineFileError(problems)
