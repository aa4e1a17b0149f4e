"""The ledger of one node where pods claim slots by their own word: what counts, and what is free."""

from __future__ import annotations

import random

import pytest
from msgspec import structs

from gpusched.api.devices.gpu_share import GpuShare, shared_resource
from gpusched.api.devices.slots import slot_mask, slot_numbers
from gpusched.api.meta.identity import UID
from gpusched.api.meta.resources import Resources
from gpusched.api.meta.units import DEVICE
from gpusched.cache.ledger import NO_LABELS, Holding, HoldingState, Ledger

SHARED = shared_resource()
EIGHT = Resources.of({SHARED: 8 * DEVICE, "pods": 110})


def holding(name, *slots, gpus=None, sealed=False, share=0, node="n"):
    """A pod with whole GPUs, or with a share in thousandths."""
    count = 0 if share else len(slots) if gpus is None else gpus
    amount = share or count * DEVICE
    return Holding(
        uid=UID(name),
        node=node,
        requests=Resources.of({SHARED: amount, "pods": 1} if amount else {"pods": 1}),
        gpu=SHARED if amount else "",
        gpus=count,
        slots=slot_mask(slots),
        hold=HoldingState.CONFIRMED,
        sealed=sealed,
        share=GpuShare(thousandths=share) if share else None,
    )


def ledger(*holdings):
    """With these, in this order."""
    made = Ledger()
    for each in holdings:
        made.hold_pod(each)
    return made


def slots(made, name):
    """The slots that count."""
    return slot_numbers(made.slots_of(made.get(UID(name))))


def free(made):
    """Slots and whole GPUs that are free."""
    use = made.sum_holdings("n", EIGHT)
    return slot_numbers(use.free_slots), 8 - use.amounts.get(SHARED, 0) // DEVICE


def test_what_we_gave_counts_before_what_others_say():
    """The liar is charged by count, from the top; whose seal fits keeps what it has."""
    made = ledger(holding("a-liar", 0, 1), holding("ours", 0, 1, sealed=True))
    assert (slots(made, "ours"), slots(made, "a-liar")) == ((0, 1), ())
    assert free(made) == ((2, 3, 4, 5), 4)


def test_a_claim_that_meets_nobody_counts():
    """A pod of another scheduler that says where it sits is left alone there."""
    made = ledger(holding("theirs", 2, 3), holding("ours", 0, 1, sealed=True))
    assert slots(made, "theirs") == (2, 3)
    assert free(made) == ((4, 5, 6, 7), 4)


def test_two_that_both_only_say_so():
    """The first by UID has them; what else the other claims is not free: it may be the honest one."""
    made = ledger(holding("b", 0, 1), holding("a", 1, 2))
    assert (slots(made, "a"), slots(made, "b")) == ((1, 2), ())
    assert free(made) == ((3, 4, 5, 6), 4)


def test_no_claim_without_a_seal_gives_the_slots_of_another_away():
    """The key was lost: a pod with four GPUs, and one with one GPU that claims one of them."""
    made = ledger(holding("honest", 0, 1, 2, 3), holding("a-liar", 0))
    assert free(made) == ((4, 5, 6), 3)


def test_claims_on_pieces_of_another_kind_do_not_count():
    """Slots 8 and 9 are slices: a pod with whole GPUs can claim none, nor one with a share."""
    mig = "nvidia.com/mig-1g.5gb"
    offers = EIGHT.plus(Resources.of({mig: 2}))
    made = ledger(holding("whole", 8), holding("part", 9, share=300))
    use = made.sum_holdings("n", offers)
    assert slot_numbers(use.free_slots) == (0, 1, 2, 3, 4, 5, 8, 9)
    assert use.amounts.get(mig, 0) == 0


def test_shares_that_fit_on_no_fewer_gpus_are_where_they_say():
    """Three of more than a half: whatever the order of their names, they need three GPUs."""
    made = ledger(*(holding(f"s{slot}", slot, share=600) for slot in range(3)))
    assert [slots(made, f"s{slot}") for slot in range(3)] == [(0,), (1,), (2,)]
    assert free(made) == ((3, 4, 5, 6, 7), 5)


def test_halves_of_a_gang_are_where_they_say():
    """Two of them on one GPU and the third on the next, in every order of their names."""
    for alone in range(3):
        made = ledger(*(holding(f"s{n}", int(n == alone), share=500) for n in range(3)))
        assert free(made) == ((2, 3, 4, 5, 6, 7), 6)


