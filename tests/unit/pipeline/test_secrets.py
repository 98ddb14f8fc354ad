from __future__ import annotations

import json
import logging
from collections.abc import Callable
from io import StringIO
from pathlib import Path

import pytest
from pydantic import ValidationError

from lakefeed.errors import PipelineFileError, TableError
from lakefeed.pipeline.loading.load import load
from lakefeed.pipeline.pipeline import Pipeline
from lakefeed.pipeline.secrets import (
    Redactor,
    is_secret_key,
    mask_text,
    masked,
    secret_strings,
    secrets_of,
)
from unit.pipeline.pipeline_connectors import QueueSource

Write = Callable[[str], Path]

LITERAL = """\
name: shop
sources:
  clicks:
    type: queue
    brokers: http://me:canary-url@here:9092
    options: {security.protocol: SASL_SSL, sasl.username: me, sasl.password: canary-kafka}
tables:
  clicks: {path: s3://lake/clicks, from: clicks, storage: {AWS_SESSION_TOKEN: canary-token}}
storage: {AWS_REGION: here, AWS_ACCESS_KEY_ID: canary-id, AWS_SECRET_ACCESS_KEY: canary-secret}
spark: {conf: {spark.hadoop.fs.s3a.secret.key: canary-spark, spark.driver.memory: 4g}}
"""


@pytest.mark.parametrize(
    "name",
    [
        "sasl.password",
        "ssl.key.password",
        "ssl.keystore.password",
        "AWS_ACCESS_KEY_ID",
        "AWS_SECRET_ACCESS_KEY",
        "AWS_SESSION_TOKEN",
        "awsSecretAccessKey",
        "fs.s3a.access.key",
        "azure_storage_account_key",
        "azure_storage_sas_key",
        "sas",
        "sasl.jaas.config",
        "ssl.key.pem",
        "passphrase",
        "client_secret",
        "google_service_account_key",
        "apiKey",
    ],
)
def test_names_of_secrets_are_known(name: str) -> None:
    assert is_secret_key(name)


@pytest.mark.parametrize(
    "name",
    [
        "key.deserializer",
        "key.serializer",
        "security.protocol",
        "sasl.mechanism",
        "sasl.username",
        "ssl.keystore.location",
        "ssl.key.location",
        "sasl.oauthbearer.token.endpoint.url",
        "fs.s3a.aws.credentials.provider",
        "AWS_REGION",
        "spark.driver.memory",
    ],
)
def test_names_that_only_sound_like_secrets_are_left_alone(name: str) -> None:
    assert not is_secret_key(name)


def test_a_literal_secret_is_a_warning_that_does_not_show_it(write: Write) -> None:
    warnings = [str(warning) for warning in load(write(LITERAL)).warnings]

    assert warnings[0] == (
        "shop.yaml:5: sources.clicks.brokers: a secret is written in the file; "
        "put it in a variable: ${BROKERS}"
    )
    assert warnings[1] == (
        "shop.yaml:6: sources.clicks.options.sasl.password: a secret is written in the file; "
        "put it in a variable: ${SASL_PASSWORD}"
    )
    assert len(warnings) == 6
    assert "canary" not in "".join(warnings)


def test_a_secret_from_a_variable_is_no_warning(write: Write) -> None:
    text = LITERAL.replace("canary-kafka", '"${KAFKA_PASSWORD}"')

    assert len(load(write(text), environment={"KAFKA_PASSWORD": "hush"}).warnings) == 5


def test_loading_in_code_logs_the_warnings(write: Write, caplog: pytest.LogCaptureFixture) -> None:
    Pipeline.from_file(write(LITERAL))

    assert "sasl.password: a secret is written in the file" in caplog.text
    assert "canary" not in caplog.text


