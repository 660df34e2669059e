"""Encoder–decoders of two encoders (bert2bert), as transformers' EncoderDecoderModel writes them.

Leveraging Pre-trained Checkpoints for Sequence Generation Tasks (Rothe et al. 2020, arXiv
1907.12461); modeling_encoder_decoder.py. The decoder has the layers of the encoder with causal
attention, and attention to the encoder's states after it.
"""

import dataclasses
import re
from typing import Any

from bert_jax.errors import UserError
from bert_jax.interop.families import bert, roberta
from bert_jax.interop.families.family import Family
from bert_jax.models.architecture import Architecture
from bert_jax.models.architecture_parts import DecoderStack
from bert_jax.types import JsonRecord, JsonView, RecordView

MODEL_TYPE = 'encoder-decoder'
_PARTS = ('encoder', 'decoder')
_DECODER_KEYS = {'is_decoder': True, 'add_cross_attention': True}
_ATTENTION = {
    'query': 'self.query',
    'key': 'self.key',
    'value': 'self.value',
    'output': 'output.dense',
}
# Fields of the architecture that the encoder and the decoder do not share.
_OF_ONE_STACK = {'num_layers', 'pooler', 'decoder'}
_HEAD_FIELDS = ('prediction.', 'classifier.')


@dataclasses.dataclass(frozen=True, kw_only=True)
class EncoderPair(Family):
    """Two encoders of one family, the second as a decoder.

    A config.json has one config for each of them.

    Attributes:
        encoder: the family of both.
    """

    encoder: Family

    def read_config(self, config: RecordView) -> Architecture:
        """The architecture of a config.

        Raises:
            UserError: a value is not supported, or encoder and decoder differ in other values than
                their numbers of layers.
        """
        self._check(config)
        stacks = {name: _part(config, name, self.encoder.model_type) for name in _PARTS}
        for name, value in _DECODER_KEYS.items():
            if stacks['decoder'].get(name) != value:
                raise UserError(f'decoder.{name} must be true, as in an EncoderDecoderModel')
        fixed = {**self.encoder.fixed, **_DECODER_KEYS}
        as_decoder = dataclasses.replace(self.encoder, fixed=fixed)
        encoder = self.encoder.read_config(stacks['encoder'])
        decoder = as_decoder.read_config(stacks['decoder'])
        there, here = _shared(encoder), _shared(decoder)
        for name in there:
            if there[name] != here[name]:
                raise UserError(
                    f'{name} is {there[name]} in the encoder and {here[name]} in the decoder; only '
                    'stacks that differ in their number of layers are supported'
                )
        # An EncoderDecoderModel has a pooler, which nothing reads.
        return dataclasses.replace(paired(encoder, decoder.num_layers, decoder), pooler=True)

    def ignored_keys(self, config: JsonView) -> list[str]:
        """Keys that have no effect, those of the two parts included."""
        ignored = {*super().ignored_keys({n: config[n] for n in config if n not in _PARTS})}
        return sorted(ignored.union(*(self.encoder.ignored_keys(config[part]) for part in _PARTS)))

    def write_config(self, architecture: Architecture) -> JsonRecord:
        """The config that `read_config` reads as this architecture. Raises UserError."""
        stack = architecture.decoder
        if stack is None or stack != paired_stack(stack.num_layers):
            raise UserError(f'an {MODEL_TYPE} config cannot express the decoder {stack}')
        config = self.encoder.write_config(dataclasses.replace(architecture, decoder=None))
        encoder = {'model_type': self.encoder.model_type, **config}
        decoder = {**encoder, 'num_hidden_layers': stack.num_layers, **_DECODER_KEYS}
        return {
            'model_type': MODEL_TYPE,
            'is_encoder_decoder': True,
            'encoder': encoder,
            'decoder': decoder,
        }


def paired_stack(num_layers: int) -> DecoderStack:
    """The decoder of a pair: it starts with [CLS] and has its own token embeddings."""
    return DecoderStack(num_layers, start='cls', shared_embeddings=False)


