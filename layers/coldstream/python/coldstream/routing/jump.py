"""The jump consistent hash of x-consistent-hash: which of N buckets a key is in.

As the plugin does it, not as the paper: its random numbers are those of Erlang's `rand` by the algorithm exs1024
(xorshift1024*), seeded by the key three times over. `rand` makes a float of all 64 bits there, V / 2^64.
"""

from __future__ import annotations

from collections.abc import Iterator

from coldstream.routing.phash2 import Term, phash2

_MASK = (1 << 64) - 1
_MASK_21 = (1 << 21) - 1
_FACTORS = (2097131, 2097133, 2097143)
_WORDS = 16


def jump(key: Term, buckets: int) -> int:
    """Return the bucket of a key, 0 up to, not including, `buckets`, which is 1 at least.

    Of a list the first term counts; an integer is a seed as it is; any other term is hashed first. An empty list is
    hashed as RabbitMQ 4.3 does: earlier ones fail.
    """
    if buckets == 1:
        return 0
    if isinstance(key, list) and key:
        return jump(key[0], buckets)
    # bool is an int in Python, and an atom in Erlang.
    seed = key if isinstance(key, int) and not isinstance(key, bool) else phash2(key)
    bucket, following, numbers = -1, 0, uniform(seed)
    while following < buckets:
        bucket = following
        following = int((bucket + 1) / next(numbers))
    return bucket


def uniform(seed: int) -> Iterator[float]:
    """Yield what `rand:uniform_s` does of `rand:seed_s(exs1024, {seed, seed, seed})`, without end."""
    words = _seeded(seed)
    place = 0
    while True:
        first = words[place]
        place = (place + 1) % _WORDS
        second = words[place]
        second ^= second << 31 & _MASK
        words[place] = (first ^ first >> 30) ^ (second ^ second >> 11)
        yield (words[place] * 1181783497276652981 & _MASK) / (_MASK + 1)


def _seeded(seed: int) -> list[int]:
    low = (seed & _MASK_21) + 1
    one, two, three = (low * factor & _MASK_21 for factor in _FACTORS)
    state = one << 43 | two << 22 | three << 1 | 1
    words = []
    for _ in range(_WORDS):
        state ^= state >> 12
        state ^= state << 25 & _MASK
        state ^= state >> 27
        words.append(state * 2685821657736338717 & _MASK)
    # The last one made is the first one used.
    words.reverse()
    return words
