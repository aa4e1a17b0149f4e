"""Questions about pods on nodes, and sums of their answers over domains."""

from __future__ import annotations

from collections.abc import Sequence

import attrs
import numpy as np
import numpy.typing as npt

from gpusched.plugin import Pod, PodQuery, PodTerm, Selector, View

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
NamespacedSelector = tuple[frozenset[str] | None, Selector | None]
"""Namespaces (None: all) and a selector (None: of no pod)."""


def is_selected(part: NamespacedSelector, pod: Pod) -> bool:
    """Whether a pod is in one of the namespaces and has the labels."""
    namespaces, selector = part
    if selector is None or (namespaces is not None and pod.namespace not in namespaces):
        return False
    return selector.matches(pod.labels)


@attrs.frozen(cache_hash=True)
class PodSelection:
    """Pods that every part selects.

    Attributes:
        staying: leave out pods that are being deleted.
        cautious: count pods that are promised a place.
    """

    parts: tuple[NamespacedSelector, ...]
    staying: bool = False
    cautious: bool = False

    @property
    def needs(self) -> tuple[str, frozenset[str]] | None:
        """The first label of which a selector wants one of some values."""
        for _, selector in self.parts:
            for each in selector.requirements if selector else ():
                if each.operator == "In":
                    return each.key, frozenset(each.values)
        return None

    def counts(self, pod: Pod) -> bool:
        """Whether this pod counts."""
        if self.staying and pod.deleting:
            return False
        return all(is_selected(part, pod) for part in self.parts)


def namespaced_selector(term: PodTerm, pod: Pod, view: View) -> NamespacedSelector:
    """The pods that a term of this pod selects."""
    spaces = term.namespaces_for(
        pod.namespace, view.namespace_labels() if term.namespace_selector else {}
    )
    return spaces, term.selector_for(pod.labels)


def sum_by_domain(counts: Ints, domains: Ints, rows: Bools | None = None) -> Ints:
    """Sums of counts by domain, int64, shape (domains + 1,), the last one always zero.

    Args:
        counts: by row.
        domains: of each row, -1 for none, whose counts are left out.
        rows: leave out all others.
    """
    inside = domains >= 0 if rows is None else rows & (domains >= 0)
    sums = np.zeros(int(domains.max(initial=-1)) + 2, dtype=np.int64)
    np.add.at(sums, domains[inside], counts[inside])
    return sums


def rows_with_pods_in_domain(counts: Ints, domains: Ints) -> Bools:
    """Rows in whose domain at least one pod counts; never those without a domain."""
    return sum_by_domain(counts, domains)[domains] > 0


def named_pods(view: View, queries: Sequence[PodQuery], before: str = "") -> str:
    """Pods that some queries count, as ``default/a, default/b and 3 more``; empty for none."""
    for query in queries:
        named = view.names_of_pods(query)
        if named:
            return before + named
    return ""
