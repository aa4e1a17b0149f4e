"""Many seeds, several at a time, and a summary of what did not hold."""

from __future__ import annotations

import multiprocessing
import traceback
from collections.abc import Callable, Iterator, Sequence
from typing import Final

import attrs

from gpusched.chaos.draw import draw
from gpusched.chaos.play import Played, play
from gpusched.chaos.script import Script
from gpusched.chaos.shrink import shrink
from gpusched.chaos.witness import Seen
from gpusched.config.model import DEFAULT, Config
from gpusched.testing.invariants.model import Finding

_WORDS_ALIKE: Final = 6
_SEEDS_OF_A_PROCESS: Final = 100
"""After so many seeds a worker is replaced, so that a leak of one run does not meet the next."""


def play_seed(seed: int, config: Config = DEFAULT) -> Played:
    """The run of a seed."""
    return played(draw(seed), config)


def played(script: Script, config: Config = DEFAULT) -> Played:
    """The run of a script; a fault of the simulation itself is a finding too."""
    try:
        return play(script, config=config)
    except Exception as error:  # noqa: BLE001 - one broken run must not end thousands
        place = traceback.extract_tb(error.__traceback__)[-1]
        sentence = f"{type(error).__name__}: {error} at {place.filename}:{place.lineno}"
        finding = Finding(invariant="simulation", kind="Run", name="", sentence=sentence[:400])
        seen = (Seen(at=0.0, finding=finding),)
        return Played(
            script=script, seen=seen, digest="", writes=0, virtual_s=0.0, counts={}
        )  # fmt: skip


def shortest(failed: Played, config: Config = DEFAULT) -> Script:
    """The shortest script found that breaks the invariant that a run broke first."""
    first = failed.seen[0].finding

    def fails(script: Script) -> bool:
        return any(
            each.finding.invariant == first.invariant and _alike(each.finding, first)
            for each in played(script, config).seen
        )

    return shrink(failed.script, fails)


def _alike(one: Finding, other: Finding) -> bool:
    """Whether two findings are of one kind: the same sentence but for names and numbers."""
    return _kind(one.sentence) == _kind(other.sentence)


def _kind(sentence: str) -> str:
    words = [word for word in sentence.split() if word.isalpha()]
    return " ".join(words[:_WORDS_ALIKE])


@attrs.frozen
class _Worker:
    """Plays one seed in another process; policies are loaded there."""

    config: Config

    def __call__(self, seed: int) -> Played:
        return play_seed(seed, self.config)


def campaign(
    seeds: Sequence[int],
    *,
    jobs: int = 1,
    config: Config = DEFAULT,
    tell: Callable[[Played], None] = lambda _played: None,
) -> Iterator[Played]:
    """Play seeds and yield those that broke something, as they come.

    Args:
        seeds: in the order in which they are played.
        jobs: how many are played at a time, each in a process of its own.
        config: of the daemons.
        tell: given every run.
    """
    if jobs <= 1:
        for seed in seeds:
            run = play_seed(seed, config)
            tell(run)
            if not run.ok:
                yield run
        return
    context = multiprocessing.get_context("spawn")
    with context.Pool(jobs, maxtasksperchild=_SEEDS_OF_A_PROCESS) as pool:
        for run in pool.imap(_Worker(config), seeds):
            tell(run)
            if not run.ok:
                yield run
