"""The flags of predict.py for --task=search, and its records."""

import dataclasses
from typing import TYPE_CHECKING

from bert_jax.errors import UserError
from bert_jax.flag_parser import flag
from bert_jax.types import JsonObject

if TYPE_CHECKING:
    from bert_jax.inference.text_collection import Hit

_SEARCH = ('task', ('search',))
_TEXTS = ('task', ('search', 'mine'))
_WIDTH = 100  # characters of a text in the format text


@dataclasses.dataclass(frozen=True, kw_only=True)
class SearchFlags:
    """What is searched, and how the results are written."""

    documents: str = flag(
        'what is searched: a folder, whose files are the texts, or a file with a text a line or '
        'row (.csv, .tsv, .jsonl, .json, .parquet)',
        '',
        only=_TEXTS,
    )
    column: str = flag('column of the texts in a table', 'text', only=_TEXTS)
    vectors: str = flag(
        'folder for the vectors of the texts, which later searches use if model, texts and options '
        'are the same (default: vectors/ in the folder of the model)',
        '',
        only=_TEXTS,
    )
    similarity: str | None = flag(
        'how vectors are compared: by their cosine, or by their product (dot); default: as the '
        'run or the sentence-transformers folder says, else cosine, and dot for sparse vectors',
        None,
        choices=('cosine', 'dot'),
        only=_TEXTS,
    )
    reranker: str = flag(
        'folder of a reranker, which orders the nearest texts anew; scores are then its logits',
        '',
        only=_SEARCH,
    )
    candidates: int = flag(
        'number of nearest texts that the reranker reads', 100, '[1, inf)', needs='reranker'
    )
    output_format: str = flag(
        'jsonl, or text to read', 'jsonl', choices=('jsonl', 'text'), only=_SEARCH
    )

    def check_search(self, task: str, tuned: str, top: int) -> None:
        """Raise UserError for flags of a search that do not fit each other."""
        if task not in _TEXTS[1]:
            return
        if not self.documents:
            raise UserError(f'--task={task} needs --documents, a file or folder of texts')
        if tuned:
            raise UserError(f'--tuned has no effect with --task={task}; set --model')
        if self.reranker and top > self.candidates:
            raise UserError(
                f'--top={top} is more than --candidates={self.candidates}, which the reranker '
                'orders; set --candidates to the same number or more'
            )


def record(query: str, hits: 'list[Hit]') -> JsonObject:
    """Return the record of a query."""
    return {'query': query, 'results': [hit._asdict() for hit in hits]}


def as_text(found: JsonObject) -> str:
    """Return a record as lines to read: the query, then a line for each result."""
    lines = [found['query']]
    for hit in found['results']:
        text = ' '.join(hit['text'].split())
        shown = text if len(text) <= _WIDTH else f'{text[:_WIDTH]} …'
        lines.append(f'  {hit["score"]:.4f}  {hit["id"]}  {shown}')
    return '\n'.join(lines) + '\n'
