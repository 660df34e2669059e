"""TSDAE: noise, parity with sentence-transformers, packing, and what is refused."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn

from bert_jax import averages, tree_paths
from bert_jax.errors import UserError
from bert_jax.interop import huggingface, huggingface_export
from bert_jax.loaded.loaded_model import LoadedModel
from bert_jax.models import architectures, layer_stack
from bert_jax.models.architecture import Compute
from bert_jax.models.model import Model
from bert_jax.models.rows import Rows
from bert_jax.problems.embedding.denoising import delete_words, next_tokens
from bert_jax.tasks import make_task
from tests.problems.embedding.small import SIZES, config_of, rows, texts
from tests.random_parameters import random_parameters
from tests.tasks import small_problems

PROMPT = 'the lamp . '
LENGTH = 48


def write_model(name, path):
    """A folder with large random parameters and the head mlm."""
    tokenizer = small_problems.tokenizer('wordpiece' if name == 'bert' else 'bytebpe')
    architecture = architectures.build(
        name, vocab_size=tokenizer.vocab_size, max_position_embeddings=64, **SIZES
    )
    if name == 'roberta':
        architecture = architecture.changed({'positions.first': tokenizer.pad_id + 1})
    model = Model(architecture, Compute(), {'mlm': {}})
    params = random_parameters(model, Rows(np.zeros((1, 4), int), np.ones((1, 4), int)))
    model = LoadedModel(name, architecture, jax.device_get(params), tokenizer)
    huggingface_export.save(model, path)
    return path


@pytest.fixture(scope='module')
def folder(tmp_path_factory):
    return write_model('bert', tmp_path_factory.mktemp('bert') / 'bert')


def denoising_task(path, folder=None, number=30, **keys):
    """A task on texts, some of which share rows."""
    keys = {'problem__loss': 'tsdae', 'training__sequence_length': LENGTH, **keys}
    lines = texts(number)
    if folder is None:
        return make_task(config_of(path, lines, **keys))
    keys |= {'init_from': str(folder), 'data__tokenizer': '', 'model__architecture': None}
    return make_task(config_of(path, lines, sizes={}, **keys))


@pytest.fixture(scope='module')
def task(folder, tmp_path_factory):
    return denoising_task(tmp_path_factory.mktemp('texts'), folder)


@pytest.fixture(scope='module')
def params(task):
    return params_of(task)


def params_of(task):
    """The parameters of init_from, and random ones of the attention to vectors."""
    found = random_parameters(task.model.model, task.model.rows(task.source.batch(0)))
    return jax.tree.map_with_path(
        lambda path, leaf: jnp.asarray(task.start.params.get(tree_paths.path_name(path), leaf)),
        found,
    )


def sequences(tokens, segments):
    """The ids of the sequences of packed rows."""
    return [
        ids[own == number].tolist()
        for ids, own in zip(np.asarray(tokens), np.asarray(segments), strict=True)
        for number in range(1, own.max() + 1)
    ]


@functools.cache
def compiled_rows(task):
    return jax.jit(task.model.rows)


def noised(task, batch, seed: int = 0) -> Rows:
    seeds_R = np.arange(len(batch['input_ids']), dtype=np.uint32) + 1000 * seed
    return compiled_rows(task)(batch, seeds_R)


def words_of(ids, vocab) -> list[str]:
    """The words of WordPiece tokens; subwords after the first start with ##."""
    words: list[str] = []
    for token in (vocab[index] for index in ids):
        if token.startswith('##') and words:
            words[-1] += token
        else:
            words.append(token)
    return words


