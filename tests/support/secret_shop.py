"""A pipeline file whose secrets come from variables, and a look that nobody shows them."""

from __future__ import annotations

CANARIES = {
    "KAFKA_PASSWORD": "canary-kafka-password",
    "ACCESS_KEY": "canary-access-key",
    "SECRET_KEY": "canary-secret-key",
}


SECRET = """
    name: shop
    sources:
      clicks:
        type: kafka
        brokers: 127.0.0.1:9
        topics: [clicks]
        format: json
        options:
          sasl.mechanism: PLAIN
          security.protocol: SASL_PLAINTEXT
          sasl.username: user
          sasl.password: ${KAFKA_PASSWORD}
    tables:
      events: {path: "s3://lake/events", from: clicks}
    storage:
      AWS_ENDPOINT_URL: "http://127.0.0.1:9"
      AWS_ALLOW_HTTP: "true"
      AWS_REGION: us-east-1
      AWS_ACCESS_KEY_ID: ${ACCESS_KEY}
      AWS_SECRET_ACCESS_KEY: ${SECRET_KEY}
      retry_timeout: 1s
      max_retries: "1"
"""


def assert_no_canary(*texts: str) -> None:
    """None of the secrets stands in these texts."""
    for text in texts:
        for canary in CANARIES.values():
            assert canary not in text
