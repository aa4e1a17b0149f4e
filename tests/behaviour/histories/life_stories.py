"""Random stories for lives in sessions: crowded clusters in which queues lend and take back."""

from __future__ import annotations

import random
from typing import Final

from .drawn_queues import QueueOdds, draw_queue

_ODDS = QueueOdds(deserved=0.85, capability=0.15, capability_above=6, weight=0.3, weight_min=0)
_GRID_S: Final = 15
"""Gangs come at multiples of it, so that much is decided between two of them."""
_BUSY: Final = 16


def draw_life(seed: int, *, moves: bool = False) -> str:
    """A cluster, its queues, gangs that come and end, and what happens to them."""
    rng = random.Random(f"life {seed}")  # repeatable
    gpus = rng.choice((2, 4, 4, 8))
    nodes = rng.randint(1, 4) if gpus == 8 else rng.randint(2, 6)
    lines = [f"case life {seed}", "levels rack", *(["moves"] if moves else [])]
    lines += [f"node n{n} {gpus}g rack=r{n % 2}" for n in range(nodes)]
    queues, leaves = _queues(rng, total=nodes * gpus)
    lines.append("queue " + " ; ".join(queues))
    count = rng.randint(6, 18)
    lines += [_gang(rng, n, leaves=leaves, gpus=gpus) for n in range(count)]
    lines += _events(rng, nodes=nodes, gpus=gpus, gangs=count)
    return "\n".join([*lines, ""])


def _queues(rng: random.Random, *, total: int) -> tuple[list[str], list[str]]:
    made: list[str] = []
    leaves: list[str] = []
    tops = rng.randint(2, 4)
    left = total if rng.random() < 0.8 else total + rng.randint(1, total)
    for n in range(tops):
        share = left // (tops - n) if n == tops - 1 else rng.randint(0, max(0, left))
        share = min(share, max(1, total * 2 // 3))
        left -= share
        children = rng.choice((0, 0, 2))
        made.append(draw_queue(rng, f"t{n}", share, _ODDS))
        for child in range(children):
            part = share // 2 if child else share - share // 2
            made.append(draw_queue(rng, f"t{n}c{child}", part, _ODDS) + f" under=t{n}")
            leaves.append(f"t{n}c{child}")
        if not children:
            leaves.append(f"t{n}")
    return made, leaves


def _gang(rng: random.Random, n: int, *, leaves: list[str], gpus: int) -> str:
    each = min(gpus, rng.choice((1, 1, 1, 2, 2, 4)))
    words = [f"g{n}", rng.choice(leaves), f"{each}g"]
    count = rng.choice((1, 1, 2, 2, 3, 4, 6))
    shape = rng.random()
    if shape < 0.12 and count > 1:
        first = rng.randint(1, count - 1)
        words += [f"x{first}/a", f"x{count - first}/b"]
        words += [f"sub=a:{rng.randint(1, first)},b:{rng.randint(1, count - first)}", "minsub=1"]
        words.append("min=1")
    elif shape < 0.5:
        words += [f"x{count}", f"min={rng.randint(1, count)}"]
    else:
        words.append(f"x{count}")
    words.append(f"p{rng.choice((25, 50, 50, 50, 75))}")
    if rng.random() < 0.08:
        words.append("hard")
    words.append(f"at={_GRID_S * rng.randint(0, _BUSY)}s")
    if rng.random() < 0.6:
        words.append(f"for={rng.randint(20, 200)}s")
    if rng.random() < 0.12:
        words.append("required=rack")
    return f"gang {' '.join(words)} -> 0..{count}"


def _events(rng: random.Random, *, nodes: int, gpus: int, gangs: int) -> list[str]:
    found = []
    if nodes > 1 and rng.random() < 0.3:
        found.append(f"at {rng.randint(60, 250)}s lose n{rng.randrange(nodes)}")
    if rng.random() < 0.3:
        found.append(f"at {rng.randint(60, 250)}s node m0 {gpus}g rack=r0")
    if rng.random() < 0.3:
        found.append(f"at {rng.randint(60, 250)}s kill g{rng.randrange(gangs)}")
    return found