def test_whole_words_are_deleted_and_one_stays(folder, tmp_path):
    """About 60 % of the words; not special tokens or the prompt; the target is the whole text."""
    task = denoising_task(tmp_path, folder, 60, problem__document_prompt=PROMPT)
    tokenizer, batch = task.problem.encoding.tokenizer, task.source.batch(0)
    assert batch['segment_ids'].max() > 1
    (prompt,) = tokenizer.encode_batch([PROMPT]).ids
    start, num_words, num_left = [tokenizer.cls_id, *prompt], 0, 0
    for seed in range(40):
        read = noised(task, batch, seed)
        np.testing.assert_array_equal(read.target.input_ids_BT, batch['input_ids'])
        pairs = zip(
            sequences(batch['input_ids'], batch['segment_ids']),
            sequences(read.input_ids_BT, read.segment_ids_BT),
            strict=True,
        )
        for clean, left in pairs:
            assert left[: len(start)] == start
            assert left[-1] == tokenizer.sep_id
            words, rest = (words_of(ids[len(start) : -1], tokenizer.vocab) for ids in (clean, left))
            unseen = iter(words)
            assert all(word in unseen for word in rest), (words, rest)  # in order, none is cut
            assert len(left) > len(start) + 1
            num_words, num_left = num_words + len(words), num_left + len(rest)
        first_RS = np.asarray(read.first_positions_BS)
        first_ids = np.take_along_axis(read.input_ids_BT, np.maximum(first_RS, 0), axis=1)
        assert (first_ids[first_RS >= 0] == tokenizer.cls_id).all()
        assert ((first_RS < 0) == (batch['first_positions'] < 0)).all()
        is_padding = np.asarray(read.attention_mask_BT) == 0
        assert (np.asarray(read.input_ids_BT)[is_padding] == tokenizer.pad_id).all()
        assert not np.asarray(read.segment_ids_BT)[is_padding].any()
    assert num_words > 1000
    assert num_left / num_words == pytest.approx(0.4, abs=0.02)


def test_the_share_of_deleted_words_is_that_of_the_option():
    """Words of two tokens stay or go together; each text keeps one of its ten."""
    number = 400
    ids_RT = np.arange(number * 40).reshape(number, 40)
    segments_RT = np.tile([1, 2], (number, 1)).repeat(20, axis=1)
    first_RS = np.tile([0, 20, -1], (number, 1))
    read = Rows(ids_RT, np.ones_like(ids_RT), None, segments_RT, first_RS)

    @jax.jit
    def delete(deletion):
        keys_R = jax.random.split(jax.random.key(1), number)
        return delete_words(keys_R, read, ids_RT % 2 == 0, ids_RT >= 0, deletion, 7)

    for deletion, share in ((0.0, 1.0), (0.25, 0.75), (0.9999, 0.1)):
        left = delete(deletion)
        is_left_RT = np.asarray(left.attention_mask_BT) > 0
        kept = np.asarray(left.input_ids_BT)[is_left_RT].reshape(-1, 2)
        assert (kept[:, 0] % 2 == 0).all()
        assert (kept[:, 0] + 1 == kept[:, 1]).all()
        assert is_left_RT.mean() == pytest.approx(share, abs=0.015)
        segments_RT = np.asarray(left.segment_ids_BT)
        assert all({1, 2} <= {*segments_T} for segments_T in segments_RT)
        first_RS = np.asarray(left.first_positions_BS)
        assert (first_RS[:, [0, 2]] == [0, -1]).all()
        assert (np.take_along_axis(segments_RT, first_RS[:, 1:2], axis=1) == 2).all()


def alone(ids) -> Rows:
    """A row of one text."""
    padded = np.pad(ids, (0, LENGTH - len(ids)))[None]
    mask = (np.arange(LENGTH) < len(ids)).astype(np.int32)[None]
    return Rows(padded, mask, None, mask, np.zeros((1, 1), np.int32))


def test_packed_texts_have_the_loss_of_texts_alone(task, params):
    """A text is written from its own vector: the neighbors of a row have no effect."""
    batch, loss = task.source.batch(2), task.problem.loss
    assert batch['segment_ids'].max() > 2
    read = noised(task, batch)

    @jax.jit
    def term(read):
        heads = task.model.model.apply({'params': params}, read).heads
        return loss.terms(loss.outputs(heads, read), {})['embedding']

    packed, sums, count = term(read), [], 0
    clean = sequences(batch['input_ids'], batch['segment_ids'])
    for text, rest in zip(clean, sequences(read.input_ids_BT, read.segment_ids_BT), strict=True):
        own = term(alone(rest).replace(target=next_tokens(alone(text))))
        sums.append(float(own.sum))
        count += len(text) - 1
        assert own.count == len(text) - 1
    assert packed.count == count
    np.testing.assert_allclose(packed.sum, sum(sums), rtol=1e-5)


