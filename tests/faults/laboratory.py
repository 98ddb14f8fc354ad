"""`make faults`: walks, soaks and quiet days for a while, from one seed, and a report of what came of it."""

from __future__ import annotations

import argparse
import datetime as dt
import itertools
import logging
import random
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from faults.follower_chain import FollowerChain
from faults.http_world import HttpWorld
from faults.keyed_world import KeyedWorld
from faults.living_database import LivingDatabase
from faults.medallion import Medallion
from faults.meddling import MEDDLING
from faults.model import walk
from faults.models import play_models
from faults.postgres_world import PostgresWorld
from faults.quiet import QuietDays
from faults.soak import Soak
from faults.world import TABLES, World
from support.drivers import Drivers
from support.kafka import Broker
from support.postgres import PostgresServer
from support.spark import local_session

STEPS = 10
SOAK_SECONDS = 120.0
QUIET_SECONDS = 90.0
OTHERS_STEPS = 6
LARGEST_EVENT = 6_000_000
RECEIVER_ENDS = 10
MEDALLION_KILLS, MEDALLION_ROWS = 20, 40_000
MODEL_SEEDS = 25
POSTGRES_ROUNDS = 25
LIVING_ROUNDS = 10
CHAIN_KILLS = 20
KINDS = ("walk", "soak", "others", "changes", "models", "quiet", "medallion", "postgres", "http", "chain")


@dataclass
class Report:
    """What was done to how many worlds, and what came of it."""

    seed: int
    minutes: float
    only: str | None = None
    began: float = field(default_factory=time.monotonic)
    walks: int = 0
    soaks: int = 0
    quiet: int = 0
    others: int = 0
    medallions: int = 0
    receivers: int = 0
    changes: int = 0
    models: int = 0
    postgres: int = 0
    chains: int = 0
    events: int = 0
    restarts: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    findings: list[str] = field(default_factory=list)

    def note(self, fault: str) -> None:
        """Count a fault; `restart` is what follows some of them."""
        if fault == "restart":
            self.restarts += 1
        else:
            self.faults[fault] += 1

    def close(self, world: World) -> None:
        """Add up a world that was sound to its end, and delete it."""
        self.events += len(world.produced)
        world.close()

    def markdown(self) -> str:
        """The report, as a page may hold it."""
        took = (time.monotonic() - self.began) / 60
        doubled = sum("more than once" in finding for finding in self.findings)
        lost = sum(" lost: " in finding for finding in self.findings)
        only = f" ONLY={self.only}" if self.only else ""
        head = [
            f"{dt.datetime.now(dt.UTC):%Y-%m-%d}, seed {self.seed}, {took:.0f} minutes: "
            f"{self.walks} random walks of {STEPS} steps, {self.soaks} soaks of {SOAK_SECONDS:.0f} s, "
            f"{self.others} times {OTHERS_STEPS} steps of others, "
            f"{self.changes} walks with tables of changes, "
            f"{self.models:,} runs of random changes beside their model, "
            f"{self.quiet} times {QUIET_SECONDS:.0f} s of quiet days, "
            f"{self.medallions} medallions killed {MEDALLION_KILLS} times each, "
            f"{self.postgres} Postgres databases through {POSTGRES_ROUNDS} rounds of writes and "
            f"{LIVING_ROUNDS} of schema changes each, "
            f"{self.chains} chains from Kafka to a history killed {CHAIN_KILLS} times each, "
            f"{self.receivers} HTTP sources under load ended {RECEIVER_ENDS} times each, "
            f"{self.events:,} events into two tables each, {self.restarts} restarts of the command line, "
            f"{self.faults.total()} faults, {doubled} duplicates, {lost} losses, "
            f"{len(self.findings)} findings.",
            "",
            f"To repeat it: `make faults SEED={self.seed} MINUTES={self.minutes:g}{only}`",
            "",
            "| fault | times |",
            "|---|---|",
        ]
        rows = [f"| {fault} | {times} |" for fault, times in sorted(self.faults.items())]
        return "\n".join([*head, *rows, *(f"\nFinding: {finding}" for finding in self.findings)]) + "\n"


