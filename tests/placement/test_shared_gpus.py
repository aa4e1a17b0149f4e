"""GPUs with shares on one node: counts and choices, now and later, against enumeration."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpusched.arrays.shared_gpus import GpuShareRoom, SharedGpus
from tests.populations import examples

pytestmark = pytest.mark.long

PARTS = st.sampled_from((100, 125, 250, 300, 333, 500, 501, 750, 999, 1000))


@st.composite
def nodes(draw):
    """Eight GPUs at most: shares with who leaves, and what is free of the rest."""
    gpus = draw(st.integers(1, 8))
    slots = {}
    for slot in range(draw(st.integers(0, gpus))):
        taken = draw(st.integers(1, 1000))
        slots[slot] = (taken, draw(st.sampled_from((0, taken, taken // 2))))
    rest = [slot for slot in range(gpus) if slot not in slots]
    free = draw(st.sets(st.sampled_from(rest), max_size=len(rest))) if rest else set()
    leaving = draw(st.integers(0, len(rest) - len(free)))
    promised = draw(st.integers(0, 2))
    closing = sum(1 for now, going in slots.values() if now == going)
    later = max(0, len(free) + leaving + closing - promised)
    mask = sum(1 << slot for slot in free)
    return (
        SharedGpus(slots),
        GpuShareRoom(slots=mask, whole=min(len(free), later), later=later),
        slots,
    )


def taken_one(gpus, spare, part, *, later):
    """The room after one more share went where it is said to go; None where it does not fit."""
    key = gpus.best_gpu(part, spare, later=later)
    whole, free = spare.whole, spare.slots
    if key is None:
        if later:
            if not whole:
                return None
            key, whole = gpus.next_unnamed_number(), whole - 1
        else:
            open_ = gpus.unopened_slots(spare)
            if not open_ or not whole or not spare.later:
                return None
            key = (open_ & -open_).bit_length() - 1
            free &= ~(1 << key)
            whole -= 1
    before = gpus.free_part(key, later=later)
    assert before >= part
    now = 0 if later else part
    _, kept = gpus.move_share(key, now=now, later=part)
    left = spare.later - kept
    assert left >= 0
    return GpuShareRoom(slots=free, whole=min(whole, left) if not later else whole, later=left), key


@settings(max_examples=examples(150, whole=500), deadline=None)
@given(nodes(), PARTS, st.booleans())
def test_as_many_fit_as_is_said(node, part, later):
    """One after the other, each on a GPU with room, exactly as many find a place as counted."""
    gpus, spare, _ = node
    if later:
        spare = GpuShareRoom(slots=spare.slots, whole=spare.later, later=spare.later)
    said = gpus.count(part, spare, later=later)
    found = 0
    while (after := taken_one(gpus, spare, part, later=later)) is not None:
        spare, _ = after
        found += 1
        assert gpus.count(part, spare, later=later) == said - found
    assert found == said


@settings(max_examples=examples(100, whole=300), deadline=None)
@given(nodes(), PARTS)
def test_no_more_could_fit(node, part):
    """Whoever is put where gives no more than what is counted: tried in every way."""
    gpus, spare, slots = node
    said = gpus.count(part, spare, later=False)
    joined = [(now, now - going) for now, going in slots.values()]

    def most(index, later):
        if index == len(joined):
            fresh = min(spare.whole, later, spare.slots.bit_count())
            return fresh * (1000 // part)
        now, stays = joined[index]
        room = max(0, 1000 - now) // part
        without = most(index + 1, later)
        if stays or not room:
            return without + (room if stays else 0)
        return max(without, room + most(index + 1, later - 1)) if later else without

    assert said == most(0, spare.later)


@settings(max_examples=examples(70, whole=200), deadline=None)
@given(nodes(), st.lists(st.tuples(PARTS, st.booleans()), max_size=6))
def test_moves_are_taken_back_exactly(node, moves):
    """What is undone, newest first, leaves what was there."""
    gpus, spare, slots = node
    whole = GpuShareRoom(slots=spare.slots, whole=spare.later, later=spare.later)
    done = []
    for part, later in moves:
        key = gpus.best_gpu(part, whole if later else spare, later=later)
        if key is not None:
            gpus.move_share(key, now=0 if later else part, later=part)
            done.append((key, part, later))
    for key, part, later in reversed(done):
        gpus.move_share(key, now=0 if later else -part, later=-part)
    fresh = SharedGpus(slots)
    assert dict(gpus.taken_parts()) == dict(fresh.taken_parts())
    assert gpus.now_and_later_differ == fresh.now_and_later_differ
    for later in (False, True):
        assert gpus.open_gpus(later=later) == fresh.open_gpus(later=later)
        assert gpus.count(250, spare, later=later) == fresh.count(250, spare, later=later)


def test_the_fullest_that_fits_is_joined():
    """Of GPUs at 0.5, 0.25 and 0.75, a quarter joins the last and a half the first."""
    gpus = SharedGpus({0: (500, 0), 1: (250, 0), 2: (750, 0)})
    spare = GpuShareRoom(slots=0b1000, whole=1, later=1)
    assert gpus.best_gpu(250, spare, later=False) == 2
    assert gpus.best_gpu(500, spare, later=False) == 0
    assert gpus.best_gpu(750, spare, later=False) == 1
    assert gpus.best_gpu(800, spare, later=False) is None


def test_a_gpu_that_is_to_be_free_is_not_kept_from_whom_it_is_promised():
    """All shares of the only GPU leave, and it is promised: nobody joins it meanwhile."""
    gpus = SharedGpus({0: (500, 500)})
    assert gpus.count(250, GpuShareRoom(slots=0, whole=0, later=0), later=False) == 0
    assert gpus.count(250, GpuShareRoom(slots=0, whole=0, later=1), later=False) == 2
