"""Why a store refuses, as each cloud says it: one sentence and one remedy for each cause."""

from __future__ import annotations

import re
from dataclasses import dataclass

from lakefeed.stores.location import Cloud, cloud_of

_KEYS: dict[Cloud, str] = {
    "s3": "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
    "gcs": "GOOGLE_SERVICE_ACCOUNT, the path of a key file",
    "azure": "AZURE_STORAGE_ACCOUNT_KEY, AZURE_STORAGE_SAS_TOKEN or AZURE_STORAGE_CLIENT_SECRET",
}
_RIGHTS: dict[Cloud, str] = {
    "s3": "s3:GetObject, s3:PutObject, s3:DeleteObject and s3:ListBucket",
    "gcs": "the role Storage Object User",
    "azure": "the role Storage Blob Data Contributor",
}


@dataclass(frozen=True)
class _Cause:
    """What a store's text shows; `{keys}` and `{rights}` are those of its cloud, `{said}` its own words."""

    sign: re.Pattern[str]
    what: str
    remedy: str


def _cause(sign: str, what: str, remedy: str) -> _Cause:
    return _Cause(re.compile(sign, re.I | re.S), what, remedy)


# The order matters: a store that refuses credentials says more than that it refuses.
_CAUSES = (
    _cause(
        r"object with invalid path",
        "the store has an object whose name cannot be read: {said}",
        "Give it a name without //, /./, /../ and control characters, or choose a path that it is not below.",
    ),
    _cause(
        r"NoSuchBucket|ContainerNotFound|FilesystemNotFound|bucket does not exist",
        "the bucket or container does not exist",
        "Create it, or correct the path.",
    ),
    _cause(
        r"RequestTimeTooSkewed|date header is too old|request date header|clock skew"
        r"|difference between the request time and the (current|server)",
        "the clock of this machine differs too much from the store's: {said}",
        "Set the clock, best by NTP (`timedatectl set-ntp true`), then start again.",
    ),
    _cause(
        r"ExpiredToken|token (is|has) expired|Signature not valid in the specified time frame|RequestExpired",
        "the credentials have expired: {said}",
        "Get new ones; those of a profile, a role or an identity of the machine are renewed by themselves.",
    ),
    _cause(
        r"PermanentRedirect|AuthorizationHeaderMalformed|IllegalLocationConstraint|301 Moved"
        r"|incorrectly configured region",
        "the bucket is in another region: {said}",
        "Set AWS_REGION in `storage` to the region of the bucket.",
    ),
    _cause(
        r"501 Not Implemented|functionality that is not implemented",
        "the store has no conditional writes (If-None-Match): {said}",
        "Use a store that has them. If this pipeline is the only writer of the table, "
        'AWS_S3_ALLOW_UNSAFE_RENAME: "true" in `storage` does without.',
    ),
    _cause(
        r"(169\.254\.169\.254|metadata\.google|/metadata/identity|/computeMetadata/)"
        r".*(40[0134] |not found|denied)|no providers in chain|provider was not enabled"
        r"|loading credentials|no valid credentials",
        "no credentials were found in `storage`, in the environment, or as the identity of this machine",
        "Set {keys}; docs/stores.md has every way.",
    ),
    _cause(
        r"InvalidAccessKeyId|SignatureDoesNotMatch|AuthenticationFailed|AuthorizationFailure\b"
        r"|InvalidToken|401 Unauthorized|invalid_grant|invalid_client|InvalidAuthenticationInfo",
        "the store does not accept the credentials: {said}",
        "Check {keys} in `storage` or in the environment.",
    ),
    _cause(
        r"AccessDenied|AuthorizationPermissionMismatch|InsufficientAccountPermissions|403 Forbidden"
        r"|permission denied|necessary privileges|(?<![\w/.%=-])credentials(?![\w/%-]|\.\w)",
        "the store refused access: {said}",
        "Give the credentials in `storage` what Lakefeed needs below this path: {rights}.",
    ),
    _cause(
        r"Account must be specified|missing account",
        "cannot be opened: the account is missing",
        "Set AZURE_STORAGE_ACCOUNT_NAME in `storage`, or write abfss://container@account.dfs.core.windows.net/path",
    ),
    _cause(
        r"builder error|URL scheme is not allowed",
        "cannot be opened: an endpoint is no URL that may be asked",
        'Check the endpoints in `storage` and in the environment. One with http:// wants ALLOW_HTTP: "true"; '
        "AWS_ENDPOINT_URL_STS must be https://",
    ),
    _cause(
        r"service account file|missing region|invalid (access|account) key",
        "cannot be opened: {said}",
        "Check `storage`: it wants {keys}; docs/stores.md has every option.",
    ),
)


def refusal(path: str, text: str, said: str) -> tuple[str, str] | None:
    """What a store that refuses means, and what to do about it; None where the text shows no cause."""
    cloud = cloud_of(path)
    for cause in _CAUSES if cloud else ():
        if cause.sign.search(text):
            assert cloud is not None
            words = {"keys": _KEYS[cloud], "rights": _RIGHTS[cloud], "said": said}
            return cause.what.format(**words), cause.remedy.format(**words)
    return None
