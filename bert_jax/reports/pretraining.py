"""Baselines of the held-out metrics of pretraining, and cloze examples."""

import math
from collections.abc import Collection, Iterator, Mapping
from typing import TYPE_CHECKING

import numpy as np

from bert_jax import markdown
from bert_jax.types import Array, JsonView

if TYPE_CHECKING:
    from bert_jax.models.rows import Rows
    from bert_jax.tokenizers import Tokenizer


def unigram_entropy(counts_V: np.ndarray) -> float:
    """Estimate the entropy of token frequencies, in nats, from the counts of a sample, int [V].

    −Σ p ln p of a sample is too low on average, so (K − 1) / 2N is added for K different tokens
    among N (Miller 1955, "Note on the bias of information estimates").
    """
    p = counts_V[counts_V > 0] / counts_V.sum()
    return float(-(p * np.log(p)).sum() + (len(p) - 1) / (2 * counts_V.sum()))


_PERPLEXITY = '_perplexity'
_FAR = 2  # factor by which the held-out share may differ from the fraction
_FEW_TEXTS = 10
_CLEARLY = 1.02  # times the loss of a guess; a model that has learned nothing is near 1
# Metric that bounds the negative log likelihood of the text, or equals it → name in bits per byte.
_LIKELIHOODS = {
    'clm_loss': 'clm_bits_per_byte',
    'diffusion_bound': 'diffusion_bits_per_byte',
    'unigram_entropy': 'unigram_bits_per_byte',
}


def add_baselines(
    means: dict[str, float], names: Collection[str], counts_V: np.ndarray, bytes_per_token: float
) -> dict[str, float]:
    """Add perplexities, and the scores of a model that ignores the context.

    Args:
        means: held-out means by name, such as 'mlm_loss'.
        names: objectives whose loss is the cross-entropy of tokens.
        counts_V: how often each token was to be predicted.
        bytes_per_token: mean bytes of a token in the held-out text; see `Corpus.bytes_per_token`.

    Returns:
        `means` with '…_perplexity', 'unigram_entropy' (the loss of predicting the frequencies of
        the tokens that were to be predicted),
        '…_majority' (the accuracy of always predicting the most frequent token or class) and, with
        objectives that bound the likelihood of the text, '…_bits_per_byte', which is comparable
        between vocabularies that encode every character of the text.
    """
    metrics = dict(means)
    for name in names:
        if f'{name}_loss' in means:
            metrics |= {
                f'{name}{_PERPLEXITY}': math.exp(min(means[f'{name}_loss'], 700)),
                'unigram_entropy': unigram_entropy(counts_V),
                f'{name}_majority': float(counts_V.max() / counts_V.sum()),
            }
    if _LIKELIHOODS.keys() & means.keys():
        scale = 1 / (math.log(2) * bytes_per_token)
        metrics |= {
            name: metrics[nats] * scale for nats, name in _LIKELIHOODS.items() if nats in metrics
        }
    for name, share in means.items():
        objective, _, suffix = name.rpartition('_')
        if suffix in ('negatives', 'share'):  # the share of one of two classes
            metrics[f'{objective}_majority'] = max(share, 1 - share)
    return metrics


def warnings(held_out: Mapping[str, float]) -> list[str]:
    """Return a line for each loss that is no better than predicting by frequency.

    The frequencies are those of the tokens, or of the two classes of a pair.
    """
    entropy = held_out.get('unigram_entropy', math.inf)
    names = [name.removesuffix(_PERPLEXITY) for name in held_out if name.endswith(_PERPLEXITY)]
    losses = {name: held_out[f'{name}_loss'] for name in names}
    lines = [*_warnings_of_pairs(held_out)]
    return lines + [
        f'the held-out {name}_loss is {loss:.3f}, but predicting every token by its frequency has '
        f'a loss of {entropy:.3f}: the model has learned nothing from the context; train longer or '
        'change the learning rate'
        for name, loss in losses.items()
        if not loss < entropy
    ]


def share_warnings(manifest: JsonView) -> list[str]:
    """Return a line if the held-out share of a corpus is far from the fraction asked for."""
    held_out, train = (manifest['splits'][name]['tokens'] for name in ('held_out', 'train'))
    share, fraction = held_out / (held_out + train), manifest['made_from']['held_out_fraction']
    if fraction / _FAR <= share <= min(_FAR * fraction, (1 + fraction) / 2):
        return []
    return [
        f'{share:.2%} of the tokens are held out instead of {fraction:.2%}: the documents are too '
        'few, too unequal or too often copied'
    ]


