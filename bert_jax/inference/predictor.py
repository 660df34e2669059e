"""What a pretrained encoder can say of a text: fillings of its gaps, vectors, likelihoods."""

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from bert_jax import objectives
from bert_jax.data import sliding_windows
from bert_jax.errors import UserError, unknown
from bert_jax.inference.batching import Row, run
from bert_jax.interop.pretrained import Pretrained, mlm_logits
from bert_jax.models.architecture import Compute
from bert_jax.models.encoder import Encoder
from bert_jax.models.packed_rows import gather_positions

POOLINGS = ('mean', 'cls', 'tokens')
LAST_FOUR = {
    'sum_last_4': lambda states_LBTD: states_LBTD.sum(0),
    'mean_last_4': lambda states_LBTD: states_LBTD.mean(0),
    'concat_last_4': lambda states_LBTD: jnp.concatenate(states_LBTD, axis=-1),
}


class Guess(NamedTuple):
    token: str
    probability: float


class Likelihood(NamedTuple):
    """Log probabilities in nats, one a token."""

    tokens: list[str]
    log_probabilities: np.ndarray


class Predictor:
    """A model ready to be used; texts longer than its input are cut into overlapping windows.

    Every method takes texts of any length, the empty one included, answers in their order, and
    tells `advance` how many windows are done.
    """

    def __init__(
        self,
        model: Pretrained,
        *,
        dtype: str = 'float32',
        max_length: int | None = None,
        overlap: float = 0.25,
        batch_tokens: int = 1024,
        advance: Callable[[int], None] = lambda number: None,
    ):
        """max_length: tokens of a window, special ones included; the model's maximum if None.
        overlap: share of a window that its neighbor sees too. batch_tokens: of one batch,
        padding included. Raises UserError for settings that cannot be, and without tokenizer.
        """
        longest = model.architecture.max_length
        max_length = longest if max_length is None else max_length
        if not 3 <= max_length <= longest:
            raise UserError(f'max_length is {max_length}, must be from 3 to {longest} (the model)')
        if not 0 <= overlap < 1:
            raise UserError(f'overlap is {overlap}, must be in [0, 1)')
        if model.tokenizer is None:
            raise UserError('the model has no tokenizer (tokenizer.json or vocab.txt beside it)')
        self.tokenizer = model.tokenizer
        self.architecture, self.compute = model.architecture, Compute(dtype)
        self._has_mlm = 'mlm' in model.heads
        self._causal = _is_causal(model)
        self._params = jax.tree.map(jnp.asarray, model.params)
        self._size = max_length - 2
        self._overlap = min(int(overlap * self._size), self._size - 1)
        self._run = functools.partial(
            run,
            batch_tokens=batch_tokens,
            max_length=max_length,
            pad_id=self.tokenizer.pad_id,
            advance=advance,
        )

    def fill_mask(self, texts: Sequence[str], top: int = 5) -> list[list[list[Guess]]]:
        """For each text, for each '[MASK]' in it, the `top` likeliest tokens."""
        self._need_mlm('fill_mask')
        rows, owners = [], []
        for owner, ids in enumerate(self.tokenizer.encode_batch(texts, special=True).ids):
            for window in self._cut(ids):
                gaps = np.flatnonzero(ids[window.first : window.last] == self.tokenizer.mask_id)
                if len(gaps):
                    positions = gaps + window.first - window.start + 1
                    rows.append(self._row(ids, window, positions=positions))
                    owners.append(owner)
        top = min(top, self.architecture.vocab_size)
        answers = self._run(
            lambda batch: _guesses(self.architecture, self.compute, top, self._params, batch), rows
        )
        found = [[] for _ in texts]
        for row, owner, (probabilities_PK, ids_PK) in zip(rows, owners, answers, strict=True):
            for slot in range(len(row.extras['positions'])):
                pairs = zip(ids_PK[slot], probabilities_PK[slot], strict=True)
                found[owner].append([Guess(self._token(i), float(p)) for i, p in pairs])
        return found

    def embed(
        self, texts: Sequence[str], pooling: str = 'mean', layer: int | str = -1
    ) -> list[np.ndarray]:
        """A vector for each text, fp32 [D], or with pooling 'tokens' one a token, [T, D].

        pooling: 'mean' over all tokens, [CLS] and [SEP] included; 'cls', the state of [CLS] (with
        several windows their mean); 'tokens', [CLS] and [SEP] again included.
        layer: 0 (embeddings) to L, or negative from the last; or a name in LAST_FOUR.
        """
        if pooling not in POOLINGS:
            raise unknown('pooling', pooling, POOLINGS)
        self._check_layer(layer)
        rows, owners = [], []
        for owner, ids in enumerate(self._encode(texts)):
            for window in self._cut(ids):
                # Positions in the row: [CLS] belongs to the first window, [SEP] to the last.
                first = window.first - window.start + (window.first > 0)
                last = window.last - window.start + 1 + (window.last == len(ids))
                span = np.array([0, 1] if pooling == 'cls' else [first, last])
                rows.append(self._row(ids, window, span=span))
                owners.append(owner)
        function = _states if pooling == 'tokens' else _sums
        answers = self._run(
            lambda batch: function(
                self.architecture, self.compute, layer, self._causal, self._params, batch
            ),
            rows,
        )
        parts = [[] for _ in texts]
        for row, owner, answer in zip(rows, owners, answers, strict=True):
            parts[owner].append((answer, *row.extras['span']))
        if pooling == 'tokens':
            return [np.concatenate([x[first:last] for x, first, last in own]) for own in parts]
        return [
            sum(x for x, _, _ in own) / np.float32(sum(last - first for _, first, last in own))
            for own in parts
        ]

    def pseudo_likelihood(self, texts: Sequence[str]) -> list[Likelihood]:
        """Each token's probability with that token alone behind [MASK] (Salazar et al. 2020,
        section 2)."""
        self._need_mlm('pseudo_likelihood')
        encoded = self._encode(texts)
        answers = iter(
            self._run(
                lambda batch: _log_probability(
                    self.architecture, self.compute, self._params, batch
                ),
                [row for ids in encoded for row in self._one_masked(ids)],
            )
        )
        return [
            Likelihood(
                [self._token(i) for i in ids],
                np.array([next(answers) for _ in ids], np.float32),
            )
            for ids in encoded
        ]

    def _encode(self, texts: Sequence[str]) -> list[np.ndarray]:
        ids, lengths = self.tokenizer.encode_ids(texts)
        return np.split(ids, np.cumsum(lengths))[:-1]

    def _one_masked(self, ids: np.ndarray) -> Iterator[Row]:
        for window in self._cut(ids):
            for token in range(window.first, window.last):
                position = token - window.start + 1
                row = self._row(
                    ids,
                    window,
                    positions=np.array([position]),
                    targets=np.array([ids[token]]),
                )
                row.ids[position] = self.tokenizer.mask_id
                yield row

    def _cut(self, ids: np.ndarray) -> list[sliding_windows.Window]:
        return sliding_windows.cut(len(ids), self._size, self._overlap)

    def _row(self, ids: np.ndarray, window: sliding_windows.Window, **extras) -> Row:
        cls_id, sep_id = [self.tokenizer.cls_id], [self.tokenizer.sep_id]
        content = ids[window.start : window.stop]
        return Row(np.concatenate([cls_id, content, sep_id]).astype(np.int32), extras)

    def _token(self, index: int) -> str:
        """An embedding may have more rows than the vocabulary has tokens."""
        vocab = self.tokenizer.vocab
        return vocab[index] if index < len(vocab) else f'[{index}]'

    def _need_mlm(self, task: str):
        if not self._has_mlm:
            raise UserError(f'{task} needs a masked-language-model head, which the model lacks')

    def _check_layer(self, layer: int | str):
        num_layers = self.architecture.num_layers
        if isinstance(layer, str):
            if layer not in LAST_FOUR:
                raise unknown('layer', layer, ('a number', *LAST_FOUR))
            if num_layers < 4:
                raise UserError(f'{layer} needs 4 layers, but the model has {num_layers}')
        elif not -num_layers - 1 <= layer <= num_layers:
            raise UserError(f'layer {layer} is not there: 0 (embeddings) to {num_layers}')


