"""Kernels and a watching client for the tests of a launch's life."""

import types

import triton
import triton.language as tl

import tritontrace
from tritontrace import events
from tritontrace.clients.base import Client, OpCallbacks
from tritontrace.tracing import trace

N = 16


@triton.jit
def add_one(x, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x + i, tl.load(x + i, mask=i < n) + 1, mask=i < n)


@triton.jit
def checked(x, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    value = tl.load(x + i)
    tl.device_assert(value > 0, "must be positive")
    tl.store(x + i, value + 1)


@triton.jit
def twice(v):
    return v * 2


traced_twice = trace(twice)


@triton.jit
def by_name(x, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(x + i, traced_twice(tl.load(x + i)))


helpers = types.ModuleType("helpers")
helpers.helper = traced_twice


@triton.jit
def by_module(x, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(x + i, helpers.helper(tl.load(x + i)))


@triton.jit
def by_argument(x, F: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(x + i, F(tl.load(x + i)))


@triton.jit
def by_default(x, BLOCK: tl.constexpr, F: tl.constexpr = traced_twice):
    i = tl.arange(0, BLOCK)
    tl.store(x + i, F(tl.load(x + i)))


@triton.jit
def outer_helper(v):
    return traced_twice(v)


traced_outer = trace(outer_helper)


@triton.jit
def two_deep(x, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(x + i, traced_outer(tl.load(x + i)))


def make_by_closure():
    helper = trace(twice)

    @triton.jit
    def by_closure(x, BLOCK: tl.constexpr):
        i = tl.arange(0, BLOCK)
        tl.store(x + i, helper(tl.load(x + i)))

    return by_closure


class Watch(Client):
    """Hands out a fresh object for every launch and keeps them all, with what they were told."""

    def __init__(self, name="watch", vote=False, fails=None):
        self.name = name
        self.vote = vote
        self.fails = fails
        self.opened = []

    def for_launch(self, launch):
        one = One(self, launch)
        self.opened.append(one)
        return one

    @property
    def only(self):
        (one,) = self.opened
        return one


class One(Client):
    def __init__(self, watch, launch):
        self.name = watch.name
        self.watch = watch
        self.launch = launch
        self.calls = []
        self.compiled = []
        self.stores = 0

    def _said(self, what):
        self.calls.append(what)
        if self.watch.fails == what:
            raise LookupError(f"{self.name} {what}")

    def pre_warmup_callback(self, jit_fn, launch):
        self.jit_fn = jit_fn
        self._said("vote")
        return self.watch.vote

    def post_warmup_callback(self, jit_fn, compiled):
        assert jit_fn is self.jit_fn
        self.compiled.append(compiled)
        self._said("compiled")

    def register_op_callback(self, op):
        if op is events.Load:
            self._said("register op")
        return OpCallbacks(before=self._hook) if op is events.Store else None

    def _hook(self, event):
        self.stores += 1
        assert event.launch is self.launch
        if "hook" not in self.calls:
            self._said("hook")

    def register_for_loop_callback(self):
        self._said("register loop")

    def pre_run_callback(self, launch):
        assert launch is self.launch and launch.arguments
        self._said("pre")

    def post_run_callback(self, launch):
        self._said("post")

    def finalize(self):
        self._said("finalize")
        return [self.name]


ORDER = ["vote", "register op", "register loop", "pre", "hook", "post", "finalize"]


def launch(kernel, *args, clients=(), grid=(1,), session=None, **kwargs):
    with tritontrace.session(list(clients), **(session or {})) as opened:
        kernel[grid](*args, **kwargs)
    return opened


def with_notes(error):
    return [str(error), *getattr(error, "__notes__", [])]


WAYS = {
    "global name": lambda: (by_name, {}),
    "closure": lambda: (make_by_closure(), {}),
    "module attribute": lambda: (by_module, {}),
    "constexpr argument": lambda: (by_argument, {"F": traced_twice}),
    "parameter default": lambda: (by_default, {}),
    "two helpers deep": lambda: (two_deep, {}),
}
