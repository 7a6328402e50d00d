"""Autotuner and Heuristics layers in a traced launch: copies of the user's objects, trials on copies of the tensors."""

import gc
import threading
import warnings
import weakref

import pytest
import torch
import triton
import triton.language as tl
from triton.runtime.autotuner import Autotuner, Heuristics
from triton.tools.tensor_descriptor import TensorDescriptor

import tritontrace
from tritontrace.clients.base import Client
from tritontrace.kernels.layers import Chain
from tritontrace.kernels.trace import TritonTrace
from tritontrace.tracing import trace

N = 16


@triton.jit
def copy_kernel(x, out, n, BLOCK: tl.constexpr, EXTRA: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i, mask=i < n) + EXTRA, mask=i < n)


@triton.jit
def add_kernel(out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.atomic_add(out + i, 1.0, mask=i < n)


@triton.jit
def scale_kernel(out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(out + i, mask=i < n) * 2, mask=i < n)


@triton.jit
def half_kernel(out, HALF: tl.constexpr):
    i = HALF * 8 + tl.arange(0, 8)
    tl.store(out + i, 1.0)


class AllConfigs(Client):
    """Wants every config analysed, and counts what it was given."""

    name = "all_configs"
    analyses_all_configs = True

    def __init__(self):
        self.launches = []

    def for_launch(self, launch):
        self.launches.append(launch)
        return _Quiet()


class _Quiet(Client):
    name = "quiet"


def configs(*blocks, **keywords):
    return [triton.Config({"BLOCK": block}, **keywords) for block in blocks]


def blocks(n):
    return lambda meta: (triton.cdiv(n, meta["BLOCK"]),)


def state(kernel):
    """Everything that the layers of a kernel hold, to be compared later."""
    found = []
    while not isinstance(kernel, triton.JITFunction):
        found.append({name: dict(value) if isinstance(value, dict) else value for name, value in vars(kernel).items()})
        kernel = kernel.fn
    found.append({name: dict(value) if isinstance(value, dict) else value for name, value in vars(kernel).items()})
    return found


def run(kernel, *args, grid=None, clients=(), **kwargs):
    with tritontrace.session(list(clients)) as session:
        kernel[grid if grid is not None else blocks(N)](*args, **kwargs)
    return session


# -- which layers ------------------------------------------------------------------------------------------------------


def heuristic(function, **values):
    return triton.heuristics(values)(function)


STACKS = {
    "heuristics": lambda: triton.heuristics({"BLOCK": lambda a: 8, "EXTRA": lambda a: a["n"] - 13})(copy_kernel),
    "autotune over heuristics": lambda: triton.autotune(configs(8, 16), key=["n"])(
        triton.heuristics({"EXTRA": lambda a: a["BLOCK"] - 5})(copy_kernel)
    ),
    "heuristics over autotune": lambda: triton.heuristics({"EXTRA": lambda a: a["n"] - 13})(
        triton.autotune(configs(8, 16), key=["n"])(copy_kernel)
    ),
    "heuristics over autotune over heuristics": lambda: triton.heuristics({"n": lambda a: N})(
        triton.autotune(configs(8, 16), key=[])(triton.heuristics({"EXTRA": lambda a: a["BLOCK"] - 5})(copy_kernel))
    ),
    "heuristics over heuristics": lambda: triton.heuristics({"BLOCK": lambda a: 8})(
        triton.heuristics({"EXTRA": lambda a: a["BLOCK"] - 5})(copy_kernel)
    ),
}


@pytest.mark.parametrize("how", ["session", "trace"])
@pytest.mark.parametrize("stack", list(STACKS))
def test_layers_in_any_nesting_run_once_and_the_users_objects_stay_as_they_were(stack, how):
    kernel = STACKS[stack]()
    before = state(kernel)
    x, out = torch.arange(float(N)), torch.zeros(N)
    args = (x, out) if "n" in getattr(kernel, "values", {}) and "BLOCK" not in kernel.values else (x, out, N)
    launched = kernel
    if how == "trace":
        launched = trace(kernel)
        launched[blocks(N)](*args)
        launches = launched.launches
    else:
        launches = run(kernel, *args).launches
    assert torch.equal(out, x + 3)
    (launch,) = launches
    assert launch.completed and launch.grid == (2, 1, 1) and launch.argument("EXTRA").value == 3
    assert (launch.config is not None) == ("autotune" in stack)
    assert state(kernel) == before
    layer = kernel
    while not isinstance(layer, triton.JITFunction):
        assert not getattr(layer, "cache", None)
        layer = layer.fn


@pytest.mark.parametrize("stack", list(STACKS))
def test_an_exception_leaves_the_users_objects_as_they_were(stack):
    kernel = STACKS[stack]()
    before = state(kernel)

    def grid(meta):
        raise LookupError("grid")

    with pytest.raises(LookupError, match="grid"):
        run(kernel, torch.zeros(N), torch.zeros(N), *(() if "n" in getattr(kernel, "values", {}) else (N,)), grid=grid)
    with pytest.raises((TypeError, KeyError)):
        run(kernel)
    assert state(kernel) == before


def test_the_chosen_config_stands_in_the_launch():
    kernel = triton.autotune(configs(8, num_warps=2) + configs(16), key=["n"])(add_kernel)
    launch = run(kernel, torch.zeros(N), N).launches[0]
    assert launch.config == {"BLOCK": 8} and launch.options["num_warps"] == 2
    assert [trial.config for trial in launch.trials] == [{"BLOCK": 8}, {"BLOCK": 16}]


def test_a_subclass_of_the_users_keeps_its_say_once():
    calls = []

    class Mine(Autotuner):
        def run(self, *args, **kwargs):
            calls.append("run")
            return super().run(*args, **kwargs)

        def prune_configs(self, kwargs):
            calls.append("prune")
            self.cache["mine"] = self.configs[0]
            self.nargs["mine"] = 1
            return super().prune_configs(kwargs)[1:]

    kernel = Mine(add_kernel, add_kernel.arg_names, configs(4, 8, 16), ["n"], None, None)
    before = state(kernel)
    out = torch.zeros(N)
    session = run(kernel, out, N)
    assert torch.equal(out, torch.ones(N)) and session.launches[0].config == {"BLOCK": 8}
    assert calls == ["run", "prune"] and state(kernel) == before

    calls.clear()
    out.zero_()
    session = run(triton.heuristics({"n": lambda a: N})(kernel), out)
    assert torch.equal(out, torch.ones(N)) and len(session.launches) == 1
    assert calls == ["run"]
    assert state(kernel) == before


def test_a_layer_of_somebody_elses_is_copied_too():
    class Logs(triton.runtime.KernelInterface):
        def __init__(self, fn):
            self.fn, self.arg_names, self.log = fn, fn.arg_names, []

        def run(self, *args, **kwargs):
            self.log.append(kwargs["BLOCK"])
            return self.fn.run(*args, **kwargs)

    middle = Logs(add_kernel)
    kernel = triton.autotune(configs(8, 16), key=["n"])(middle)
    out = torch.zeros(N)
    session = run(kernel, out, N)
    assert torch.equal(out, torch.ones(N))
    assert len(session.launches) == 1 and len(session.launches[0].trials) == 2
    assert middle.fn is add_kernel and middle.log == [8, 16, 8]


# -- tuning ------------------------------------------------------------------------------------------------------------


def test_the_config_cache_is_the_librarys_own_and_kept_between_launches():
    pruned = []

    def prune(configs, named, **kwargs):
        pruned.append(named["n"])
        return configs

    kernel = triton.autotune(configs(8, 16), key=["n"], prune_configs_by={"early_config_prune": prune})(add_kernel)
    out = torch.zeros(N)
    run(kernel, out, N)
    run(kernel, out, N)
    assert pruned == [N] and not kernel.cache and torch.equal(out, torch.full((N,), 2.0))
    run(kernel, out, 8)
    assert pruned == [N, 8]
    with tritontrace.session(target="hip:gfx942"):
        kernel[blocks(N)](out, N)
    assert pruned == [N, 8, N]
    # An object of its own has a cache of its own, also at the address of one that is gone.
    other = triton.autotune(configs(8, 16), key=["n"], prune_configs_by={"early_config_prune": prune})(add_kernel)
    run(other, out, N)
    assert len(pruned) == 4


def test_the_config_cache_keeps_no_kernel_alive():
    @triton.jit
    def short(out, n, BLOCK: tl.constexpr):
        tl.store(out + tl.arange(0, BLOCK), 1.0)

    kernel = triton.autotune(configs(8, 16), key=["n"])(short)
    run(kernel, torch.zeros(N), N)
    dead = weakref.ref(kernel)
    del kernel
    gc.collect()
    assert dead() is None


def test_the_disk_cache_is_neither_read_nor_written(tmp_path, monkeypatch):
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    kernel = triton.autotune(configs(8, 16), key=["n"], cache_results=True)(add_kernel)
    assert kernel.cache_results
    monkeypatch.setattr(kernel, "check_disk_cache", pytest.fail, raising=False)
    run(kernel, torch.zeros(N), N)
    assert not list(tmp_path.rglob("*.autotune.json"))
    assert kernel.cache_results


def test_no_benchmarker_runs_even_if_a_real_one_was_cached():
    def real(*args, **kwargs):
        raise AssertionError("timed")

    kernel = triton.autotune(configs(8, 16), key=["n"], do_bench=real)(add_kernel)
    assert kernel.do_bench is real and "do_bench" in vars(kernel)
    out = torch.zeros(N)
    run(kernel, out, N)
    assert torch.equal(out, torch.ones(N)) and kernel.do_bench is real


def test_atomics_count_once_and_in_place_scaling_happens_once():
    kernel = triton.autotune(configs(8, 16), key=["n"])(add_kernel)
    out = torch.zeros(N)
    assert len(run(kernel, out, N, clients=[AllConfigs()]).launches) == 1
    assert out.sum() == 16
    kernel = triton.autotune(configs(8, 16), key=["n"])(scale_kernel)
    out = torch.ones(N)
    run(kernel, out, N, clients=[AllConfigs()])
    assert torch.equal(out, torch.full((N,), 2.0))


def test_only_the_chosen_configs_half_is_written():
    kernel = triton.autotune([triton.Config({"HALF": 0}), triton.Config({"HALF": 1})], key=[])(half_kernel)
    out = torch.zeros(N)
    session = run(kernel, out, grid=(1,), clients=[AllConfigs()])
    chosen = session.launches[0].config["HALF"]
    assert out[chosen * 8 : chosen * 8 + 8].sum() == 8 and out.sum() == 8


def test_trials_are_launches_of_their_own_below_the_launch():
    kernel = triton.autotune(configs(8, 16), key=["n"])(add_kernel)
    client = AllConfigs()
    out = torch.zeros(N)
    session = run(kernel, out, N, clients=[client])
    (launch,) = session.launches
    assert not launch.trial and launch.completed
    assert [trial.trial for trial in launch.trials] == [True, True]
    assert [trial.grid for trial in launch.trials] == [(2, 1, 1), (1, 1, 1)]
    assert all(trial.completed for trial in launch.trials)
    assert client.launches == [*launch.trials, launch]
    # Not the user's memory, and not each other's.
    addresses = [launch.argument("out").data_ptr, *(trial.argument("out").data_ptr for trial in launch.trials)]
    assert addresses[0] == out.data_ptr() and addresses[0] not in addresses[1:]


def test_clients_that_do_not_ask_see_the_launch_and_no_trial():
    class Counts(AllConfigs):
        analyses_all_configs = False

    quiet, asks = Counts(), AllConfigs()
    kernel = triton.autotune(configs(8, 16), key=["n"])(add_kernel)
    session = run(kernel, torch.zeros(N), N, clients=[quiet, asks])
    assert quiet.launches == session.launches and len(asks.launches) == 3


def test_all_configs_are_analysed_once_for_each_session_also_with_a_warm_key():
    kernel = triton.autotune(configs(8, 16), key=["n"], reset_to_zero=["out"])(add_kernel)
    out = torch.zeros(N)
    run(kernel, out, N)
    client = AllConfigs()
    with tritontrace.session([client]) as session:
        for _ in range(3):
            kernel[blocks(N)](out, N)
    assert [len(launch.trials) for launch in session.launches] == [2, 0, 0]
    assert len(client.launches) == 5
    assert torch.equal(out, torch.full((N,), 4.0)), "a warm key does not reset, analysed or not"


def test_a_fault_of_a_config_that_was_not_chosen_is_found():
    @triton.jit
    def faulty(out, OFFSET: tl.constexpr):
        tl.store(out + OFFSET + tl.arange(0, 8), 1.0)

    kernel = triton.autotune([triton.Config({"OFFSET": 0}), triton.Config({"OFFSET": 12})], key=[])(faulty)
    out = torch.zeros(N)
    session = run(kernel, out, grid=(1,), clients=["sanitizer"])
    assert session.launches[0].config == {"OFFSET": 0} and out.sum() == 8
    (finding,) = session.findings
    assert session.launches[0].findings == [finding]
    assert finding.kind == "out_of_bounds" and list(finding.elements) == [16, 17, 18, 19]
    assert finding.launch is session.launches[0].trials[1] and finding.launch.config == {"OFFSET": 12}


def test_a_fault_of_every_config_is_one_finding_of_the_launch():
    @triton.jit
    def faulty(out, BLOCK: tl.constexpr):
        tl.store(out + 12 + tl.arange(0, BLOCK), 1.0)

    kernel = triton.autotune(configs(8, 16), key=[])(faulty)
    session = run(kernel, torch.zeros(N), grid=(1,), clients=["sanitizer"])
    assert len(session.launches[0].findings) == len(session.findings) == 1
    assert [len(trial.findings) for trial in session.launches[0].trials] == [1, 1]
    assert session.launches[0].findings[0].launch is session.launches[0]


def test_reset_to_zero_is_applied_once_by_the_launch_that_tunes():
    kernel = triton.autotune(configs(8, 16), key=["n"], reset_to_zero=["out"])(add_kernel)
    before = state(kernel)
    out = torch.full((N,), 5.0)
    run(kernel, out, N)
    assert torch.equal(out, torch.ones(N))
    run(kernel, out, N)
    assert torch.equal(out, torch.full((N,), 2.0))
    assert state(kernel) == before


def test_restore_value_works_on_the_copies_and_leaves_the_user_alone():
    kernel = triton.autotune(configs(8, 16), key=["n"], restore_value=["out"])(scale_kernel)
    before = state(kernel)
    out = torch.ones(N)
    run(kernel, out, N, clients=[AllConfigs()])
    assert torch.equal(out, torch.full((N,), 2.0))
    assert state(kernel) == before and not getattr(kernel, "restore_copies", None)


def test_user_given_hooks_stay_and_see_what_the_kernel_gets():
    log = []

    def pre(kwargs, reset_only=False):
        log.append(("pre", reset_only, kwargs["BLOCK"], kwargs["out"]))

    def post(kwargs, exception):
        log.append(("post", exception, kwargs["BLOCK"], kwargs["out"]))

    kernel = triton.autotune(configs(8, 16), key=["n"], pre_hook=pre, post_hook=post)(add_kernel)
    out = torch.zeros(N)
    session = run(kernel, out, N, clients=[AllConfigs()])
    shape = [(kind, what, block) for kind, what, block, _ in log]
    assert shape == [("pre", False, 8), ("post", None, 8), ("pre", False, 16), ("post", None, 16), ("pre", True, 8)]
    pointers = [tensor.data_ptr() for *_, tensor in log]
    trials = [trial.argument("out").data_ptr for trial in session.launches[0].trials]
    assert pointers == [trials[0], trials[0], trials[1], trials[1], out.data_ptr()]
    # The trials wrote to the copies, which the hooks saw.
    assert log[1][3].sum() == 16 and out.sum() == 16


def test_config_pre_hooks_run_on_what_they_should_see():
    seen = []

    def zero(named):
        seen.append((named["BLOCK"], named["out"].data_ptr()))
        named["out"].zero_()

    kernel = triton.autotune(configs(8, 16, pre_hook=zero), key=["n"])(add_kernel)
    out = torch.full((N,), 7.0)
    session = run(kernel, out, N)
    (launch,) = session.launches
    trials = [trial.argument("out").data_ptr for trial in launch.trials]
    assert seen == [(8, trials[0]), (16, trials[1]), (8, out.data_ptr())]
    assert torch.equal(out, torch.ones(N))
    run(kernel, out, N)
    assert len(seen) == 4 and torch.equal(out, torch.ones(N))
    # With one config there is no trial.
    seen.clear()
    single = triton.autotune(configs(8, pre_hook=zero), key=["n"])(add_kernel)
    run(single, out, N)
    assert seen == [(8, out.data_ptr())]


def test_pruning_is_honoured():
    asked = []

    def early(configs, named, **kwargs):
        asked.append((len(configs), named["out"], kwargs["grid"]))
        return configs[1:]

    def model(out, n, BLOCK, **kwargs):
        return -BLOCK

    kernel = triton.autotune(
        configs(4, 8, 16), key=["n"], prune_configs_by={"early_config_prune": early, "perf_model": model, "top_k": 1}
    )(add_kernel)
    out = torch.zeros(N)
    launch = run(kernel, out, N, grid=(4,)).launches[0]
    assert launch.config == {"BLOCK": 16} and asked[0][0] == 3 and asked[0][1] is out and asked[0][2] == (4,)

    nothing = triton.autotune(configs(4, 8), key=[], prune_configs_by={"early_config_prune": lambda *a, **k: []})(add_kernel)
    with pytest.raises(Exception, match="No valid autotuner configs"):
        run(nothing, out, N)
    # A pruning function that changes the list it is given changes a copy.
    greedy = triton.autotune(
        configs(4, 8, 16), key=[], prune_configs_by={"early_config_prune": lambda c, *a, **k: [c.pop(), c.pop()]}
    )(add_kernel)
    run(greedy, out, N)
    assert len(greedy.configs) == 3


def test_a_config_that_does_not_compile_is_not_chosen():
    @triton.jit
    def picky(out, BLOCK: tl.constexpr):
        tl.static_assert(BLOCK > 8)
        tl.store(out + tl.arange(0, BLOCK), 1.0)

    kernel = triton.autotune(configs(8, 16), key=[])(picky)
    out = torch.zeros(N)
    launch = run(kernel, out, grid=(1,)).launches[0]
    assert launch.config == {"BLOCK": 16} and out.sum() == 16
    assert launch.trials[0].error is not None and launch.trials[1].error is None
    with pytest.raises(Exception, match="BLOCK"):
        run(triton.autotune(configs(4, 8), key=[])(picky), out, grid=(1,))


def test_a_keyword_that_the_configs_define_conflicts():
    kernel = triton.autotune(configs(8, 16), key=["n"])(add_kernel)
    with pytest.raises(ValueError, match="Conflicting meta-parameters: BLOCK"):
        run(kernel, torch.zeros(N), N, BLOCK=8)


def test_another_error_in_a_trial_reaches_the_user_and_the_post_hook():
    told = []

    def pre(kwargs, reset_only=False):
        pass

    class Fails(AllConfigs):
        def for_launch(self, launch):
            if launch.trial:
                raise OSError("in a trial")
            return super().for_launch(launch)

    kernel = triton.autotune(configs(8, 16), key=["n"], pre_hook=pre, post_hook=lambda kwargs, exception: told.append(exception))(
        add_kernel
    )
    before = state(kernel)
    out = torch.zeros(N)
    with pytest.raises(OSError, match="in a trial") as caught:
        run(kernel, out, N, clients=[Fails()])
    assert told == [caught.value] and state(kernel) == before and out.sum() == 0


def test_keyword_arguments_are_copied_for_trials_too():
    kernel = triton.autotune(configs(8, 16), key=["n"])(add_kernel)
    out = torch.zeros(N)
    run(kernel, out=out, n=N, clients=[AllConfigs()])
    assert torch.equal(out, torch.ones(N))


def test_trials_see_aliasing_arguments_as_aliases():
    @triton.jit
    def chain(a, b, BLOCK: tl.constexpr):
        i = tl.arange(0, BLOCK)
        tl.store(a + i, 3.0)
        tl.debug_barrier()
        tl.store(b + 8 + i, tl.load(b + i))

    class Sees(AllConfigs):
        def finalize(self):
            return []

    seen = []
    kernel = triton.autotune(
        configs(4, 8), key=[], pre_hook=lambda kwargs, reset_only=False: seen.append((kwargs["a"], kwargs["b"], reset_only))
    )(chain)
    base = torch.zeros(32)
    a, b = base[4:20], base[4:]
    run(kernel, a, b, grid=(1,), clients=[Sees()])
    for left, right, reset_only in seen:
        assert left.data_ptr() == right.data_ptr() and (left.data_ptr() == a.data_ptr()) == reset_only
        assert left.storage_offset() == 4 and left.untyped_storage().nbytes() == 128
    assert base.sum() == 2 * 4 * 3


def test_trials_do_not_write_through_pointers_that_are_not_arguments():
    @triton.jit
    def indirect(table, BLOCK: tl.constexpr):
        p = tl.load(table).to(tl.pointer_type(tl.float32))
        tl.atomic_add(p + tl.arange(0, BLOCK), 1.0)

    target = torch.zeros(N)
    table = torch.tensor([target.data_ptr()])
    kernel = triton.autotune(configs(8, 16), key=[])(indirect)
    with tritontrace.session([AllConfigs()]) as session:
        kernel[(1,)](table)
    assert all(trial.completed for trial in session.launches[0].trials)
    assert target.sum() == 8
    with tritontrace.session([AllConfigs()]) as session:
        session.register_memory(target)
        kernel[(1,)](table)
    assert target.sum() == 16


def test_descriptors_are_copied_with_what_a_pre_hook_sets_on_them():
    @triton.jit
    def fill(desc, BLOCK: tl.constexpr):
        desc.store([tl.program_id(0) * BLOCK, 0], desc.load([tl.program_id(0) * BLOCK, 0]) + 1)

    shapes = []

    def pre(named):
        shapes.append(named["desc"])
        named["desc"].block_shape = [named["BLOCK"], 16]

    kernel = triton.autotune(configs(4, 8, pre_hook=pre), key=[])(fill)
    out = torch.zeros(8, 16)
    desc = TensorDescriptor.from_tensor(out, [1, 16])
    session = run(kernel, desc, grid=lambda meta: (8 // meta["BLOCK"],), clients=[AllConfigs()])
    assert torch.equal(out, torch.ones(8, 16))
    assert [d is desc for d in shapes] == [False, False, True]
    assert [d.block_shape for d in shapes] == [[4, 16], [8, 16], [4, 16]]
    assert session.launches[0].trials[1].grid == (1, 1, 1)


def test_two_threads_on_one_cold_kernel():
    for _ in range(20):
        kernel = triton.autotune(configs(8, 16), key=["n"], reset_to_zero=["out"])(
            triton.heuristics({"EXTRA": lambda a: 1})(copy_kernel)
        )
        outs = [torch.zeros(N) for _ in range(4)]
        errors = []
        start = threading.Barrier(4)

        def work(out, kernel=kernel, start=start, errors=errors):
            try:
                start.wait()
                with tritontrace.session([AllConfigs()]) as session:
                    kernel[blocks(N)](torch.arange(float(N)), out, N)
                assert len(session.launches) == 1 and len(session.launches[0].trials) in (0, 2)
            except BaseException as error:
                errors.append(error)

        threads = [threading.Thread(target=work, args=(out,)) for out in outs]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not errors
        assert all(torch.equal(out, torch.arange(float(N)) + 1) for out in outs)
        assert kernel.nargs is None if hasattr(kernel, "nargs") else True


def test_the_tuners_listener_hears_of_a_launch_once(monkeypatch):
    if tuple(map(int, triton.__version__.split(".")[:2])) < (3, 8):
        pytest.skip("this Triton calls no listener")
    heard = []
    monkeypatch.setattr(triton.knobs.autotuning, "listener", lambda **kwargs: heard.append(kwargs))
    kernel = triton.autotune(configs(8, 16), key=["n"])(triton.heuristics({"EXTRA": lambda a: 0})(copy_kernel))
    with tritontrace.session([]), tritontrace.session([AllConfigs()]):
        kernel[blocks(N)](torch.zeros(N), torch.zeros(N), N)
        kernel[blocks(N)](torch.zeros(N), torch.zeros(N), N)
    (call,) = heard
    assert call["fn"] is copy_kernel and call["best_config"] is kernel.configs[0] and not call["cache_hit"]
    assert list(call["configs_timings"]) == kernel.configs


def test_the_users_own_warmup_of_an_autotuned_kernel_gives_one_compiled_kernel_for_each_config():
    kernel = triton.autotune(configs(8, 16), key=["n"])(triton.heuristics({"EXTRA": lambda a: a["BLOCK"]})(copy_kernel))
    before = state(kernel)
    with tritontrace.session([]) as session:
        compiled = kernel.warmup(torch.float32, torch.float32, N, grid=(1,))
        assert len(compiled) == 2
        (launch,) = session.launches
        assert launch.warmup and not launch.completed
        x, out = torch.zeros(N), torch.zeros(N)
        compiled[1][(1,)](x, out, N)
    assert torch.equal(out, torch.full((N,), 16.0)) and len(session.launches) == 2
    assert state(kernel) == before
    with pytest.raises(KeyError), tritontrace.session([]):
        kernel.warmup(torch.float32, torch.float32, N, grid=(1,), NO_SUCH=1)
    assert state(kernel) == before


# -- traces between layers ---------------------------------------------------------------------------------------------


def test_a_trace_over_the_decorators():
    kernel = triton.autotune(configs(8, 16), key=["n"])(add_kernel)
    before = state(kernel)
    traced = trace(kernel, clients=["sanitizer"])
    assert isinstance(traced, Autotuner) and isinstance(trace(heuristic(add_kernel, n=lambda a: N)), Heuristics)
    out = torch.zeros(N)
    traced[blocks(N)](out, N)
    assert torch.equal(out, torch.ones(N))
    assert len(traced.launches) == 1 and len(traced.launches[0].trials) == 2
    assert state(kernel) == before


def test_a_trace_under_the_decorators_inside_a_session():
    traced = trace(add_kernel)
    kernel = triton.autotune(configs(8, 16), key=["n"])(traced)
    out = torch.zeros(N)
    session = run(kernel, out, N)
    assert torch.equal(out, torch.ones(N))
    for launches in (session.launches, traced.launches):
        assert len(launches) == 1 and not launches[0].trial and len(launches[0].trials) == 2
    assert session.launches[0] is not traced.launches[0]


def test_a_trace_under_a_tuner_of_tritons_outside_a_session_marks_the_trials():
    traced = trace(add_kernel)

    def bench(call, quantiles):
        call()
        call()
        return [1.0, 1.0, 1.0]

    kernel = triton.autotune(configs(8, 16), key=["n"], do_bench=bench)(triton.heuristics({"n": lambda a: N})(traced))
    kernel[blocks(N)](torch.zeros(N))
    assert [launch.trial for launch in traced.launches] == [True] * 4 + [False]
    kernel[blocks(N)](torch.zeros(N))
    assert [launch.trial for launch in traced.launches] == [True] * 4 + [False] * 2


def test_without_a_driver_a_tuner_over_a_trace_says_what_to_do():
    if torch.cuda.is_available():
        pytest.skip("there is a driver here")
    traced = trace(add_kernel)
    kernel = triton.autotune(configs(8, 16), key=["n"])(traced)
    with pytest.raises(tritontrace.TritonTraceError, match="trace over the decorator"):
        kernel[blocks(N)](torch.zeros(N), N)
    assert kernel.arg_names == add_kernel.arg_names and "n" in kernel.arg_names and "m" not in kernel.arg_names
    out = torch.zeros(N)
    trace(kernel)[blocks(N)](out, N)
    assert torch.equal(out, torch.ones(N))


def test_the_chain_of_a_kernel():
    traced = trace(add_kernel)
    inner = triton.heuristics({"n": lambda a: N})(traced)
    outer = trace(triton.autotune(configs(8), key=[])(inner))
    chain = Chain(outer)
    assert chain.leaf is add_kernel and chain.layers == [outer.__wrapped__, inner]
    assert len(chain.scopes) == 2
    assert type(traced) is TritonTrace


def test_warnings_are_not_raised_for_ordinary_layers():
    kernel = triton.autotune(configs(8, 16), key=["n"], reset_to_zero=["out"])(add_kernel)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        run(kernel, torch.zeros(N), N)


@pytest.mark.parametrize("clients", [[], ["sanitizer"]])
def test_a_layered_launch_lets_go_of_its_tensors_at_once(clients):
    kernel = triton.autotune(configs(8, 16), key=["n"], reset_to_zero=["out"], restore_value=["x"])(
        triton.heuristics({"EXTRA": lambda a: 1})(copy_kernel)
    )
    run(kernel, torch.zeros(N), torch.zeros(N), N, clients=clients)
    gc.collect()
    gc.disable()
    try:
        for n in (N, 8):
            x, out = torch.zeros(N), torch.zeros(N)
            dead = [weakref.ref(x), weakref.ref(out)]
            session = run(kernel, x, out, n, clients=clients)
            del x, out
            assert [reference() for reference in dead] == [None, None] and len(session.launches) == 1
    finally:
        gc.enable()


def test_a_layer_that_launches_twice_makes_two_launches():
    class Twice(triton.runtime.KernelInterface):
        def __init__(self, fn):
            self.fn, self.arg_names = fn, fn.arg_names

        def run(self, *args, **kwargs):
            self.fn.run(*args, **kwargs)
            return self.fn.run(*args, **kwargs)

    traced = trace(Twice(add_kernel), clients=[AllConfigs()])
    out = torch.zeros(N)
    with tritontrace.session([]) as session:
        traced[blocks(N)](out, N, BLOCK=8)
    assert torch.equal(out, torch.full((N,), 2.0))
    for launches in (session.launches, traced.launches):
        assert len(launches) == 2 and all(launch.completed for launch in launches)
        assert [launch.index for launch in launches] == [0, 1]
