"""GPT-2 folders that were fine-tuned here compute what the classes of transformers compute.

The weights are random, about ten times as large as initial ones.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
import transformers

import bert_jax
from bert_jax import averages, main, tree_paths
from bert_jax.inference.predictor import Predictor
from bert_jax.interop import huggingface, huggingface_export, loading, state_dict_map
from bert_jax.interop.families import FAMILIES
from bert_jax.tasks import make_task
from configs import finetune
from tests.inference import small_gpt2
from tests.parity.agreement import agree, agree_trees

CLASSES = {
    'sample_sentiment': 'GPT2ForSequenceClassification',
    'sample_pairs': 'GPT2ForSequenceClassification',
    'sample_entities': 'GPT2ForTokenClassification',
    'sample_questions': 'GPT2ForQuestionAnswering',
}


@pytest.fixture(scope='module')
def gpt2(tmp_path_factory):
    return small_gpt2.folder(tmp_path_factory.mktemp('gpt2'))


def fine_tune(name, weights, folder):
    """Train a step, scale the new head up, and return the run's task and its model."""
    config = finetune.get_config(name).unlock()
    config.update(init_from=str(weights), workdir=str(folder / 'run'))
    config.update_from_flattened_dict(
        {'training.epochs': 0.0, 'training.steps': 1, 'training.batch_size': 6}
        | {'model.hidden_dropout': 0.0, 'model.attention_dropout': 0.0}
    )
    main.run(config.lock())
    model = loading.load_any(folder / 'run')
    (head,) = model.params.keys() - {'encoder'}
    model.params[head] = jax.tree.map(lambda x: 10 * x + 0.1, model.params[head])
    return make_task(config), model


def rows_of(batch):
    """Each packed text as its own right-padded row: ids and mask, [N, T], and its place."""
    ids_BT, segment_BT = np.asarray(batch['input_ids']), np.asarray(batch['segment_ids'])
    first_BS = np.asarray(batch['first_positions'])
    places = list(zip(*np.nonzero(first_BS >= 0), strict=True))
    masks = [
        (segment_BT[row] == segment_BT[row, first_BS[row, slot]])
        & (np.asarray(batch['attention_mask'])[row] > 0)
        for row, slot in places
    ]
    longest = max(mask.sum() for mask in masks)
    ids_NT = np.full((len(masks), longest), 256)  # <|endoftext|>
    for own_T, (row, _), mask_T in zip(ids_NT, places, masks, strict=True):
        own_T[: mask_T.sum()] = ids_BT[row][mask_T]
    return ids_NT, np.arange(longest) < np.array([[mask.sum()] for mask in masks]), places, masks


def their_loss(name, theirs, batch, places, masks, inputs):
    """The mean cross-entropy as transformers' logits give it, and the logits."""
    output = theirs(**inputs)
    if name in ('sample_sentiment', 'sample_pairs'):
        label_N = [int(batch['label'][place]) - 1 for place in places]
        loss = torch.nn.functional.cross_entropy(output.logits, torch.tensor(label_N))
        return loss, output.logits
    of_tokens = batch['label'] if name == 'sample_entities' else batch['answer_ends']
    labels = [of_tokens[row][mask_T] for (row, _), mask_T in zip(places, masks, strict=True)]
    if name == 'sample_entities':
        pairs = [
            (output.logits[n, t], int(own_T[t]) - 1)
            for n, own_T in enumerate(labels)
            for t in np.flatnonzero(own_T)
        ]
        logits, targets = zip(*pairs, strict=True)
        loss = torch.nn.functional.cross_entropy(torch.stack(logits), torch.tensor(targets))
        return loss, output.logits
    losses = [
        torch.nn.functional.cross_entropy(
            ends[n, : len(own_T2)], torch.tensor(own_T2[:, side].argmax())
        )
        for n, own_T2 in enumerate(labels)
        for side, ends in enumerate((output.start_logits, output.end_logits))
        if own_T2.any()
    ]
    return sum(losses) / len(losses), torch.stack([output.start_logits, output.end_logits], -1)


# test_family_parity.py compares these heads with gpt2-odd.
REPETITIONS = ('sample_pairs', 'sample_entities', 'sample_questions')


