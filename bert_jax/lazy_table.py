"""Tables of implementations that are imported when they are used."""

import importlib
from collections.abc import Iterator, Mapping, MutableMapping
from typing import Any, Generic, TypeVar

Entry = TypeVar('Entry')


class LazyTable(MutableMapping[str, Entry], Generic[Entry]):
    """Name → implementation. An entry 'module:name' is imported when it is first looked up."""

    def __init__(self, entries: Mapping[str, Entry | str]) -> None:
        self._entries = dict(entries)

    def __getitem__(self, name: str) -> Entry:
        entry = self._entries[name]
        if isinstance(entry, str):
            entry = self._entries[name] = load(entry)
        return entry

    def __setitem__(self, name: str, entry: Entry | str) -> None:
        self._entries[name] = entry

    def __delitem__(self, name: str) -> None:
        del self._entries[name]

    def __contains__(self, name: object) -> bool:
        return name in self._entries

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)


def load(name: str) -> Any:
    """Import 'module:name'; the type is that of the table or the call that names it."""
    module, _, attribute = name.partition(':')
    return getattr(importlib.import_module(module), attribute)
