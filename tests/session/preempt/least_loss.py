"""An independent judge of who leaves: every set of victims of a small cluster, by the words of docs/queues.md.

It shares no code with what it judges. A world is a few nodes, queues and gangs; ``cheapest`` goes through
all sets of victims from the cheapest up, and takes the first that queues may lose and that makes room. What
queues are due is read from their status. ``python -m tests.session.preempt.least_loss 200`` measures.
"""

from __future__ import annotations

import itertools
import random
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from statistics import mean

import attrs

from gpusched.api.gang.pod_group import SubGroup, TopologyRequest
from gpusched.testing import entities
from gpusched.testing.given import Given
from tests.session.running import runs
from tests.shipped_policy import with_arguments

LEVELS = {"host": 0, "rack": 1, "": 2}


@attrs.frozen
class Team:
    """A queue: what it deserves (None: it does not say) and keeps, in GPUs."""

    name: str
    parent: str = "root"
    deserved: int | None = None
    guarantee: int = 0
    priority: int = 0
    reclaimable: bool = True


@attrs.frozen
class Runner:
    """A gang that runs: node of each pod, GPUs and CPUs of each, seconds it ran, its minimum."""

    name: str
    queue: str
    nodes: tuple[str, ...]
    gpus: int
    cpu: int
    ran: int
    least: int
    priority: int = 0

    def subsets(self) -> Iterator[tuple[int, ...]]:
        """Numbers of pods that may leave together: some above the minimum, or all."""
        numbers = range(len(self.nodes))
        seen = set()
        for count in range(len(self.nodes) - self.least + 1):
            for some in itertools.combinations(numbers, count):
                kind = tuple(sorted(self.nodes[n] for n in some))
                if kind not in seen:
                    seen.add(kind)
                    yield some
        if self.least > 0 and len(self.nodes) not in {len(kind) for kind in seen}:
            yield tuple(numbers)

    def chunks(self, count: int) -> list[int]:
        """GPUs of each step in which so many pods leave: single ones, then the minimum at once."""
        single = min(count, len(self.nodes) - self.least)
        rest = count - single
        return [self.gpus] * single + ([rest * self.gpus] if rest else [])


@attrs.frozen
class Part:
    """A sub-group of the newcomer, or all of it: pods of several (GPUs, CPUs), one level for all."""

    asks: tuple[tuple[int, int], ...]
    required: str = ""


@attrs.frozen
class World:
    """A cluster with one newcomer.

    Attributes:
        nodes: GPUs, CPUs and rack of each.
        parts: of the newcomer; one without sub-groups.
        parts_least: parts that must be complete.
        required: level of which one domain holds the newcomer.
        limit: GPUs that the newcomer's queue may hold, 0 for any number.
    """

    nodes: Mapping[str, tuple[int, int, str]]
    teams: tuple[Team, ...]
    gangs: tuple[Runner, ...]
    queue: str
    parts: tuple[Part, ...]
    parts_least: int
    required: str = ""
    limit: int = 0

    @property
    def preempts(self) -> bool:
        """Whether victims are of the newcomer's own queue."""
        return all(gang.queue == self.queue for gang in self.gangs)

    @property
    def asked(self) -> int:
        """GPUs that the newcomer gets: those of its parts, which ask for equal amounts."""
        sizes = sorted(sum(gpus for gpus, _ in part.asks) for part in self.parts)
        return sum(sizes[: self.parts_least])

    def path(self, queue: str) -> tuple[str, ...]:
        """The queue and those above it, without the root."""
        parents = {team.name: team.parent for team in self.teams}
        found = []
        while queue in parents:
            found.append(queue)
            queue = parents[queue]
        return tuple(found)


@attrs.frozen
class Loss:
    """What a set of victims loses, compared in this order."""

    lane: tuple[tuple[int, ...], ...]
    work: int
    freed: int
    gangs: int

    @property
    def order(self) -> tuple[object, ...]:
        """Smaller is better."""
        return self.lane, self.work, self.freed, self.gangs


Leaving = Mapping[str, Sequence[int]]
"""Numbers of the pods that leave, by gang."""


