"""Credentials that expire within seconds are fetched again while tables are written, on workers as well."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from uuid import uuid4

import pytest

from support.azurite import ACCOUNT, AzuriteServer
from support.gcs import GcsServer
from support.identity import Machine
from support.ledger import assert_each_once, table_ids
from support.object_server import ObjectServer
from support.s3 import REGION, S3Server

INLINE = """\
import sys
from lakefeed import Pipeline
from lakefeed.engine.inline import run_inline
run_inline(Pipeline.from_file(sys.argv[1]))
"""
SPARK = [sys.executable, "-m", "lakefeed", "run", "--once"]
Identity = Callable[[Machine, Path], tuple[dict[str, str], dict[str, str]]]
"""What `storage` and the environment hold, by a machine and a folder for files."""


def instance(machine: Machine, folder: Path) -> tuple[dict[str, str], dict[str, str]]:
    """The role of a machine at Amazon."""
    return _amazon(machine), {
        "AWS_METADATA_ENDPOINT": machine.address,
        "AWS_EC2_METADATA_SERVICE_ENDPOINT": machine.address,
        "AWS_EC2_METADATA_DISABLED": "false",
    }


def web(machine: Machine, folder: Path) -> tuple[dict[str, str], dict[str, str]]:
    """A web identity, as Kubernetes at Amazon has it."""
    (folder / "token").write_text("pod")
    return {**_amazon(machine), "AWS_ALLOW_INVALID_CERTIFICATES": "true"}, {
        "AWS_WEB_IDENTITY_TOKEN_FILE": str(folder / "token"),
        "AWS_ROLE_ARN": "arn:aws:iam::123456789012:role/lake",
        "AWS_ROLE_SESSION_NAME": "lake",
        "AWS_ENDPOINT_URL_STS": machine.sts,
    }


def container(machine: Machine, folder: Path) -> tuple[dict[str, str], dict[str, str]]:
    """The identity of a container at Amazon."""
    (folder / "token").write_text("pod")
    return _amazon(machine), {
        "AWS_CONTAINER_CREDENTIALS_FULL_URI": f"{machine.address}/v1/credentials",
        "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE": str(folder / "token"),
    }


def managed(machine: Machine, folder: Path) -> tuple[dict[str, str], dict[str, str]]:
    """The managed identity of a machine at Microsoft."""
    storage = {
        "AZURE_STORAGE_ACCOUNT_NAME": ACCOUNT,
        "AZURE_STORAGE_ENDPOINT": f"{machine.address}/{ACCOUNT}",
        "AZURE_MSI_ENDPOINT": f"{machine.address}/metadata/identity/oauth2/token",
        "AZURE_ALLOW_HTTP": "true",
    }
    return storage, {}


def federated(machine: Machine, folder: Path) -> tuple[dict[str, str], dict[str, str]]:
    """A federated token, as Kubernetes at Microsoft has it."""
    (folder / "token").write_text("pod")
    storage = {
        "AZURE_STORAGE_ACCOUNT_NAME": ACCOUNT,
        "AZURE_STORAGE_ENDPOINT": f"{machine.address}/{ACCOUNT}",
        "AZURE_ALLOW_HTTP": "true",
    }
    return storage, {
        "AZURE_FEDERATED_TOKEN_FILE": str(folder / "token"),
        "AZURE_CLIENT_ID": "the-client",
        "AZURE_TENANT_ID": "the-tenant",
        "AZURE_AUTHORITY_HOST": machine.address,
    }


def service_account(machine: Machine, folder: Path) -> tuple[dict[str, str], dict[str, str]]:
    """The service account of a machine at Google."""
    host = machine.address.removeprefix("http://")
    storage = {"GOOGLE_BASE_URL": machine.address, "ALLOW_HTTP": "true"}
    return storage, {"GCE_METADATA_HOST": host, "GCE_METADATA_IP": host}


def _amazon(machine: Machine) -> dict[str, str]:
    return {"AWS_ENDPOINT_URL": machine.address, "AWS_REGION": REGION, "AWS_ALLOW_HTTP": "true"}


def run(
    server: ObjectServer, machine: Machine, identity: Identity, folder: Path, command: list[str]
) -> tuple[str, str]:
    """Run a pipeline with nothing but the identity of its machine; where its table lies, and what it said."""
    bucket = f"lake-{uuid4().hex[:8]}"
    server.create_bucket(bucket)
    storage, variables = identity(machine, folder)
    path = server.url(bucket, "events")
    file = folder / "shop.yaml"
    file.write_text(
        f"""\
name: shop
sources: {{clicks: {{type: generate, rows: 600}}}}
tables: {{events: {{path: "{path}", from: clicks, schema: {{event_id: long}}}}}}
storage: {json.dumps(storage)}
flush: {{rows: 100}}
"""
    )
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "AZURE_"))}
    cache = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    environment = {**kept, **variables, "HOME": str(folder), "XDG_CACHE_HOME": cache}
    done = subprocess.run([*command, str(file)], env=environment, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stdout + done.stderr
    return path, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("cloud", "identity", "who"),
    [
        ("s3", web, "webpod"),
        ("s3", container, "container"),
        ("azure", managed, "azure"),
        ("azure", federated, "federated"),
        ("gcs", service_account, "google"),
    ],
    ids=["web identity", "container", "managed identity", "federated token", "service account"],
)
def test_credentials_of_an_identity_are_renewed_while_a_table_is_written(
    cloud: str, identity: Identity, who: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    server: S3Server | AzuriteServer | GcsServer = request.getfixturevalue(cloud)
    with Machine(server) as machine:
        path, _ = run(server, machine, identity, tmp_path, [sys.executable, "-c", INLINE])
        state = machine.state()

    assert_each_once(range(600), table_ids(path, storage=server.storage))
    assert set(state["asked"]) == {who}
    assert len(set(state["shown"])) >= 3 and state["refused"] == []


def test_a_run_on_spark_lives_on_the_role_of_its_machine_and_tells_nobody(
    s3: S3Server, tmp_path: Path
) -> None:
    with Machine(s3) as machine:
        path, said = run(s3, machine, instance, tmp_path, SPARK)
        state = machine.state()

    assert_each_once(range(600), table_ids(path, storage=s3.storage))
    assert set(state["asked"]) == {"instance"}
    assert len(set(state["shown"])) >= 3 and state["refused"] == []
    left = [file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()]
    assert not [text for text in [said.encode(), *left] if b"-of-ISSUED" in text]