def test_the_repr_of_a_pipeline_shows_no_secret(write: Write) -> None:
    text = LITERAL.replace("sasl.username: me", 'sasl.username: "${WHO}"')

    pipeline = load(write(text), environment={"WHO": "canary-who"}).pipeline

    assert "canary" not in repr(pipeline)
    assert "canary" not in str(pipeline)
    assert "sasl.password" in repr(pipeline)


def test_the_effective_file_is_shown_with_its_secrets_masked(write: Write) -> None:
    text = LITERAL.replace("sasl.username: me", 'sasl.username: "${WHO}"')

    shown = masked(load(write(text), environment={"WHO": "canary-who"}).pipeline)

    assert "canary" not in json.dumps(shown)
    assert shown["storage"] == {
        "AWS_REGION": "here",
        "AWS_ACCESS_KEY_ID": "***",
        "AWS_SECRET_ACCESS_KEY": "***",
    }
    assert shown["sources"]["clicks"]["options"] == {
        "security.protocol": "SASL_SSL",
        "sasl.username": "***",
        "sasl.password": "***",
    }
    assert shown["sources"]["clicks"]["brokers"] == "http://me:***@here:9092"
    assert shown["spark"]["conf"]["spark.driver.memory"] == "4g"
    assert shown["flush"]["interval"] == "5s"
    assert shown["tables"]["clicks"]["from"] == ["clicks"]


def test_what_is_shown_is_a_pipeline_file_again(write: Write, small: str) -> None:
    pipeline = load(write(small)).pipeline

    again = load(write(json.dumps(masked(pipeline)))).pipeline

    assert again == pipeline


def test_a_redactor_finds_secrets_in_any_text_and_in_any_dress(write: Write) -> None:
    text = LITERAL.replace("canary-kafka", '"${PW}"')
    redactor = Redactor.of(load(write(text), environment={"PW": 'ca"nary/ä'}).pipeline)

    assert redactor.redact('login with ca"nary/ä failed') == "login with *** failed"
    assert redactor.redact(json.dumps({"p": 'ca"nary/ä'})) == '{"p": "***"}'
    assert redactor.redact("http://x/?p=ca%22nary%2F%C3%A4") == "http://x/?p=***"
    assert redactor.redact("canary-secret, canary-id and canary-token") == "***, *** and ***"
    assert redactor.redact("postgres://me:anything@db/x") == "postgres://me:***@db/x"
    assert redactor.redact("region here, protocol SASL_SSL") == "region here, protocol SASL_SSL"


def test_the_longer_of_two_secrets_goes_first() -> None:
    assert Redactor(["hush", "hushhush"]).redact("hushhush hush") == "*** ***"


def test_very_short_secrets_do_not_destroy_texts() -> None:
    assert Redactor(["a", "ab", "true"]).redact("a table is true") == "a table is true"


def test_as_a_logging_filter_it_cleans_messages_and_tracebacks() -> None:
    out = StringIO()
    handler = logging.StreamHandler(out)
    handler.addFilter(Redactor(["canary-1"]))
    log = logging.Logger("test")
    log.addHandler(handler)

    log.warning("one %s", "canary-1")
    try:
        raise ValueError("canary-1")
    except ValueError:
        log.exception("two")

    assert "canary" not in out.getvalue()
    assert "one ***" in out.getvalue()
    assert "ValueError: ***" in out.getvalue()


def test_problems_of_a_file_show_no_secret(write: Write) -> None:
    text = LITERAL.replace("sasl.password: canary-kafka", "sasl.password: [canary-kafka]").replace(
        "clicks: {path: s3://lake/clicks", "clicks: {path: ftp://me:canary-url@lake/clicks"
    )

    with pytest.raises(PipelineFileError) as refusal:
        load(write(text + "flush: {rows: canary-token}\n"))

    assert "canary" not in str(refusal.value)
    assert "shop.yaml:6: sources.clicks.options.sasl.password: expected text, got a list" in str(
        refusal.value
    )


