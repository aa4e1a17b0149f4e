"""Behaviour cases: who runs where, who is evicted and who waits, once things are quiet.

One text says a case (``notation``); two ways of playing it exist: ``sessions`` decides on the
cache again and again, ``blackbox`` runs the whole daemon on an embedded cluster and looks at
nothing but the API. ``judge`` compares what was seen with what the case asks for.

``python -m gpusched.testing.cases PATH...`` plays files of cases and prints the agreement.
"""

from gpusched.testing.cases.model import Case, Seen
from gpusched.testing.cases.notation import load, parse

__all__ = ["Case", "Seen", "load", "parse"]
