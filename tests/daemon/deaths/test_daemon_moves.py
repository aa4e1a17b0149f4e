"""A gang is moved by a daemon that dies: the next one completes it, and nobody is lost."""

from __future__ import annotations

import pytest

from gpusched.config.load import load_file
from tests.daemon.conftest import GROUPS
from tests.populations import one_of

WRITES = 6
"""More than a move makes until its pods are gone: the last ones die at nothing."""
DEATHS = [(at, at % 2 == way) for at in range(1, WRITES + 1) for way in (0, 1)]
"""Each write, and whether it is done when the daemon dies; every second of these alternates."""


@pytest.fixture
def moving(tmp_path):
    """A configuration with the action."""
    file = tmp_path / "gpusched.yaml"
    file.write_text(
        "actions: [enqueue, allocate, consolidate]\n"
        "tiers:\n"
        "- plugins: [{name: gang}, {name: quota}, {name: predicates}, {name: nodeorder}]\n"
    )
    load_file(str(file))
    return str(file)


async def halves(w, config):
    """Two nodes with a gang of four GPUs each."""
    await w.start(nodes=1)
    w.check_journal = False  # status may be said again by who does not know it was said
    first = w.daemon(config_file=config)
    w.gang("a", 1, gpus=4)
    w.gang("f", 1, gpus=4)
    await w.until(lambda: len(w.running()) == 2)
    w.node("node-1")
    w.gang("b", 1, gpus=4)
    await w.until(lambda: len(w.running("b")) == 1)
    w.client.delete("jobs.batch", "default", "f")
    for pod in w.pods("f"):
        w.client.delete("pods", "default", pod["metadata"]["name"])
    await w.until(lambda: not w.running("f"))
    await w.clock.sleep(30)
    await first.stop()
    homes = {pod["spec"]["nodeName"] for name in ("a", "b") for pod in w.bound(name)}
    assert homes == {"node-0", "node-1"}


@pytest.mark.parametrize(("kill_at", "answered"), one_of(3, DEATHS))
def test_death_at_any_write_of_a_move(play, moving, kill_at, answered):
    """In the end all three gangs run: the one that waited, and both that were there before."""

    async def scenario(w):
        await halves(w, moving)
        second = w.daemon(config_file=moving, kill_at=kill_at, answered=answered)
        w.gang("wide", 1, gpus=8)
        await w.until(lambda: second.dead or len(w.running("wide")) == 1, within=120)
        await w.clock.sleep(2)
        if not second.dead:
            second.kill()
        third = w.daemon(config_file=moving)
        await w.until(lambda: third.leading)
        await w.until(lambda: len(w.running("wide")) == 1, within=900)
        await w.until(lambda: len(w.running("a")) == 1, within=60)
        await w.until(lambda: len(w.running("b")) == 1, within=60)

    play(scenario)


def test_the_record_is_in_the_status_before_a_pod_goes(play, moving):
    """Whoever looks sees where the gang finds room again while its pods are still there."""

    async def scenario(w):
        await halves(w, moving)
        daemon = w.daemon(config_file=moving)
        w.gang("wide", 1, gpus=8)
        seen = []

        def recorded():
            for name in ("a", "b"):
                status = w.client.get(GROUPS, "default", name).get("status") or {}
                if status.get("moved"):
                    seen.append((name, status["moved"]))
            return seen

        await w.until(recorded)
        ((name, text),) = seen[:1]
        assert "node-" in text
        await w.until(lambda: len(w.running("wide")) == 1, within=120)
        await w.until(lambda: len(w.running(name)) == 1, within=120)
        await daemon.stop()

    play(scenario)