def test_pydantics_own_errors_show_no_secret() -> None:
    with pytest.raises(ValidationError) as refusal:
        QueueSource.model_validate({"type": "queue", "brokers": 5, "options": {"sasl.password": ["canary"]}})

    assert "canary" not in str(refusal.value)
    assert "canary" not in repr(refusal.value)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("host=db password=s3cr3t", "host=db password=***"),
        ("host=db sslpassword = 's3 cr3t' port=1", "host=db sslpassword = *** port=1"),
        ("postgresql://me:s3cr3t@db/shop?sslmode=require", "postgresql://me:***@db/shop?sslmode=require"),
        (
            "postgresql://db/shop?password=s3cr3t&sslmode=require",
            "postgresql://db/shop?password=***&sslmode=require",
        ),
        ("postgresql://me@db/shop", "postgresql://me@db/shop"),
        ("host=db user=me", "host=db user=me"),
        # What cannot be told apart is hidden whole.
        ("host=db password=my s3cr3t", "***"),
        ("postgresql://me:s3 cr3t@db/shop", "***"),
        ("postgresql://me:s3/cr3t@db/shop", "***"),
        ("postgresql://me:s3@cr3t@db/shop", "postgresql://me:***@db/shop"),
        ("postgresql://db/shop?password=s3'cr3t", "***"),
    ],
)
def test_the_file_shows_a_connection_without_its_login(text: str, shown: str) -> None:
    path = ("sources", "db", "connection")

    assert mask_text(text, path) == shown
    if shown != text:
        assert "cr3t" not in Redactor(secret_strings(text, path)).redact(f"cannot use {text}")


def test_secrets_inside_options_and_urls_are_known(write: Write) -> None:
    text = """\
name: shop
sources:
  clicks:
    type: queue
    brokers: b:9092
    options:
      sasl.jaas.config: org.Login required username="me" password="s3cr3t-jaas";
      sasl.oauthbearer.client.secret: s3cr3t-oauth
      ssl.key.password: s3cr3t-key
      basic.auth.user.info: me:s3cr3t-info
tables:
  events: {path: lake/events, from: clicks}
storage:
  azure_storage_endpoint: https://me.blob.core.windows.net/c?sv=1&sig=s3cr3t-sig
  azure_storage_connection_string: AccountName=me;AccountKey=s3cr3t-account==;EndpointSuffix=x
spark:
  conf: {spark.executor.extraJavaOptions: -Djavax.net.ssl.keyStorePassword=s3cr3t-store -Xss4m}
"""

    pipeline = load(write(text)).pipeline

    shown, secrets = masked(pipeline), set(secrets_of(pipeline))
    assert "s3cr3t" not in json.dumps(shown)
    assert shown["storage"]["azure_storage_endpoint"] == "https://me.blob.core.windows.net/c?sv=1&sig=***"
    assert shown["spark"]["conf"] == {
        "spark.executor.extraJavaOptions": "-Djavax.net.ssl.keyStorePassword=*** -Xss4m"
    }
    assert {"s3cr3t-oauth", "s3cr3t-key", "s3cr3t-sig", "s3cr3t-store", "me:s3cr3t-info"} <= secrets
    assert list(secret_strings("https://shop/?token=view", ("tests", "sample", "events", 0))) == []


def test_commands_in_messages_and_errors_name_the_pipeline_file(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "my shop.yaml"
    file.write_text(LITERAL)
    redactor = Redactor.of(Pipeline.from_file(file))
    text = "To read its rows again: lakefeed snapshot FILE --source db --yes"

    with pytest.raises(TableError) as refused, redactor.guarding():
        logging.getLogger("lakefeed").warning("%s", text)
        raise TableError(text)

    named = f"To read its rows again: lakefeed snapshot '{file}' --source db --yes"
    assert str(refused.value) == caplog.messages[-1] == redactor.redact(text) == named
    assert redactor.redact("metavar FILE, `lakefeed table drop PATH`") == (
        "metavar FILE, `lakefeed table drop PATH`"
    )
    assert Redactor().redact(text) == text
