"""What every test shares: ``--engine`` runs the sessions that name no engine in another one, or in two."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import tritontrace
from tests import engine_exceptions
from tritontrace import engines


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--engine",
        default="ir",
        choices=("ir", "python", "auto", "both"),
        help="the engine of sessions that name none; both: 'ir', and every launch in it is compared with the Python engine",
    )
    parser.addoption(
        "--instruments", action="store_true", help="with --engine both: also compare what instruments tell (lines, numerics, ...)"
    )


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--engine") == "both":
        config.pluginmanager.register(_Both(config.getoption("--instruments")), "tritontrace-both")


@pytest.fixture(scope="session", autouse=True)
def _default_engine(pytestconfig: pytest.Config) -> Iterator[None]:
    engine = pytestconfig.getoption("--engine")
    places = (tritontrace.session, tritontrace.Session.__init__)
    before = [place.__kwdefaults__ for place in places]
    if engine != "both":
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


class _Both:
    """Puts an engine that compares in the place of the IR engine, and fails the test whose launches differ."""

    def __init__(self, instruments: bool) -> None:
        from tests.engines.comparing import Comparing
        from tests.engines.instruments import ALL

        self.engine = engine = Comparing(engines.get("ir"), engines.get("python"), ALL if instruments else frozenset())
        original = engines.get

        def get(name: str) -> Any:
            return engine if name == "ir" else original(name)

        engines.get = get  # type: ignore[assignment]  # a cached function

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Any:
        engine = self.engine
        engine.expected = engine_exceptions.compared(item.nodeid)
        engine.differences.clear()
        result = yield
        found, engine.differences = engine.differences, []
        if found:
            more = f"\n({len(found) - 5} more)" if len(found) > 5 else ""
            pytest.fail("the two engines differ\n" + "\n".join(found[:5]) + more, pytrace=False)
        return result

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        worker = getattr(session.config, "workeroutput", None)
        if worker is not None:
            worker["compared"] = (self.engine.compared, dict(self.engine.skipped))

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any, error: Any) -> None:
        compared, skipped = getattr(node, "workeroutput", {}).get("compared", (0, {}))
        self.engine.compared += compared
        self.engine.skipped.update(skipped)

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        terminalreporter.section("the two engines")
        terminalreporter.line(f"{self.engine.compared} launches compared")
        for reason, count in self.engine.skipped.most_common():
            terminalreporter.line(f"{count} not: {reason}")
