"""BERT as transformers writes it (modeling_bert.py)."""

from bert_jax.interop.families.family import Family, Key, read_fields, write_fields
from bert_jax.models import architectures
from bert_jax.models.architectures import bert

ACTIVATIONS = {
    'gelu': 'gelu',
    'gelu_python': 'gelu',
    'gelu_new': 'gelu_tanh',
    'gelu_fast': 'gelu_tanh',
    'gelu_pytorch_tanh': 'gelu_tanh',
}
_KEYS = {
    'vocab_size': Key('vocab_size', 30522),
    'hidden_size': Key('hidden_size', 768),
    'num_hidden_layers': Key('num_layers', 12),
    'num_attention_heads': Key('num_heads', 12),
    'intermediate_size': Key('intermediate_size', 3072),
    'max_position_embeddings': Key('max_position_embeddings', 512),
    'type_vocab_size': Key('type_vocab_size', 2),
    'hidden_act': Key('hidden_act', 'gelu', ACTIVATIONS),
    'layer_norm_eps': Key('layer_norm_eps', 1e-12),
    'hidden_dropout_prob': Key('hidden_dropout', 0.1),
    'attention_probs_dropout_prob': Key('attention_dropout', 0.1),
    'initializer_range': Key('initializer_range', 0.02),
}
_FIXED = {
    'position_embedding_type': 'absolute',
    'is_decoder': False,
    'add_cross_attention': False,
    'tie_word_embeddings': True,
}
_TABLE = {
    'encoder/embeddings/token': 'bert.embeddings.word_embeddings.weight',
    'encoder/embeddings/position': 'bert.embeddings.position_embeddings.weight',
    'encoder/embeddings/type': 'bert.embeddings.token_type_embeddings.weight',
    'encoder/embeddings/norm': 'bert.embeddings.LayerNorm',
    'encoder/layers_#/attention/query': 'bert.encoder.layer.#.attention.self.query',
    'encoder/layers_#/attention/key': 'bert.encoder.layer.#.attention.self.key',
    'encoder/layers_#/attention/value': 'bert.encoder.layer.#.attention.self.value',
    'encoder/layers_#/attention/output': 'bert.encoder.layer.#.attention.output.dense',
    'encoder/layers_#/attention_norm': 'bert.encoder.layer.#.attention.output.LayerNorm',
    'encoder/layers_#/feedforward/input': 'bert.encoder.layer.#.intermediate.dense',
    'encoder/layers_#/feedforward/output': 'bert.encoder.layer.#.output.dense',
    'encoder/layers_#/feedforward_norm': 'bert.encoder.layer.#.output.LayerNorm',
    'encoder/pooler': 'bert.pooler.dense',
    'mlm/head/transform': 'cls.predictions.transform.dense',
    'mlm/head/norm': 'cls.predictions.transform.LayerNorm',
    'mlm/head/bias': 'cls.predictions.bias',
    'nsp/head/dense': 'cls.seq_relationship',
}

FAMILY = Family(
    model_type='bert',
    architectures=tuple(bert.BUILDERS),
    read_config=lambda config: architectures.build('bert', **read_fields(config, _KEYS, _FIXED)),
    write_config=lambda architecture: write_fields(architecture, _KEYS, _FIXED),
    table=_TABLE,
    prefix='bert.',
    classes={
        'BertModel': (),
        'BertForPreTraining': ('mlm', 'nsp'),
        'BertForMaskedLM': ('mlm',),
        'BertForNextSentencePrediction': ('nsp',),
    },
    without_pooler=('BertForMaskedLM',),
    old_names={'LayerNorm.gamma': 'LayerNorm.weight', 'LayerNorm.beta': 'LayerNorm.bias'},
    duplicates={
        'cls.predictions.decoder.weight': 'bert.embeddings.word_embeddings.weight',
        'cls.predictions.decoder.bias': 'cls.predictions.bias',
    },
    buffers=('bert.embeddings.position_ids',),
)
