"""Randomness as a function of (seed, purpose, step, sample): never saved, never
replayed.

`stream` gives one sample its own numpy generator; `uniform` and `integers` draw for
whole arrays at once; `permutation` shuffles a range of any length without storing it.
"""

import hashlib

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Hashes = NDArray[np.uint64]
IntLike = int | np.int64 | Ints

# 2^64 over the golden ratio; it and the factors are SplitMix64's
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX_2 = np.uint64(0x94D049BB133111EB)


def stream(seed: int, purpose: str, step: int, sample: int = 0) -> np.random.Generator:
    """Return the generator of one sample: same four values, same numbers, on every
    machine.
    """
    key = np.array([_purpose_key(seed, purpose), np.uint64(step)], dtype=np.uint64)
    counter = np.array([0, 0, 0, sample], dtype=np.uint64)
    return np.random.Generator(np.random.Philox(key=key, counter=counter))


def torch_seed(seed: int, purpose: str, step: int, rank: int = 0) -> int:
    """Return a 63-bit seed for torch's generators at one step of one rank."""
    return int(
        random_bits(seed, purpose, np.int64(step), np.int64(rank)) >> np.uint64(1)
    )


def random_bits(seed: int, purpose: str, *indices: IntLike) -> Hashes:
    """Return 64 random bits for each combination of indices (arrays broadcast
    together).

    Each index is added and mixed in by SplitMix64's finaliser (Steele, Lea and Flood,
    OOPSLA 2014).
    """
    with np.errstate(over="ignore"):  # arithmetic modulo 2^64 is intended
        bits = np.asarray(np.uint64(_purpose_key(seed, purpose)))
        for index in indices:
            bits = bits + _GOLDEN + np.asarray(index).astype(np.uint64)
            bits = (bits ^ (bits >> np.uint64(30))) * _MIX_1
            bits = (bits ^ (bits >> np.uint64(27))) * _MIX_2
            bits = bits ^ (bits >> np.uint64(31))
        return bits


def uniform(seed: int, purpose: str, *indices: IntLike) -> NDArray[np.float64]:
    """Return numbers in [0, 1), one for each combination of indices."""
    # 53 bits of mantissa
    return (random_bits(seed, purpose, *indices) >> np.uint64(11)).astype(
        np.float64
    ) * 2.0**-53


def integers(
    seed: int, purpose: str, low: IntLike, high: IntLike, *indices: IntLike
) -> Ints:
    """Return integers in [low, high], both inclusive, one for each combination of
    indices.
    """
    span = np.asarray(high) - np.asarray(low) + 1
    draws: Ints = np.asarray(low) + (uniform(seed, purpose, *indices) * span).astype(
        np.int64
    )
    return draws


def permutation(
    seed: int, purpose: str, step: int, length: int, positions: Ints
) -> Ints:
    """Return where a stateless shuffle of range(length) puts each of `positions`.

    A four-round Feistel network over the next even power of two, repeated until it
    lands inside the range: a bijection for every length, without memory, found in
    constant expected time.
    """
    if length <= 1:
        return np.zeros_like(positions)
    half_bits = np.uint64(max(1, (int(length - 1).bit_length() + 1) // 2))
    mask = (np.uint64(1) << half_bits) - np.uint64(1)

    def shuffle(values: Hashes) -> Hashes:
        left = values >> half_bits
        right = values & mask
        for round_index in range(4):
            left, right = (
                right,
                left
                ^ (
                    random_bits(
                        seed, purpose, step, round_index, right.astype(np.int64)
                    )
                    & mask
                ),
            )
        return (left << half_bits) | right

    values = shuffle(positions.astype(np.uint64))
    while (outside := values >= length).any():
        values[outside] = shuffle(values[outside])
    return values.astype(np.int64)


def _purpose_key(seed: int, purpose: str) -> int:
    digest = hashlib.blake2b(f"{seed}:{purpose}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little")
