"""Several daemons share one cluster: what each holds, and what all bind, is watched at every write."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import attrs
import pytest

from gpusched.api.meta.identity import GangKey
from gpusched.shards.layout import gang_hash
from tests.daemon.conftest import pod_spec

CONFIGURATION = """
shards:
{shards}
"""
ONE = "- {{name: {name}, nodeSelector: {{matchLabels: {{pool: {name}}}}}}}"
HOSTS = "nvidia.com/gpu"


def begins_in(gang: str, names: Sequence[str]) -> str:
    """The shard in which a gang begins."""
    return names[int(gang_hash(GangKey("PodGroup", "default", gang)), 16) % len(names)]


class WatchedJournal(list[Any]):
    """Writes of all daemons; told of each binding when the server has done it."""

    def __init__(self, bound: Callable[[], None]) -> None:
        super().__init__()
        self._bound = bound

    def append(self, write: Any) -> None:
        """One more write."""
        super().append(write)
        if write.path.endswith("/binding"):
            self._bound()


@attrs.define
class Shards:
    """A cluster in shards; ``config`` is what all daemons read."""

    world: Any
    config: str
    names: tuple[str, ...]
    capped: dict[str, tuple[int, tuple[str, ...]]] = attrs.Factory(dict)
    """Capability of queues in GPUs, and the queues that count."""
    exceeded: list[str] = attrs.Factory(list)
    """What was above a capability at some binding."""
    watched: list[Callable[[], Iterable[str]]] = attrs.Factory(list)
    """What else is asked at every binding: sentences about what is exceeded."""
    overbooked: list[str] = attrs.Factory(list)
    """Nodes that at some binding gave more GPUs than they have."""

    async def start(self, *, nodes: int = 2, gpus: int = 8, **options: Any) -> None:
        """So many nodes in each shard."""
        self.world.journal = WatchedJournal(lambda: self.check(gpus))
        await self.world.start(nodes=0, **options)
        for name in self.names:
            for number in range(nodes):
                self.world.node(f"{name}-{number}", gpus, pool=name)

    def daemon(self, *shards: str, **options: Any) -> Any:
        """A daemon that cares for these shards, the first before the others."""
        return self.world.daemon(config_file=self.config, shards=shards, **options)

    def queue(self, name: str, *, capability: int = 0, parent: str = "root", **spec: Any) -> None:
        """A queue; its capability in GPUs."""
        if capability:
            spec["capability"] = {HOSTS: str(capability)}
        self.world.client.create(
            "queues.scheduling.gpusched.io",
            {
                "apiVersion": "scheduling.gpusched.io/v1alpha1",
                "kind": "Queue",
                "metadata": {"name": name},
                "spec": {"parent": parent, **spec},
            },
        )

    def gang(
        self,
        name: str,
        pods: int,
        *,
        gpus: int = 8,
        queue: str = "default",
        only: str = "",
        user: str = "",
        where: dict[str, str] | None = None,
        run_for: str = "10h",
        **spec: Any,
    ) -> None:
        """A gang of a user that starts with all its pods, on nodes of ``only`` one shard, or with some labels."""
        made_by = {"annotations": {"gpusched.io/user": user}} if user else {}
        self.world.group(name, queue=queue, minMember=pods, **spec, **made_by)
        labels = {**({"pool": only} if only else {}), **(where or {})}
        selector = {"nodeSelector": labels} if labels else {}
        template = {
            "metadata": {
                "labels": {"gpusched.io/pod-group": name},
                "annotations": {"gpusched.io/run-for": run_for},
            },
            "spec": {**pod_spec(gpus), **selector},
        }
        self.world.job(name, pods, template=template)

    def cap(self, name: str, capability: int, *queues: str) -> None:
        """A capability that is watched at every binding: of the queue, or of these together."""
        self.capped[name] = (capability, queues or (name,))

    def check(self, gpus: int) -> None:
        """Note every queue that holds more than it ever may, and every node."""
        given: dict[str, int] = {}
        for pod in self.world.bound():
            if pod["status"].get("phase") not in {"Succeeded", "Failed"}:
                node = pod["spec"]["nodeName"]
                given[node] = given.get(node, 0) + _gpus_of(pod)
        self.overbooked += [node for node, held in given.items() if held > gpus]
        for watch in self.watched:
            self.exceeded += watch()
        for name, (most, queues) in self.capped.items():
            used = self.used(queues)
            if used > most:
                self.exceeded.append(f"{name} holds {used} of {most}")

    def board(self) -> dict[str, Any]:
        """What stands on the board; nothing where there is none."""
        for found in self.world.client.list("configmaps", "gpusched-system"):
            if found["metadata"]["name"] == "gpusched-shards":
                return json.loads(found["data"]["board"])
        return {}

    def shards_of(self, gang: str) -> set[str]:
        """Shards in whose nodes a gang has members."""
        return {pod["spec"]["nodeName"].rpartition("-")[0] for pod in self.world.bound(gang)}

    def holders(self) -> dict[str, str]:
        """Who holds the Leases of the shards."""
        found = {}
        for lease in self.world.client.list("leases.coordination.k8s.io", "gpusched-system"):
            name = lease["metadata"]["name"].removeprefix("gpusched-")
            if name in self.names:
                found[name] = (
                    (lease["spec"].get("holderIdentity") or "").rpartition(":")[2].split("_")[0]
                )
        return found

    def used(self, queues: Iterable[str]) -> int:
        """GPUs that pods of these queues hold now."""
        groups = {
            group["metadata"]["name"]: group["spec"].get("queue", "default")
            for group in self.world.groups()
        }
        held = 0
        for pod in self.world.bound():
            group = pod["metadata"].get("labels", {}).get("gpusched.io/pod-group", "")
            if groups.get(group) in queues and pod["status"].get("phase") not in {
                "Succeeded",
                "Failed",
            }:
                held += _gpus_of(pod)
        return held


def _gpus_of(pod: dict[str, Any]) -> int:
    limits = pod["spec"]["containers"][0]["resources"].get("limits", {})
    return int(limits.get(HOSTS, 0))


def make_shards(world: Any, folder: Path, names: tuple[str, ...]) -> Shards:
    """Write the configuration of all daemons."""
    file = folder / "gpusched.yaml"
    file.write_text(CONFIGURATION.format(shards="\n".join(ONE.format(name=each) for each in names)))
    return Shards(world, str(file), names)


@pytest.fixture
def sharded(play, tmp_path):
    """Run a scenario on a cluster in shards."""

    def run(scenario: Any, *names: str, **how: Any) -> Any:
        async def inner(world: Any) -> None:
            shards = make_shards(world, tmp_path, names)
            await scenario(shards)
            assert shards.overbooked == []

        return play(inner, **how)

    return run
