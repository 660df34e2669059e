"""Tables of implementations that are imported when they are used."""

import importlib
from collections.abc import Iterable, Iterator, Mapping, MutableMapping
from typing import Any, Generic, TypeVar

Entry = TypeVar('Entry')


class LazyTable(MutableMapping[str, Entry], Generic[Entry]):
    """Name → implementation. An entry 'module:name' is imported when it is first looked up.

    Args:
        entries: name → implementation.
        tables: further tables, as 'module:name'. They are imported in this order until one has the
            name that is looked up, and all of them to list the names.
    """

    def __init__(self, entries: Mapping[str, Entry | str], tables: Iterable[str] = ()) -> None:
        self._entries = dict(entries)
        self._tables = list(tables)

    def __getitem__(self, name: str) -> Entry:
        self._import_tables(name)
        entry = self._entries[name]
        if isinstance(entry, str):
            entry = self._entries[name] = load(entry)
        return entry

    def __setitem__(self, name: str, entry: Entry | str) -> None:
        self._entries[name] = entry

    def __delitem__(self, name: str) -> None:
        self._import_tables(name)
        del self._entries[name]

    def __contains__(self, name: object) -> bool:
        self._import_tables(name)
        return name in self._entries

    def __iter__(self) -> Iterator[str]:
        self._import_tables()
        return iter(self._entries)

    def __len__(self) -> int:
        self._import_tables()
        return len(self._entries)

    def _import_tables(self, name: object = None) -> None:
        """Add the entries of tables up to the one that has a name; of all tables without a name."""
        while self._tables and name not in self._entries:
            self._entries = load(self._tables[0]) | self._entries
            del self._tables[0]


def load(name: str) -> Any:
    """Import 'module:name'; the type is that of the table or the call that names it."""
    module, _, attribute = name.partition(':')
    return getattr(importlib.import_module(module), attribute)