@pytest.mark.parametrize(
    'name',
    [pytest.param(name, marks=[pytest.mark.slow] * (name in REPETITIONS)) for name in CLASSES],
)
def test_logits_and_gradients_of_fine_tuned_gpt2_agree_with_transformers(name, gpt2, tmp_path):
    task, model = fine_tune(name, gpt2, tmp_path)
    assert model.is_causal
    written, _ = huggingface_export.save(model, tmp_path / 'exported')
    theirs = getattr(transformers, CLASSES[name]).from_pretrained(tmp_path / 'exported').eval()
    batch = {key: np.asarray(array) for key, array in task.source.batch(0).items()}
    ids_NT, mask_NT, places, masks = rows_of(batch)
    inputs = {'input_ids': torch.tensor(ids_NT), 'attention_mask': torch.tensor(mask_NT).long()}
    loss, their_logits = their_loss(name, theirs, batch, places, masks, inputs)
    loss.backward()

    def our_loss(params):
        outputs = task.model.outputs(params, batch)
        terms = task.problem.loss.terms(outputs, batch)
        (term,) = task.problem.loss.weights
        return averages.mean(terms[term]), outputs['logits']

    params = jax.tree.map(jnp.asarray, model.params)
    gradient, logits = jax.jit(jax.grad(our_loss, has_aux=True))(params)
    their_logits = their_logits.detach().numpy()
    for (row, slot), mask_T, their_own in zip(places, masks, their_logits, strict=True):
        if logits.ndim == 3 and task.config.task == 'classification':
            agree(np.asarray(logits[row, slot]), their_own, 'logits')
        else:
            agree(np.asarray(logits[row])[mask_T], their_own[: mask_T.sum()], 'logits')
    places_of = state_dict_map.places(
        FAMILIES['gpt2'].table, written.architecture, written.heads, len(task.problem.setup.labels)
    )
    state = {key: value.grad.numpy() for key, value in theirs.named_parameters()}
    agree_trees(tree_paths.flatten(gradient), state_dict_map.to_ours(places_of, state))


@pytest.mark.parametrize('name', ['sample_sentiment', 'sample_pairs'])
def test_exported_classifiers_answer_texts_as_the_run_does(name, gpt2, tmp_path):
    _, model = fine_tune(name, gpt2, tmp_path)
    huggingface_export.save(model, tmp_path / 'exported')
    texts = ['The sea is calm.', 'I am very unhappy with these shoes!']
    pairs = [(text, 'A man sleeps.') for text in texts]
    given = texts if name == 'sample_sentiment' else pairs
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / 'exported')
    theirs = transformers.AutoModelForSequenceClassification.from_pretrained(tmp_path / 'exported')
    arguments = [texts] if name == 'sample_sentiment' else [texts, ['A man sleeps.'] * 2]
    encoded = tokenizer(*arguments, padding=True, return_tensors='pt')
    encoded.pop('token_type_ids', None)
    with torch.no_grad():
        p_NC = theirs.eval()(**encoded).logits.softmax(-1).numpy()
    for loaded in (Predictor(model), bert_jax.load(str(tmp_path / 'exported'))):
        for own_C, record in zip(p_NC, loaded.classify(given, probabilities=True), strict=True):
            ours = [record['probabilities'][label] for label in model.labels]
            np.testing.assert_allclose(ours, own_C, atol=1e-5)


def test_published_classifiers_read_texts_without_special_tokens(gpt2, tmp_path):
    """As the text-classification pipeline of transformers does with GPT-2's tokenizer."""
    torch.manual_seed(0)
    sizes = dict(n_embd=16, n_layer=2, n_head=2, n_positions=160, vocab_size=257, num_labels=3)
    ends = dict(pad_token_id=256, eos_token_id=256, bos_token_id=256)
    theirs = transformers.GPT2ForSequenceClassification(transformers.GPT2Config(**sizes, **ends))
    with torch.no_grad():
        for value in theirs.parameters():
            value.add_(0.2 * torch.randn_like(value))
    theirs.eval().save_pretrained(tmp_path / 'model')
    tokenizer = transformers.AutoTokenizer.from_pretrained(gpt2)
    tokenizer.pad_token = '<|endoftext|>'
    tokenizer.save_pretrained(tmp_path / 'model')
    loaded = huggingface.load(tmp_path / 'model')
    assert loaded.heads == ('sequence_classification',)
    texts = ['The sea.', 'A much longer text about the sea and a ship.']
    with torch.no_grad():
        logits_NC = theirs(**tokenizer(texts, padding=True, return_tensors='pt')).logits
    records = bert_jax.load(str(tmp_path / 'model')).classify(texts, probabilities=True)
    for p_C, record in zip(logits_NC.softmax(-1).numpy(), records, strict=True):
        np.testing.assert_allclose([*record['probabilities'].values()], p_C, atol=1e-5)
