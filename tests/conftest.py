"""What every test shares: ``--engine python`` runs the sessions that name no engine in that one, with the same expectations."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import tritontrace
from tests import engine_exceptions


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--engine", default="ir", choices=("ir", "python", "auto"), help="the engine of sessions that name none")


@pytest.fixture(scope="session", autouse=True)
def _default_engine(pytestconfig: pytest.Config) -> Iterator[None]:
    engine = pytestconfig.getoption("--engine")
    places = (tritontrace.session, tritontrace.Session.__init__)
    before = [place.__kwdefaults__ for place in places]
    for place, defaults in zip(places, before):
        place.__kwdefaults__ = {**defaults, "engine": engine}
    yield
    for place, defaults in zip(places, before):
        place.__kwdefaults__ = defaults


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--engine") == "python":
        for item in items:
            reason = engine_exceptions.reason(item.nodeid)
            if reason is not None:
                item.add_marker(pytest.mark.skip(reason=reason))
