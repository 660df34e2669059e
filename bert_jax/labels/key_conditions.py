"""When keys of the config's `data` have no effect: other files or other problems use them."""

import dataclasses
from collections.abc import Mapping

from ml_collections import ConfigDict

from bert_jax.labels.formats import FORMATS, format_of, matching_files

TEXTS = (
    'classification',
    'regression',
    'multi_label',
    'prompt',
    'prompt_regression',
)
NUMBERS = ('multi_regression',)
GROUPS = ('embedding', 'sparse_embedding', 'reranking')
TARGETS = ('generation',)
MARKED = ('relation', 'word_in_context', 'coreference')
CONVERSATIONS = ('instructions',)
_WORDS = ('tagging', 'parsing', 'spans')
_KINDS = (
    *TEXTS,
    *NUMBERS,
    *MARKED,
    *_WORDS,
    'multiple_choice',
    'question_answering',
    *GROUPS,
    *TARGETS,
    *CONVERSATIONS,
)
TABLES = ('csv', 'tsv')
LISTS = ('jsonl', 'json', 'parquet', 'xml')
ROWS = (*TABLES, *LISTS, 'labeled_lines', 'lines', 'files', 'brat', 'webanno')
TEXT_FILES = tuple(name for name in FORMATS if name != 'parquet')


@dataclasses.dataclass(frozen=True)
class UsedBy:
    """The condition that a key is for files, and only for some formats and kinds of problems.

    Attributes:
        readable: Formats that the kind of problem of the config can read; (): unknown.
        kinds: Kinds of problems of this package; (): all. Other kinds may use every key.
        formats: Formats of files, for each kind if they differ; (): all.
        without: A key of `data`; if it is set, this one is not used.
        also_with: A key of `data`; if it is set, this one is used in all formats.
    """

    readable: tuple[str, ...]
    kinds: tuple[str, ...] = ()
    formats: tuple[str, ...] | Mapping[str, tuple[str, ...]] = ()
    without: str = ''
    also_with: str = ''

    def __call__(self, config: ConfigDict, name: str) -> str:
        data = config.data
        if data.dataset:
            return f'data.dataset is {data.dataset!r}'
        if self.kinds and config.task in _KINDS and config.task not in self.kinds:
            return f'task is {config.task!r}'
        if self.without and data[self.without]:
            return f'data.{self.without} is {data[self.without]!r}'
        given = self.formats
        formats = given.get(config.task, ()) if isinstance(given, Mapping) else given
        is_limited = formats and self.readable and not (self.also_with and data[self.also_with])
        used = self._formats_in_use(config) if is_limited else set()
        if used and not used & {*formats}:
            return f'the format of the files is {" and ".join(sorted(used))}'
        return ''

    def _formats_in_use(self, config: ConfigDict) -> set[str]:
        """Return the formats of the files; a missing file is reported when it is read."""
        data = config.data
        return {
            format_of(path, data, self.readable, config.task)
            for pattern in (*data.train, *data.dev, *data.test, *data.unlabeled)
            for path in matching_files(pattern) or [pattern]
        }


def unused_fraction(config: ConfigDict, name: str) -> str:
    """Why no examples are split off train, for the key of their share."""
    split = name.removeprefix('data.').removesuffix('_fraction')
    if config.data[split]:
        return f'data.{split} is {config.data[split]!r}'
    if split == 'dev' and config.data.shots:
        return f'data.shots is {config.data.shots}'
    return ''


def unused_split_seed(config: ConfigDict, name: str) -> str:
    """Why the seed of random splits and subsets is not used."""
    data = config.data
    if data.shots and config.sweep.seeds:
        return f'sweep.seeds is {config.sweep.seeds}, which draw the examples'
    fractions = [
        data[f'{split}_fraction']
        for split in ('dev', 'test')
        if not unused_fraction(config, f'data.{split}_fraction')
    ]
    is_random = data.shots or data.train_examples or any(fractions)
    return '' if is_random else 'no examples are drawn or split off at random'
