"""Which key is which class."""

from collections.abc import Mapping

# n, s, u, x, z, y, q, c, m and d are the page's own: new, skip, not sure, none, undo, …
KEYS = "1234567890abefghijklmoprtvw"


def keys_of(names: Mapping[int, str]) -> dict[int, str]:
    """A key for each class; "" where none is left.

    A class whose name is a key gets it: the class 3 is the key 3. All others get one by their id,
    so that keys stay where they are when a class is merged into another.

    >>> keys_of({0: "cat", 1: "dog", 3: "1"})
    {0: '3', 1: '2', 3: '1'}
    """
    found: dict[int, str] = {}
    taken: set[str] = set()

    def take(number: int, key: str) -> None:
        if number not in found and key and key in KEYS and key not in taken:
            found[number] = key
            taken.add(key)

    for number, name in names.items():
        take(number, name.lower() if len(name) == 1 else "")
    for number in names:
        take(number, KEYS[number] if number < len(KEYS) else "")
    for number in names:
        take(number, next((key for key in KEYS if key not in taken), ""))
    return {number: found.get(number, "") for number in names}
