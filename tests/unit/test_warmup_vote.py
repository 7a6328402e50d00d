"""The warmup vote: who is asked, what is compiled, who is told, and that nothing of the user's is written."""

import itertools
import threading

import pytest
import torch
import triton
import triton.language as tl

import tritontrace
from tests.unit import lifecycle_kernels
from tests.unit.lifecycle_kernels import WAYS, N, Watch, add_one, helpers, launch, outer_helper, traced_twice, twice
from tritontrace.scopes.gates import gates_on


def language_state():
    return {part.__name__: dict(vars(part)) for part in (tl, tl.core, tl.tensor, tl.math, tl.standard)}


def users_state(kernel):
    return [dict(vars(each)) for each in (kernel, twice, outer_helper, lifecycle_kernels, helpers)]


@pytest.mark.parametrize("target", ["cuda:90", "hip:gfx942"])
@pytest.mark.parametrize("way", list(WAYS))
def test_a_voted_compile_of_a_kernel_that_calls_a_traced_helper(way, target):
    kernel, keywords = WAYS[way]()
    state = users_state(kernel)
    language = language_state()
    during = []

    class Looks(Watch):
        def for_launch(self, launch):
            one = super().for_launch(launch)
            one.post_warmup_callback = lambda jit_fn, compiled: (
                during.append((language_state() == language, users_state(kernel) == state)),
                one.compiled.append(compiled),
            )
            return one

    voter, other = Looks("voter", vote=True), Watch("other")
    calls = len(traced_twice.launches)
    x = torch.ones(N)
    session = launch(kernel, x, BLOCK=16, clients=[voter, other], session={"target": target}, **keywords)
    assert torch.equal(x, torch.full((N,), 2.0))
    (compiled,) = voter.only.compiled
    binary = "cubin" if target.startswith("cuda") else "hsaco"
    assert compiled.asm[binary] and f"{compiled.metadata.target.backend}:{compiled.metadata.target.arch}" == target
    assert not other.only.compiled
    assert session.launches[0].target == target and session.launches[0].compiled == [compiled]
    assert during == [(True, True)] and language_state() == language
    assert users_state(kernel) == state
    assert len(traced_twice.launches) == calls, "a helper's call is no launch"


@pytest.mark.parametrize("raises", [None, "compiled", "vote"])
def test_every_client_is_asked_and_only_the_voters_are_told(raises):
    watches = [Watch("yes", vote=True, fails=raises), Watch("no"), Watch("also", vote=True), Watch("never")]
    if raises is None:
        launch(add_one, torch.zeros(N), N, BLOCK=16, clients=watches)
    else:
        with pytest.raises(LookupError, match=f"yes {raises}"):
            launch(add_one, torch.zeros(N), N, BLOCK=16, clients=watches)
    assert [watch.only.calls.count("vote") for watch in watches] == [1, 1, 1, 1]
    told = [0, 0, 0, 0] if raises == "vote" else [1, 0, 1, 0]
    assert [len(watch.only.compiled) for watch in watches] == told
    assert [watch.only.calls.count("finalize") for watch in watches] == [1, 1, 1, 1]
    assert gates_on(add_one) == 0


