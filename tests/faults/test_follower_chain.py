"""From Kafka over bronze and silver to a history of silver, killed at random: they agree to the row."""

from __future__ import annotations

import random
from pathlib import Path

from faults.follower_chain import FollowerChain
from support.kafka import Broker


def test_a_chain_from_kafka_to_a_history_that_is_killed_again_and_again_agrees_to_the_row(
    broker: Broker, tmp_path: Path
) -> None:
    chain, chance = FollowerChain(broker, tmp_path, "merge_on_read"), random.Random(4)

    for _ in range(2):
        for _ in range(2):
            chain.produce(chance.randint(50, 150), chance)
            chain.die(chance)
            chain.meddle(chance)
        chain.finish()
        chain.check()

    assert chain.killed >= 2
