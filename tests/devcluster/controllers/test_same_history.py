"""The same inputs at the same moments give the same cluster, byte for byte."""

from __future__ import annotations

import json
from typing import Any

KINDS = ("nodes", "pods", "jobs.batch", "events", "poddisruptionbudgets.policy", "resourcequotas")


async def scenario(start: Any) -> str:
    """An hour in the life of a few jobs, as text of everything that is left, versions included."""
    cluster = await start(stages=True)
    for name in ("a", "b"):
        cluster.node(name)
    for at, asked in enumerate(("run-for", "fail-after", "run-for")):
        note = {"annotations": {f"gpusched.io/{asked}": f"{20 + at}s"}}
        cluster.job(f"j{at}", completions=3, parallelism=2, template=note)
    for at in range(30):
        await cluster.clock.advance(7)
        cluster.bind_all("ab"[at % 2])
    failed = {"metadata": {"annotations": {"gpusched.io/node-failed": "true"}}}
    cluster.client.patch("nodes", None, "a", failed)
    cluster.client.delete("jobs.batch", "n", "j1", propagation="Foreground")
    await cluster.clock.advance(3400)
    objects = [obj for kind in KINDS for obj in cluster.client.list(kind)]
    return json.dumps(objects, sort_keys=True)


async def test_two_runs_are_equal(start: Any) -> None:
    """Controllers and stages draw on nothing but their inputs, the clock and the seed."""
    first = await scenario(start)
    assert first == await scenario(start)
    assert '"Complete"' in first