def cross_attention(decoder, layers: int = 2):
    """Name of a parameter of ours → that of torch, and the shape of ours."""
    named, stack = {}, getattr(decoder, decoder.base_model_prefix).encoder
    for layer in range(layers):
        ours, theirs = f'layers_{layer}/cross_attention', stack.layer[layer]
        theirs = theirs.crossattention
        size, heads = SIZES['hidden_size'], SIZES['num_heads']
        for name in ('query', 'key', 'value'):
            module = getattr(theirs.self, name)
            shape = (size, heads, size // heads)
            named[f'{ours}/{name}/kernel'] = (module.weight, shape)
            named[f'{ours}/{name}/bias'] = (module.bias, shape[1:])
        named[f'{ours}/output/kernel'] = (theirs.output.dense.weight, (heads, size // heads, size))
        named[f'{ours}/output/bias'] = (theirs.output.dense.bias, (size,))
        named[f'{ours}_norm/scale'] = (theirs.output.LayerNorm.weight, (size,))
        named[f'{ours}_norm/bias'] = (theirs.output.LayerNorm.bias, (size,))
    return named


@pytest.mark.parametrize(
    ('name', 'pooling'),
    [
        ('bert', 'cls'),
        pytest.param('bert', 'mean', marks=pytest.mark.slow),
        pytest.param('roberta', 'max', marks=pytest.mark.slow),
    ],
)
def test_loss_and_gradients_are_those_of_sentence_transformers(name, pooling, tmp_path):
    """On the same weights and the same texts, noised and packed here, alone and padded there."""
    library = pytest.importorskip('sentence_transformers')
    import torch
    from safetensors.torch import load_file, save_file
    from sentence_transformers.sentence_transformer import losses, modules

    folder = write_model(name, tmp_path / name)
    task = denoising_task(tmp_path, folder, problem__text_pooling=pooling)
    batch, loss, params = task.source.batch(1), task.problem.loss, params_of(task)
    read, tokenizer = noised(task, batch), task.problem.encoding.tokenizer

    def value(params):
        heads = task.model.model.apply({'params': params}, read).heads
        return averages.mean(loss.terms(loss.outputs(heads, read), batch)['embedding'])

    found, gradient = jax.jit(jax.value_and_grad(value))(params)

    encoder = modules.Transformer(str(folder))
    model = library.SentenceTransformer(
        modules=[encoder, modules.Pooling(SIZES['hidden_size'], pooling_mode=pooling)]
    )
    theirs = losses.DenoisingAutoEncoderLoss(model).eval()
    own = tree_paths.flatten(params['reconstruction']['head']['decoder'])
    crossed = cross_attention(theirs.decoder)
    assert own.keys() == crossed.keys()
    with torch.no_grad():
        for name, (leaf, _) in crossed.items():
            array = np.array(own[name])
            if leaf.ndim == 2:
                array = array.reshape(leaf.shape[::-1]).T
            leaf.copy_(torch.tensor(array.reshape(leaf.shape)))

    def padded(all_ids):
        width = max(map(len, all_ids))
        ids = [own + [tokenizer.pad_id] * (width - len(own)) for own in all_ids]
        mask = [[1] * len(own) + [0] * (width - len(own)) for own in all_ids]
        return {'input_ids': torch.tensor(ids), 'attention_mask': torch.tensor(mask)}

    source = sequences(read.input_ids_BT, read.segment_ids_BT)
    target = sequences(batch['input_ids'], batch['segment_ids'])
    expected = theirs([padded(source), padded(target)], None)
    expected.backward()
    assert float(found) == pytest.approx(expected.item(), rel=1e-6)

    gradients = {name: leaf.grad for name, leaf in theirs.decoder.named_parameters()}
    stored = load_file(folder / 'model.safetensors')
    known = {name: gradients.get(name, torch.zeros_like(leaf)) for name, leaf in stored.items()}
    assert sum(name in gradients for name in stored) > 30
    (tmp_path / 'gradients').mkdir()
    for file in folder.iterdir():
        (tmp_path / 'gradients' / file.name).write_bytes(file.read_bytes())
    save_file(known, tmp_path / 'gradients/model.safetensors', {'format': 'pt'})
    tree = huggingface.load(tmp_path / 'gradients').params
    wanted = tree_paths.flatten({'encoder': tree['encoder']})
    wanted |= {
        f'reconstruction/head/prediction/{name}': leaf
        for name, leaf in tree_paths.flatten(tree['mlm']['head']).items()
    }
    for name, (leaf, shape) in crossed.items():
        array = leaf.grad.numpy()
        array = array.T if leaf.ndim == 2 else array
        wanted[f'reconstruction/head/decoder/{name}'] = array.reshape(shape)
    flat = tree_paths.flatten(gradient)
    assert flat.keys() == wanted.keys()
    largest = max(np.abs(array).max() for array in flat.values())
    for name, array in wanted.items():
        if 'pooler' in name:  # in no file, and read by no head
            assert not flat[name].any()
            continue
        rows_V = slice(tokenizer.vocab_size if 'token' in name or name.endswith('n/bias') else None)
        np.testing.assert_allclose(
            flat[name][rows_V], array[rows_V], atol=1e-5 * largest, err_msg=name
        )


def test_the_decoder_starts_as_the_encoder_and_its_head(task, folder):
    names = tree_paths.flatten(nn.unbox(layer_stack.abstract(task.init)))
    stored = huggingface.load(folder)
    head = 'reconstruction/head/prediction'
    for name, leaf in tree_paths.flatten(stored.params['mlm']['head']).items():
        np.testing.assert_array_equal(task.start.params[f'{head}/{name}'], leaf)
    new = {name for name in {*names} - {*task.start.params} if 'pooler' not in name}
    assert all('/cross_attention' in name for name in new)
    assert len(new) == 2 * 10
    assert f'{head}: starts as mlm/head of the weights' in task.start.lines
    assert task.problem.loss.encoding.setup.kept['group_size'] == 1


def test_tuning_that_changes_positions_is_refused(folder, tmp_path):
    with pytest.raises(UserError, match='transfer.method=prefix cannot tune an encoder whose lay'):
        denoising_task(tmp_path, folder, transfer__method='prefix')


def test_evaluation_has_no_noise_and_no_loss(task, params):
    batch = task.source.batch(0)
    outputs = jax.jit(task.model.outputs)(params, batch)
    assert outputs.keys() == {'vectors'}
    assert task.problem.loss.terms(outputs, batch) == {}


LABELED = [['text0', 'kind', 'score'], *([text, 'a', '1'] for (text,) in rows(9, 1))]


@pytest.mark.parametrize(
    ('lines', 'keys', 'message'),
    [
        ([['text0', 'text1'], *rows(9, 2)], {}, '2 texts, but problem.loss=tsdae needs 1; set'),
        (
            LABELED,
            {'data__columns__label': 'kind'},
            'label given, but the loss reads texts alone; unset data.columns.label',
        ),
        (
            LABELED,
            {'data__columns__scores': ('score',)},
            'scores given, but the loss reads texts alone; unset data.columns.scores',
        ),
        (
            [['text0'], ['the ship'], ['ship']],
            {},
            "the text 'ship' has less than two words, so problem.loss=tsdae cannot delete any",
        ),
        ([['text0'], ['a ship']], {'problem__dimensions': (8,)}, 'vectors of the full size only'),
        (
            [['text0'], *rows(9, 1)],
            {'model__architecture': 'deberta_v3_xsmall'},
            'as those of BERT or RoBERTa; Architecture: a model with a decoder cannot have attent',
        ),
        (
            [['text0'], *rows(9, 1)],
            {'model__architecture': 'bart_base'},
            'the model has a decoder of its own; use an encoder such as BERT',
        ),
    ],
)
def test_what_cannot_be_learned_is_refused_in_one_line(tmp_path, lines, keys, message):
    with pytest.raises(UserError, match=message) as caught:
        make_task(config_of(tmp_path, lines, problem__loss='tsdae', **keys))
    assert '\n' not in str(caught.value)