def _encode(architecture, compute, params, batch, **more):
    return Encoder(architecture, compute).apply(
        {'params': params['encoder']}, batch['input_ids'], batch['attention_mask'], **more
    )


def _is_causal(model: Pretrained) -> bool:
    """Whether it was trained to see nothing to the right, and has to be used so."""
    return objectives.is_causal(model.metadata.get('config', {}).get('objectives', {}))


@functools.partial(jax.jit, static_argnums=(0, 1, 2, 3))
def _states(architecture, compute, layer, causal, params, batch):
    """fp32 [B, T, D] of a layer, or of the last four."""
    all_hidden = layer != -1
    output = _encode(architecture, compute, params, batch, all_hidden=all_hidden, causal=causal)
    if not all_hidden:
        return output.hidden_BTD.astype(jnp.float32)
    states_LBTD = output.all_hidden_LBTD.astype(jnp.float32)
    return LAST_FOUR[layer](states_LBTD[-4:]) if layer in LAST_FOUR else states_LBTD[layer]


@functools.partial(jax.jit, static_argnums=(0, 1, 2, 3))
def _sums(architecture, compute, layer, causal, params, batch):
    """fp32 [B, D]: the states summed over the span of each row."""
    states_BTD = _states(architecture, compute, layer, causal, params, batch)
    positions_T, (first_B, last_B) = jnp.arange(states_BTD.shape[1]), batch['span'].T
    chosen_BT = (positions_T >= first_B[:, None]) & (positions_T < last_B[:, None])
    return jnp.einsum('BTD,BT->BD', states_BTD, chosen_BT.astype(jnp.float32), precision='highest')


def _logits(architecture, compute, params, batch):
    """fp32 [B, P, V] at the positions of each row."""
    decoded_BTD = _encode(architecture, compute, params, batch).decoded_BTD
    hidden_BPD = gather_positions(decoded_BTD, batch['positions'])
    return mlm_logits(architecture, compute, params, hidden_BPD)


@functools.partial(jax.jit, static_argnums=(0, 1, 2))
def _guesses(architecture, compute, top, params, batch):
    """Probabilities and ids of the likeliest tokens, [B, P, top] each."""
    logits_BPV = _logits(architecture, compute, params, batch)
    return jax.lax.top_k(jax.nn.softmax(logits_BPV), top)


@functools.partial(jax.jit, static_argnums=(0, 1))
def _log_probability(architecture, compute, params, batch):
    """fp32 [B]: of the target at the position of each row."""
    logits_BPV = _logits(architecture, compute, params, batch)
    log_BPV = jax.nn.log_softmax(logits_BPV)
    return jnp.take_along_axis(log_BPV, batch['targets'][:, :, None], axis=-1)[:, 0, 0]
