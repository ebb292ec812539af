"""Randomness as a function of (seed, purpose, step, sample): never saved, never
replayed.

`stream` gives one sample its own numpy generator; `uniform` and `integers` draw for
whole arrays at once; `permutation` shuffles a range of any length without storing it.
"""

import hashlib
from functools import partial

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Hashes = NDArray[np.uint64]
IntLike = int | np.int64 | Ints

# SplitMix64's constants: 2^64 over the golden ratio, by which indices are set apart, and
# the two factors of its finalizer.
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX_2 = np.uint64(0x94D049BB133111EB)


def stream(seed: int, purpose: str, step: int, sample: int = 0) -> np.random.Generator:
    """Return the generator of one sample: same four values, same numbers, on every
    machine.
    """
    key = np.array([_purpose_key(seed, purpose), np.uint64(step)], dtype=np.uint64)
    # Philox counts up its 256-bit counter from the first word on: with the sample in the
    # last, each sample has 2^192 blocks of numbers before it meets the next one's.
    counter = np.array([0, 0, 0, sample], dtype=np.uint64)
    return np.random.Generator(np.random.Philox(key=key, counter=counter))


def torch_seed(seed: int, purpose: str, step: int, rank: int = 0) -> int:
    """Return a 63-bit seed for torch's generators at one step of one rank."""
    bits = random_bits(seed, purpose, np.int64(step), np.int64(rank))
    return int(bits >> np.uint64(1))  # without the sign of torch's 64-bit seeds


def random_bits(seed: int, purpose: str, *indices: IntLike) -> Hashes:
    """Return 64 random bits for each combination of indices (arrays broadcast
    together).

    Each index is added and mixed in by SplitMix64's finalizer (Steele, Lea and Flood,
    OOPSLA 2014).
    """
    with np.errstate(over="ignore"):  # arithmetic modulo 2^64 is intended
        bits = np.asarray(np.uint64(_purpose_key(seed, purpose)))
        for index in indices:
            bits = bits + _GOLDEN + np.asarray(index).astype(np.uint64)
            # Every bit of an index changes about half of the 64 bits.
            bits = (bits ^ (bits >> np.uint64(30))) * _MIX_1
            bits = (bits ^ (bits >> np.uint64(27))) * _MIX_2
            bits = bits ^ (bits >> np.uint64(31))
        return bits


def uniform(seed: int, purpose: str, *indices: IntLike) -> NDArray[np.float64]:
    """Return numbers in [0, 1), one for each combination of indices."""
    # The upper 53 bits: as many as float64 holds exactly, so that 1 is never reached.
    mantissas = random_bits(seed, purpose, *indices) >> np.uint64(11)
    return mantissas.astype(np.float64) * 2.0**-53


def integers(
    seed: int, purpose: str, low: IntLike, high: IntLike, *indices: IntLike
) -> Ints:
    """Return integers in [low, high], both inclusive, one for each combination of
    indices.
    """
    lowest = np.asarray(low)
    num_values = np.asarray(high) - lowest + 1
    # Rounding down is uniform up to num_values / 2^53, which no corpus comes near.
    above_lowest = (uniform(seed, purpose, *indices) * num_values).astype(np.int64)
    draws: Ints = lowest + above_lowest
    return draws


def permutation(
    seed: int, purpose: str, step: int, length: int, positions: Ints
) -> Ints:
    """Return where a stateless shuffle of range(length) puts each of `positions`.

    A Feistel network shuffles the next even power of two. A value that lands outside
    the range is shuffled again until it lands inside ("cycle walking", Black and
    Rogaway, CT-RSA 2002): a bijection for every length, without memory, in constant
    expected time, as the power is less than four times the length.
    """
    if length <= 1:
        return np.zeros_like(positions)
    # Two halves of equal size, which together can hold length - 1.
    half_bits = max(1, (int(length - 1).bit_length() + 1) // 2)
    shuffle = partial(_feistel, seed, purpose, step, half_bits)
    values = shuffle(positions.astype(np.uint64))
    # Each turn leaves at most three quarters of them outside, on average.
    is_outside = values >= length
    while is_outside.any():
        values[is_outside] = shuffle(values[is_outside])
        is_outside = values >= length
    return values.astype(np.int64)


def _feistel(
    seed: int, purpose: str, step: int, half_bits: int, values: Hashes
) -> Hashes:
    """Shuffle numbers of 2 * half_bits bits among themselves, in four rounds.

    A round swaps the halves and adds, by exclusive or, a random function of one to the
    other. The same function undoes it, so each round is a bijection whatever the
    function is; after four, it passes for a random one (Luby and Rackoff, SIAM J.
    Comput. 1988).
    """
    width = np.uint64(half_bits)
    mask = (np.uint64(1) << width) - np.uint64(1)
    left = values >> width
    right = values & mask
    for round_number in range(4):
        # a function of this half alone, which the next round finds unchanged
        bits = random_bits(seed, purpose, step, round_number, right.astype(np.int64))
        mixed = left ^ (bits & mask)
        left = right
        right = mixed
    return (left << width) | right


def hash_text(text: str) -> int:
    """Return a number of 64 bits, with a sign, that is the same for equal texts only."""
    data = text.encode("utf-8", "surrogatepass")
    digest = hashlib.blake2b(data, digest_size=8).digest()
    return int.from_bytes(digest, "little", signed=True)


def _purpose_key(seed: int, purpose: str) -> int:
    """Return 64 bits for a seed and a purpose; blake2b, because Python's hash() differs
    from process to process.
    """
    digest = hashlib.blake2b(f"{seed}:{purpose}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little")
