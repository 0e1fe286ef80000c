"""Mutations that keep the structure of what they change: JSON trees, tables, configuration texts, bytes."""

from __future__ import annotations

import copy
import gzip
import json
import zlib
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

#: A tree of JSON values; `Raw` and `Pairs` stand for what Python's own values cannot express.
Tree = Any
Path = tuple[Any, ...]


class Raw(str):
    """Text that is written into JSON as it is."""

    __slots__ = ()


class Pairs(list[tuple[str, Tree]]):
    """An object given by its pairs, so that keys may repeat."""


def dumps(tree: Tree) -> str:
    """JSON of a tree; lone surrogates are escaped, NaN and infinities written as Python does."""
    if isinstance(tree, Raw):
        return str(tree)
    if isinstance(tree, Pairs):
        return "{" + ", ".join(f"{json.dumps(key)}: {dumps(value)}" for key, value in tree) + "}"
    if isinstance(tree, dict):
        return dumps(Pairs(tree.items()))
    if isinstance(tree, list | tuple):
        return "[" + ", ".join(map(dumps, tree)) + "]"
    return json.dumps(tree)


TEXTS = (
    "",
    " ",
    "x",
    "nan",
    "inf",
    "-inf",
    "null",
    "true",
    "1e400",
    "1_000",
    "0x10",
    "-1",
    "١٢",
    "é",
    "名前",
    "\ud800",
    "\x00",
    "\n",
    "\r",
    "a,b",
    'a"b',
    "a=b",
    "a b",
    "../..",
    "/",
    "/dev/null",
    "/proc/self/mem",
    "<script>alert(1)</script>",
    "</script>",
    "${seed}",
    "%s%n",
    "{}",
    "[]",
    "1e5",
    "12GB",
    "-5us",
    "1e308h",
    "x" * 300,
    "x" * 200_000,
    "\ufeff",
    "\u202e",
    "0-3",
    "3-0",
    "0-99999999999",
    "5-",
    "all",
    "none",
)
NUMBERS = (
    0,
    -0.0,
    1,
    -1,
    2,
    0.5,
    1.5,
    7,
    63,
    64,
    1000,
    2**31 - 1,
    2**31,
    2**32,
    2**53,
    2**53 + 1,
    2**63 - 1,
    2**63,
    -(2**63),
    2**64,
    10**30,
    10**308,
    10**400,
    1e-320,
    1e-300,
    1e-9,
    1e9,
    1e12,
    1.1e12,
    1e15,
    1e18,
    1e100,
    1e300,
    1.7e308,
    -1e300,
    float("nan"),
    float("inf"),
    float("-inf"),
)
_RAW = (
    "1e309",
    "-1e309",
    "9" * 5000,
    "-0",
    "1e-400",
    "[" * 100_000,
    "[" * 5000 + "]" * 5000,
    '{"a":' * 3000 + "1" + "}" * 3000,
    "0." + "0" * 5000 + "1",
    "1e99999999999",
    '"\\ud800"',
    '"\\udc00\\ud800"',
    '"\\u0000"',
    "tru",
    "'a'",
    "01",
    "+1",
    ".5",
    "/*c*/1",
    "1,",
    "NaN",
    "Infinity",
)
CONTAINERS: tuple[Any, ...] = ([], {}, [[]], [None], {"": None}, [1, [2, [3]]], {"type": "x"}, [{}] * 3, ["a"] * 1000)


def weird(rng: Random) -> Tree:
    """A value that a reader hardly expects."""
    kind = rng.random()
    if kind < 0.35:
        return rng.choice(NUMBERS)
    if kind < 0.6:
        return rng.choice(TEXTS)
    if kind < 0.75:
        return rng.choice((None, True, False))
    if kind < 0.88:
        return copy.deepcopy(rng.choice(CONTAINERS))
    return Raw(rng.choice(_RAW))


def neighbour(rng: Random, value: Tree) -> Tree:
    """A value close to a given one: another type with the same content, or a number of another size."""
    if isinstance(value, bool):
        return rng.choice((not value, int(value), str(value).lower()))
    if isinstance(value, int | float):
        scaled = float(value) * 10.0 ** rng.randint(-18, 18) if abs(value) < 1e280 else 0.0
        return rng.choice((-value, value + 1, value - 1, scaled / 2, scaled, str(value), [value]))
    if isinstance(value, str):
        cut = rng.randrange(len(value) + 1)
        return rng.choice(
            (value[:cut], value + value, value[:cut] + rng.choice(TEXTS) + value[cut:], [value], value.upper())
        )
    if isinstance(value, list | tuple):
        return rng.choice(
            (list(value) * 2, list(value)[1:], list(value)[::-1], value[0] if value else None, {"0": list(value)})
        )
    if isinstance(value, dict):
        return rng.choice((list(value.items()), list(value), list(value.values())))
    return weird(rng)


