"""Queues that random stories draw, as words of the notation."""

from __future__ import annotations

import random

import attrs


@attrs.frozen(kw_only=True)
class QueueOdds:
    """How often a drawn queue has each field, and between which bounds.

    Attributes:
        deserved, capability, weight: shares of queues that have them, from 0 to 1.
        capability_above: GPUs that a capability is above what is deserved, at most.
        weight_min: least weight.
    """

    deserved: float
    capability: float
    capability_above: int
    weight: float
    weight_min: int


def draw_queue(rng: random.Random, name: str, deserved: int, odds: QueueOdds) -> str:
    """A queue that deserves so many GPUs, where it deserves any."""
    words = [name]
    if rng.random() < odds.deserved:
        words.append(f"des={deserved}g")
    if rng.random() < odds.capability:
        words.append(f"cap={deserved + rng.randint(1, odds.capability_above)}g")
    if rng.random() < odds.weight:
        words.append(f"w={rng.randint(odds.weight_min, 3)}")
    if rng.random() < 0.2:
        words.append(f"prio={rng.randint(1, 2)}")
    return " ".join(words)
