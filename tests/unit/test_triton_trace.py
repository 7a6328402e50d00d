"""TritonTrace: a kernel that is always traced and is the kernel to everybody else, also in Triton's interpreter."""

import copy
import os
import pickle
import subprocess
import sys
import textwrap

import pytest
import torch
import triton
import triton.language as tl

import tritontrace
from tests.unit.lifecycle_kernels import (
    ORDER,
    WAYS,
    N,
    Watch,
    add_one,
    by_name,
    launch,
    traced_twice,
    twice,
)
from tritontrace.errors import FindingError
from tritontrace.kernels.trace import TritonTrace
from tritontrace.tracing import trace

# -- TritonTrace -------------------------------------------------------------------------------------------------------


def test_a_trace_called_outside_raises_type_error():
    for called in (traced_twice, trace(triton.heuristics({"n": lambda a: N})(add_one))):
        with pytest.raises(TypeError, match="launch it with a grid"):
            called(1)
    with tritontrace.session([]), pytest.raises(TypeError, match="launch it with a grid"):
        traced_twice(1)


@pytest.mark.parametrize("way", list(WAYS))
def test_a_trace_called_from_a_traced_kernel_runs(way):
    kernel, keywords = WAYS[way]()
    x = torch.ones(N)
    trace(kernel)[(1,)](x, BLOCK=16, **keywords)
    assert torch.equal(x, torch.full((N,), 2.0))


def test_a_trace_is_its_kernel_to_others():
    traced = trace(add_one)
    assert isinstance(traced, triton.JITFunction) and type(traced) is TritonTrace
    fn = traced
    while not isinstance(fn, triton.JITFunction):
        fn = fn.fn
    assert traced.fn is add_one.fn and traced.src == add_one.src and traced.arg_names == add_one.arg_names
    assert traced.signature == add_one.signature and traced.__name__ == "add_one"
    own = copy.copy(add_one.__dict__)
    assert "launches" not in own and "_self_scope" not in own


def test_a_trace_records_its_launches_and_those_of_nobody_else():
    traced, x = trace(add_one, clients=["sanitizer"]), torch.zeros(N)
    traced[(2,)](x, N, BLOCK=8)
    traced.run(x, N, BLOCK=8, grid=(2,), warmup=False)
    assert traced.warmup(torch.float32, N, BLOCK=8, grid=(1,)) is not None
    with tritontrace.suspend():
        traced[(2,)](x, N, BLOCK=8)
    assert torch.equal(x, torch.full((N,), 3.0))
    assert [launch.warmup for launch in traced.launches] == [False, False, True, False]
    assert not traced.findings and "add_one" in traced.report()
    with pytest.raises(Exception, match="driver"):
        add_one[(2,)](x, N, BLOCK=8)
    assert len(traced.launches) == 4


def test_tracing_a_trace_again_adds_clients():
    first, second = Watch("first"), Watch("second")
    traced = trace(trace(add_one, clients=[first]), clients=[second])
    traced[(2,)](torch.zeros(N), N, BLOCK=8)
    assert traced.__wrapped__ is add_one and len(traced.launches) == 1
    assert first.only.calls == second.only.calls == ORDER


def test_trace_is_a_decorator_with_and_without_settings():
    @tritontrace.tracing.trace
    @triton.jit
    def plain(x, BLOCK: tl.constexpr):
        tl.store(x + tl.arange(0, BLOCK), 1.0)

    @trace(clients=["sanitizer"], on_finding="raise", keep=1)
    @triton.jit
    def strict(x, BLOCK: tl.constexpr):
        tl.store(x + tl.arange(0, BLOCK), 1.0)

    x = torch.zeros(N)
    plain[(1,)](x, BLOCK=16)
    assert x.sum() == N and len(plain.launches) == 1
    for _ in range(2):
        with pytest.raises(FindingError):
            strict[(1,)](x, BLOCK=32)
    assert len(strict.launches) == 1


@pytest.mark.parametrize("odd", [print, 3, add_one.fn, torch.zeros(1)])
def test_only_kernels_can_be_traced(odd):
    with pytest.raises(TypeError, match="cannot be traced"):
        trace(odd)


def test_the_clients_of_a_trace_are_resolved_as_those_of_a_session():
    with pytest.raises(ValueError, match="sanitizer"):
        trace(add_one, clients=["sanitiser"])


def test_the_state_of_a_trace_is_its_own_and_an_attribute_is_the_kernels():
    traced = trace(twice)
    before = dict(vars(twice))
    traced.add_clients([Watch()])
    assert vars(twice) == before
    traced.mark = 1
    try:
        assert twice.mark == 1
    finally:
        del twice.mark