class Laboratory:
    """Runs walks, soaks and quiet days in turn; what fails is noted with its seed, and the next begins."""

    def __init__(self, broker: Broker, drivers: Drivers, report: Report, folder: Path) -> None:
        self._broker, self._drivers, self._report, self._folder = broker, drivers, report, folder

    def run(self) -> None:
        """Go on until the time is over; the last experiment is let come to its end."""
        trials = (
            self._walk,
            self._soak,
            self._others,
            self._changes,
            self._models,
            self._quiet,
            self._medallion,
            self._postgres,
            self._http,
            self._chain,
        )
        kinds = dict(zip(KINDS, trials, strict=True))
        turns = itertools.cycle([self._report.only] if self._report.only else KINDS)
        until = self._report.began + self._report.minutes * 60
        for number, name in enumerate(turns, self._report.seed):
            if time.monotonic() > until:
                return
            self._try(f"{name} {number}", partial(kinds[name], number))

    def _try(self, name: str, experiment: Callable[[], None]) -> None:
        began = time.monotonic()
        try:
            experiment()
            outcome = "ok"
        except Exception as error:
            logging.exception("%s failed", name)
            outcome = "FOUND SOMETHING"
            steps = getattr(error, "__notes__", ())
            self._report.findings.append("\n".join([f"{name}: {error}", *steps]))
        print(f"{name}: {outcome} ({time.monotonic() - began:.0f} s)", flush=True)

    def _walk(self, number: int) -> None:
        worlds: list[World] = []

        def begin() -> World:
            worlds.append(self._world())
            return worlds[-1]

        walk(begin, self._drivers, number, STEPS)
        self._report.walks += 1
        self._report.events += sum(len(world.produced) for world in worlds)

    def _soak(self, number: int) -> None:
        world = self._world()
        Soak(world, random.Random(number), self._report.note).run(SOAK_SECONDS)
        self._report.soaks += 1
        self._report.close(world)

    def _others(self, number: int) -> None:
        """What others do to the tables and to the topic while the stream runs, again and again."""
        world, chance = self._world(), random.Random(number)
        world.produce(100)
        for _ in range(OTHERS_STEPS):
            step = chance.choice(["meddle", "meddle", "meddle", "expire", "truncate", "recreate", "large"])
            if step == "meddle":
                world.meddle(self._drivers, chance.choice(sorted(MEDDLING)), chance.choice(TABLES))
            elif step == "expire":
                world.expire()
            elif step == "truncate":
                world.truncate(self._drivers, chance.randint(1, 200), awake=chance.random() < 0.5)
            elif step == "recreate":
                world.recreate_topic(self._drivers, chance.randint(1, 400), awake=chance.random() < 0.5)
            else:
                world.produce_large(chance.randint(1, 8))
                world.run()
            world.check()
        self._report.others += 1
        self._report.close(world)

    def _changes(self, number: int) -> None:
        """A walk with an upsert and a history table."""
        folder, chance = Path(tempfile.mkdtemp(dir=self._folder)), random.Random(number)
        world = KeyedWorld(self._broker, folder, partitions=3, note=self._report.note)
        world.produce(100)
        world.run()
        for _ in range(STEPS):
            world.step(chance, self._drivers)
            world.check()
        world.run()
        world.check()
        self._report.changes += 1
        self._report.close(world)

    def _models(self, number: int) -> None:
        """Random changes into tables and into models of them, in both layouts."""
        folder = Path(tempfile.mkdtemp(dir=self._folder))
        first = number * MODEL_SEEDS
        self._report.models += play_models(folder, range(first, first + MODEL_SEEDS))
        shutil.rmtree(folder)

    def _quiet(self, number: int) -> None:
        world = self._world()
        QuietDays(world, random.Random(number), self._report.note).run(QUIET_SECONDS)
        self._report.quiet += 1
        self._report.close(world)

    def _http(self, number: int) -> None:
        folder = Path(tempfile.mkdtemp(dir=self._folder))
        world = HttpWorld(folder)
        world.end_at_random(random.Random(number), RECEIVER_ENDS, self._report.note)
        self._report.receivers += 1
        self._report.events += len(world.acknowledged)
        shutil.rmtree(folder)

    def _medallion(self, number: int) -> None:
        """Bronze, silver and gold, killed again and again; then what silver refused is mended."""
        folder = Path(tempfile.mkdtemp(dir=self._folder)) / "shop"
        shop = Medallion(folder, MEDALLION_ROWS, self._report.note)
        shop.survive(MEDALLION_KILLS, random.Random(number))
        shop.mend()
        self._report.medallions += 1
        shutil.rmtree(folder.parent)

    def _postgres(self, number: int) -> None:
        """Four writers, and kills of the run, its workers, its connections and the server; schema changes."""
        folder, chance = Path(tempfile.mkdtemp(dir=self._folder)), random.Random(number)
        with PostgresServer() as server, server.database() as database:
            world = PostgresWorld(server, database, folder, self._report.note)
            for _ in range(POSTGRES_ROUNDS):
                world.round(chance)
                world.check()
        self._report.postgres += 1
        shutil.rmtree(folder)
        folder.mkdir()
        with PostgresServer() as server, server.database() as database:
            living = LivingDatabase(server, database, folder, self._report.note)
            for _ in range(LIVING_ROUNDS):
                living.round(chance)
                living.check()
                if chance.random() < 0.3:
                    living.replay()
                    living.check()
        shutil.rmtree(folder)

    def _chain(self, number: int) -> None:
        """From Kafka over bronze and silver to tables that follow silver, killed with and without Spark."""
        folder, chance = Path(tempfile.mkdtemp(dir=self._folder)), random.Random(number)
        layout = chance.choice(["copy_on_write", "merge_on_read"])
        chain = FollowerChain(self._broker, folder, layout, self._report.note)
        for kill in range(1, CHAIN_KILLS + 1):
            chain.produce(chance.randint(50, 200), chance)
            chance.choice([chain.die, chain.die, chain.die_on_spark])(chance)
            chain.meddle(chance)
            if kill % 4 == 0:
                chance.choice([chain.finish, chain.finish_on_spark])()
                chain.check()
        self._report.chains += 1
        self._report.events += len(chain.events)
        shutil.rmtree(folder)

    def _world(self) -> World:
        return World(self._broker, Path(tempfile.mkdtemp(dir=self._folder)), note=self._report.note)


def _main() -> int:
    parser = argparse.ArgumentParser(prog="make faults", description=__doc__)
    parser.add_argument("--seed", type=int, default=random.randrange(1_000_000))
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--report", type=Path, help="a file to write the report to, as Markdown")
    parser.add_argument("--only", choices=KINDS, help="one kind of trial instead of all in turn")
    given = parser.parse_args()
    # What runs in this process say would hide what the laboratory says.
    logging.getLogger("lakefeed").addHandler(logging.NullHandler())
    report = Report(given.seed, given.minutes, given.only)
    folder = Path(tempfile.mkdtemp(prefix="lakefeed-faults-"))
    print(f"seed {given.seed}, {given.minutes:g} minutes, in {folder}", flush=True)
    with local_session() as spark, Broker(LARGEST_EVENT) as broker:
        Laboratory(broker, Drivers(spark), report, folder).run()
    print(f"\n{report.markdown()}")
    if given.report:
        given.report.write_text(report.markdown())
    if not report.findings:
        shutil.rmtree(folder, ignore_errors=True)
    return 1 if report.findings else 0


if __name__ == "__main__":
    raise SystemExit(_main())
