"""How good a placement is, as a text that goes with the pods: ``optimal``, or how far from it."""

from __future__ import annotations

from typing import Final

from gpusched.placement.problem import Outcome, Solution

OPTIMAL: Final = "optimal"
_DOMAINS: Final = "domains:"


def proof_text(solution: Solution) -> str:
    """``optimal``, or ``rack 4, at least 3`` for the first term that is not proven.

    What is compared after the nodes (fragmentation, scores of policies) is not told: nobody waits
    for it.
    """
    tree = any(term.name.startswith(_DOMAINS) for term in solution.terms)
    if solution.outcome is Outcome.OPTIMAL and tree:
        return OPTIMAL
    for term in solution.terms:
        if term.name != "span" and term.value != term.bound:
            name = term.name.removeprefix(_DOMAINS)
            return f"{name} {term.value}, at least {term.bound}"
        if term.name == "nodes":
            break
    return OPTIMAL
