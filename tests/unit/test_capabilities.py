"""What is asked about the Triton that is installed: is it supported, which pieces has it, and how does it behave."""

from __future__ import annotations

import subprocess
import sys
import textwrap
import threading
import warnings
from pathlib import Path

import pytest
import torch
import triton
import triton.language as tl
from triton.runtime.jit import JITFunction

import tritontrace
from tritontrace.errors import UnsupportedTritonError
from tritontrace.kernels import capabilities, compat

ROOT = Path(__file__).parents[2]


@triton.jit
def one_kernel(out):
    tl.store(out, 1.0)


@pytest.fixture
def pretend(monkeypatch):
    """Another version number on this Triton, and a process that has opened no session yet."""

    def version(text: str) -> None:
        monkeypatch.setattr(triton, "__version__", text)
        monkeypatch.setattr(capabilities, "_settled", False)

    return version


def launch() -> float:
    out = torch.zeros(1)
    with tritontrace.session(clients=["tracer"]) as session:
        one_kernel[(1,)](out)
    assert len(session.launches) == 1
    return out.item()


# -- versions -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", ["3.10.0", "3.10.0+git0123abc", "4.0.0"])
def test_a_newer_triton_warns_once_and_runs(pretend, version) -> None:
    pretend(version)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert launch() == 1.0
        assert launch() == 1.0
        tritontrace.trace(one_kernel)
        with tritontrace.session([], scope="process"):
            pass
    (warning,) = caught
    assert warning.category is RuntimeWarning and warning.filename == __file__
    assert f"triton {version} is newer" in str(warning.message) and "3.6, 3.8, 3.9" in str(warning.message)
    assert capabilities.verdict().startswith("newer")


