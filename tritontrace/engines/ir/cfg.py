"""Control-flow graphs of functions with several blocks: order, dominators, and the little simplification they need.

Triton's frontend leaves an unreachable block behind every ``return``, and jumps from block to block around it.
"""

from __future__ import annotations

from tritontrace.engines.ir.tree import Block, Op, Value

__all__ = ["Graph", "dominators", "reverse_postorder"]


def reverse_postorder(entry: Block) -> list[Block]:
    """The reachable blocks, each before its successors (loops apart), entry first."""
    order: list[Block] = []
    seen = {entry}
    stack: list[tuple[Block, int]] = [(entry, 0)]
    while stack:
        block, position = stack.pop()
        successors = block.ops[-1].successors if block.ops else []
        if position < len(successors):
            stack.append((block, position + 1))
            target = successors[position].block
            if target not in seen:
                seen.add(target)
                stack.append((target, 0))
        else:
            order.append(block)
    order.reverse()
    return order


def dominators(before: list[list[int]]) -> list[int]:
    """The immediate dominator of each block of a reverse postorder, as indices (Cooper, Harvey, Kennedy).

    `before` holds each block's predecessors. The entry, index 0, is its own.
    """
    above = [-1] * len(before)
    above[0] = 0
    changed = True
    while changed:
        changed = False
        for block in range(1, len(before)):
            best = -1
            for other in before[block]:
                if above[other] < 0:
                    continue
                if best < 0:
                    best = other
                    continue
                while best != other:
                    while other > best:
                        other = above[other]
                    while best > other:
                        best = above[best]
            if above[block] != best:
                above[block] = best
                changed = True
    return above


class Graph:
    """A region's reachable blocks with chains joined, in reverse postorder.

    A chain is a block that jumps to another which nothing else jumps to. The region itself is not changed: `blocks`
    are new (they share the ops), `index` finds a block of the region that heads a chain, `instead` gives for the
    arguments of the other blocks what stands for them.
    """

    def __init__(self, entry: Block) -> None:
        order = reverse_postorder(entry)
        self.instead: dict[Value, Value] = {}
        self.blocks: list[Block] = []
        self.index: dict[Block, int] = {}
        times: dict[Block, int] = {entry: 1}
        for block in order:
            for successor in block.ops[-1].successors if block.ops else []:
                times[successor.block] = times.get(successor.block, 0) + 1
        absorbed: set[Block] = set()
        for block in order:
            if block in absorbed:
                continue
            ops: list[Op] = list(block.ops)
            while ops and ops[-1].name == "cf.br":
                jump = ops[-1].successors[0]
                target = jump.block
                if times[target] != 1 or target is block or target in absorbed:
                    break
                self.instead.update(zip(target.arguments, jump.arguments, strict=True))
                absorbed.add(target)
                ops[-1:] = target.ops
            self.index[block] = len(self.blocks)
            self.blocks.append(Block(block.arguments, ops, block.label))

    def dominators(self) -> list[int]:
        """The immediate dominators of `blocks`."""
        before: list[list[int]] = [[] for _ in self.blocks]
        for i, block in enumerate(self.blocks):
            for successor in block.ops[-1].successors if block.ops else []:
                before[self.index[successor.block]].append(i)
        return dominators(before)
