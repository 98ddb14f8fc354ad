"""Credentials of a profile of AWS, from the files that its command line writes.

obstore knows keys, web identities, containers and instances, but no profiles; delta-rs knows them all. Keys
and a `credential_process` are read here; roles and single sign-on are left to botocore, where it is there.
"""

from __future__ import annotations

import configparser
import datetime as dt
import json
import os
import shlex
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lakefeed.errors import StoreUnavailable, TableError

if TYPE_CHECKING:
    from obstore.store import S3Credential

_RENEWED = dt.timedelta(minutes=5)
"""How soon files are read again: whoever renews keys writes them there."""
_PROCESS_SECONDS = 60
_OTHERS = ("role_arn", "sso_session", "sso_start_url", "web_identity_token_file", "credential_source")
# Whoever has one of these needs no profile.
_BEFORE = (
    "aws_access_key_id",
    "access_key_id",
    "aws_web_identity_token_file",
    "aws_container_credentials_relative_uri",
    "aws_container_credentials_full_uri",
    "aws_skip_signature",
    "skip_signature",
)


class ProfileCredentials:
    """The credentials of one profile, read anew whenever they are asked for. Used by obstore's client."""

    def __init__(self, name: str, options: Mapping[str, str]) -> None:
        """`options` are those of the profile, in its files."""
        self.name = name
        self._botocore = _botocore_credentials(name) if _needs_botocore(options) else None

    def __call__(self) -> S3Credential:
        """Keys, and until when they count. Raises TableError where the profile has none any more."""
        if self._botocore is not None:
            frozen = self._botocore.get_frozen_credentials()
            return _credential(frozen.access_key, frozen.secret_key, frozen.token, None)
        options = _profiles().get(self.name, {})
        if "aws_access_key_id" in options:
            keys = options["aws_access_key_id"], options.get("aws_secret_access_key", "")
            return _credential(*keys, options.get("aws_session_token"), None)
        if "credential_process" in options:
            return _from_process(self.name, options["credential_process"])
        raise TableError(f"the profile {self.name} of AWS has no keys any more; renew them.")


def profile_credentials(storage: Mapping[str, str]) -> ProfileCredentials | None:
    """The profile that the environment names, or `default`; None where keys or an identity come first."""
    known = {name.lower() for name in (*storage, *os.environ)}
    if known.intersection(_BEFORE):
        return None
    name = os.environ.get("AWS_PROFILE") or os.environ.get("AWS_DEFAULT_PROFILE")
    options = _profiles().get(name or "default")
    if options is None and name:
        raise TableError(
            f"the profile {name!r} that AWS_PROFILE names is in none of AWS's files.\n"
            "Write it with `aws configure`, or unset AWS_PROFILE."
        )
    usable = ("aws_access_key_id", "credential_process", *_OTHERS)
    return (
        ProfileCredentials(name or "default", options) if options and any(map(options.get, usable)) else None
    )


def _profiles() -> dict[str, dict[str, str]]:
    found: dict[str, dict[str, str]] = {}
    for variable, file in (("AWS_CONFIG_FILE", "config"), ("AWS_SHARED_CREDENTIALS_FILE", "credentials")):
        path = Path(os.environ.get(variable) or Path.home() / ".aws" / file).expanduser()
        parser = configparser.RawConfigParser()
        try:
            parser.read(path)
        except configparser.Error as error:
            raise TableError(f"{path} cannot be read: {str(error).splitlines()[0]}") from error
        for section in parser.sections():
            found.setdefault(section.removeprefix("profile ").strip(), {}).update(parser.items(section))
    return found


def _needs_botocore(options: Mapping[str, str]) -> bool:
    plain = "aws_access_key_id" in options or "credential_process" in options
    return not plain and any(name in options for name in _OTHERS)


def _botocore_credentials(name: str) -> Any:
    try:
        from botocore.session import Session
    except ImportError:
        raise TableError(
            f"the profile {name} of AWS takes a role or single sign-on, which needs botocore.\n"
            "Install it (`pip install botocore`), or set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY."
        ) from None
    found = Session(profile=name).get_credentials()
    if found is None:
        raise TableError(f"the profile {name} of AWS gives no credentials; try `aws sso login`.")
    return found


def _from_process(name: str, command: str) -> S3Credential:
    try:
        done = subprocess.run(
            shlex.split(command), capture_output=True, text=True, timeout=_PROCESS_SECONDS, check=True
        )
        told = json.loads(done.stdout)
        expires = told.get("Expiration")
        until = dt.datetime.fromisoformat(expires) if expires else None
        return _credential(told["AccessKeyId"], told["SecretAccessKey"], told.get("SessionToken"), until)
    except (OSError, subprocess.SubprocessError, ValueError, KeyError) as error:
        # Its output may hold keys: only what kind of trouble it was is told.
        raise StoreUnavailable(
            f"the credential_process of the profile {name} of AWS failed: {type(error).__name__}"
        ) from None


def _credential(key: str, secret: str, token: str | None, until: dt.datetime | None) -> S3Credential:
    soon = dt.datetime.now(dt.UTC) + _RENEWED
    expires = soon if until is None else until
    return {"access_key_id": key, "secret_access_key": secret, "token": token, "expires_at": expires}