def test_copies_of_a_trace_trace_the_same_kernel_and_launch_apart():
    watch = Watch()
    traced = trace(add_one, clients=[watch], keep=3)
    traced[(2,)](torch.zeros(N), N, BLOCK=8)
    for made in (copy.copy(traced), copy.deepcopy(traced), copy.deepcopy({"k": [traced]})["k"][0]):
        assert type(made) is TritonTrace and made.__wrapped__ is add_one and made is not traced
        assert made.launches == [] and made.clients == traced.clients
        made[(2,)](torch.zeros(N), N, BLOCK=8)
        assert len(made.launches) == 1 and len(traced.launches) == 1


def test_a_trace_is_pickled_by_name():
    traced = trace(add_one, clients=["sanitizer"])
    again = pickle.loads(pickle.dumps(traced))
    assert type(again) is TritonTrace and again.__wrapped__ is add_one
    assert [client.name for client in again.clients] == ["sanitizer"]

    @triton.jit
    def local(x):
        tl.store(x, 1.0)

    with pytest.raises(pickle.PicklingError, match="local"):
        pickle.dumps(trace(local))


def test_changing_a_global_between_traced_launches_writes_nothing_to_the_kernel():
    before = (dict(vars(by_name)), dict(vars(twice)))
    for _ in range(2):
        launch(by_name, torch.ones(N), BLOCK=16, clients=[Watch(vote=True)])
    assert (dict(vars(by_name)), dict(vars(twice))) == before


# -- Triton's interpreter ----------------------------------------------------------------------------------------------

INTERPRETED = """
    import torch, triton, triton.language as tl, tritontrace
    from triton.runtime.interpreter import InterpretedFunction
    from tritontrace.tracing import trace

    @trace
    @triton.jit
    def helper(v):
        return v * 2 + tl.sum(v, 0)

    @triton.jit
    def kernel(x, BLOCK: tl.constexpr):
        i = tl.arange(0, BLOCK)
        tl.store(x + i, helper(tl.load(x + i)))

    @triton.autotune([triton.Config({"BLOCK": 8}), triton.Config({"BLOCK": 16})], key=[])
    @triton.heuristics({"EXTRA": lambda a: a["BLOCK"]})
    @triton.jit
    def layered(x, BLOCK: tl.constexpr, EXTRA: tl.constexpr):
        i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        tl.store(x + i, tl.load(x + i) + EXTRA)
"""


def interpreted(tmp_path, body):
    script = tmp_path / "script.py"
    script.write_text(textwrap.dedent(INTERPRETED) + textwrap.dedent(body))
    environment = {**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, script], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_a_trace_called_from_a_kernel_in_tritons_interpreter_runs(tmp_path):
    interpreted(
        tmp_path,
        """
        assert isinstance(kernel, InterpretedFunction)
        x = torch.ones(16)
        kernel[(1,)](x, BLOCK=16)
        assert torch.equal(x, torch.full((16,), 18.0)), x
        assert not helper.launches
        try:
            helper(1)
        except TypeError as error:
            assert "launch it with a grid" in str(error)
        else:
            raise AssertionError
        """,
    )


def test_interpreted_kernels_are_traced_too(tmp_path):
    interpreted(
        tmp_path,
        """
        before = dict(vars(kernel)), dict(vars(layered)), dict(vars(layered.fn)), dict(globals())
        x = torch.ones(16)
        with tritontrace.session(["sanitizer"]) as session:
            kernel[(1,)](x, BLOCK=16)
            assert torch.equal(x, torch.full((16,), 18.0)), x
            x.zero_()
            layered[lambda meta: (16 // meta["BLOCK"],)](x)
            assert torch.equal(x, torch.full((16,), 8.0)), x
            warm = kernel.warmup(torch.float32, BLOCK=16, grid=(1,))
            assert warm.metadata.num_warps == 4
        assert [launch.kernel_name for launch in session.launches] == ["kernel", "layered", "kernel"]
        assert len(session.launches[1].trials) == 2 and not session.findings
        traced = trace(kernel)
        x = torch.ones(16)
        traced[(1,)](x, BLOCK=16)
        assert torch.equal(x, torch.full((16,), 18.0)) and len(traced.launches) == 1
        after = {name: value for name, value in globals().items() if name in before[3]}
        same = lambda a, b: set(a) == set(b) and all(a[k] is b[k] for k in a)
        assert same(vars(kernel), before[0]) and same(vars(layered), before[1]) and same(vars(layered.fn), before[2])
        """,
    )