def paths(tree: Tree, at: Path = ()) -> list[Path]:
    """The places of all values of a tree, the tree itself first."""
    found = [at]
    if isinstance(tree, dict):
        for key in tree:
            found += paths(tree[key], (*at, key))
    elif isinstance(tree, list) and not isinstance(tree, Pairs):
        for index, child in enumerate(tree):
            found += paths(child, (*at, index))
    return found


def get(tree: Tree, path: Path) -> Tree:
    """The value at a place."""
    for key in path:
        tree = tree[key]
    return tree


def put(tree: Tree, path: Path, value: Tree) -> Tree:
    """The tree with another value at a place."""
    if not path:
        return value
    get(tree, path[:-1])[path[-1]] = value
    return tree


def mutated(rng: Random, tree: Tree, times: int | None = None) -> Tree:
    """A copy of a tree with a few changes."""
    tree = copy.deepcopy(tree)
    for _ in range(rng.choice((1, 1, 1, 2, 3)) if times is None else times):
        places = paths(tree)
        path = rng.choice(places)
        if not path and rng.random() < 0.9 and len(places) > 1:
            path = rng.choice(places[1:])
        tree = _change(rng, tree, path, places)
    return tree


def _change(rng: Random, tree: Tree, path: Path, places: Sequence[Path]) -> Tree:
    parent = get(tree, path[:-1]) if path else None
    value = get(tree, path)
    way = rng.random()
    if way < 0.35 or parent is None:
        return put(tree, path, weird(rng))
    if way < 0.6:
        return put(tree, path, neighbour(rng, value))
    if way < 0.68:
        del parent[path[-1]]
    elif way < 0.76:
        # Two parts change places, or one stands in the other's as well.
        other = rng.choice(places[1:])
        if other[: len(path)] != path:
            put(tree, path, copy.deepcopy(get(tree, other)))
    elif isinstance(parent, dict):
        key = path[-1]
        if way < 0.84:
            pairs = Pairs(parent.items())
            pairs.insert(rng.randrange(len(pairs) + 1), (key, weird(rng) if rng.random() < 0.5 else value))
            return put(tree, path[:-1], pairs)
        if way < 0.92:
            parent[str(neighbour(rng, str(key))) if rng.random() < 0.5 else rng.choice(TEXTS)] = parent.pop(key)
        else:
            parent[rng.choice((*TEXTS, "type", "id", "number", "mem", "cpu", "com"))] = weird(rng)
    else:
        parent.insert(path[-1], weird(rng) if way < 0.9 else copy.deepcopy(value))
    return tree


def json_bytes(rng: Random, tree: Tree) -> bytes:
    """A mutated tree as the bytes of a file, at times damaged as bytes besides."""
    data = dumps(mutated(rng, tree) if rng.random() < 0.9 else tree).encode()
    return damaged(rng, data) if rng.random() < 0.12 else data


def damaged(rng: Random, data: bytes) -> bytes:
    """Bytes with a fault that no format knows of."""
    a = rng.randrange(len(data) + 1)
    b = min(len(data), a + rng.randint(1, 40))
    ways: tuple[Callable[[], bytes], ...] = (
        lambda: data[:a],
        lambda: data[:a] + data[b:],
        lambda: data[:a] + rng.randbytes(b - a) + data[b:],
        lambda: data[:b] + data[a:],
        lambda: b"\xef\xbb\xbf" + data,
        lambda: data.decode("utf-8", "replace").encode("utf-16"),
        lambda: data[:a] + b"\x00" + data[a:],
        lambda: data[:a] + b"\xff\xfe\xed\xa0\x80" + data[a:],
        lambda: data.replace(b"\n", b"\r"),
        lambda: data.replace(b"\n", b"\r\n"),
        lambda: b"",
        lambda: b"\x00" * 100,
        lambda: rng.randbytes(200),
        lambda: b"PK\x03\x04" + data,
        lambda: data * 50,
    )
    return rng.choice(ways)()


