"""Seeded storms: lost, slow and refused requests, nodes that go and come, daemons that die.

While it lasts, safety holds at every look; when it is over, everything that fits runs and then
nothing is written any more.
"""

from __future__ import annotations

import random

import pytest

from gpusched.testing import invariants

FAULTS = ("lost", "unanswered", "slow", "500", "409", "429", "503")

AWAY_S = 180.0


def weather(rng, calm):
    """Faults on one request of eight until it is calm; the lease gets its share."""

    def fault(_method, path):
        found = "" if calm or rng.random() > 0.12 else rng.choice(FAULTS)
        # Where something is created, 409 is no stumbling: it says that it exists.
        return "" if found == "409" and not path.endswith(("/binding", "/status")) else found

    return fault


@pytest.mark.parametrize("seed", [0, 1, 2, 24, 46])
def test_a_storm_passes(play, seed):
    """See the module."""
    rng = random.Random(seed)
    calm: list[bool] = []

    async def scenario(w):
        await w.start(nodes=4)
        w.check_journal = False
        daemon = w.daemon(fault=weather(rng, calm))
        sizes = {}
        for turn in range(24):
            await w.clock.sleep(rng.uniform(0, 6))
            move = rng.choice(["gang"] * 4 + ["finish", "node", "die", "lone", "outage", "flap"])
            if move == "gang":
                name = f"g{turn}"
                sizes[name] = rng.randint(1, 4)
                w.gang(name, sizes[name], gpus=rng.choice([2, 4, 8]))
            elif move == "finish" and sizes:
                name = rng.choice(sorted(sizes))
                del sizes[name]
                w.client.delete("jobs.batch", "default", name, propagation="Background")
                w.client.delete("podgroups.scheduling.gpusched.io", "default", name)
            elif move == "node":
                w.node(f"extra-{turn}")
            elif move == "lone":
                w.pod(f"lone-{turn}", gpus=1, annotations={"gpusched.io/run-for": "10h"})
            elif move == "outage":
                await w.unplug()
                await w.clock.sleep(rng.uniform(1, 40))
                await w.plug()
            elif move == "flap":  # nobody is on it, unless it is being bound to just now
                used = {pod["spec"].get("nodeName") for pod in w.pods()}
                free = [n for n in w.names("nodes") if n not in used]
                if free:
                    name = rng.choice(free)
                    w.client.delete("nodes", None, name)
                    await w.clock.sleep(rng.choice([0, 0.05, 3]))
                    w.node(name)
            elif move == "die":
                daemon.kill()
                daemon = w.daemon(fault=weather(rng, calm))
            # Recovery takes longer where the server is away for half the time.
            assert invariants.check(w.objects(), now=w.clock.now() - AWAY_S) == []
        calm.append(True)
        for number in range(60):
            w.node(f"calm-{number}")

        def all_run():
            return all(len(w.running(name)) == size for name, size in sizes.items())

        await w.until(all_run, within=400)
        await w.clock.sleep(130)
        before = list(w.journal)
        await w.clock.sleep(60)
        assert w.journal == before
        assert invariants.check(w.objects()) == []

    play(scenario, limit_s=4000)
