"""Folders of late interaction in the layouts of three libraries, with random weights."""

import json
import pathlib
import shutil

import safetensors.torch
import torch
import transformers
from sentence_transformers import MultiVectorEncoder
from sentence_transformers.base.modules import Normalize, Transformer
from sentence_transformers.base.modules.dense import Dense
from sentence_transformers.multi_vector_encoder.modules import (
    HierarchicalTokenPooling,
    MultiVectorMask,
)

WORDS = [
    *('[PAD]', '[unused0]', '[unused1]', '[UNK]', '[CLS]', '[SEP]', '[MASK]', 'the', 'ship', 'a'),
    *('lamp', 'old', 'sea', 'is', 'what', '?', '.', ',', 'of', 'house', '##s', 'river'),
]
QUERIES = [
    'the ship',
    'what is a lamp ?',
    'the old house of the sea , the old river of the ship what is of a lamp',
    '',
]
DOCUMENTS = [
    'a ship . the sea',
    'the old lamp , a house',
    '',
    '. , ?',
    'the river of the old sea is what the house of the ship is , a lamp of the sea',
]
SIZE, WIDTH = 16, 32


def encoder(folder: pathlib.Path) -> pathlib.Path:
    """A small BERT with its tokenizer."""
    folder.mkdir(parents=True)
    (folder / 'vocab.txt').write_text('\n'.join(WORDS))
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=len(WORDS),
        hidden_size=WIDTH,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=48,
        max_position_embeddings=64,
        initializer_range=0.3,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    transformers.BertModel(config).save_pretrained(folder)
    transformers.BertTokenizerFast(str(folder / 'vocab.txt')).save_pretrained(folder)
    return folder


def sentence_transformers(
    folder: pathlib.Path, similarity: str = 'maxsim', pool_factor: float = 1.0, **settings
) -> pathlib.Path:
    """A folder that sentence-transformers 6 writes; settings are those of its Transformer."""
    defaults = dict(
        document_length=12, query_expansion={'strategy': 'fixed', 'length': 10, 'attend': False}
    )
    transformer = Transformer(str(encoder(folder.with_name('encoder'))), **(defaults | settings))
    dense = Dense(
        WIDTH,
        SIZE,
        bias=False,
        activation_function=torch.nn.Identity(),
        module_input_name='token_embeddings',
    )
    modules = [
        transformer,
        dense,
        MultiVectorMask(skiplist_words=['.', ',', '?']),
        Normalize(module_input_name='token_embeddings'),
    ]
    if pool_factor > 1:
        modules.append(HierarchicalTokenPooling(pool_factor))
    prompts = {'query': 'the ', 'document': 'a '}
    model = MultiVectorEncoder(modules=modules, prompts=prompts, similarity_fn_name=similarity)
    model.save_pretrained(str(folder))
    return folder


def pylate(folder: pathlib.Path, **settings) -> pathlib.Path:
    """A folder of PyLate 1 to 3: modules without mask and normalization, settings in one file."""
    sentence_transformers(folder)
    for name in ('2_MultiVectorMask', '3_Normalize'):
        shutil.rmtree(folder / name)
    types = ('sentence_transformers.models.Transformer', 'pylate.models.Dense.Dense')
    modules = [
        {'idx': number, 'name': str(number), 'path': path, 'type': kind}
        for number, (path, kind) in enumerate(zip(('', '1_Dense'), types, strict=True))
    ]
    write(folder / 'modules.json', modules)
    write(
        folder / '1_Dense/config.json',
        {
            'in_features': WIDTH,
            'out_features': SIZE,
            'bias': False,
            'activation_function': 'torch.nn.modules.linear.Identity',
        },
    )
    write(folder / 'sentence_bert_config.json', {'max_seq_length': 15, 'do_lower_case': False})
    general = {
        'model_type': 'ColBERT',
        'prompts': {},
        'default_prompt_name': None,
        'similarity_fn_name': 'cosine',
        'query_prefix': '[unused0] ',
        'document_prefix': '[unused1] ',
        'query_length': 9,
        'document_length': 11,
        'attend_to_expansion_tokens': True,
        'do_query_expansion': True,
    }
    write(folder / 'config_sentence_transformers.json', general | settings)
    return folder


def stanford(folder: pathlib.Path, **metadata) -> pathlib.Path:
    """A folder of Stanford's ColBERT: the projection is among the weights of the encoder."""
    encoder(folder)
    weights = safetensors.torch.load_file(folder / 'model.safetensors')
    weights = {f'bert.{name}': array for name, array in weights.items()}
    weights['linear.weight'] = torch.randn(SIZE, WIDTH, generator=torch.Generator().manual_seed(1))
    safetensors.torch.save_file(weights, folder / 'model.safetensors', metadata={'format': 'pt'})
    config = json.loads((folder / 'config.json').read_text())
    write(folder / 'config.json', config | {'architectures': ['HF_ColBERT']})
    defaults = {
        'query_token_id': '[unused0]',
        'doc_token_id': '[unused1]',
        'query_maxlen': 8,
        'doc_maxlen': 10,
        'mask_punctuation': True,
        'attend_to_mask_tokens': False,
    }
    write(folder / 'artifact.metadata', defaults | metadata)
    return folder


def write(path: pathlib.Path, value: object) -> None:
    path.write_text(json.dumps(value))


def of_theirs(folder: pathlib.Path, queries=QUERIES, documents=DOCUMENTS):
    """The vectors and the scores of sentence-transformers, as NumPy arrays."""
    model = MultiVectorEncoder(str(folder), device='cpu')
    encoded = model.encode_query(queries), model.encode_document(documents)
    scores = model.similarity(*encoded).numpy()
    return *([one.numpy() for one in side] for side in encoded), scores