def test_shares_open_those_gpus_first_of_which_most_is_claimed():
    """Tiny shares that claim every GPU do not move the one that needs most of one."""
    tiny = (holding(f"a{slot}", slot, share=10) for slot in range(1, 8))
    made = ledger(holding("honest", 0, share=900), *tiny)
    assert slots(made, "honest") == (0,)
    assert free(made)[1] >= 5


def test_a_claim_counts_again_when_the_better_one_is_gone():
    """It is no verdict for ever."""
    made = ledger(holding("liar", 0, 1), holding("ours", 1, 2, sealed=True))
    made.release_pod(UID("ours"))
    assert slots(made, "liar") == (0, 1)
    made.release_pod(UID("liar"))
    assert free(made) == (tuple(range(8)), 8)
    assert list(made.doubted_on("n")) == []


def test_a_share_of_ours_is_not_opened_by_a_whole_claim():
    """Nor is a GPU that is ours as a whole opened by somebody's share."""
    made = ledger(
        holding("whole", 0), holding("ours", 0, share=500, sealed=True),
        holding("part", 3, share=10), holding("also-ours", 3, sealed=True),
    )  # fmt: skip
    assert slots(made, "ours") == (0,)
    assert (slots(made, "whole"), slots(made, "part")) == ((), ())
    assert free(made)[1] == 4


@pytest.mark.parametrize("placed", [False, True])
def test_tiny_shares_open_no_more_than_they_ask_for(placed):
    """Each on a GPU of its own, or nobody knows where: together they are one or two."""
    shares = [holding(f"s{n}", *((n,) if placed else ()), share=10) for n in range(8)]
    made = ledger(*shares)
    assert free(made)[1] >= 6


def test_any_order_gives_the_same():
    """Thirty drawn nodes, each entered in several orders and by way of others (I16)."""
    rng = random.Random(7)
    for _ in range(30):
        found = []
        drawn = []
        for number in range(rng.randint(2, 7)):
            picked = rng.sample(range(8), rng.randint(0, 3))
            share = 0 if picked and rng.random() < 0.6 else rng.choice([10, 300, 700])
            drawn.append(
                holding(f"p{number}", *(picked[:1] if share else picked), share=share,
                        sealed=rng.random() < 0.4)
            )  # fmt: skip
        for _ in range(4):
            rng.shuffle(drawn)
            made = ledger(*drawn, holding("passing", 0, 1, 2, 3))
            made.release_pod(UID("passing"))
            names = sorted(each.uid for each in drawn)
            found.append((made.sum_holdings("n", EIGHT), [slots(made, name) for name in names]))
        assert found.count(found[0]) == len(found)


@pytest.mark.parametrize("seed", range(60))
def test_sums_that_are_kept_are_those_that_are_added_up(seed):
    """Given pods that come, are confirmed, seen and go in any order, then sums that were asked for before are as if they were not."""
    draw, kept = random.Random(seed), Ledger()
    there = {}
    for step in range(40):
        name = f"p{draw.randrange(6)}"
        if name in there and draw.random() < 0.3:
            kept.release_pod(UID(name))
            del there[name]
        elif name in there and draw.random() < 0.7:
            state = draw.choice([*HoldingState])
            there[name] = structs.replace(
                there[name], hold=state, leaving=draw.random() < 0.2, sealed=draw.random() < 0.8
            )
            kept.hold_pod(there[name])
        else:
            count = draw.choice([0, 1, 1, 2, 3])
            numbers = draw.sample(range(8), count)
            gpus = draw.choice([count, count, count, count + 1])
            share = draw.choice([0, 0, 0, 400]) if count == 1 else 0
            made = holding(name, *numbers, gpus=gpus, sealed=draw.random() < 0.8, share=share)
            there[name] = structs.replace(
                made, ours=draw.random() < 0.5, leaving=draw.random() < 0.1
            )
            kept.hold_pod(there[name])
        if draw.random() < 0.1:
            kept.clear_marks()
        assert kept.look_up_sums("n", EIGHT, NO_LABELS) == ledger(
            *(kept.get(each) for each in kept.uids_on("n"))
        ).sum_holdings("n", EIGHT), step