def loss_of(world: World, leaving: Leaving) -> Loss:
    """The loss of a set of victims."""
    teams = {team.name: team for team in world.teams}
    lanes, work, freed, gangs = [], 0, 0, 0
    for gang in world.gangs:
        count = len(leaving.get(gang.name, ()))
        if not count:
            continue
        whole = count > len(gang.nodes) - gang.least
        theirs = () if world.preempts else levels_between(world, gang.queue, world.queue)
        standing = (teams[theirs[-1]].priority, teams[theirs[0]].priority) if theirs else (0, 0)
        lanes.append((*standing, gang.priority, int(whole)))
        work += count * gang.gpus * max(1, gang.ran)
        freed += count * gang.gpus
        gangs += 1
    return Loss((max(lanes),) if lanes else (), work, freed, gangs)


def levels_between(world: World, queue: str, other: str) -> tuple[str, ...]:
    """A queue and those above it that are not above the other one too."""
    return tuple(name for name in world.path(queue) if name not in world.path(other))


# -- fairness --------------------------------------------------------------------------------
@attrs.define(slots=False)
class Books:
    """What queues hold, are due and lose by a set of victims."""

    world: World
    fair: Mapping[str, int]
    leaving: Leaving

    def __attrs_post_init__(self) -> None:
        world = self.world
        self.teams = {team.name: team for team in world.teams}
        self.held: Counter[str] = Counter()
        self.gone: Counter[str] = Counter()
        for gang in world.gangs:
            for name in world.path(gang.queue):
                self.held[name] += len(gang.nodes) * gang.gpus
                self.gone[name] += len(self.leaving.get(gang.name, ())) * gang.gpus

    def after(self, queue: str) -> int:
        """GPUs that a queue holds when these have left."""
        return self.held[queue] - self.gone[queue]

    def due(self, queue: str) -> int:
        """GPUs that a queue may hold without being over."""
        return max(self.fair.get(queue, 0), self.teams[queue].deserved or 0)

    def within_deserved(self, chain: Sequence[str], more: int, held: Mapping[str, int]) -> bool:
        """Whether queues that say what they deserve stay within it, with so many more."""
        stated = [name for name in chain if self.teams[name].deserved is not None]
        return bool(stated) and all(
            held[name] + more <= (self.teams[name].deserved or 0) for name in stated
        )

    def within_fair(self, chain: Sequence[str], more: int, held: Mapping[str, int]) -> bool:
        """Whether queues stay within their fair shares, with so many more."""
        return all(held[name] + more <= self.fair.get(name, 0) for name in chain)


def queues_agree(world: World, fair: Mapping[str, int], leaving: Leaving) -> bool:
    """Whether queues may lose exactly this to the newcomer's queue, in some order."""
    books = Books(world, fair, leaving)
    after = {name: books.after(name) for name in books.teams}
    victims = [gang for gang in world.gangs if leaving.get(gang.name)]
    for gang in victims:
        mine = levels_between(world, world.queue, gang.queue)
        theirs = levels_between(world, gang.queue, world.queue)
        if not all(books.teams[name].reclaimable for name in theirs):
            return False
        deserves = books.within_deserved(mine, world.asked, after)
        if not deserves and not books.within_fair(mine, world.asked, after):
            return False
        for name in theirs:
            if books.after(name) < books.teams[name].guarantee:
                return False
            if deserves and books.teams[name].deserved is None:
                continue
            limit = books.teams[name].deserved or 0 if deserves else books.due(name)
            below = [g for g in victims if name in world.path(g.queue)]
            steps = [step for g in below for step in g.chunks(len(leaving[g.name]))]
            # The last one, best the largest, may bring the queue below what it is due.
            if books.held[name] - (sum(steps) - max(steps)) <= limit:
                return False
    return not oversaturated(world, books, victims) and not taken_back(world, books, victims)


def oversaturated(world: World, books: Books, victims: Sequence[Runner]) -> bool:
    """Whether a level ends above its fair share, and no less so than one from which it took."""
    for level in world.path(world.queue):
        for sibling in {name for gang in victims for name in world.path(gang.queue)}:
            same = books.teams[sibling].parent == books.teams[level].parent
            if not same or sibling in world.path(world.queue):
                continue
            mine, due = books.after(level) + world.asked, books.fair.get(level, 0)
            their_due = books.fair.get(sibling, 0)
            if mine > due and their_due and mine * their_due >= books.after(sibling) * due:
                return True
    return False