def test_a_layered_kernel_is_compiled_once_for_each_config_at_every_launch():
    kernel = triton.autotune([triton.Config({"BLOCK": 8}, num_warps=2), triton.Config({"BLOCK": 16})], key=["n"])(
        triton.heuristics({"n": lambda a: N})(add_one)
    )
    before = dict(vars(kernel))
    watch = Watch(vote=True)
    x = torch.zeros(N)
    with tritontrace.session([watch]) as session:
        for _ in range(2):
            kernel[lambda meta: (N // meta["BLOCK"],)](x)
    assert torch.equal(x, torch.full((N,), 2.0))
    assert len(watch.opened) == 2, "trials are not the voters' launches"
    for one in watch.opened:
        assert one.calls.count("vote") == 1
        assert [compiled.metadata.num_warps for compiled in one.compiled] == [2, 4]
    assert [len(launch.compiled) for launch in session.launches] == [2, 2]
    assert vars(kernel) == before


def test_a_compile_sees_what_a_config_hook_sets():
    from triton.tools.tensor_descriptor import TensorDescriptor

    @triton.jit
    def fill(desc, BLOCK: tl.constexpr):
        desc.store([tl.program_id(0) * BLOCK, 0], desc.load([tl.program_id(0) * BLOCK, 0]) + 1)

    def pre(named):
        named["desc"].block_shape = [named["BLOCK"], 16]

    kernel = triton.autotune([triton.Config({"BLOCK": block}, pre_hook=pre) for block in (4, 8)], key=[])(fill)
    out = torch.zeros(8, 16)
    watch = Watch(vote=True)
    desc = TensorDescriptor.from_tensor(out, [1, 16])
    launch(kernel, desc, grid=lambda meta: (8 // meta["BLOCK"],), clients=[watch])
    assert ["8x16x" in compiled.asm["ttir"] for compiled in watch.only.compiled] == [False, True]
    assert torch.equal(out, torch.ones(8, 16))
    assert desc.block_shape == [4, 16], "the chosen config's hook was the last to set it"


def test_a_config_that_cannot_be_compiled_is_left_out_and_no_more():
    @triton.jit
    def picky(out, BLOCK: tl.constexpr):
        tl.static_assert(BLOCK > 8)
        tl.store(out + tl.arange(0, BLOCK), 1.0)

    kernel = triton.autotune([triton.Config({"BLOCK": 8}), triton.Config({"BLOCK": 16})], key=[])(picky)
    watch = Watch(vote=True)
    launch(kernel, torch.zeros(N), clients=[watch])
    assert len(watch.only.compiled) == 1


def test_the_users_own_warmup_inside_a_session():
    yes, no = Watch("yes", vote=True), Watch("no")
    x = torch.zeros(N)
    with tritontrace.session([yes, no]) as session:
        compiled = add_one.warmup(torch.float32, N, BLOCK=8, grid=(1,))
        assert yes.only.calls == ["vote", "compiled", "finalize"] and no.only.calls == ["vote", "finalize"]
        (warm,) = session.launches
        assert warm.warmup and not warm.completed and len(warm.compiled) == 1 and warm.argument("n").value == N
        assert compiled.metadata.num_warps == 4 and compiled.n_regs > 0 and "ptx" in compiled.asm
        compiled[(2, 1, 1)](x, N)
        compiled[(2, 1, 1)](x, N, 8)
    assert torch.equal(x, torch.full((N,), 2.0))
    assert [launch.warmup for launch in session.launches] == [True, False, False]


def test_warmup_called_by_a_client_during_the_vote_compiles_and_is_no_launch():
    class Compiles(Watch):
        def for_launch(self, launch):
            one = super().for_launch(launch)

            def vote(jit_fn, launch):
                one.own = jit_fn.warmup(torch.float32, N, BLOCK=32, grid=(1,))
                return False

            one.pre_warmup_callback = vote
            return one

    watch = Compiles()
    session = launch(add_one, torch.zeros(N), N, BLOCK=16, clients=[watch])
    assert len(session.launches) == 1 and "ptx" in watch.only.own.asm


def test_a_users_warmup_attribute_stays():
    mine = lambda *args, **kwargs: "mine"
    add_one.warmup = mine
    try:
        seen = []

        class Sees(Watch):
            def for_launch(self, launch):
                one = super().for_launch(launch)
                one.post_warmup_callback = lambda jit_fn, compiled: seen.append(vars(jit_fn)["warmup"] is mine)
                return one

        before = dict(vars(add_one))
        launch(add_one, torch.zeros(N), N, BLOCK=16, clients=[Sees(vote=True)])
        assert seen == [True] and vars(add_one) == before and add_one.warmup is mine
    finally:
        del add_one.warmup


def test_votes_of_overlapping_scopes_on_threads_leave_nothing_in_any_order():
    before = dict(vars(add_one))
    for order in itertools.permutations(range(3)):
        voting = threading.Barrier(4)
        go = [threading.Event() for _ in range(3)]
        done = [threading.Event() for _ in range(3)]
        errors = []

        class Waits(Watch):
            def __init__(self, index, voting=voting, go=go):
                super().__init__(f"waits {index}")
                self.index, self.voting, self.go = index, voting, go

            def for_launch(self, launch):
                one = super().for_launch(launch)

                def vote(jit_fn, launch):
                    self.voting.wait()
                    self.go[self.index].wait()
                    return False

                one.pre_warmup_callback = vote
                return one

        def work(index, waits=Waits, done=done, errors=errors):
            try:
                launch(add_one, torch.zeros(N), N, BLOCK=16, clients=[waits(index)])
            except BaseException as error:
                errors.append(error)
            finally:
                done[index].set()

        threads = [threading.Thread(target=work, args=(index,)) for index in range(3)]
        for thread in threads:
            thread.start()
        voting.wait()
        assert gates_on(add_one) == 3 and vars(add_one) == before
        for left, index in zip((2, 1, 0), order, strict=True):
            go[index].set()
            done[index].wait()
            assert gates_on(add_one) == left
        for thread in threads:
            thread.join()
        assert not errors
    assert vars(add_one) == before
