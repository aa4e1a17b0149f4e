"""The library that reads kubeconfig files is imported in part, and stays whole for others."""

import importlib
import sys

import pytest

from gpusched.io.client.kubeconfig_library import kubeconfig_library

LIBRARY = "kubernetes_asyncio"


def loaded():
    return [name for name in sys.modules if name.split(".")[0] == LIBRARY]


@pytest.fixture
def unloaded(monkeypatch):
    """As in a process that has not imported the library yet."""
    before = {name: sys.modules[name] for name in loaded()}
    for name in before:
        del sys.modules[name]
    kubeconfig_library.cache_clear()
    yield
    for name in loaded():
        del sys.modules[name]
    sys.modules.update(before)
    kubeconfig_library.cache_clear()


def test_what_is_never_used_is_not_imported(unloaded):
    library = kubeconfig_library()
    assert library.config.load_kube_config
    assert library.config.incluster_config.InClusterConfigLoader
    assert library.new_configuration().verify_ssl
    assert loaded() == []


def test_what_one_function_is_used_of_is_imported_by_its_use(unloaded, monkeypatch):
    for name in [each for each in sys.modules if each.split(".")[0] == "urllib3"]:
        monkeypatch.delitem(sys.modules, name)
    made = kubeconfig_library().new_configuration()
    assert "urllib3" not in sys.modules
    made.username, made.password = "us", "pa"
    assert made.get_basic_auth_token() == "Basic dXM6cGE="
    assert sys.modules["urllib3"].util.make_headers


@pytest.mark.long
def test_who_imports_it_afterwards_gets_all_of_it(unloaded):
    kubeconfig_library()
    whole = importlib.import_module(LIBRARY)
    assert whole.client.CoreV1Api
    assert whole.client.Configuration().verify_ssl


@pytest.mark.long
def test_one_that_is_there_as_a_whole_is_used(unloaded):
    whole = importlib.import_module(LIBRARY)
    assert kubeconfig_library().config is whole.config


def test_a_library_that_is_not_installed_is_named(unloaded, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ModuleNotFoundError, match=LIBRARY):
        kubeconfig_library()