def paired(
    encoder: Architecture, num_layers: int, decoder: Architecture | None = None
) -> Architecture:
    """The architecture of an encoder and a decoder with the same kind of layers.

    Args:
        encoder: architecture of the encoder.
        num_layers: layers of the decoder.
        decoder: the architecture whose prediction head the pair has; None: that of `encoder`.
    """
    prediction = (decoder or encoder).prediction
    stack = paired_stack(num_layers)
    return dataclasses.replace(encoder, decoder=stack, prediction=prediction)


def pair(encoder: Family) -> EncoderPair:
    """The family of pairs of a family of encoders."""
    return EncoderPair(
        encoder=encoder,
        model_type=f'{encoder.model_type}2{encoder.model_type}',
        architecture=encoder.architecture,
        keys=encoder.keys,
        table=_table(encoder),
        token_table='decoder/embeddings/token',
        prefix='',
        classes={'EncoderDecoderModel': ('seq2seq',)},
        fixed={'is_encoder_decoder': True},
        token_keys={
            'pad_token_id': 'pad_id',
            'eos_token_id': 'sep_id',
            'decoder_start_token_id': 'cls_id',
        },
        decoder=f'decoder.{encoder.decoder}',
        old_names=encoder.old_names,
        buffers=r'.*embeddings\.(position_ids|token_type_ids)',
    )


def _table(family: Family) -> dict[str, str]:
    """Our names → theirs: `encoder.*` without the prefix of the family, `decoder.*` with it."""
    table: dict[str, str] = {}
    for ours, theirs in family.table.items():
        stack, _, rest = ours.partition('/')
        if stack == 'encoder':
            table[ours] = f'encoder.{theirs.removeprefix(family.prefix)}'
        if stack == 'encoder' and rest != 'pooler':
            table[f'decoder/{rest}'] = f'decoder.{theirs}'
        if stack == 'mlm':
            table[f'seq2seq/{rest}'] = f'decoder.{theirs}'
    layer = re.sub(r'\.attention\..*', '', table['decoder/layers_#/attention/query'])
    ours, theirs = 'decoder/layers_#/cross_attention', f'{layer}.crossattention'
    table[f'{ours}_norm'] = f'{theirs}.output.LayerNorm'
    return table | {f'{ours}/{part}': f'{theirs}.{name}' for part, name in _ATTENTION.items()}


def _part(config: RecordView, name: str, model_type: str) -> dict[str, Any]:
    """The config of the encoder or the decoder, of this model_type."""
    part = config.get(name)
    if not isinstance(part, dict):
        raise UserError(f'{name} is {part!r:.40}, expected the config of a model')
    if part.get('model_type') != model_type:
        raise UserError(
            f'{name}.model_type is {part.get("model_type")!r}, but that of the encoder is '
            f'{model_type!r}; both must be equal'
        )
    return part


def _shared(architecture: Architecture) -> dict[str, Any]:
    """The values that encoder and decoder must have in common."""
    values = dataclasses.replace(architecture, windows=(None,)).values()
    return {
        name: value
        for name, value in values.items()
        if name not in _OF_ONE_STACK and not name.startswith(_HEAD_FIELDS)
    }


# model_type of the encoder, and of the decoder → their pair.
PAIRS = {
    family.model_type: pair(family) for family in (bert.FAMILY, roberta.ROBERTA, roberta.XLM_R)
}


def of_encoder(config: RecordView) -> EncoderPair:
    """The pair that a config.json with MODEL_TYPE describes.

    Raises:
        UserError: the encoder is of another family.
    """
    encoder = config.get('encoder')
    model_type = encoder.get('model_type') if isinstance(encoder, dict) else None
    if model_type not in PAIRS:
        raise UserError(f'encoder.model_type is {model_type!r}; known: {", ".join(PAIRS)}')
    return PAIRS[model_type]
