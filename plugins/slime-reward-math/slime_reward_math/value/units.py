"""Units of measurement: what they measure and by how much, so that 5 km is 5000 m and never 5 m.

Example:

    measure("km/h")     # Measure(dimension="length/time", factor=Fraction(5, 18))
"""

import re
from fractions import Fraction
from typing import NamedTuple


class Measure(NamedTuple):
    """What a unit measures."""

    dimension: tuple[tuple[str, int], ...]
    """Base quantities with their powers, sorted; nothing for pure words."""
    factor: Fraction
    """How many base units it is."""


def _table() -> dict[str, Measure]:
    rows = {
        "length": "m meter metre 1; km kilometer kilometre 1000; cm centimeter centimetre 1/100; dm decimeter 1/10;"
        "mm millimeter millimetre 1/1000; nm nanometer 1/1000000000; um micrometer 1/1000000;"
        "picometer 1/1000000000000; femtometer 1/1000000000000000; angstrom 1/10000000000;"
        "in inch inches 127/5000; ft foot feet 381/1250; yd yard 1143/1250; mi mile 201168/125",
        "mass": "g gram 1; kg kilogram 1000; mg milligram 1/1000; ug microgram 1/1000000; t ton tonne 1000000;"
        "lb lbs pound 45359237/100000; oz ounce 45359237/1600000",
        "time": "s sec second 1; min minute 60; h hr hour 3600; day 86400; week 604800; ms millisecond 1/1000;"
        "ns nanosecond 1/1000000000; us microsecond 1/1000000; year yr 31557600; month 2629800;"
        "fortnight 1209600",
        "volume": "l liter litre 1; ml milliliter millilitre 1/1000; cl 1/100; dl 1/10;"
        "gallon gal 473176473/125000000; quart qt 473176473/500000000; pint pt 473176473/1000000000;"
        "cup 473176473/2000000000",
        "angle": "degree deg 1; degrees 1; radian rad 0",
        "money": "dollar usd buck 100; cent penny pennies 1; peso 10006;"
        "euro eur 10001; rupee 10002; yuan 10003; rmb 10003; yen 10004",
        "force": "n newton 1; kn kilonewton 1000",
        "energy": "j joule 1; kj kilojoule 1000; megajoule 1000000; millijoule 1/1000;"
        "ev 1602176634/10000000000000000000000000000; cal calorie 523/125;"
        "kcal 4184; kev 1602176634/10000000000000000000000000; mev 1602176634/10000000000000000000000;"
        "gev 1602176634/10000000000000000000; kwh 3600000",
        "power": "w watt 1; kw kilowatt 1000; milliwatt 1/1000; megawatt 1000000; gw gigawatt 1000000000; hp 7457/10",
        "pressure": "pa pascal 1; kpa kilopascal 1000; mpa megapascal 1000000;"
        "atm atmosphere 101325; bar 100000; mmhg torr 101325/760; gpa 1000000000",
        "frequency": "hz hertz 1; khz 1000; mhz megahertz 1000000; ghz gigahertz 1000000000; thz 1000000000000",
        "temperature": "k kelvin 1; celsius 1000003; fahrenheit 1000007",
        "charge": "c coulomb 1; mc millicoulomb 1/1000; uc microcoulomb 1/1000000",
        "voltage": "v volt 1; kv kilovolt 1000; millivolt 1/1000",
        "current": "a amp ampere 1; ma milliampere 1/1000",
        "resistance": "ohm omega 1; kohm kiloohm 1000; megaohm 1000000",
        "inductance": "henry 1",
        "capacitance": "f farad 1; uf microfarad 1/1000000; nf nanofarad 1/1000000000; pf picofarad 1/1000000000000",
        "magnetism": "tesla 1",
        "flux": "weber 1",
        "amount": "mol mole 1; mmol 1/1000",
        "speed": "mph 1397/3125; kmh kph 5/18; mps 1",
    }
    found: dict[str, Measure] = {}
    for dimension, row in rows.items():
        for entry in row.split(";"):
            *names, factor = entry.split()
            for name in names:
                measure = Measure(((dimension, 1),), Fraction(factor))
                found[name] = measure
                if len(name) > 2:
                    found.setdefault(name + "s", measure)
    return found


