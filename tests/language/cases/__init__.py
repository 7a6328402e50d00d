"""One module for each part of the language; importing this package makes all cases known."""

from tests.language.cases import arithmetic, debug, library, memory, programs, randoms, reductions, shapes, tiles, types

__all__ = ["arithmetic", "debug", "library", "memory", "programs", "randoms", "reductions", "shapes", "tiles", "types"]
