"""Behaviour cases: who runs where, who is evicted and who waits, once things are quiet.

One text says a case (``notation``); two ways of playing it exist: ``sessions`` decides on the
cache again and again, ``blackbox`` runs the whole daemon on an embedded cluster and looks at
nothing but the API. ``judge`` compares what was seen with what the case asks for.

``python -m tests.behaviour.notation.cases PATH...`` plays files of cases and prints the agreement.
"""

from tests.behaviour.notation.model import Case, Seen
from tests.behaviour.notation.parser import load_cases, parse_cases

__all__ = ["Case", "Seen", "load_cases", "parse_cases"]
