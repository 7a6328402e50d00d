"""Kernels, and a client that wants every config analysed, for the tests of layers."""

import triton
import triton.language as tl

import tritontrace
from tritontrace.clients.base import Client

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
        return Quiet()


class Quiet(Client):
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
