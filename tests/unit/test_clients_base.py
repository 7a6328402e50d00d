"""ClientManager and the registration of hooks: all of them or none, every client finalized, one caller at a time."""

import copy
import gc
import threading
import time
import weakref

import pytest

from tritontrace import events
from tritontrace.clients.base import Client, ClientManager, LoopCallbacks, OpCallbacks, client_name
from tritontrace.errors import HookConflictError
from tritontrace.findings import Finding
from tritontrace.launch import Launch
from tritontrace.patching.run import EVENT_CLASSES, patch_run


class Event:
    """Stands for an engine's event: hooks only look at what they ask for."""

    def __init__(self, launch: Launch) -> None:
        self.launch = launch


class Recorder(Client):
    """Answers every registering method and keeps what it was asked; no super().__init__()."""

    name = "recorder"

    def __init__(self, name: str = "recorder") -> None:
        self.name = name
        self.asked: list[object] = []
        self.seen: list[object] = []
        self.finalized = 0

    def register_op_callback(self, op):
        self.asked.append(op)
        return OpCallbacks(
            before=lambda event: self.seen.append(("before", op)), after=lambda event: self.seen.append(("after", op))
        )

    def register_for_loop_callback(self):
        self.asked.append("loop")
        return LoopCallbacks(iteration=lambda event: self.seen.append("iteration"))

    def finalize(self):
        self.finalized += 1
        return [self.name]


class Claims(Client):
    def __init__(self, name, op=None, loop=False):
        self.name, self.op, self.loop = name, op, loop

    def register_op_callback(self, op):
        return OpCallbacks(replace=lambda event: self.name) if op is self.op else None

    def register_for_loop_callback(self):
        return LoopCallbacks(override=lambda event: None) if self.loop else None


def test_a_client_needs_only_a_name():
    class Least(Client):
        name = "least"

    launch = Launch("k")
    manager = ClientManager([Least()], launch)
    assert manager.pre_warmup(object()) == []
    with patch_run(manager) as hooks:
        manager.pre_run()
        assert not hooks.wants_loops and not any(hooks.wants(op) for op in EVENT_CLASSES)
        manager.post_run()
    manager.finalize()
    assert launch.records == {"least": []}
    assert client_name(Least()) == "least" and client_name(object()) == "object"


def test_every_registering_method_is_called_for_every_event_class():
    client = Recorder()
    with patch_run(ClientManager([client], Launch("k"))) as hooks:
        assert set(hooks.before) == set(EVENT_CLASSES) - {events.Loop}
        assert len(hooks.loop_before) == len(hooks.loop_iteration) == len(hooks.loop_after) == 1
    defined = {value for value in vars(events).values() if isinstance(value, type) and issubclass(value, events.Event)}
    assert set(client.asked) == (defined - {events.Event, events.MemoryEvent}) | {"loop"}


def test_hooks_of_all_clients_are_called_in_order_and_gone_afterwards():
    one, two = Recorder("one"), Recorder("two")
    launch = Launch("k")
    with patch_run(ClientManager([one, two], launch)) as hooks:
        for hook in hooks.before[events.Load]:
            hook(Event(launch))
        assert one.seen == two.seen == [("before", events.Load)]
    assert not hooks.before and not hooks.after and not hooks.wants_loops


@pytest.mark.parametrize("method", ["register_op_callback", "register_for_loop_callback"])
def test_a_client_that_fails_to_register_leaves_no_hook(method):
    class Fails(Client):
        name = "fails"

    def fail(self, *_):
        raise LookupError(method)

    setattr(Fails, method, fail)
    first = Recorder()
    manager = ClientManager([first, Fails(), Recorder()], Launch("k"))
    captured = []
    with pytest.raises(LookupError, match=method), patch_run(manager) as hooks:
        captured.append(hooks)
    assert not captured
    manager.finalize()
    assert first.finalized == 1


@pytest.mark.parametrize(
    ("method", "wanted"), [("register_op_callback", "OpCallbacks"), ("register_for_loop_callback", "LoopCallbacks")]
)
def test_what_is_not_a_set_of_callbacks_is_refused(method, wanted):
    class Odd(Client):
        name = "odd"

    setattr(Odd, method, lambda self, *_: print)
    with pytest.raises(TypeError, match=f"'odd': {method} must return {wanted}"), patch_run(ClientManager([Odd()], Launch("k"))):
        pass


