"""The flags of predict.py."""

import dataclasses
from collections.abc import Collection, Iterator

from bert_jax.cli.generate_flags import GenerateFlags
from bert_jax.cli.mining_flags import MiningFlags
from bert_jax.cli.prompt_flags import PromptFlags
from bert_jax.cli.search_flags import SearchFlags
from bert_jax.flag_parser import flag
from bert_jax.interop import MODEL_HELP
from bert_jax.labels import word_spans
from bert_jax.metrics.scored_rows import VARIANTS
from bert_jax.problems import PROBLEMS
from bert_jax.storage import outputs

_PRETRAINED = ('fill_mask', 'embed', 'search', 'mine', 'terms', 'pseudo_likelihood', 'pairs')
_WITHOUT_WINDOWS = ('likelihood_bound', 'generate')
_EMBED = ('task', ('embed',))


class _Tasks(Collection[str]):
    """Some tasks, and those of fine-tuned models, to which recipes may add others."""

    def __init__(self, *names: str) -> None:
        self._names = names

    def _all(self) -> tuple[str, ...]:
        finetuned = (kind.predict_task for kind in PROBLEMS.values())
        return tuple(dict.fromkeys([*self._names, *finetuned]))

    def __iter__(self) -> Iterator[str]:
        return iter(self._all())

    def __contains__(self, name: object) -> bool:
        return name in self._all()

    def __len__(self) -> int:
        return len(self._all())


@dataclasses.dataclass(frozen=True, kw_only=True)
class Request(PromptFlags, SearchFlags, MiningFlags, GenerateFlags):
    """The flags of predict.py."""

    model: str = flag(MODEL_HELP, '')
    tuned: str = flag(
        'instead of --model: comma-separated runs of parameter-efficient tuning, which all answer; '
        'each record names its run; runs with the same base share its parameters in memory',
        '',
    )
    task: str = flag(
        'one of the tasks below', choices=_Tasks(*_PRETRAINED, *_WITHOUT_WINDOWS, 'chat')
    )
    input: str = flag(
        'file with one text or example a line or row; - for stdin, the default of chat alone', ''
    )
    output: str = flag('file to write; - for stdout, the default of chat alone; .npz for embed', '')
    overwrite: bool = flag(outputs.HELP, False)
    top: int = flag(
        'number of tokens for each [MASK], of texts for each query, or of terms of each text',
        5,
        '[1, inf)',
        only=('task', ('fill_mask', 'search', 'terms')),
    )
    unit: str = flag(
        'a vector for each text, word or span of characters',
        'text',
        choices=('text', 'word', 'span'),
        only=_EMBED,
    )
    pooling: str | None = flag(
        'mean or max of all tokens, cls ([CLS]), or tokens (a vector each); default: mean, or the '
        'pooling, dense layers and normalization of a sentence-transformers folder; for words and '
        'spans: mean (default), sum or first of their subwords',
        None,
        only=('task', ('embed', 'search', 'mine')),
    )
    layer: str = flag(
        'layer number, 0 for the embeddings, negative from the last; or last, sum_last_4, '
        'mean_last_4, concat_last_4, lstm_1, … (the LSTM of a fine-tuned head), or all (a vector '
        'of each layer of the encoder)',
        'last',
        only=_EMBED,
    )
    prompt_name: str | None = flag(
        'prompt of the model to put before texts, such as query or document (default: as the model '
        'says; document for a run with prompts)',
        None,
        only=_EMBED,
    )
    dimensions: int | None = flag(
        'use only as many numbers of each vector, normalized again (Matryoshka embeddings)',
        None,
        '[1, inf)',
        only=('task', ('embed', 'search', 'mine')),
    )
    max_length: int | None = flag(
        'pretrained models: tokens in a window of a long text (default and limit: the length of '
        'the model)',
        None,
        only=('task', (*_PRETRAINED, *_WITHOUT_WINDOWS)),
    )
    overlap: float = flag(
        'share of a window that the next window repeats; tag, spans and answer use the value of '
        'the training',
        0.25,
        only=('task', (*_PRETRAINED, 'classify')),
    )
    long_texts: str | None = flag(
        'windows or truncate; default of embed, search and pseudo_likelihood: windows (of a '
        'sentence-transformers folder: truncate); of classify: truncate, or windows whose '
        'probabilities are averaged',
        None,
        choices=('windows', 'truncate'),
        only=('task', ('embed', 'search', 'mine', 'pseudo_likelihood', 'classify')),
    )
    variant: str = flag(
        'tokens, or word_l2r, where the later subwords of the same word are masked too',
        'tokens',
        choices=VARIANTS,
        only=('task', ('pseudo_likelihood', 'pairs')),
    )
    draws: int = flag(
        'number of masked rows for each text', 128, '[1, inf)', only=('task', ('likelihood_bound',))
    )
    probabilities: bool = flag(
        'write the probabilities of all classes; prompt: also of all answers',
        False,
        only=('task', ('classify', 'tag', 'prompt')),
    )
    no_answer: bool = flag(
        'leave a question unanswered if no answer is more probable, as published models of SQuAD '
        '2.0 are used (default: as in training)',
        False,
        only=('task', ('answer',)),
    )
    words: str | None = flag(
        'split text into words at whitespace, or also at punctuation, or into characters (default: '
        'as in the training data; embed: whitespace)',
        None,
        choices=tuple(word_spans.SPLITTERS),
        only=('task', ('tag', 'parse', 'spans', 'embed')),
    )
    input_format: str = flag(
        'fine-tuned models, embed of words and spans: every line is text, or jsonl; auto: JSON '
        'after {; tables by the name of the file',
        'auto',
        choices=('auto', 'text', 'jsonl'),
        only=('task', _Tasks('embed')),
    )
    encoding: str = flag('encoding of the input', 'utf-8')
    batch_tokens: int = flag('padded tokens of a batch', 1024, '[1, inf)')
    dtype: str = flag('float32 or bfloat16', 'float32')