def packed(rng: Random, data: bytes) -> bytes:
    """Gzip of some bytes, often broken, seldom a bomb."""
    whole = gzip.compress(data, mtime=0)
    way = rng.random()
    if way < 0.5:
        return whole
    if way < 0.75:
        return damaged(rng, whole)
    if way < 0.9:
        return rng.choice(
            (data, gzip.compress(whole, mtime=0), whole + whole, whole + b"tail", b"\x1f\x8b", whole[:10])
        )
    return bomb(rng, rng.choice((b"\n", b" ", b";\n", b"[", b'{"a":', b"1 ", b"\x00", b"; a\n", data + b"\n")))


def bomb(rng: Random, unit: bytes) -> bytes:
    """A small gzip file of 100 MB to 2 GB."""
    chunk = unit * (1_000_000 // len(unit) + 1)
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    first = packer.compress(chunk) + packer.flush(zlib.Z_FULL_FLUSH)
    # After a full flush equal input gives equal output: the rest is copies.
    again = packer.compress(chunk) + packer.flush(zlib.Z_FULL_FLUSH)
    return first + again * rng.choice((100, 200, 500, 2000))


def table(rng: Random, text: str, separator: str = ",") -> str:
    """A table of cells with a few changes."""
    rows = [line.split(separator) for line in text.splitlines()]
    for _ in range(rng.choice((1, 1, 2, 3))):
        if not rows:
            break
        row = rng.randrange(len(rows))
        cell = rng.randrange(len(rows[row])) if rows[row] else 0
        way = rng.random()
        if way < 0.5 and rows[row]:
            rows[row][cell] = _cell(rng, rows[row][cell])
        elif way < 0.6:
            for cells in rows:
                if cell < len(cells):
                    cells[cell] = _cell(rng, cells[cell])
                    if rng.random() < 0.3:
                        break
        elif way < 0.66:
            del rows[row]
        elif way < 0.72:
            rows.insert(row, list(rows[rng.randrange(len(rows))]))
        elif way < 0.78:
            rows[row].insert(cell, _cell(rng, "1"))
        elif way < 0.84 and rows[row]:
            del rows[row][cell]
        elif way < 0.9:
            rows = [cells[:cell] + cells[cell + 1 :] for cells in rows]
        elif way < 0.94:
            rows = rows[: rng.randrange(len(rows) + 1)]
        elif way < 0.97:
            rng.shuffle(rows)
        else:
            rows.append(['"' + "x" * rng.choice((10, 200_000))])
    return "\n".join(separator.join(map(str, cells)) for cells in rows) + ("\n" if rng.random() < 0.9 else "")


def _cell(rng: Random, cell: str) -> str:
    way = rng.random()
    if way < 0.4:
        return str(rng.choice(NUMBERS))
    if way < 0.7:
        return rng.choice(TEXTS)
    try:
        return str(neighbour(rng, float(cell)))
    except (ValueError, OverflowError):
        return str(neighbour(rng, cell))


def text_bytes(rng: Random, text: str) -> bytes:
    """Text as the bytes of a file, at times damaged; lone surrogates become bytes that are not UTF-8."""
    data = text.encode("utf-8", "surrogatepass")
    return damaged(rng, data) if rng.random() < 0.15 else data


YAMLS = (
    "",
    "42",
    "[1, null]",
    "a: [1",
    "- 1\n- 2\n",
    "- a=b\n- [c]\n",
    "null",
    "- agent=easy",
    "a: b: c",
    "\ta: 1",
    "{a: 1, a: 2}",
    "&a [*a]",
    "!!python/object/apply:os.system [echo]",
    "a: !!binary x",
    "- !!set {a}",
    "? [1]\n: 2",
    "'\\ud800'",
    "- hydra.run.dir=/",
    "- agent.path=evil.py",
    "- +x",
    "- seed=",
    "2026-01-01",
    "- 2026-01-01",
    "[" * 3000,
    "a: &x [1]\nb: [*x, *x]",
    "\x00",
    "é: ü",
    "_target_: os.system",
    "defaults: 3",
    "defaults: [nope]",
    "defaults: [{agent: nope}]",
    "hydra: 3",
    "hydra: {run: 3}",
    "seed: ${nope:}",
    "seed: ???",
    "seed: ${seed}",
)
