"""The source that reads TensorFlow Datasets."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from bert_jax import errors, tensorflow_import
from bert_jax.text.sources.base import COMMON_OPTIONS, Document, Option, Source

# The lookbehind keeps the time linear in the length of white space.
_WIKI_MARKER = re.compile(r'(?:(?<!\s)\s+)?_START_(ARTICLE|SECTION|PARAGRAPH)_\s*')


class TfdsSource(Source):
    """A text field of a TensorFlow Dataset.

    The markers of wiki40b become the name and paragraphs of the document. Section titles are left
    out and counted, as in BERT (Devlin et al. 2019, section 3.1: "we extract only the text passages
    and ignore lists, tables, and headers").
    """

    location = 'DATASET'
    description = 'a TensorFlow Dataset: NAME, NAME/CONFIG or NAME/CONFIG:VERSION'
    options = {
        **COMMON_OPTIONS,
        'split': Option('train', 'split to read, such as train or train[:1000]'),
        'field': Option('text', 'feature that holds the text'),
        'data_dir': Option('', 'folder to search before $TFDS_DATA_DIR and ~/tensorflow_datasets'),
        'download': Option('false', '"true" downloads a dataset that is not on disk'),
    }

    def __init__(self, spec: str, where: str, settings: Mapping[str, str]):
        super().__init__(spec, where, settings)
        if settings['download'] not in ('true', 'false'):
            raise errors.UserError(
                f'source {spec!r}: download is {settings["download"]!r}, not true or false'
            )
        self.builder = tensorflow_import.open_tfds_builder(
            where,
            settings['data_dir'],
            download=settings['download'] == 'true',
            origin=f'source {spec!r}',
            advice="add ';download=true' to download it, or ';data_dir=…' to name its folder",
        )
        info = self.builder.info
        if settings['split'].partition('[')[0] not in info.splits:
            raise errors.unknown(f'split of {where}', settings['split'], info.splits)
        if settings['field'] not in info.features:
            raise errors.unknown(f'field of {where}', settings['field'], info.features)
        text_fields = [name for name, feature in info.features.items() if _is_text(feature)]
        if settings['field'] not in text_fields:
            raise errors.UserError(
                f'source {spec!r}: field {settings["field"]!r} is not a text; choose a field with '
                f'texts: {", ".join(text_fields) or "there is none"}'
            )
        config = self.builder.builder_config.name if self.builder.builder_config else ''
        if self.language == 'und' and re.fullmatch('[a-z]{2,3}', config):
            self.language = config
        published_license = info.as_proto.redistribution_info.license
        if published_license and self.license == COMMON_OPTIONS['license'].default:
            self.license = published_license

    def unread_fields(self) -> list[str]:
        return [name for name in self.builder.info.features if name != self.settings['field']]

    def size(self) -> int | None:
        splits, name = self.builder.info.splits, self.settings['split']
        whole, part = splits[name.partition('[')[0]], splits[name]
        return whole.num_bytes * part.num_examples // max(whole.num_examples, 1) or None

    def read(self) -> Iterator[Document]:
        tfds = tensorflow_import.tensorflow_datasets()
        examples = self.builder.as_dataset(
            split=self.settings['split'],
            shuffle_files=False,
            read_config=tfds.ReadConfig(interleave_cycle_length=1),  # keeps the order of files
        )
        size = self.size() or 0
        num_examples = self.builder.info.splits[self.settings['split']].num_examples
        field = self.settings['field']
        examples = examples.map(lambda example: example[field])
        for number, raw in enumerate(tfds.as_numpy(examples)):
            name = f'{self.where}#{number}'
            self.position = number * size // num_examples
            text = raw.decode('utf-8', 'surrogateescape')
            yield from self._articles(self.replace_surrogates(text, name), name)
        self.position = size

    def _articles(self, text: str, name: str) -> Iterator[Document]:
        """Yield the articles of a text with the markers of wiki40b, else the text itself."""
        if '_START_' not in text:
            yield Document(text, name)
            return
        before, *pieces = _WIKI_MARKER.split(text)
        paragraphs = [before.strip()] if before.strip() else []
        for kind, piece in zip(pieces[::2], pieces[1::2], strict=True):
            if kind == 'ARTICLE':
                if paragraphs:
                    yield Document('\n\n'.join(paragraphs), name)
                paragraphs, name = [], piece.strip() or name
            elif kind == 'SECTION':
                self.report['section_titles_left_out'] += 1
            else:
                parts = (part.strip() for part in piece.split('_NEWLINE_'))
                paragraphs += [part for part in parts if part]
        yield Document('\n\n'.join(paragraphs), name)


def _is_text(feature: Any) -> bool:
    """Whether a feature of TFDS is a single string; `np_dtype` may be a type or a dictionary."""
    return bool(feature.shape == () and feature.np_dtype == np.dtype(object))
