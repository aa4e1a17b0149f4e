"""What free GPUs are worth: tables against the definition, counted out one by one."""

from __future__ import annotations

import random
from collections.abc import Sequence

import numpy as np
import pytest
from gpusched_plugins.nodes.nodeorder.fragmentation import (
    WHOLE,
    FragmentationTables,
    FreeGpus,
    Ints,
    RequestShape,
    free_parts_after,
)

CPUS = (0, 1000, 2500, 4000, 8000)
PARTS = (50, 110, 460, 465, 500, 810)


def _typical(rng: random.Random) -> list[tuple[RequestShape, int]]:
    asks = []
    for _ in range(rng.randint(1, 7)):
        gpus = rng.choice((0, 1, 1, 1, 1, 2, 4))
        part = 0 if not gpus else WHOLE if gpus > 1 else rng.choice((*PARTS, WHOLE))
        asks.append((RequestShape(rng.choice(CPUS), gpus, part), rng.randint(1, 9)))
    return asks


def _spots(rng: random.Random, nodes: int, groups: int) -> FreeGpus:
    parts = [
        [rng.choice((0, 40, 190, 460, 535, 540, WHOLE, WHOLE)) for _ in range(4)]
        for _ in range(nodes)
    ]
    return FreeGpus(
        np.array([rng.randrange(groups) for _ in range(nodes)]),
        np.array([rng.choice(CPUS) for _ in range(nodes)]),
        np.array(parts),
    )


def _wasted(
    typical: Sequence[tuple[RequestShape, int]],
    accepts: Sequence[bool],
    cpu: int,
    parts: Sequence[int],
) -> int:
    """The definition: everything, or the parts too small for the request, weighted."""
    total = 0
    for (ask, count), accepted in zip(typical, accepts, strict=True):
        enough = sum(part >= ask.part for part in parts) >= ask.gpus
        if ask.gpus and accepted and cpu >= ask.cpu and enough:
            total += count * sum(part for part in parts if part < ask.part)
        else:
            total += count * sum(parts)
    return total


@pytest.mark.parametrize("seed", range(60))
def test_fragmentation_is_what_the_definition_says(seed: int) -> None:
    """Without look-ahead the tables give F of the published definition, for every node."""
    rng = random.Random(seed)
    typical = _typical(rng)
    accepts = np.array([[rng.random() < 0.8 for _ in typical] for _ in range(2)])
    measure = FragmentationTables(
        [ask for ask, _ in typical],
        [count for _, count in typical],
        accepts=accepts,
        gpus=4,
        lookahead=0,
    )
    spots = _spots(rng, 30, 2)
    assert measure.wasted(spots).tolist() == [
        _wasted(typical, accepts[group], cpu, parts)
        for group, cpu, parts in zip(
            spots.group.tolist(), spots.cpu.tolist(), spots.parts.tolist(), strict=True
        )
    ]


@pytest.mark.parametrize("look_ahead", [0, 1, 8])
@pytest.mark.parametrize("seed", range(20))
def test_the_fall_is_the_difference_of_two_measures(seed: int, look_ahead: int) -> None:
    """Where a request fits, the fall is F before less F after it took its room."""
    rng = random.Random(seed)
    typical = _typical(rng)
    measure = FragmentationTables(
        [ask for ask, _ in typical],
        [count for _, count in typical],
        accepts=np.ones((1, len(typical)), dtype=np.bool_),
        gpus=4,
        lookahead=look_ahead,
    )
    spots = _spots(rng, 30, 1)
    for ask, _ in typical:
        after = FreeGpus(spots.group, spots.cpu - ask.cpu, free_parts_after(spots.parts, ask))
        expected = measure.wasted(spots) - measure.wasted(after)
        assert measure.fall(spots, ask).tolist() == expected.tolist()


def test_a_part_is_taken_of_the_fullest_gpu_that_holds_it() -> None:
    """Emptier GPUs stay as they are, and a node where nothing holds it keeps all."""
    parts = np.array([[1000, 540, 460, 300], [400, 0, 0, 459]])
    assert free_parts_after(parts, RequestShape(0, 1, 460)).tolist() == [
        [1000, 540, 0, 300],
        [400, 0, 0, 459],
    ]


def test_whole_gpus_are_taken_from_the_first_on() -> None:
    """GPUs in use are passed over."""
    parts = np.array([[1000, 540, 1000, 1000]])
    assert free_parts_after(parts, RequestShape(0, 2, WHOLE)).tolist() == [[0, 540, 0, 1000]]


def _chain(
    single: Sequence[tuple[RequestShape, int]], total: int, free: int, steps: int
) -> tuple[int, int]:
    """Use of a free part by so many requests drawn one after another, as a fraction."""
    if steps == 0:
        return 0, 1
    rest_of, scale = _chain(single, total, free, steps - 1)
    idle = total - sum(count for ask, count in single if ask.part <= free)
    value = idle * rest_of
    for ask, count in single:
        if ask.part <= free:
            further, _ = _chain(single, total, free - ask.part, steps - 1)
            value += count * (ask.part * scale + further)
    return value, scale * total


@pytest.mark.parametrize("steps", [1, 2, 4])
def test_look_ahead_is_the_mean_use_by_the_next_requests(steps: int) -> None:
    """Half of it; rounding costs less than a thousandth of a GPU for each request followed."""
    typical = [
        (RequestShape(0, 1, 460), 3),
        (RequestShape(0, 1, 110), 2),
        (RequestShape(0, 1, WHOLE), 4),
        (RequestShape(0, 0, 0), 1),
    ]
    measure = FragmentationTables(
        [ask for ask, _ in typical],
        [count for _, count in typical],
        accepts=np.ones((1, 4), dtype=np.bool_),
        gpus=1,
        lookahead=steps,
    )
    for free in range(0, WHOLE + 1, 10):
        spots = FreeGpus(np.array([0]), np.array([0]), np.array([[free]]))
        use = free * measure.total - int(measure.wasted(spots)[0])
        value, scale = _chain(typical[:3], 10, free, steps)
        next_one = free * sum(count for ask, count in typical[:3] if ask.part <= free)
        twice = next_one * scale + value * measure.total
        assert 0 <= twice - 2 * use * scale <= (steps + 2) * scale * measure.total


def test_classes_are_steps_of_a_sigmoid() -> None:
    """No fall is the middle; a fall of one GPU is class 73, of minus two class 11."""
    measure = FragmentationTables(
        [RequestShape(0, 1, WHOLE)],
        [7],
        accepts=np.ones((1, 1), dtype=np.bool_),
        gpus=1,
        lookahead=0,
    )
    falls: Ints = np.array([0, -1, 1000 * 7, -2000 * 7, 10**9, -(10**9)])
    assert measure.classes(falls).tolist() == [50, 49, 73, 11, 99, 0]


def test_parts_of_several_gpus_are_refused() -> None:
    """Nothing in a pod can ask for that, so a measure of it would be a mistake."""
    with pytest.raises(ValueError, match="parts of several GPUs"):
        FragmentationTables(
            [RequestShape(0, 2, 500)],
            [1],
            accepts=np.ones((1, 1), dtype=np.bool_),
            gpus=2,
            lookahead=0,
        )