_UNITS = _table()
_SHORT = frozenset("msghlLNJWVTCKAFHÅ")
_POWERS = {"square": 2, "sq": 2, "squared": 2, "cubic": 3, "cu": 3, "cubed": 3}
_WORD = re.compile(r"[a-z]+")
_DEGREES = re.compile(r"(?:degrees?|deg) (?:(c)(?:elsius)?|(f)(?:ahrenheit)?)\b")
_PER = re.compile(r"\bper\b")
_PIECE = re.compile(r"([a-zµ]+)(?:\^?\{?(-?\d)\}?)?|([/*·. ])")
_UNIT_TEXT = re.compile(r"[a-z][a-z /*·.^()\d-]{0,40}")
_COUNTED = frozenset({"unit", "units", "square", "sq", "cubic", "per", "people", "ways", "points", "squared", "times"})


def is_unit(word: str) -> bool:
    """Whether a word of two letters or more names a unit, or something that is counted like one."""
    low = word.lower()
    return len(word) > 1 and (low in _UNITS or low in _COUNTED) and word not in ("in", "IN", "AM", "MI")


def is_unit_text(text: str) -> bool:
    """Whether a text is a unit with powers, quotients or products in it: `cm^2`, `m/s`, `L atm/(mol K)`."""
    return (
        _UNIT_TEXT.fullmatch(text) is not None
        and " " not in text.rstrip("0123456789")[-1:]
        and measure(text) is not None
    )


def is_short_unit(letter: str) -> bool:
    """Whether a single letter can be a unit: the caller knows whether it stands where units stand."""
    return letter in _SHORT


def measure(text: str) -> Measure | None:
    """What a unit measures; None if some of it is no known unit (`apples`, `square units`)."""
    low = _PER.sub("/", text.lower()).replace("\\", "")
    if low.startswith("deg"):
        low = _DEGREES.sub(lambda match: "celsius" if match[1] else "fahrenheit", low)
    words = _WORD.findall(low)
    if not words or len(words) > 6:
        return None
    powers: dict[str, int] = {}
    factor, sign, pending, after = Fraction(1), 1, 1, ""
    for name, power, operator in _PIECE.findall(low):
        if operator == "/":
            sign = -1
        elif name in ("squared", "cubed"):
            if not after:
                return None
            exponent = _POWERS[name] - 1
            for dimension, count in _UNITS[after].dimension:
                powers[dimension] = powers.get(dimension, 0) + count * exponent * sign
            factor *= _UNITS[after].factor ** (exponent * sign)
        elif name in _POWERS:
            pending = _POWERS[name]
        elif name:
            if name not in _UNITS or (_UNITS[name].factor == 0):
                return None
            exponent = (int(power) if power else 1) * pending * sign
            pending, after = 1, name
            for dimension, count in _UNITS[name].dimension:
                powers[dimension] = powers.get(dimension, 0) + count * exponent
            factor *= _UNITS[name].factor ** exponent
    return Measure(*_in_base(powers, factor))


_COMPOUNDS: tuple[tuple[str, dict[str, int], Fraction], ...] = (
    ("volume", {"length": 3}, Fraction(1, 1000)),
    ("speed", {"length": 1, "time": -1}, Fraction(1)),
    ("force", {"mass": 1, "length": 1, "time": -2}, Fraction(1000)),
    ("energy", {"mass": 1, "length": 2, "time": -2}, Fraction(1000)),
    ("power", {"mass": 1, "length": 2, "time": -3}, Fraction(1000)),
    ("pressure", {"mass": 1, "length": -1, "time": -2}, Fraction(1000)),
)
"""Derived quantities, with their base quantities and factors: masses are in grams."""


def _in_base(powers: dict[str, int], factor: Fraction) -> tuple[tuple[tuple[str, int], ...], Fraction]:
    """A litre is a cubic decimetre, a speed a length over a time, a newton a kilogram metre per second squared."""
    for compound, parts, scale in _COMPOUNDS:
        count = powers.pop(compound, 0)
        if count:
            factor *= scale**count
            for base, power in parts.items():
                powers[base] = powers.get(base, 0) + power * count
    return tuple(sorted((name, power) for name, power in powers.items() if power)), factor