@pytest.mark.parametrize("op", [op for op in EVENT_CLASSES if op is not events.Loop])
def test_two_replacements_of_one_operation_conflict(op):
    manager = ClientManager([Claims("a", op), Recorder(), Claims("b", op)], Launch("k"))
    with pytest.raises(HookConflictError, match="'a' and 'b'") as caught, patch_run(manager, "softmax"):
        pass
    assert caught.value.clients == ("a", "b")
    assert caught.value.hook == f"replace {op.__name__}"
    assert caught.value.kernel == "softmax" and "softmax" in str(caught.value)


def test_two_loop_overrides_conflict_however_they_are_claimed():
    for second in (Claims("b", loop=True), Claims("b", events.Loop)):
        with pytest.raises(HookConflictError) as caught, patch_run(ClientManager([Claims("a", loop=True), second], Launch("k"))):
            pass
        assert caught.value.clients == ("a", "b") and caught.value.hook == "override loop"


def test_claims_of_two_sessions_conflict_also_by_one_client_object():
    client = Claims("a", events.Load)
    manager = ClientManager([client], Launch("k"))
    manager.add([client], Launch("k"))
    with pytest.raises(HookConflictError), patch_run(manager):
        pass


def test_different_claims_do_not_conflict():
    manager = ClientManager([Claims("a", events.Load), Claims("b", events.Store), Claims("c", loop=True)], Launch("k"))
    with patch_run(manager) as hooks:
        assert hooks.replace[events.Load](Event(Launch("k"))) == "a"
        assert hooks.replace[events.Store](Event(Launch("k"))) == "b"
        assert hooks.loop_override is not None


def test_an_event_names_the_launch_of_the_client_that_hears_it():
    launches = [Launch("k"), Launch("k")]
    heard = []

    class Hears(Client):
        name = "hears"

        def register_op_callback(self, op):
            return OpCallbacks(before=lambda event: heard.append(event.launch)) if op is events.Load else None

    manager = ClientManager([Hears()], launches[0])
    manager.add([Hears()], launches[1])
    with patch_run(manager) as hooks:
        event = Event(launches[0])
        for hook in hooks.before[events.Load]:
            hook(event)
    assert heard[0] is launches[0] and heard[1] is launches[1]


def test_finalize_reaches_everyone_and_raises_the_first_failure_with_the_others_as_notes():
    class Fails(Recorder):
        def finalize(self):
            self.finalized += 1
            raise ValueError(self.name)

    clients = [Recorder("ok"), Fails("first"), Fails("second"), Recorder("last")]
    launch = Launch("k")
    manager = ClientManager(clients, launch)
    with pytest.raises(ValueError, match="first") as caught:
        manager.finalize()
    assert [client.finalized for client in clients] == [1, 1, 1, 1]
    assert any("second" in note for note in getattr(caught.value, "__notes__", ["second"]))
    assert launch.records == {"ok": ["ok"], "last": ["last"]}
    manager.finalize()
    assert [client.finalized for client in clients] == [1, 1, 1, 1]


def test_finalize_with_an_error_raises_nothing_and_notes_all_failures():
    class Fails(Recorder):
        def finalize(self):
            raise ValueError(self.name)

    error = RuntimeError("the kernel")
    ClientManager([Fails("a"), Fails("b")], Launch("k")).finalize(error)
    notes = getattr(error, "__notes__", ["'a'", "'b'"])
    assert len(notes) == 2 and "'a'" in notes[0] and "'b'" in notes[1]


def test_a_failing_for_launch_still_finalizes_those_before_it():
    class Fails(Client):
        name = "fails"

        def for_launch(self, launch):
            raise OSError("no")

    first, last = Recorder(), Recorder()
    manager = ClientManager()
    with pytest.raises(OSError, match="no"):
        manager.add([first, Fails(), last], Launch("k"))
    manager.finalize()
    assert (first.finalized, last.finalized) == (1, 0)


def test_for_launch_must_give_a_client():
    class Odd(Client):
        name = "odd"

        def for_launch(self, launch):
            return None

    with pytest.raises(TypeError, match="'odd': for_launch must return a Client, not NoneType"):
        ClientManager([Odd()], Launch("k"))
    with pytest.raises(TypeError, match="needs the Launch"):
        ClientManager([Odd()])


def test_findings_that_a_client_returns_are_the_launchs_findings_once():
    class Finds(Client):
        name = "finds"

        def for_launch(self, launch):
            fresh = Finds()
            fresh.finding = Finding("race", "m", "finds")
            launch.findings.append(fresh.finding)
            return fresh

        def finalize(self):
            return [self.finding, Finding("race", "n", "finds"), "record"]

    launch = Launch("k")
    manager = ClientManager([Finds()], launch)
    manager.finalize()
    assert [finding.message for finding in launch.findings] == ["m", "n"]
    assert launch.findings[1].launch is launch
    assert len(launch.records["finds"]) == 3


