"""Random gangs on small clusters of GPUs that can be partitioned: joint search, first fit, and the truth.

The truth is found by trying every place of every pod in a model of its own, which knows memory slices alone.
"""

from __future__ import annotations

import random
from functools import cache
from typing import Final

from gpusched.base.classes import frozen
from gpusched.base.errors import InvariantBroken
from gpusched.lab.experiments.device_cluster import DeviceCluster
from gpusched.lab.experiments.device_day import DeviceDay, day_objects
from gpusched.lab.experiments.first_fit import FirstFit

_PLACES: Final = {
    "whole": (0b11111111,),
    "half": (0b00001111, 0b11110000),
    "seventh": tuple(1 << start for start in range(7)),
}
_PLACES_OF: Final = {**_PLACES, "whole-or-half": _PLACES["whole"] + _PLACES["half"]}


@frozen(kw_only=True)
class RandomGang:
    """One cluster with one gang, and what became of it.

    Attributes:
        feasible: whether trying everything found a way to run all pods.
        joint: whether a session started the gang.
        first_fit: pods that first fit started one after another.
        fault: of the session that decided about the gang, empty for none.
    """

    nodes: int
    gpus: int
    pods: tuple[str, ...]
    feasible: bool
    joint: bool
    first_fit: int
    fault: str = ""


def play_random(seed: int) -> RandomGang:
    """One cluster and one gang that asks for about as much as there is."""
    rng = random.Random(seed)  # noqa: S311 - nothing secret is drawn
    day = DeviceDay(nodes=rng.randint(1, 3), gpus=rng.randint(1, 2))
    total = 8 * day.nodes * day.gpus
    pods: list[str] = []
    asked, most = 0, total * rng.uniform(0.8, 1.1)
    while asked < most and len(pods) < 12:
        kind = rng.choice(sorted(_PLACES_OF))
        pods.append(kind)
        asked += {"whole": 8, "seventh": 1}.get(kind, 4)
    cluster = DeviceCluster(day_objects(day))
    fit = FirstFit(
        cluster.cache.devices.build_catalog(),
        {f"node-{number:02d}": {} for number in range(day.nodes)},
    )
    started = sum(fit.place(each) is not None for each in pods)
    cluster.add_gang("gang", pods, now=0.0)
    fault = ""
    try:
        placed = cluster.session(0.0).get("gang", {})
    except InvariantBroken as why:
        placed, fault = {}, str(why)
    return RandomGang(
        nodes=day.nodes,
        gpus=day.gpus,
        pods=tuple(pods),
        feasible=is_feasible(tuple(pods), day.nodes * day.gpus),
        joint=len(placed) == len(pods),
        first_fit=started,
        fault=fault,
    )


def is_feasible(pods: tuple[str, ...], gpus: int) -> bool:
    """Whether all pods find a place on empty GPUs, by trying everything."""
    order = tuple(sorted(pods, key=lambda kind: len(_PLACES_OF[kind])))

    @cache
    def rest(number: int, taken: tuple[int, ...]) -> bool:
        if number == len(order):
            return True
        for place in _PLACES_OF[order[number]]:
            for gpu in range(gpus):
                if taken[gpu] & place:
                    continue
                more = (*taken[:gpu], taken[gpu] | place, *taken[gpu + 1 :])
                if rest(number + 1, tuple(sorted(more))):
                    return True
        return False

    return rest(0, (0,) * gpus)
