"""The objects on the page docs/native-gangs.md can be made and start as it says."""

from __future__ import annotations

import re
from pathlib import Path

import yaml

from gpusched.devcluster.registry.gangs.features import all_gates
from tests.daemon.adapters.native_gang_player import RACK, Player
from tests.daemon.devices.device_objects import classes, given, publish

PAGE = Path(__file__).parents[3] / "docs" / "native-gangs.md"
PLURALS = {
    "PodGroup": "podgroups.scheduling.k8s.io",
    "Pod": "pods",
    "Job": "jobs.batch",
    "PriorityClass": "priorityclasses.scheduling.k8s.io",
    "Queue": "queues.scheduling.gpusched.io",
}


def objects():
    """All objects in the page's blocks of YAML, in order."""
    blocks = re.findall(r"```yaml\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    return [body for block in blocks for body in yaml.safe_load_all(block)]


def test_what_the_page_shows_starts(play):
    """Given all of it in one cluster of eight GPUs, the gang and the Job run, groups are in force."""

    async def scenario(w):
        await w.start(nodes=0, gangs=all_gates("1.36"))
        player = Player(w)
        await player.prepare(
            {"nodes": {f"n{n}": {"gpus": 1, "rack": "ab"[n % 2]} for n in range(8)}}
        )
        publish(w, "n0", 1)
        classes(w)
        w.daemon()
        made = [w.client.create(PLURALS[body["kind"]], body) for body in objects()]
        assert len(made) == len(objects()) == 10
        player.pods("wide-0..1", group="wide")
        player.pods("sweep-0..1", group="sweep")
        await w.until(lambda: len(w.running()) == 9)
        assert len(player.values_of(w.pods(), "wide", RACK)) == 1
        for name in ("train", "wide", "sweep", "nvl"):
            assert player.condition(name)["status"] == "True"
        assert given(w) == {"nvl": [("n0", "gpu-0")]}
        assert "admitted to queue research" in player.group_says("sweep")

    play(scenario)
