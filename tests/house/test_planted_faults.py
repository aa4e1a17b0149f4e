"""Every planted fault can still be planted: a fault that nobody can plant shows nothing."""

from __future__ import annotations

import pytest

from tests.planted_faults import FAULTS, ROOT, PlantedFault


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.file)
def test_its_text_stands_once_in_its_file(fault: PlantedFault) -> None:
    assert (ROOT / fault.file).read_text().count(fault.sound) == 1
    missing = [name for name in fault.tests.split() if not (ROOT / "tests" / name).exists()]
    assert missing == []