def test_the_vote_asks_everyone_and_tells_the_voters_also_when_one_raises():
    class Votes(Client):
        def __init__(self, name, vote, fails_after=False):
            self.name, self.vote, self.fails_after = name, vote, fails_after
            self.asked = 0
            self.told = []

        def pre_warmup_callback(self, jit_fn, launch):
            self.asked += 1
            if isinstance(self.vote, Exception):
                raise self.vote
            return self.vote

        def post_warmup_callback(self, jit_fn, compiled):
            self.told.append(compiled)
            if self.fails_after:
                raise KeyError(self.name)

    clients = [Votes("a", True, fails_after=True), Votes("b", False), Votes("c", True), Votes("d", None)]
    manager = ClientManager(clients, Launch("k"))
    voters = manager.pre_warmup("fn")
    assert [member.name for member in voters] == ["a", "c"]
    with pytest.raises(KeyError, match="a"):
        manager.post_warmup(voters, "fn", ["x", "y"])
    assert [client.told for client in clients] == [["x"], [], ["x", "y"], []]

    clients = [Votes("a", ValueError("a")), Votes("b", True)]
    with pytest.raises(ValueError, match="a"):
        ClientManager(clients, Launch("k")).pre_warmup("fn")
    assert [client.asked for client in clients] == [1, 1]


def test_the_error_of_a_hook_is_known_as_a_clients():
    class Fails(Client):
        name = "fails"

        def register_op_callback(self, op):
            return OpCallbacks(before=self.fail) if op is events.Load else None

        def fail(self, event):
            raise ZeroDivisionError

    launch = Launch("k")
    manager = ClientManager([Fails()], launch)
    with patch_run(manager) as hooks, pytest.raises(ZeroDivisionError) as caught:
        hooks.before[events.Load][0](Event(launch))
    assert manager.is_from_client(caught.value)
    assert not manager.is_from_client(ZeroDivisionError()) and not manager.is_from_client(None)


def test_a_client_that_returns_itself_is_called_by_one_thread_at_a_time():
    inside = threading.Lock()
    overlaps = []

    class Shared(Client):
        name = "shared"
        count = 0

        def enter(self, *_):
            if not inside.acquire(blocking=False):
                overlaps.append(True)
                return None
            try:
                before = self.count
                time.sleep(0)  # lets another thread come in, if it may
                self.count = before + 1
            finally:
                inside.release()
            return None

        pre_run_callback = post_run_callback = enter

        def register_op_callback(self, op):
            return OpCallbacks(before=self.enter, after=self.enter) if op is events.Load else None

        def finalize(self):
            self.enter()
            return []

    client = Shared()
    start = threading.Barrier(8)

    def work():
        start.wait()
        for _ in range(100):
            launch = Launch("k")
            manager = ClientManager([client], launch)
            with patch_run(manager) as hooks:
                manager.pre_run()
                for hook in (*hooks.before[events.Load], *hooks.after[events.Load]):
                    hook(Event(launch))
                manager.post_run()
            manager.finalize()

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not overlaps
    assert client.count == 8 * 100 * 5


def test_a_hook_may_come_back_to_its_own_client():
    class Nested(Client):
        name = "nested"
        depth = 0

        def register_op_callback(self, op):
            return OpCallbacks(before=self.hear) if op is events.Load else None

        def hear(self, event):
            self.depth += 1
            if self.depth < 3:
                inner = Launch("k")
                with patch_run(ClientManager([self], inner)) as hooks:
                    hooks.before[events.Load][0](Event(inner))

    client = Nested()
    with patch_run(ClientManager([client], Launch("k"))) as hooks:
        hooks.before[events.Load][0](Event(Launch("k")))
    assert client.depth == 3


def test_clients_are_told_apart_by_identity_and_not_written_to_or_kept():
    class Equal(Recorder):
        def __eq__(self, other):
            return True

        __hash__ = None

    clients = [Equal("a"), Equal("b")]
    attributes = [dict(vars(client)) for client in clients]
    manager = ClientManager(clients, Launch("k"))
    manager.finalize()
    assert [client.finalized for client in clients] == [1, 1]
    assert [set(vars(client)) for client in clients] == [set(attribute) for attribute in attributes]
    assert copy.deepcopy(clients[0]).name == "a"
    dead = weakref.ref(clients[0])
    del clients, manager
    gc.collect()
    assert dead() is None


def test_records_that_are_no_list_are_refused_by_name() -> None:
    class Odd(Client):
        name = "odd"

        def finalize(self):
            return 5

    with pytest.raises(TypeError, match="'odd': finalize must return a list of records, not 5"):
        ClientManager([Odd()], Launch("k")).finalize()
