"""From names, classes and instances to clients."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tritontrace.clients.base import Client
from tritontrace.clients.registry import known_names, resolve
from tritontrace.clients.sanitizer import Sanitizer
from tritontrace.clients.tracer import Tracer


class Mine(Client):
    name = "mine"


class Particular(Client):
    name = "particular"

    def __init__(self, setting: int) -> None:
        self.setting = setting


def test_names_classes_and_instances() -> None:
    instance = Particular(3)
    tracer, sanitizer, mine, same = resolve(["tracer", Sanitizer, Mine, instance])
    assert type(tracer) is Tracer and type(sanitizer) is Sanitizer and type(mine) is Mine
    assert same is instance


def test_one_alone_and_none() -> None:
    assert [type(client) for client in resolve("sanitizer")] == [Sanitizer]
    assert [type(client) for client in resolve(Mine)] == [Mine]
    mine = Mine()
    assert resolve(mine) == (mine,)
    assert resolve(None) == () and resolve([]) == ()
    assert len(resolve(name for name in ("tracer", "sanitizer"))) == 2


def test_a_name_gives_a_new_client_each_time() -> None:
    assert resolve("tracer")[0] is not resolve("tracer")[0]


@pytest.mark.parametrize(
    ("wrong", "nearest"), [("sanitiser", "sanitizer"), ("Tracer", "tracer"), ("trace", "tracer"), ("SANITIZER", "sanitizer")]
)
def test_an_unknown_name_lists_the_known_and_the_nearest(wrong: str, nearest: str) -> None:
    with pytest.raises(ValueError, match=f"no client is named '{wrong}'") as caught:
        resolve(["tracer", wrong])
    text = str(caught.value)
    assert "'sanitizer', 'tracer'" in text
    assert f"the nearest is '{nearest}'" in text


@pytest.mark.parametrize("wrong", [3, object(), [["tracer"]], int, [int], {"tracer": 1}.items()])
def test_what_is_no_client_is_refused(wrong: object) -> None:
    with pytest.raises(TypeError, match="Client"):
        resolve(wrong)


def test_a_class_that_needs_arguments_says_so_itself() -> None:
    with pytest.raises(TypeError, match="setting"):
        resolve([Particular])


@pytest.fixture
def plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A distribution on the path that registers three clients."""
    (tmp_path / "heatmap_plugin.py").write_text(
        "from tritontrace.clients.base import Client\n"
        "class Heatmap(Client):\n    name = 'heatmap'\n"
        "def make():\n    return Heatmap()\n"
        "broken = lambda: 7\n"
    )
    information = tmp_path / "heatmap_plugin-1.0.dist-info"
    information.mkdir()
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: heatmap-plugin\nVersion: 1.0\n")
    (information / "entry_points.txt").write_text(
        "[tritontrace.clients]\nheatmap = heatmap_plugin:Heatmap\nmade = heatmap_plugin:make\nbroken = heatmap_plugin:broken\n"
        "tracer = heatmap_plugin:Heatmap\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "heatmap_plugin", raising=False)
    return tmp_path


def test_clients_of_other_packages(plugin: Path) -> None:
    assert {"heatmap", "made", "tracer", "sanitizer"} <= set(known_names())
    heatmap, made = resolve(["heatmap", "made"])
    assert type(heatmap).__name__ == "Heatmap" and type(made) is type(heatmap)
    assert type(resolve("tracer")[0]) is Tracer  # the built-in names are taken
    with pytest.raises(TypeError, match="'broken' is registered as"):
        resolve("broken")
    with pytest.raises(ValueError, match="the nearest is 'heatmap'"):
        resolve("heat_map")
