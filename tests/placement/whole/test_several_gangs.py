"""Several gangs, elastic or not, in one session: what is claimed holds beside what the others got."""

from __future__ import annotations

import random

import attrs
import pytest

from gpusched.api.gang.pod_group import TopologyRequest
from gpusched.testing.given import Given
from tests.placement.whole.clusters import NAMES, add_nodes, machines
from tests.placement.whole.oracle import Kind, Machine, Question, best, broken, worth
from tests.populations import one_of

CLUSTERS = 60


@attrs.frozen
class Submitted:
    """A gang of equal pods: how many there are and are needed, GPUs of each, the required level."""

    pods: int
    least: int
    gpus: int
    required: int | None


def drawn(rng: random.Random) -> dict[str, Submitted]:
    """Two to four gangs; about a third of them need all of their pods."""
    found = {}
    for number in range(rng.randint(2, 4)):
        pods = rng.randint(2, 6)
        found[f"x{number}"] = Submitted(
            pods=pods,
            least=rng.choice((1, pods, rng.randint(1, pods))),
            gpus=rng.choice((1, 2, 4)),
            required=rng.choice((None, None, None, 1, 2)),
        )
    return found


def false_claims(seed: int) -> list[str]:
    """What gangs of one cluster got against a rule, or claim though better is possible."""
    rng = random.Random(f"multi-{seed}")
    nodes, gangs = machines(rng, rng.randint(4, 9)), drawn(rng)
    c = Given()
    add_nodes(c, nodes)
    for name, gang in gangs.items():
        required = "" if gang.required is None else NAMES[gang.required]
        c.gang(name, pods=gang.pods, min_member=gang.least, gpus=gang.gpus, memory=0,
               topology=TopologyRequest(required=required))  # fmt: skip
    plan = c.when.bound()
    found = []
    for bind in plan.binds:
        asked, places = beside_the_others(nodes, gangs, c, bind.gang.name)
        wrong = broken(asked, places)
        value, possible = worth(asked, places), best(asked)
        if not wrong and possible is not None and value[:4] != possible[:4] and bind.proof:
            wrong = f"{value} for a possible {possible}, proof {bind.proof!r}"
        if wrong:
            found.append(f"seed {seed}, {bind.gang.name}: {wrong}")
    return found


def beside_the_others(
    nodes: tuple[Machine, ...], gangs: dict[str, Submitted], c: Given, name: str
) -> tuple[Question, list[tuple[int, int]]]:
    """A gang's placed pods as a question on what the others leave, and where they are."""
    row = {machine.name: number for number, machine in enumerate(nodes)}
    left, places = list(nodes), []
    for pod, node in c.then.nodes().items():
        owner, number = pod.split("-")[0], row[node]
        if owner == name:
            places.append((0, number))
        else:
            machine = left[number]
            gpus = machine.gpus - gangs[owner].gpus
            left[number] = attrs.evolve(machine, gpus=gpus, cpu=machine.cpu - 1)
    gang = gangs[name]
    kind = Kind(len(places), gang.gpus)
    asked = Question(
        machines=tuple(left), levels=3, kinds=(kind,), least=len(places), required=gang.required
    )
    return asked, places


@pytest.mark.long
def test_what_gangs_claim_holds_beside_the_places_of_the_others() -> None:
    """Whoever started first and whoever grew: no gang that claims it could be more compact."""
    assert [wrong for seed in one_of(3, range(CLUSTERS)) for wrong in false_claims(seed)] == []


def test_a_fixed_gang_gets_the_room_that_a_grown_one_left(given: Given) -> None:
    """The minimum of the first takes the tight rack, and leaves it when all of it finds another."""
    c = given
    for rack, count in enumerate((2, 4)):
        labels = {"gpusched.io/rack": f"r{rack}", "gpusched.io/block": f"b{rack}"}
        c.nodes(count, prefix=f"r{rack}", gpus=8, labels=labels)
    c.gang("a", pods=4, min_member=2, gpus=8, created=1.0)
    c.gang("b", pods=2, gpus=8, created=2.0)
    plan = c.when.bound()
    where = {pod: node.split("-")[0] for pod, node in c.then.nodes().items()}
    assert {where[f"a-{number}"] for number in range(4)} == {"r1"}
    assert {where[f"b-{number}"] for number in range(2)} == {"r0"}
    assert [bind.proof for bind in plan.binds] == ["optimal", "optimal"]
