"""Random slot values: file names, people, items and codes, all from a seeded `Random`."""

from __future__ import annotations

from random import Random

_FIRST = """
amber autumn basic blue bright broad calm city clear coast common copper daily deep early east fresh front garden
gold grand green harbor home inner iron lake large late light lower main maple metro mild new north ocean open
orange paper pine plain prime quick quiet rapid red river round royal silver simple small solid south spring square
steel stone summer sunny tidy upper urban valley violet warm west white wide winter yellow
""".split()  # noqa: SIM905 - a list of quoted words would take a page
_SECOND = """
agenda album archive balance board brief budget catalog chart checklist club course diary draft event export fair
guide index inventory journal ledger letter list log map meeting memo menu minutes notes order outline parcel plan
poster profile project quote recipe record report review roster route sample schedule sheet sketch statement stock
store summary survey table team ticket tour track travel update visit week
""".split()  # noqa: SIM905 - a list of quoted words would take a page
PEOPLE = """
Alice Amir Anna Ben Carla Chen Clara Daniel David Diego Elena Emma Eric Fatima Felix Grace Hannah Hugo Ivan Jana
Jonas Julia Karim Laura Leo Linda Lucas Maria Marta Max Mira Nadia Nina Noah Olga Omar Paul Petra Rosa Ruth Samir
Sara Simon Sonia Theo Tina Tom Vera Victor Zoe
""".split()  # noqa: SIM905 - a list of quoted words would take a page
ITEMS = """
apples bags batteries bolts books bottles boxes brushes cables candles carpets chairs clocks cups desks doors
envelopes folders forks frames gloves hammers jackets keys knives ladders lamps lemons locks mirrors nails paints
paper pencils pens plates pots rulers screens shelves shirts soaps spoons stamps tables tapes tiles towels wheels
wires
""".split()  # noqa: SIM905 - a list of quoted words would take a page
CITIES = """
Athens Bergen Berlin Bilbao Boston Cairo Chicago Cork Dallas Delhi Denver Dublin Geneva Genoa Ghent Glasgow Hamburg
Helsinki Kyoto Leeds Lima Lisbon London Lyon Madrid Malaga Milan Munich Nairobi Naples Nice Osaka Oslo Paris Porto
Prague Quito Riga Rome Seoul Sofia Tallinn Tokyo Toronto Turin Utrecht Verona Vienna Warsaw Zurich
""".split()  # noqa: SIM905 - a list of quoted words would take a page
_LETTERS, _DIGITS = "ABCDEFGHJKLMNPQRSTUVWXYZ", "23456789"


def stem(rng: Random) -> str:
    """`amber-report`: 80 x 70 names without an extension."""
    return f"{rng.choice(_FIRST)}-{rng.choice(_SECOND)}"


def stems(rng: Random, count: int) -> list[str]:
    """`count` names that differ in both halves, so that no wildcard meant for one catches another."""
    firsts, seconds = rng.sample(_FIRST, count), rng.sample(_SECOND, count)
    return [f"{a}-{b}" for a, b in zip(firsts, seconds, strict=True)]


def code(rng: Random) -> str:
    """A value nobody can guess, such as `QK47XW`."""
    return "".join(rng.choice(_LETTERS) + rng.choice(_DIGITS) for _ in range(3))


def people(rng: Random, count: int) -> list[str]:
    return rng.sample(PEOPLE, count)


def items(rng: Random, count: int) -> list[str]:
    return rng.sample(ITEMS, count)


def cities(rng: Random, count: int) -> list[str]:
    return rng.sample(CITIES, count)


def sentence(rng: Random) -> str:
    """A plain line such as `Call Emma about the lamps in Lyon`."""
    verb = rng.choice(["Call", "Meet", "Email", "Ask", "Remind", "Visit", "Thank", "Pay"])
    return f"{verb} {rng.choice(PEOPLE)} about the {rng.choice(ITEMS)} in {rng.choice(CITIES)}"


def sentences(rng: Random, count: int) -> list[str]:
    """Different lines; no two start with the same three words."""
    people_, things, towns = people(rng, count), items(rng, count), cities(rng, count)
    verbs = ["Call", "Meet", "Email", "Ask", "Remind", "Visit", "Thank", "Pay"]
    return [f"{rng.choice(verbs)} {p} about the {i} in {c}" for p, i, c in zip(people_, things, towns, strict=True)]


def text(lines: list[str]) -> bytes:
    """Lines as the bytes of a text file."""
    return ("\n".join(lines) + "\n").encode()


def table(rows: list[list[str]]) -> bytes:
    """Rows as the bytes of a CSV file (no value needs quoting)."""
    return text([",".join(row) for row in rows])
