"""Tuning in a traced launch: nothing is timed, trials run on copies of the tensors, the chosen config runs once."""

import gc
import threading
import weakref

import pytest
import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

import tritontrace
from tests.unit.layer_kernels import (
    AllConfigs,
    N,
    add_kernel,
    blocks,
    configs,
    copy_kernel,
    half_kernel,
    run,
    scale_kernel,
    state,
)
from tritontrace.kernels import capabilities


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
    if not capabilities.tuning_listener():
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


def test_configs_that_give_one_program_are_analysed_once_and_all_get_its_findings():
    tried = [triton.Config({"BLOCK": 8}, num_warps=warps) for warps in (1, 2, 4)] + [triton.Config({"BLOCK": 16})]
    kernel = triton.autotune(tried, key=["n"])(add_kernel)
    client = AllConfigs()
    with tritontrace.session(clients=[client, "sanitizer"]) as session:
        kernel[blocks(N + 1)](torch.zeros(N), N + 1)
    (launch,) = session.launches
    assert len(launch.trials) == 4 and all(trial.completed for trial in launch.trials)
    assert [len(trial.findings) for trial in launch.trials] == [len(launch.trials[0].findings)] * 4 != [0] * 4
    assert all(finding.launch is trial for trial in launch.trials for finding in trial.findings)
    # Once for each program, and the run itself.
    assert len(client.launches) == 3