def test_threads_that_open_the_first_sessions_together_get_one_warning(pretend) -> None:
    pretend("3.10.0")
    barrier = threading.Barrier(8)

    def work() -> None:
        barrier.wait()
        capabilities.ensure_supported()

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        threads = [threading.Thread(target=work) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(caught) == 1


def test_where_warnings_are_errors_the_first_session_fails_whole_and_the_next_one_opens(pretend) -> None:
    pretend("3.10.0")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(RuntimeWarning, match="newer"):
            launch()
        assert not hasattr(JITFunction.run, "__wrapped__")
        assert launch() == 1.0


# 3.7 lies between tested ones; a version that nobody can read is judged by its pieces.
@pytest.mark.parametrize("version", ["3.6.0", "3.7.1", "3.8.0", "3.9.0", "3.9.12", "3.9.0+cu130", "main"])
def test_a_tested_triton_and_its_neighbours_are_silent(pretend, version) -> None:
    pretend(version)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert launch() == 1.0
    tested = version.startswith(("3.6.", "3.8.", "3.9."))
    assert (capabilities.verdict() == "tested") == tested


@pytest.mark.parametrize("version", ["3.5.1", "3.0.0", "2.3.1"])
def test_an_older_triton_is_refused_when_a_session_opens(pretend, version) -> None:
    pretend(version)
    session = tritontrace.session(clients=["tracer"])
    for _ in range(2):
        with pytest.raises(UnsupportedTritonError, match=rf"triton {version} is too old.*3\.6 or newer"):
            session.open()
    with pytest.raises(UnsupportedTritonError, match="too old"):
        tritontrace.trace(one_kernel)

    @tritontrace.session(clients=["tracer"])
    def decorated() -> None:
        raise AssertionError("ran all the same")

    with pytest.raises(UnsupportedTritonError, match="too old"):
        decorated()
    assert not hasattr(JITFunction.run, "__wrapped__")
    assert capabilities.verdict().startswith("unsupported: ")


def python(code: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], cwd=ROOT, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_missing_piece_is_named_when_a_session_opens_and_not_at_import() -> None:
    told = python("""
        import triton.runtime.jit, triton.compiler.compiler
        del triton.runtime.jit.native_specialize_impl, triton.compiler.compiler.ASTSource
        import tritontrace, tritontrace.cli
        try:
            tritontrace.session([]).open()
        except tritontrace.UnsupportedTritonError as error:
            print("refused:", error)
        print("exit", tritontrace.cli.main(["doctor"]))
    """)
    (refused,) = [line for line in told.splitlines() if line.startswith("refused:")]
    assert "no triton.runtime.jit.native_specialize_impl" in refused and "no triton.compiler.compiler.ASTSource" in refused
    assert "JITFunction" not in refused
    assert "unsupported: triton" in told and "exit 1" in told


def test_a_stand_in_for_a_missing_piece_can_be_derived_from_but_not_made(monkeypatch) -> None:
    monkeypatch.setattr(capabilities, "_lacking", [])
    piece = capabilities.take("triton.runtime.jit.NoSuchPiece")
    assert capabilities.take("triton.no_such_module.NoSuchPiece").__name__ == "NoSuchPiece"
    assert capabilities.lacking() == ("triton.runtime.jit.NoSuchPiece", "triton.no_such_module.NoSuchPiece")
    derived = type("Derived", (piece,), {})
    assert not isinstance(1, piece)
    with pytest.raises(UnsupportedTritonError, match=r"triton\.runtime\.jit\.NoSuchPiece"):
        derived(1)


def test_this_triton_is_one_that_the_suite_is_for() -> None:
    assert capabilities.triton_version() in capabilities.TESTED
    assert capabilities.lacking() == () and capabilities.problem() is None


# -- capabilities -------------------------------------------------------------------------------------------------


def test_answers_say_what_each_capability_is() -> None:
    answers = {answer.name: answer for answer in capabilities.answers()}
    assert answers["block_pointers"].present is capabilities.block_pointers()
    for answer in answers.values():
        assert isinstance(answer.present, bool) and answer.meaning.endswith(".") and "\n" not in answer.meaning


def lowers(kernel: JITFunction, *args: object, **kwargs: object) -> bool:
    """Whether a launch gets through this Triton's own binder and frontend."""
    try:
        with tritontrace.session([]):
            kernel[(1,)](*args, **kwargs)
    except (TypeError, triton.CompilationError):
        return False
    return True


def test_block_pointers_are_there_exactly_if_a_kernel_can_use_them() -> None:
    @triton.jit
    def kernel(out):
        block = tl.make_block_ptr(out, (8,), (1,), (0,), (8,), (0,))
        tl.store(block, tl.full((8,), 1.0, tl.float32))

    out = torch.zeros(8)
    assert lowers(kernel, out) is capabilities.block_pointers()
    assert out.eq(1).all().item() is capabilities.block_pointers()


def test_variadic_kernels_are_there_exactly_if_one_can_be_launched() -> None:
    @triton.jit
    def kernel(out, *values):
        tl.store(out, values[0] + values[1])

    out = torch.zeros(1)
    assert lowers(kernel, out, 2.5, 4.0) is capabilities.variadic_kernels()
    assert out.item() == (6.5 if capabilities.variadic_kernels() else 0)


def test_keyword_only_parameters_are_there_exactly_if_a_kernel_can_have_them() -> None:
    @triton.jit
    def kernel(out, *, value):
        tl.store(out, value)

    out = torch.zeros(1)
    assert lowers(kernel, out, value=2.5) is capabilities.keyword_only_parameters()
    assert out.item() == (2.5 if capabilities.keyword_only_parameters() else 0)
    assert not lowers(kernel, out, 3.5)


def test_a_jit_function_is_registered_exactly_if_there_is_a_registry() -> None:
    registry = compat.function_registry()
    before = set(registry)

    @triton.jit
    def registered_kernel(out):
        tl.store(out, 1.0)

    assert bool(set(registry) - before) is capabilities.function_registry()


def test_locations_are_those_of_the_file() -> None:
    # All versions give the same: the first column is 1, indentation counts, and a call has the place where it begins.
    @triton.jit
    def helper(x, n):
        return tl.load(x + tl.arange(0, 8) + n)  # in helper

    @triton.jit
    def kernel(x, out):
        value = helper(x,  # in kernel
                       1000)
        tl.store(out + 2000 +  # the store
                 tl.arange(0, 8), value)

    with tritontrace.session(["sanitizer"]) as session:
        kernel[(1,)](torch.zeros(8), torch.zeros(8))
    lines = Path(__file__).read_text().splitlines()

    def place(text: str, tag: str) -> tuple[int, int]:
        (number,) = (number for number, line in enumerate(lines, 1) if line.endswith(f"  # {tag}"))
        return number, lines[number - 1].index(text) + 1

    load, store = session.findings
    assert (load.location.line, load.location.column) == place("tl.load", "in helper")
    (caller,) = load.call_stack
    assert (caller.line, caller.column) == place("helper(", "in kernel")
    assert (store.location.line, store.location.column) == place("tl.store", "the store")
