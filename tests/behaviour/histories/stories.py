"""Random stories in the notation of the cases: what fails can be read, cut down and kept."""

from __future__ import annotations

import random
from typing import Final

from .drawn_queues import QueueOdds, draw_queue

_ODDS = QueueOdds(deserved=0.8, capability=0.25, capability_above=4, weight=0.4, weight_min=1)
BUSY_S: Final = 420
"""Seconds in which something may come, end or be lost."""
_SIZES: Final = (1, 1, 1, 2, 2, 4)


def draw_story(seed: int) -> str:
    """A cluster, its queues, gangs that come and end, and what happens to them."""
    rng = random.Random(f"story {seed}")  # repeatable
    nodes = rng.randint(2, 5)
    gpus = rng.choice((2, 4, 8))
    lines = [f"case story {seed}", "levels rack"]
    lines += [f"node n{n} {gpus}g rack=r{n % 2}" for n in range(nodes)]
    queues, leaves = _queues(rng, total=nodes * gpus)
    lines.append("queue " + " ; ".join(queues.values()))
    lines += [_gang(rng, n, leaves=leaves, most=gpus) for n in range(rng.randint(5, 16))]
    lines += _events(rng, nodes=nodes, gpus=gpus, queues=queues)
    return "\n".join([*lines, f"after {BUSY_S}s", ""])


def _queues(rng: random.Random, *, total: int) -> tuple[dict[str, str], list[str]]:
    made: dict[str, str] = {}
    leaves: list[str] = []
    for n in range(rng.randint(1, 3)):
        top = f"t{n}"
        children = rng.choice((0, 0, 2))
        deserved = rng.randint(0, max(1, total // 2))
        made[top] = draw_queue(rng, top, deserved, _ODDS)
        for child in range(children):
            name = f"{top}c{child}"
            made[name] = draw_queue(rng, name, deserved // 2, _ODDS) + f" under={top}"
            leaves.append(name)
        if not children:
            leaves.append(top)
    return made, leaves


def _gang(rng: random.Random, n: int, *, leaves: list[str], most: int) -> str:
    count = rng.choice((1, 1, 2, 3, 4))
    words = [f"g{n}", rng.choice(leaves), f"{min(most, rng.choice(_SIZES))}g", f"x{count}"]
    words.append(f"min={rng.randint(1, count)}")
    words.append(f"p{rng.choice((25, 50, 50, 75))}")
    if rng.random() < 0.2:
        words.append("hard")
    if rng.random() < 0.8:
        words.append(f"at={rng.randint(1, 300)}s")
    if rng.random() < 0.5:
        words.append(f"for={rng.randint(20, 200)}s")
    if rng.random() < 0.15:
        words.append("required=rack")
    if rng.random() < 0.1:
        words.append(f"keep={rng.randint(1, count)}")
    return f"gang {' '.join(words)} -> 0..{count}"


def _events(rng: random.Random, *, nodes: int, gpus: int, queues: dict[str, str]) -> list[str]:
    found = []
    if rng.random() < 0.5:
        found.append(f"at {rng.randint(60, 250)}s lose n{rng.randrange(nodes)}")
    if rng.random() < 0.5:
        found.append(f"at {rng.randint(100, 350)}s node m0 {gpus}g rack=r0")
    free = sorted(name for name, line in queues.items() if "cap=" not in line)
    if free and rng.random() < 0.5:
        name = rng.choice(free)
        found.append(f"at {rng.randint(60, 350)}s queue {name} des={rng.randint(0, gpus)}g")
    if rng.random() < 0.4:
        found.append(f"at {rng.randint(60, 350)}s restart")
    return found
