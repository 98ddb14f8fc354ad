"""What Spark says, made short: its error class, its sentence, and the place in the text."""

from __future__ import annotations

from lakefeed.sql.spark_words import SparkWords


def test_an_error_of_the_analyzer_is_one_line_with_its_place() -> None:
    said = SparkWords(
        "[UNRESOLVED_COLUMN.WITH_SUGGESTION] A column with name `b` cannot be resolved. Did you mean [`a`]. "
        "SQLSTATE: 42703; line 1 pos 7;\n'Project ['b]\n+- LocalRelation <empty>, [a#1]\n"
    )

    assert str(said) == (
        "A column with name `b` cannot be resolved. Did you mean [`a`]. "
        "(UNRESOLVED_COLUMN.WITH_SUGGESTION, at character 8)"
    )


def test_an_error_of_the_parser_is_one_line_with_its_place() -> None:
    said = SparkWords(
        "\n[PARSE_SYNTAX_ERROR] Syntax error at or near end of input. SQLSTATE: 42601 (line 2, pos 10)\n\n"
        "== SQL ==\na +\n----------^^^\n"
    )

    assert (
        str(said) == "Syntax error at or near end of input. (PARSE_SYNTAX_ERROR, at character 11 of line 2)"
    )


def test_a_value_in_a_sentence_is_left_as_it_is() -> None:
    said = SparkWords(
        "[CAST_INVALID_INPUT] The value '\ta\n\n SQLSTATE: 1' of the type \"STRING\" is malformed. "
        "SQLSTATE: 22018\n"
        "== SQL (line 1, position 1) ==\ncast(s AS int)"
    )

    assert said.code == "CAST_INVALID_INPUT"
    assert said.sentence == "The value '\ta\n\n SQLSTATE: 1' of the type \"STRING\" is malformed."


def test_the_words_of_java_have_a_class_too() -> None:
    assert SparkWords("long overflow").code == "ARITHMETIC_OVERFLOW"
