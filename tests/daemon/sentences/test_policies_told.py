"""A policy that raises where gangs are ordered: who has no turn for it is told so."""

from __future__ import annotations

import pytest

from tests.daemon.sentences.explained import ROWS, explained, facts

CONFIG = """\
actions: [enqueue, allocate]
tiers:
- plugins: [{name: priority}, {name: gang}, {name: quota}, {name: predicates}, {name: moody}]
cycle: {maxPeriod: 1s}
"""
MOODY = """
import attrs

@attrs.frozen
class Moody:
    name = "moody"
    api = 1

    def open(self, hooks, view):
        def key(about, *_more):
            if "sad" in (getattr(about.queue, "name", ""), getattr(about, "key", ("", "", ""))[2]):
                raise LookupError("no such mood")
            return (0,)

        hooks.HOOK(key)
"""


@pytest.mark.parametrize("hook", ["gang_order", "queue_order"])
def test_an_order_that_raises_is_told_to_whom_it_concerns(play, packages, tmp_path, hook):
    """Given a key that raises for one gang or its queue, then it is told that, and no turn is promised."""
    packages.install(
        "acme_moody", plugins="moody = acme_moody.it:Moody", it=MOODY.replace("HOOK", hook)
    )
    file = tmp_path / "gpusched.yaml"
    file.write_text(CONFIG)

    async def scenario(w):
        await w.start(nodes=1)
        daemon = w.daemon(config_file=str(file))
        await w.until(lambda: daemon.leading)
        w.client.create(
            "queues.scheduling.gpusched.io",
            {
                "apiVersion": "scheduling.gpusched.io/v1alpha1",
                "kind": "Queue",
                "metadata": {"name": "sad"},
                "spec": {},
            },
        )
        for number in range(3):
            w.pod(f"glad-{number}", gpus=16)
        await w.clock.sleep(3)
        w.pod("sad", gpus=1, labels={"gpusched.io/queue": "sad"})
        await w.until(lambda: w.told("sad").get("message"))
        await w.clock.sleep(10)
        lines = await explained(w, "pod", "sad")
        assert facts(lines, "why") == [ROWS[len(ROWS)].replace("gang_order", hook)]
        assert w.bound() == []

    play(scenario)
