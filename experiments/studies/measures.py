"""Measures that compare across objectives: a part-of-speech probe and the masked loss.

The probe is trained on frozen hidden states and needs scikit-learn. The loss of masked tokens needs
an MLM head.
"""

import dataclasses
import json
import math
import pathlib
from collections import Counter

import jax
import numpy as np
from ml_collections import ConfigDict

from bert_jax import problems
from bert_jax.inference.predictor import Predictor
from bert_jax.interop import loading
from bert_jax.labels.data_keys import make_config
from bert_jax.labels.examples import TaggedExample
from bert_jax.labels.loader import Splits
from bert_jax.loaded import loaded_model
from bert_jax.loaded.loaded_model import LoadedModel
from bert_jax.tasks.pretraining import builder, task
from bert_jax.training import sharding

TRAIN_SENTENCES, DEV_SENTENCES = 2000, 1000
# The masked tokens of `MaskedLoss`, in single segments, the same for all runs that it compares.
HELD_OUT_MASKS = {
    'masking.scheme': 'tokens',
    'masking.rate': 0.15,
    'masking.mask': 0.8,
    'masking.random': 0.1,
}
MEASURED = {  # what claims about `PosProbe` and `MaskedLoss` rest on
    'held_out_masks': HELD_OUT_MASKS,
    'probe': 'frozen, last layer, first subword',
}


def read_treebank(folder: str | pathlib.Path) -> Splits:
    """The sentences of UD English EWT with universal part-of-speech tags."""
    data = make_config()
    data.train, data.dev = (f'{folder}/*-ud-train.conllu*',), (f'{folder}/*-ud-dev.conllu*',)
    data.format, data.scheme, data.columns.tag = 'conllu', 'none', 'upos'
    return problems.read(data, 'tagging')


class PosProbe:
    """A linear part-of-speech classifier of the last hidden state of each word's first subword.

    It is trained on 2,000 train sentences; the measure is its accuracy on 1,000 dev sentences.
    """

    def __init__(self, treebank: str | pathlib.Path):
        """Read the treebank in a folder of UD English EWT; the train file may be gzipped."""
        splits = read_treebank(treebank)
        self.train = _sample(splits.train, TRAIN_SENTENCES)
        self.dev = _sample(splits.dev, DEV_SENTENCES)

    def __call__(self, model: LoadedModel) -> float:
        from sklearn.linear_model import LogisticRegression
        from sklearn.pipeline import make_pipeline
        from sklearn.preprocessing import StandardScaler

        predictor = Predictor(model, batch_tokens=4096)
        features, tags = _states(predictor, self.train)
        classifier = make_pipeline(StandardScaler(), LogisticRegression(max_iter=300, tol=1e-3))
        classifier.fit(features, tags)
        return float(classifier.score(*_states(predictor, self.dev)))

    def majority(self) -> float:
        """The accuracy of always predicting the most frequent tag of the train sentences."""
        counts = Counter(tag for sentence in self.train for tag in sentence.tags)
        tags = [tag for sentence in self.dev for tag in sentence.tags]
        return tags.count(counts.most_common(1)[0][0]) / len(tags)


def _sample(sentences: list[TaggedExample], number: int) -> list[TaggedExample]:
    """Evenly spaced sentences, so that every genre is represented."""
    step = max(1, len(sentences) // number)
    return sentences[::step][:number]


def _states(predictor: Predictor, sentences: list[TaggedExample]) -> tuple[np.ndarray, list[str]]:
    """The state of the first subword of each word, float32 [words, D], and the tags."""
    texts = [sentence.text for sentence in sentences]
    spans = [sentence.words for sentence in sentences]
    features = predictor.embed_words(texts, spans, pooling='first')
    return np.concatenate(features), [tag for sentence in sentences for tag in sentence.tags]


def reinitialize(model: LoadedModel) -> LoadedModel:
    """The same architecture with newly initialized parameters."""
    params, _ = loaded_model.fill({}, model.architecture, ())
    return dataclasses.replace(model, params=params)


def task_of(folder: pathlib.Path) -> task.Pretraining:
    """The pretraining task of a run, from the config in its folder."""
    return builder.build(ConfigDict(json.loads((folder / 'config.json').read_text())))


class MaskedLoss:
    """The held-out loss in nats of single tokens masked at 15 % in single segments.

    All models of one corpus and shape get the same examples and masks. Models of GPT-BERT predict
    them one position earlier.

    Args:
        model: gives the corpus and the shape.
        mask: share of the predicted tokens that [MASK] replaces.
        random: share that random tokens replace.
    """

    def __init__(
        self,
        model: LoadedModel,
        mask: float = HELD_OUT_MASKS['masking.mask'],
        random: float = HELD_OUT_MASKS['masking.random'],
    ):
        config = ConfigDict(dict(model.usage.config))
        config.data.segments = 'single'
        config.masking.end_rate = None
        config.update_from_flattened_dict(HELD_OUT_MASKS)
        config.masking.mask, config.masking.random = mask, random
        lengths = config.training.sequence_length
        self._objective = 'mntp' if model.architecture.prediction.shift else 'mlm'
        if self._objective == 'mlm':
            rate = config.masking.rate
            lengths = [math.ceil(rate * length) for length in lengths]
        config.training.max_predictions = lengths
        config.mntp.causal_share = 0.0
        config.objectives = ConfigDict({self._objective: 1.0})
        self.task, self.mesh = builder.build(config), sharding.make_mesh(config.mesh)

    def __call__(self, model: LoadedModel) -> float:
        with jax.set_mesh(self.mesh):
            return self.task.evaluate(model.params, self.task.stages[-1])[f'{self._objective}_loss']


class Comparison:
    """Both measures for runs on one corpus, and the baselines of the probe."""

    def __init__(self, treebank: str):
        self._probe = PosProbe(treebank)
        self._masked_loss = None

    def __call__(self, folder: pathlib.Path) -> dict[str, float]:
        """`pos_accuracy`, and `mlm_loss` for models with an MLM head."""
        model = loading.load_checkpoint(folder)
        measures = {'pos_accuracy': self._probe(model)}
        if 'mlm' in model.heads:  # not with RTD, where the MLM head belongs to the generator
            if self._masked_loss is None:
                self._masked_loss = MaskedLoss(model)
            measures['mlm_loss'] = self._masked_loss(model)
        return measures

    def baselines(self, folder: pathlib.Path) -> dict[str, list[dict[str, float]]]:
        """The probe of a run's encoder before training, and the most frequent tag."""
        model = reinitialize(loading.load_checkpoint(folder))
        return {
            'not trained': [{'pos_accuracy': self._probe(model)}],
            'most frequent tag': [{'pos_accuracy': self._probe.majority()}],
        }
