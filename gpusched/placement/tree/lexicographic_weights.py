"""Several terms of an objective in one or two ints that compare as the list of them would.

Each term gets as many bits as its values can differ by, so that all that is below it never adds
up to one of it. Terms for which there is no space are left out, and the result says so.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from gpusched.arrays.columns import Ints
from gpusched.base.classes import frozen
from gpusched.placement.tree.min_plus import BITS

MACHINE_WORDS_MAX: Final = 2


@frozen
class LexicographicWeights:
    """Where the bits of each term are.

    Attributes:
        places: of each term (word, shift), most important first; as many as there was space for.
        words: how many ints there are.
    """

    places: tuple[tuple[int, int], ...]
    words: int

    def pack_terms(self, terms: Sequence[Ints]) -> Ints:
        """Ints that compare as these terms do.

        Args:
            terms: arrays of one shape, most important first; those without a place are ignored.

        Returns:
            int64, shape (words, ...).
        """
        packed = np.zeros((self.words, *np.shape(terms[0])), dtype=np.int64)
        for values, (word, shift) in zip(terms, self.places, strict=False):
            packed[word] += values << shift
        return packed


def lexicographic_weights(
    ranges: Sequence[int], most: int = MACHINE_WORDS_MAX
) -> LexicographicWeights:
    """Give each term its bits.

    Args:
        ranges: by how much the sums of each term differ at most, most important first.
        most: ints that there may be.
    """
    words: list[list[int]] = [[]]
    for values in ranges:
        bits = values.bit_length()
        if sum(words[-1]) + bits > BITS:
            if bits > BITS or len(words) == most:
                break
            words.append([])
        words[-1].append(bits)
    places = []
    for word, widths in enumerate(words):
        shift = sum(widths)
        for bits in widths:
            shift -= bits
            places.append((word, shift))
    return LexicographicWeights(tuple(places), len(words))