def taken_back(world: World, books: Books, victims: Sequence[Runner]) -> bool:
    """Whether a victim, submitted again, could take the room back at once."""
    held = {
        name: books.after(name) + (world.asked if name in world.path(world.queue) else 0)
        for name in books.teams
    }
    for gang in victims:
        mine = levels_between(world, gang.queue, world.queue)
        theirs = levels_between(world, world.queue, gang.queue)
        lost = len(books.leaving[gang.name]) * gang.gpus
        stated = [name for name in theirs if books.teams[name].deserved is not None]
        if books.within_deserved(mine, lost, held) and all(
            held[name] > (books.teams[name].deserved or 0) for name in stated
        ):
            return True
        if books.within_fair(mine, lost, held) and all(
            held[name] > books.due(name) for name in theirs
        ):
            return True
    return False


# -- room ------------------------------------------------------------------------------------
def has_room(world: World, leaving: Leaving) -> bool:
    """Whether the newcomer's minimum fits once these have left, under its levels."""
    free = {name: [gpus, cpu] for name, (gpus, cpu, _) in world.nodes.items()}
    held = 0
    for gang in world.gangs:
        gone = set(leaving.get(gang.name, ()))
        for number, node in enumerate(gang.nodes):
            if number not in gone:
                free[node][0] -= gang.gpus
                free[node][1] -= gang.cpu
                held += gang.gpus * (gang.queue == world.queue)
    if world.limit and held + world.asked > world.limit:
        return False
    for domain in domains(world, world.required, list(world.nodes)):
        for chosen in itertools.combinations(world.parts, world.parts_least):
            if placed(world, chosen, domain, free):
                return True
    return False


def domains(world: World, level: str, inside: Sequence[str]) -> list[list[str]]:
    """Nodes of each domain of a level."""
    if not level:
        return [list(inside)]
    found: dict[str, list[str]] = {}
    for name in inside:
        found.setdefault(name if level == "host" else world.nodes[name][2], []).append(name)
    return list(found.values())


def placed(
    world: World, parts: Sequence[Part], inside: Sequence[str], free: dict[str, list[int]]
) -> bool:
    """Whether these parts fit into these nodes, by trying every way."""
    if not parts:
        return True
    asks = sorted(parts[0].asks, reverse=True)
    return any(
        packed(asks, domain, free, lambda: placed(world, parts[1:], inside, free))
        for domain in domains(world, parts[0].required, inside)
    )


def packed(asks, inside, free, rest) -> bool:
    if not asks:
        return rest()
    gpus, cpu = asks[0]
    for name in inside:
        node = free[name]
        if node[0] >= gpus and node[1] >= cpu:
            node[0] -= gpus
            node[1] -= cpu
            done = packed(asks[1:], inside, free, rest)
            node[0] += gpus
            node[1] += cpu
            if done:
                return True
    return False


def cheapest(world: World, fair: Mapping[str, int]) -> Loss | None:
    """The least loss of all sets of victims; None when none makes room."""
    options = [list(gang.subsets()) for gang in world.gangs]
    names = [gang.name for gang in world.gangs]
    sets = [
        {name: some for name, some in zip(names, each, strict=True) if some}
        for each in itertools.product(*options)
    ]
    keyed = [(loss_of(world, leaving).order, number) for number, leaving in enumerate(sets)]
    for _, number in sorted(keyed):
        leaving = sets[number]
        if has_room(world, leaving) and (world.preempts or queues_agree(world, fair, leaving)):
            return loss_of(world, leaving)
    return None


# -- random worlds ---------------------------------------------------------------------------
def random_world(seed: int, shape: str, queues: int) -> World:
    """A small world.

    Args:
        seed: of everything random.
        shape: of the newcomer: ``plain``, ``roles`` or ``parts``.
        queues: with victims; 0 for preemption inside the newcomer's own queue.
    """
    rng = random.Random(f"{seed} {shape} {queues}")
    gpus = rng.choice((4, 4, 8))
    names = [f"n{number}" for number in range(rng.choice((2, 3, 4)))]
    nodes = {name: (gpus, 2 * gpus, f"r{number % 2}") for number, name in enumerate(names)}
    teams = random_teams(rng, queues, total=gpus * len(nodes))
    leaves = [team.name for team in teams if team.name not in {each.parent for each in teams}]
    owners = [name for name in leaves if name != "mine"] or ["mine"]
    gangs = random_gangs(rng, nodes, owners)
    parts, least, required = random_newcomer(rng, shape, gpus)
    world = World(nodes, teams, gangs, "mine", parts, least, required)
    if not queues and rng.random() < 0.4:
        held = sum(len(gang.nodes) * gang.gpus for gang in gangs)
        world = attrs.evolve(world, limit=max(world.asked, held + rng.randint(-2, 4)))
    held = Counter()
    for gang in gangs:
        held[gang.queue] += len(gang.nodes) * gang.gpus
    teams = tuple(attrs.evolve(t, guarantee=min(t.guarantee, held[t.name])) for t in teams)
    return attrs.evolve(world, teams=teams)


