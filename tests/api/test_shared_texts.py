"""Texts of many objects are held once, and those of objects that are gone are forgotten."""

from __future__ import annotations

from gpusched.base.shared_texts import SHARED_TEXTS_MAX, shared_text


def test_equal_texts_are_one_object():
    """Given two texts that are equal and not the same, then what is held of both is the same."""
    number = 1
    one, other = f"gang-{number}", f"gang-{number}"
    assert one is not other
    assert shared_text(one) is shared_text(other)


def test_texts_that_come_and_go_are_forgotten():
    """Given ever new names of gangs, then so many are known as the table has room for."""
    for number in range(2 * SHARED_TEXTS_MAX):
        shared_text(f"gang-{number}")
    assert shared_text.cache_info().currsize == SHARED_TEXTS_MAX
