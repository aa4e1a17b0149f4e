"""docs/security-figures.md says what the manifests and the lock file of the image say."""

from __future__ import annotations

import re
import subprocess
import sys

import yaml

from benchmarks import security_figures
from gpusched.base.installed_files import path


def test_the_page_has_what_its_command_makes():
    """Every rule of the daemon and every package of the image, nothing else."""
    page = security_figures.PAGE.read_text(encoding="utf-8")
    assert security_figures.renewed(page) == page
    done = subprocess.run([sys.executable, "-m", "benchmarks.security_figures"], check=False)
    assert done.returncode == 0


def test_every_rule_of_the_daemon_is_there():
    """Counted from the manifests by other means."""
    found = 0
    for file in ("rbac.yaml", "rbac-adapters.yaml"):
        for doc in yaml.safe_load_all((path("manifests") / file).read_text()):
            found += len((doc or {}).get("rules", ()))
    assert len(security_figures.permissions()) == found + 2


def test_every_pin_has_hashes_and_a_licence():
    """A package without either would be told here first."""
    pins = list(security_figures.pins())
    lock = (security_figures.ROOT / "requirements-run.lock").read_text()
    assert len(pins) == len(re.findall(r"(?m)^[\w.-]+==", lock))
    assert sum(pin[3] for pin in pins) == lock.count("--hash=sha256:")
    assert all(hashes > 0 for *_, hashes in pins)
    assert not [row for row in security_figures.dependencies() if "not told" in row]


def test_a_page_of_yesterday_is_found(monkeypatch, tmp_path, capsys):
    """A rule that was added is missing from the page: exit status 1 and what to do."""
    page = security_figures.PAGE.read_text(encoding="utf-8")
    old = tmp_path / "security-figures.md"
    old.write_text(re.sub(r"(?m)^\| gpusched \| nodes .*\n", "", page), encoding="utf-8")
    monkeypatch.setattr(security_figures, "PAGE", old)
    monkeypatch.setattr(sys, "argv", ["security_figures"])
    assert security_figures.main() == 1
    assert "use --write" in capsys.readouterr().err
