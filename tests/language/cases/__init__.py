"""One module for each part of the language; importing this package makes all cases known."""

from tests.language.cases import arithmetic, debug, memory, programs, randoms, reductions, shapes, tiles, types

__all__ = ["arithmetic", "debug", "memory", "programs", "randoms", "reductions", "shapes", "tiles", "types"]
