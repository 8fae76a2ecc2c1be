"""Integers too large to write out: residues and prime powers agree with arithmetic, and none takes long."""

import time

from slime_reward_math import compare
from slime_reward_math.read import read
from slime_reward_math.value.same import PRIMES, settle
from tests.tables import table


@table(
    "text, value",
    [
        ("2^{13}", 2**13),
        ("3^{40}-5", 3**40 - 5),
        ("6^{20}+6^{19}", 6**20 + 6**19),
        ("12!", 479001600),
        ("2^{2^{2^{2}}}", 2**16),
        ("-5^{9}", -(5**9)),
        ("\\frac{7^{30}}{49}", 7**28),
    ],
)
def test_residues_and_forms_agree_with_arithmetic(text: str, value: int) -> None:
    assert settle(read(text), read(str(value))) is True
    assert settle(read(text), read(str(value + 1))) is False


def test_the_moduli_are_primes() -> None:
    assert all(all(prime % divisor for divisor in range(2, int(prime**0.5) + 1)) for prime in PRIMES)


def test_no_tower_takes_long() -> None:
    sums = "+".join(f"{base}^{{10^{{{base}0}}}}" for base in range(2, 40))
    towers = ["9^{9^{9^{9^{9^9}}}}", "20000!+1", "(10^{9999}+7)^{10^{9999}}", sums]
    for tower in towers:
        start = time.thread_time()
        compare(tower, f"{tower}+1")
        compare(tower, f"1-1+{tower}")
        assert time.thread_time() - start < 2, tower
