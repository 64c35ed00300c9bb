"""Independent random streams: one for each purpose, all derived from the run's seed."""

from __future__ import annotations

import hashlib

import numpy as np


def random_stream(seed: int, purpose: str) -> np.random.Generator:
    """A generator of its own for (seed, purpose): what one purpose draws never shifts another's draws.

    `seed` is 0 or more; `purpose` is any text (``"workload/arrival/0"``). The same pair gives the same draws under one
    version of NumPy, which may change its distributions from one to the next. Raises ValueError for a negative seed.
    """
    digest = hashlib.blake2b(purpose.encode(), digest_size=16).digest()
    words = tuple(int.from_bytes(digest[i : i + 4], "little") for i in range(0, 16, 4))
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence(seed, spawn_key=words)))
