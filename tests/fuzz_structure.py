"""Files that are well-formed and wrong: values, keys, types and shapes are replaced, in JSON and in
arrays, in one file or in several of a run together.

Beside the damaged bytes of :mod:`tests.fuzz`, which mostly break the syntax.
"""

import io
import json
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tests.runs import npz

_Place = tuple[Any, Any]  # a list or an object, and an index or a key of it
# Values that JSON can say and that readers trip over.
_VALUES: tuple[Callable[[], Any], ...] = tuple(
    lambda value=value: json.loads(value)  # type: ignore[misc]
    for value in (
        "null", "true", "false", "0", "-1", "1", "2", "0.5", "1e308", "-1e308", "1e-320", "NaN",
        "Infinity", "9" * 18, str(2**63), str(2**64), "1" + "0" * 308, "1" + "0" * 400,
        "-1" + "0" * 4290, '""', '"x"', '"\\ud800"', '"\\udc00\\ud800"', '"\\u0000"', '"NaN"',
        '"1"', '"a:b"', '"../x"', '"' + "y" * 100_000 + '"', "[]", "{}", "[[]]", "[null]", "[1, 2]",
        "[1e999]", '{"": null}', '{"x": {}}', "[" * 200 + "]" * 200,
    )
)  # fmt: skip


def restructure_json(random: Random, content: bytes) -> bytes:
    """JSON, or a line of JSON lines, with some of its values, keys or types replaced."""
    lines = content.splitlines()
    try:
        value, many = json.loads(content), False
    except ValueError:
        number = random.randrange(len(lines))
        value, many = json.loads(lines[number]), True
    root = [value]
    for _ in range(random.randint(1, 3)):
        _change(random, root)
    changed = json.dumps(root[0]).encode()
    if not many:
        return changed
    lines[number] = changed
    return b"\n".join(lines) + b"\n"


def _change(random: Random, root: list[Any]) -> None:
    places = _places(root)
    where, key = random.choice(places)
    how = random.choice(("value", "value", "value", "remove", "rename", "copy", "repeat"))
    if how == "value" or where is root:
        where[key] = random.choice(_VALUES)()
    elif how == "remove":
        del where[key]
    elif how == "rename" and isinstance(where, dict):
        where[random.choice(("", "x", "steps", f"{key} "))] = where.pop(key)
    elif how == "copy":
        other, name = random.choice(places)
        where[key] = json.loads(json.dumps(other[name]))
    elif isinstance(where[key], list):
        where[key] = where[key] * random.choice((2, 1000))
    else:
        where[key] = [where[key]] * 3


def _places(value: Any) -> list[_Place]:
    """All places within a value, from the top."""
    found: list[_Place] = []
    left = [value]
    while left:
        here = left.pop()
        inside = here.items() if isinstance(here, dict) else enumerate(here)
        for key, one in inside:
            found.append((here, key))
            if isinstance(one, dict | list):
                left.append(one)
    return found


def restructure_npz(random: Random, content: bytes) -> bytes:
    """An .npz file with some of its arrays replaced."""
    with np.load(io.BytesIO(content)) as file:
        arrays: dict[str, Any] = dict(file)
    for _ in range(random.randint(1, 2)):
        if not arrays:
            break
        name = random.choice(sorted(arrays))
        found = _changed_array(random, arrays[name])
        if found is None:
            del arrays[name]
        else:
            arrays[name] = found
    return npz(**arrays)


def _changed_array(random: Random, array: NDArray[Any]) -> NDArray[Any] | None:
    how = random.choice(("remove", "type", "value", "shape", "longer", "text"))
    if how == "remove":
        return None
    if how == "type" and array.dtype.kind != "U":
        with np.errstate(all="ignore"):
            return array.astype(random.choice(("?", "i1", "u8", "f2", "f8", "c8", "U3", "M8[s]")))
    if how == "value" and array.size and array.dtype.kind in "iuf":
        values = (np.nan, np.inf, -1) if array.dtype.kind == "f" else (-1, 2**31, 2**40, 10**6)
        changed = array.astype(np.float64 if array.dtype.kind == "f" else np.int64)
        changed.flat[random.randrange(changed.size)] = random.choice(values)
        return changed
    if how == "shape":
        return random.choice((array[:0], array[None], array.reshape(-1), array[..., None]))
    if how == "longer" and array.ndim:
        return np.concatenate([array] * random.choice((2, 40)))
    points = np.array(random.choice((0x110000, 0xD800, 0xFFFFFFFF, 0)), np.uint32)
    text: NDArray[Any] = np.full(array.shape or 1, points, np.uint32).view("<U1")
    return text


def restructure(random: Random, path: Path, content: bytes) -> bytes:
    """A file of a run, by its kind."""
    return (restructure_npz if path.suffix == ".npz" else restructure_json)(random, content)