def few_texts(manifest: JsonView) -> list[str]:
    """Return a line if random next sentences are from few texts, which can be told apart."""
    number = sum(
        source['report']['documents'] - source['report'].get('cut_documents', 0)
        for source in manifest['sources']
    )
    if number >= _FEW_TEXTS:
        return []
    return [
        f'warning: the corpus has {number:,} text(s): next sentence prediction learns which text a '
        "sentence is from; use more texts, or data.segments='single' with objectives.nsp=0"
    ]


def _warnings_of_pairs(held_out: Mapping[str, float]) -> Iterator[str]:
    """Warn of a loss of two classes that is clearly above the entropy of the classes."""
    for metric, share in held_out.items():
        name, _, suffix = metric.rpartition('_')
        loss = held_out.get(f'{name}_loss')
        if suffix != 'negatives' or loss is None or not 0 < share < 1:
            continue
        entropy = -share * math.log(share) - (1 - share) * math.log(1 - share)
        if not loss <= _CLEARLY * entropy:
            yield (
                f'the held-out {name}_loss is {loss:.3f}, but guessing has a loss of '
                f'{entropy:.3f}: the model has learned to recognize the texts of the training, as '
                'it does if they are few; use more texts, train for less time, or set '
                f'objectives.{name}=0'
            )


def cloze_lines(
    tokenizer: 'Tokenizer',
    masked: 'Rows',
    probabilities_BPV: Array,
    number: int = 3,
    words: int = 8,
) -> list[str]:
    """Return a line for the first mask of each of the first examples.

    Args:
        tokenizer, masked, probabilities_BPV: as in `cloze_markdown`.
        number: of examples.
        words: tokens that are shown on each side of the mask.
    """
    vocab, lines = tokenizer.vocab, []
    positions_BP, ids_BP, weights_BP = masked.chosen
    for row, ids_T in enumerate(masked.input_ids_BT[:number]):
        slots = np.flatnonzero(weights_BP[row])
        if not len(slots):
            continue
        slot = min(slots, key=lambda slot: positions_BP[row][slot])
        place, length = positions_BP[row][slot], int(np.sum(masked.attention_mask_BT[row]))
        around = ids_T[max(1, place - words) : min(place + words + 1, length)]
        best = np.argsort(-probabilities_BPV[row, slot])[:3]
        guesses = ', '.join(f'{vocab[i]} {probabilities_BPV[row, slot, i]:.2f}' for i in best)
        lines.append(
            f'… {tokenizer.decode(np.asarray(around).tolist())} …  '
            f'hidden: {vocab[ids_BP[row, slot]]}; guesses: {guesses}'
        )
    return lines


def cloze_markdown(
    tokenizer: 'Tokenizer', masked: 'Rows', probabilities_BPV: Array, top: int = 5
) -> str:
    """Render masked examples in Markdown: each text with [MASK], then a line for each mask.

    A line has the original token and the `top` most probable tokens, the correct one in bold.

    Args:
        tokenizer: decodes the ids.
        masked: the masked rows, with their targets.
        probabilities_BPV: predicted distribution at each masked position.
    """
    vocab, lines = tokenizer.vocab, []
    positions_BP, ids_BP, weights_BP = masked.chosen
    for row, ids_T in enumerate(masked.input_ids_BT):
        ids = np.asarray(ids_T)[np.asarray(masked.attention_mask_BT[row]) > 0].tolist()
        lines += [f'> {markdown.escape(tokenizer.decode(ids))}', '']
        slots = np.flatnonzero(weights_BP[row])
        for slot in slots[np.argsort(positions_BP[row][slots])]:
            gold, p_V, guesses = ids_BP[row, slot], probabilities_BPV[row, slot], []
            for index in np.argsort(-p_V)[:top]:
                bold = '**' if index == gold else ''
                guesses.append(f'{bold}{markdown.code(vocab[index])}{bold} {p_V[index]:.2f}')
            lines.append(f'- {markdown.code(vocab[gold])}: {", ".join(guesses)}')
        lines.append('')
    return '\n'.join(lines)