def random_teams(rng: random.Random, queues: int, *, total: int) -> tuple[Team, ...]:
    if not queues:
        return (Team("mine"),)
    stated = rng.random() < 0.7
    split = rng.choice((2, 3)) if rng.random() < 0.3 else 0
    """Queues that lie in one department with others, or 0 for a flat tree."""
    names = ["mine", *rng.sample(["a", "b", "c", "x", "y", "z"], queues)]
    found = []
    left = total
    for number, name in enumerate(names):
        deserved = rng.randint(0, max(0, left // 2)) if number else rng.randint(total // 2, total)
        left -= deserved
        found.append(
            Team(
                name,
                deserved=max(0, deserved) if stated else None,
                guarantee=rng.choice((0, 0, 0, 1, 2)) if number and not stated else 0,
                priority=rng.choice((0, 0, 0, 5)) if number else 0,
                reclaimable=not number or rng.random() < 0.95,
            )
        )
    if split and queues >= 2:
        inside = rng.sample(names[1:], rng.randint(1, queues))
        if rng.random() < 0.4:
            inside = ["mine", *inside[:1]]
        deserved = sum(t.deserved or 0 for t in found if t.name in inside) if stated else None
        found = [attrs.evolve(t, parent="dept") if t.name in inside else t for t in found]
        found = [Team("dept", deserved=deserved), *found]
    return tuple(found)


def random_gangs(
    rng: random.Random, nodes: Mapping[str, tuple[int, int, str]], owners: Sequence[str]
) -> tuple[Runner, ...]:
    free = {name: [gpus, cpu] for name, (gpus, cpu, _) in nodes.items()}
    gangs = []
    for number in range(rng.randint(4, 7)):
        size, cpu = rng.choice(((1, 1), (1, 2), (2, 2), (2, 4), (4, 4), (4, 8)))
        at = []
        for _ in range(rng.choice((1, 1, 2, 3, 4))):
            able = [name for name, (g, c) in free.items() if g >= size and c >= cpu]
            if able:
                node = rng.choice(able)
                free[node][0] -= size
                free[node][1] -= cpu
                at.append(node)
        if at:
            least = rng.choice((len(at), len(at), rng.randint(1, len(at))))
            gangs.append(
                Runner(
                    f"v{number}", rng.choice(owners), tuple(at), size, cpu,
                    rng.choice((1, 20, 184, 600, 7200, 61568)), least,
                    rng.choice((0, 0, 0, 1)),
                )
            )  # fmt: skip
    return tuple(gangs)


def random_newcomer(rng: random.Random, shape: str, gpus: int) -> tuple[tuple[Part, ...], int, str]:
    kinds = [(1, 1), (2, 2), (2, 1), (4, 4), (4, 1)]
    required = rng.choice(("", "", "rack"))
    if shape == "plain":
        part = Part((rng.choice(kinds),) * rng.randint(1, 4), required)
        return (part,), 1, required
    if shape == "roles":
        asks = [kind for kind in rng.sample(kinds, 2) for _ in range(rng.randint(1, 2))]
        return (Part(tuple(asks), required),), 1, required
    count = rng.choice((1, 2, 2, 3))
    asks = tuple(rng.choice(kinds) for _ in range(1)) * rng.randint(1, 2 if count > 2 else 3)
    parts = []
    for _ in range(count):
        mixed = asks if rng.random() < 0.7 else (*asks, rng.choice(kinds))
        parts.append(Part(mixed, rng.choice(("rack", "rack", "host", ""))))
    least = count if rng.random() < 0.7 else rng.randint(1, count)
    if least < count:  # whoever starts asks for the same, so that quotas know how much it is
        parts = [attrs.evolve(part, asks=asks) for part in parts]
    return tuple(parts), least, required


# -- the product, from outside ---------------------------------------------------------------
CHAINS_ALLOWED = with_arguments(fairshare={"chains": "allow"})
"""The judge knows nothing of third gangs: a set of victims is judged by itself."""


def cluster_of(world: World) -> Given:
    """The same as objects of a cluster."""
    c = Given(config=CHAINS_ALLOWED)
    for name, (gpus, cpu, rack) in world.nodes.items():
        c.node(
            name, gpus=gpus, cpu=cpu * 1000,
            labels={"gpusched.io/rack": rack, "kubernetes.io/hostname": name},
        )  # fmt: skip
    for team in world.teams:
        limits = {}
        if team.deserved is not None:
            limits["deserved"] = {entities.GPU: team.deserved}
        if team.guarantee:
            limits["guarantee"] = {entities.GPU: team.guarantee}
        if world.limit and team.name == world.queue:
            limits["capability"] = {entities.GPU: world.limit}
        more = {"reclaimable": False} if not team.reclaimable else {}
        c.queue(team.name, parent=team.parent, limits=limits, priority=team.priority, **more)
    for gang in world.gangs:
        runs(
            c, gang.name, " ".join(gang.nodes), gpus=gang.gpus, cpu=gang.cpu * 1000,
            min_member=gang.least, since=entities.NOW - gang.ran, queue=gang.queue,
            priority=gang.priority,
        )  # fmt: skip
    add_newcomer(c, world)
    return c


def add_newcomer(c: Given, world: World) -> None:
    """Its PodGroup and pods."""
    split = len(world.parts) > 1 or world.parts[0].required != world.required
    size = sum(sorted(len(part.asks) for part in world.parts)[: world.parts_least])
    more = {}
    if split:
        more["sub_groups"] = tuple(
            SubGroup(f"s{number}", len(part.asks), TopologyRequest(required=part.required))
            for number, part in enumerate(world.parts)
        )
        more["min_sub_groups"] = world.parts_least
    c.group(
        "new", queue=world.queue, min_member=size,
        topology=TopologyRequest(required=world.required), **more,
    )  # fmt: skip
    number = 0
    for index, part in enumerate(world.parts):
        for gpus, cpu in part.asks:
            about = {"sub_group": f"s{index}"} if split else {}
            c.pod(
                f"new-{number}", group="new", gpus=gpus, cpu=cpu * 1000, rank=number,
                priority=9 if world.preempts else 0, role=f"g{gpus}c{cpu}" if not split else "",
                **about,
            )  # fmt: skip
            number += 1


@attrs.frozen
class Found:
    """What a session did for a world, and the least that it could have lost."""

    world: World
    verdict: str
    """``as good``, ``dearer``, ``refused`` (a set existed), ``unfair``, ``fits`` or ``no way``."""
    best: Loss | None = None
    ours: Loss | None = None

    @property
    def ratio(self) -> float:
        """Work lost over the least that could have been, 1.0 where nothing was lost."""
        if self.best is None or self.ours is None:
            return 1.0
        return max(1, self.ours.work) / max(1, self.best.work)


def judge(world: World) -> Found:
    """Run one session, and compare."""
    c = cluster_of(world)
    plan = c.when.one_session()
    assert c.then.faults() == (), c.then.faults()
    fair = {
        team.name: c.then.queue(team.name).fair_share.get(entities.GPU) // 1000
        for team in world.teams
    }
    if has_room(world, {}):
        return Found(world, "fits" if not c.then.evicted() else "needless")
    best = cheapest(world, fair)
    if not plan.preemptions:
        return Found(world, "refused" if best else "no way", best)
    leaving: dict[str, list[int]] = {}
    for pod in c.then.evicted():
        name, number = pod.rsplit("-", 1)
        leaving.setdefault(name, []).append(int(number))
    ours = loss_of(world, leaving)
    if not world.preempts and not queues_agree(world, fair, leaving):
        return Found(world, "unfair", best, ours)
    if best is None or not has_room(world, leaving):
        return Found(world, "wrong", best, ours)
    return Found(world, "as good" if ours.order == best.order else "dearer", best, ours)


SHAPES = ("plain", "roles", "parts")


def main(seeds: int) -> None:
    """A line for each shape of newcomer and number of victim queues."""
    for shape in SHAPES:
        for queues in range(4):
            found = [judge(random_world(seed, shape, queues)) for seed in range(seeds)]
            counts = Counter(each.verdict for each in found)
            claimed = [each.ratio for each in found if each.ours and each.best]
            worst = max(claimed, default=1.0)
            sys.stdout.write(
                f"{shape:6} {queues} queues: {dict(counts)}; "
                f"mean {mean(claimed or [1.0]):.2f}, worst {worst:.1f}\n"
            )
            sys.stdout.flush()


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 100)
