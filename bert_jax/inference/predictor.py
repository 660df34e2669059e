"""A loaded model, pretrained or fine-tuned, and what it can answer.

`Predictor` is the interface: what a method computes is in the module that it imports.
"""

import copy
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, overload

import numpy as np

from bert_jax import lazy_table
from bert_jax.errors import UserError, warn
from bert_jax.inference import token_predictions
from bert_jax.inference.engine import Engine
from bert_jax.inference.generate_options import GENERATORS, Generated
from bert_jax.inference.inputs import AS_TRAINED, PredictionOptions, as_pair, as_words
from bert_jax.inference.text_rows import check_list, check_texts
from bert_jax.inference.token_predictions import Guess, Likelihood
from bert_jax.loaded import loaded_model
from bert_jax.loaded.loaded_model import LoadedModel
from bert_jax.metrics.scored_rows import ScoredRow
from bert_jax.types import JsonObject, JsonView

if TYPE_CHECKING:
    from ml_collections import ConfigDict
    from scipy import sparse

    from bert_jax.inference.computation import Layers
    from bert_jax.inference.finetuned import Evaluation
    from bert_jax.inference.finetuned_predictor import FineTunedPredictor
    from bert_jax.inference.likelihood_bound import LikelihoodBound
    from bert_jax.inference.responses import Responder
    from bert_jax.labels.word_spans import WordOffsets
    from bert_jax.problems.base import AnyProblem


# By name, because what makes vectors of a model imports this module.
_SIMILARITY = 'bert_jax.inference.encoders:similarity'
_RERANK = 'bert_jax.inference.encoders:rerank'


class Predictor(Engine):
    """A loaded model; `bert_jax.load` makes one from a path.

    Every method but `attention` takes a list of texts of any length, the empty text included, and
    answers in the same order. Texts longer than the model's input are split into overlapping
    windows.
    """

    def __init__(self, model: LoadedModel, **settings: Any) -> None:
        """Prepare inference; nothing is compiled until the first call.

        Args:
            model: parameters, architecture and tokenizer.
            settings: see `Engine`.

        Raises:
            UserError: a setting is not valid, or the model has no tokenizer.
        """
        super().__init__(model, **settings)
        self._warns_generate = not self.is_known_writer
        self.finetuned: FineTunedPredictor | None = None
        if _is_fine_tuned(model):
            from bert_jax.inference import finetuned_predictor

            self.finetuned = finetuned_predictor.load(self, model)
            self.tasks = tuple(dict.fromkeys([*self.tasks, *self.finetuned.tasks]))

    @overload
    def embed(  # type: ignore[overload-overlap]
        self,
        texts: Sequence[str],
        pooling: Literal['tokens'],
        layer: 'Layers' = 'last',
        long_texts: str | None = None,
        prompt: str | None = None,
        dimensions: int | None = None,
    ) -> list[np.ndarray]: ...

    @overload
    def embed(
        self,
        texts: Sequence[str],
        pooling: str | None = None,
        layer: 'Layers' = 'last',
        long_texts: str | None = None,
        prompt: str | None = None,
        dimensions: int | None = None,
    ) -> np.ndarray: ...

    def embed(
        self,
        texts: Sequence[str],
        pooling: str | None = None,
        layer: 'Layers' = 'last',
        long_texts: str | None = None,
        prompt: str | None = None,
        dimensions: int | None = None,
    ) -> np.ndarray | list[np.ndarray]:
        """The vectors of texts, float32 [N, D], or of the tokens of each, a list of [T, D].

        Args:
            pooling: 'mean' or 'max' over all tokens, [CLS] and [SEP] included;
                'mean_sqrt_len_tokens', their sum divided by the square root of their number; 'cls',
                the state of [CLS], or 'lasttoken' (averaged over windows); 'tokens', one vector for
                each token, [CLS] and [SEP] included, as a list with one array for each text. None:
                the pooling, dense layers, normalization and prompt of a sentence-transformers
                folder; 'mean' for other models.
            layer: 0 (embeddings) to the number of layers, or negative from the last; 'last';
                'sum_last_4', 'mean_last_4' or 'concat_last_4', which combine the last four layers;
                'lstm_1' to 'lstm_N', the layers of the LSTM that a fine-tuned head reads
                (`model.head_lstm`); 'all', the vectors of all layers of the encoder:
                [N, L + 1, D] instead of [N, D]; or a tuple of K of the others, of one size:
                [N, K, D].
            long_texts: 'windows' (the default), or 'truncate' (the default for a
                sentence-transformers folder and for a run of the problem 'embedding').
            prompt: name of a prompt of the model, such as 'query' or 'document'; None: its default
                prompt, which is 'document' for a run with prompts.
            dimensions: return only as many numbers of each vector, normalized again if the model
                normalizes (Matryoshka embeddings).

        Raises:
            UserError: an argument is not valid, or the model has no such prompt.
        """
        from bert_jax.inference import vectors

        return vectors.embed(self, texts, pooling, layer, long_texts, prompt, dimensions)

    def embed_sparse(
        self, texts: Sequence[str], long_texts: str | None = None, prompt: str | None = None
    ) -> 'sparse.csr_array':
        """The weights of the terms of the vocabulary in each text, float32 [N, V].

        They are as the SparseEncoder folder of the model says, or those of SPLADE v2 for another
        model with a masked-language-model head.

        Args:
            long_texts: 'truncate' (the default), or 'windows', whose weights are pooled.
            prompt: name of a prompt of the model; None: its default prompt.

        Raises:
            UserError: the model predicts no masked tokens, or has no such prompt.
        """
        from bert_jax.inference import vectors

        return vectors.embed_sparse(self, texts, long_texts, prompt)

    def embed_late(self, texts: Sequence[str], prompt: str = 'document') -> list[np.ndarray]:
        """The vectors of the tokens of each text, float32 [T, E] each, for late interaction.

        Which tokens have a vector, and to how many tokens texts are truncated, is as the model was
        trained; special tokens have one, and [MASK] where it fills up queries.

        Args:
            prompt: 'query' or 'document', the side of the texts.

        Raises:
            UserError: the model was not trained for late interaction.
        """
        from bert_jax.inference import late_vectors

        return late_vectors.embed_late(self, texts, prompt)

    def similarity(self, queries: Sequence[str], documents: Sequence[str]) -> np.ndarray:
        """The score of each query with each document, float32 [Q, N].

        It is what the model was trained to compare by: the cosine or the product of two vectors,
        dense or sparse, with their prompts; for late interaction, the sum over the tokens of a
        query of their largest products; for a reranker, the logit of the pair.

        Args:
            queries, documents: texts; every query is compared with every document.
        """
        found: np.ndarray = lazy_table.load(_SIMILARITY)(self, queries, documents)
        return found

    def embed_words(
        self,
        texts: Sequence[str | Sequence[str]],
        spans: 'Sequence[WordOffsets] | None' = None,
        *,
        pooling: str = 'mean',
        layer: 'Layers' = 'last',
        split: str = 'whitespace',
    ) -> list[np.ndarray]:
        """A vector for each word or span of each text, float32 [W, D], pooled over its subwords.

        In long texts, the vector of a word is from the window in which it has most context.

        Args:
            texts: strings, or lists of words, which are joined by spaces.
            spans: for each text, the first character and end (exclusive) of its spans, which may
                overlap; None: the words.
            pooling: 'mean', 'sum' or 'first' of the subwords.
            layer: as for `embed`.
            split: how strings are split into words: at 'whitespace'; at 'punctuation' too; or, as
                'characters', also within Hangul and text without spaces.

        Raises:
            UserError: a span is empty or outside its text, or an argument is not valid.
        """
        from bert_jax.inference import vectors

        return vectors.embed_words(self, texts, spans, pooling=pooling, layer=layer, split=split)

    def attention(self, text: str) -> tuple[list[str], np.ndarray]:
        """The tokens of a text and the attention between them, float32 [L, H, T, T].

        Entry [l, h, t, u] is the weight of token u for token t in head h of layer l; each row sums
        to 1. [CLS] and [SEP] are included.

        Raises:
            UserError: the text is longer than the model's input.
        """
        from bert_jax.inference import vectors

        return vectors.attention(self, text)

    def attention_of_words(
        self, texts: Sequence[str], spans: 'Sequence[WordOffsets]'
    ) -> list[np.ndarray | None]:
        """The attention between the words of each text, float32 [L, H, W, W].

        Attention to a word is summed over its subwords, attention from it is averaged (Clark et
        al. 2019, section 4.1). [CLS] and [SEP] are left out, so rows sum to less than 1. Texts
        longer than the model's input have None.

        Args:
            texts: strings.
            spans: for each text, the first character and end (exclusive) of its words.
        """
        from bert_jax.inference import vectors

        return vectors.attention_of_words(self, texts, spans)

    def fill_mask(self, texts: Sequence[str], top_k: int = 5) -> list[list[list[Guess]]]:
        """The most probable tokens, best first, for each [MASK] of each text."""
        return token_predictions.fill_mask(self, texts, top_k)

    def pseudo_likelihood(
        self, texts: Sequence[str], long_texts: str | None = None, variant: str = 'tokens'
    ) -> list[Likelihood]:
        """Log probability of each token when it is masked; see metrics/scored_rows.py.

        A causal model gives the log probability of each token given the tokens to its left.

        Args:
            long_texts: 'windows' (the default), or 'truncate'.
            variant: 'tokens', or 'word_l2r', where the later subwords of its word are masked too.
        """
        return token_predictions.pseudo_likelihood(self, texts, long_texts, variant)

    def likelihood_bound(
        self, texts: Sequence[str], draws: int = 128, seed: int = 0
    ) -> 'list[LikelihoodBound]':
        """A lower bound on the log likelihood of each text; see inference/likelihood_bound.py.

        Args:
            draws: number of masked rows for each text; more have a smaller error.
            seed: another number draws other rows.

        Raises:
            UserError: a text is longer than the model's input, because the bounds of its windows
                would not add up to a bound.
        """
        return token_predictions.likelihood_bound(self, texts, draws, seed)

    def log_probabilities(self, rows: Iterable[Iterable[ScoredRow]]) -> list[list[np.ndarray]]:
        """The log probabilities in nats of the targets of each row of each text, float32 [P].

        Args:
            rows: the rows of each text; see metrics/scored_rows.py.

        Raises:
            UserError: the model predicts no tokens, or a row is longer than its input.
        """
        return token_predictions.log_probabilities(self, rows)

    def generate(self, texts: Sequence[str], **options: object) -> list[Generated]:
        """Fill the gaps of each text, or write after it.

        A masked language model unmasks: it fills '[MASK]' and, for five tokens, '[MASK:5]' anywhere
        in a text. It should be trained with the objective diffusion. A causal model writes after
        a text, from left to right. A model with a decoder writes a text for each source.

        Args:
            texts: strings of any language that the vocabulary covers, at most as long as the
                model's input, with what is written.
            options: see `GenerateOptions`, and `UnmaskingOptions` for masked language models or
                `CausalOptions` for causal models.

        Raises:
            UserError: an option or a text that this model does not support.
        """
        self.require('generate')
        if self._warns_generate:
            warn(f'{self.name} is not known to be trained to write text: expect little of it')
            self._warns_generate = False
        generator = GENERATORS[self.generator]
        return generator.generate(self.as_writer(), check_texts(texts), generator.read(options))

    def require(self, task: str) -> None:
        """See `Engine.require`."""
        if task == 'classify' and self.finetuned and self.finetuned.unsupported:
            raise UserError(f'{self.name} cannot classify: {self.finetuned.unsupported}')
        super().require(task)

    @property
    def problem(self) -> 'AnyProblem':
        """The fine-tuning problem. Raises UserError without one."""
        return self._fine_tuned('').main.problem()

    def _fine_tuned(self, consequence: str) -> 'FineTunedPredictor':
        """Return what answers fine-tuned tasks; raise UserError for another model."""
        if self.finetuned is None or not self.finetuned.problems:
            raise UserError(f'{self.name} is not a fine-tuned model{consequence}')
        return self.finetuned

    def classify(
        self,
        texts: Sequence[str | Sequence[str] | JsonView],
        probabilities: bool = False,
        long_texts: str | None = None,
    ) -> list[JsonObject]:
        """The class of each text, pair of texts or marked example; a number for regression.

        Args:
            texts: strings, (text, text2) pairs, or dictionaries: {'text': …, 'text2': …};
                {'premise': …, 'choices': […]} for multiple choice; {'text': …, 'marks':
                [[start, end], [start, end]]}, in characters, for relations.
            probabilities: whether to list the 'probabilities' of all classes or choices.
            long_texts: 'truncate' (the default), or 'windows', whose probabilities or scores are
                averaged.

        Returns:
            A dictionary for each text with 'predicted' and, except for regression, 'probability'.
        """
        options = PredictionOptions(probabilities, long_texts)
        return self.predict('classify', list(map(as_pair, check_list(texts))), options)

    def tag(
        self,
        texts: Sequence[str | Sequence[str] | JsonView],
        probabilities: bool = False,
        words: str | None = None,
    ) -> list[JsonObject]:
        """The tag of every word, and the entities if the tags mark them.

        Args:
            texts: strings, lists of words, or dictionaries {'text': …} or {'words': […]}.
            probabilities: whether to list the 'probabilities' of all tags of a word.
            words: how strings are split into words: at 'whitespace'; at 'punctuation' too; or None:
                as in training.

        Returns:
            A dictionary for each text: 'words', a list of {'start', 'end', 'text', 'predicted',
            'probability'}, and 'entities', a list of {'start', 'end', 'text', 'label',
            'probability'}; offsets in characters, end exclusive.
        """
        options = PredictionOptions(probabilities, words=words)
        return self.predict('tag', list(map(as_words, check_list(texts))), options)

    def roles(
        self,
        texts: Sequence[str | Sequence[str] | JsonView],
        predicates: Sequence[int],
        words: str | None = None,
    ) -> list[JsonObject]:
        """The arguments of a predicate in each sentence (semantic role labeling).

        Args:
            texts, words: as for `tag`.
            predicates: for each text, the index of the predicate among its words.

        Returns:
            A dictionary for each text: 'predicate', {'start', 'end', 'text', 'word'}, and
            'predicted', a list of {'role', 'pieces', 'probability'}; a piece is {'start', 'end',
            'text'}.
        """
        if len(check_list(texts)) != len(predicates):
            raise UserError(
                f'texts has {len(texts)} entries, but predicates has {len(predicates)}; give one '
                'for each text'
            )
        rows = [
            {**as_words(text), 'predicate': predicate}
            for text, predicate in zip(texts, predicates, strict=True)
        ]
        return self.predict('roles', rows, PredictionOptions(words=words))

    def parse(
        self,
        texts: Sequence[str | Sequence[str] | JsonView],
        words: str | None = None,
    ) -> list[JsonObject]:
        """The dependency tree of each sentence.

        Args:
            texts, words: as for `tag`.

        Returns:
            A dictionary for each sentence; 'words' is a list of {'start', 'end', 'text', 'head',
            'relation', 'probability'}; the head is the number of a word, from 1, or 0.
        """
        options = PredictionOptions(words=words)
        return self.predict('parse', list(map(as_words, check_list(texts))), options)

    def constituents(
        self,
        texts: Sequence[str | Sequence[str] | JsonView],
        words: str | None = None,
    ) -> list[JsonObject]:
        """The constituency tree of each sentence.

        Args:
            texts, words: as for `tag`.

        Returns:
            A dictionary for each sentence; 'predicted' is the tree in brackets.
        """
        options = PredictionOptions(words=words)
        return self.predict('constituents', list(map(as_words, check_list(texts))), options)

    def spans(
        self,
        texts: Sequence[str | Sequence[str] | JsonView],
        words: str | None = None,
    ) -> list[JsonObject]:
        """The labeled spans of each text, which may be nested.

        Args:
            texts, words: as for `tag`.

        Returns:
            A dictionary for each text; 'predicted' is a list of {'start', 'end', 'text', 'label',
            'probability'}.
        """
        options = PredictionOptions(words=words)
        return self.predict('spans', list(map(as_words, check_list(texts))), options)

    def answer(self, questions: Sequence[str], contexts: Sequence[str]) -> list[JsonObject]:
        """The answer to each question in its context.

        Returns:
            A dictionary for each question: 'answer' ('' if unanswerable), 'start', 'end' (offsets
            in the context, in characters), 'probability', and 'n_best', a list of alternatives.
        """
        if len(check_texts(questions)) != len(check_texts(contexts)):
            raise UserError(
                f'questions has {len(questions)} entries, but contexts has {len(contexts)}; give a '
                'context for each question'
            )
        pairs = zip(questions, contexts, strict=True)
        return self.predict('answer', [{'question': q, 'context': c} for q, c in pairs])

    def write(self, texts: Sequence[str | Sequence[str] | JsonView]) -> list[JsonObject]:
        """The text that a run of the problem 'generation' writes for each text or pair.

        `with_settings(beams=4, target_tokens=60)` changes how texts are written.

        Args:
            texts: strings, (text, text2) pairs, or dictionaries with these fields.

        Returns:
            A dictionary for each text: 'written'; 'log_probability', in nats; and 'ended', whether
            the text ended before the longest length.
        """
        return self.predict('write', list(map(as_pair, check_list(texts))))

    def with_settings(self, **settings: Any) -> 'Predictor':
        """Return this fine-tuned model with other settings of its problem (docs/configs.md).

        Args:
            settings: such as no_answer=True, for a published model of SQuAD 2.0.

        Raises:
            UserError: a setting that the problem lacks or that would need another training.
        """
        found = self._fine_tuned('; it has no settings')
        changed = copy.copy(self)
        changed.finetuned = found.with_settings(settings)
        return changed

    def with_prompt(
        self,
        template: str,
        answers: Mapping[str, str | Sequence[str]] | Sequence[str],
        *,
        decoding: str = '',
        calibration: str = 'none',
        shots: Sequence[Mapping[str, str]] = (),
    ) -> 'Predictor':
        """Return this model with a prompt, for `prompt` and `evaluate` without training.

        A masked language model fills the [MASK] of a cloze; a causal model continues a text that
        ends with it, so the score of an answer is its log probability after the text.

        Args:
            template: such as '{text} It was [MASK].', or '{text} It was [MASK]' for a causal model;
                see problems/prompting/templates.py and prefix.py.
            answers: class → its words, or a list of 'CLASS=WORD|WORD' or 'WORD'.
            decoding, calibration: as `problem.decoding` and `problem.calibration` of training.
            shots: for a causal model, answered examples before the text: dictionaries with the
                fields of the template and 'label'.

        Raises:
            UserError: the model predicts no tokens, or the prompt is not valid.
        """
        from bert_jax.inference import finetuned_predictor

        prompted = copy.copy(self)
        prompted.finetuned = finetuned_predictor.prompted(
            self, template, answers, decoding=decoding, calibration=calibration, shots=shots
        )
        prompted.tasks = tuple(dict.fromkeys([*self.tasks, 'prompt']))
        return prompted

    def prompt(
        self,
        texts: Sequence[str | Sequence[str] | JsonView],
        probabilities: bool = False,
    ) -> list[JsonObject]:
        """The class of each text by a cloze prompt, from training or from `with_prompt`.

        Args:
            texts: strings, (text, text2) pairs, or dictionaries with the fields of the template.
            probabilities: whether to list the 'probabilities' of all classes, and 'answers' with
                the probability of each answer among all tokens.

        Returns:
            A dictionary for each text with 'predicted' and 'probability'.
        """
        options = PredictionOptions(probabilities)
        return self.predict('prompt', list(map(as_pair, check_list(texts))), options)

    def respond(
        self, conversations: Sequence[str | JsonView], **options: object
    ) -> list[JsonObject]:
        """The answer of an instruction-tuned model to each prompt or conversation.

        Args:
            conversations: prompts; or dictionaries with 'messages', a list of {'role', 'content'}
                that ends with the user's, or with 'prompt' and, if wanted, 'system'.
            options: as for `generate`; the most probable tokens are the default.

        Returns:
            A dictionary for each: 'id', the 'messages' and the 'answer'.
        """
        self.require('respond')
        return self._fine_tuned('').respond(check_list(conversations), options)

    def responder(self, **options: object) -> 'Responder':
        """Return what writes answers; raise UserError for another model or a wrong option."""
        self.require('chat')
        return self._fine_tuned('').responder(options)

    def rerank(
        self, queries: Sequence[str], documents: Sequence[Sequence[str]]
    ) -> list[JsonObject]:
        """Order the documents of each query, best first.

        A reranker gives the logit of each pair; other models give the similarity of the vectors
        that they were trained to compare, as in `similarity`.

        Args:
            queries: texts.
            documents: the documents of each query.

        Returns:
            A dictionary for each query with 'query' and 'results', a list of dictionaries:
            'document', the number of the document; of a reranker 'logit'; 'score', the logit or,
            for models that answer so, its sigmoid, or the similarity; and 'text'.

        Raises:
            UserError: there is not a list of documents for each query, or the model was trained
                neither to rerank nor to make vectors.
        """
        if len(check_texts(queries)) != len(check_list(documents)):
            raise UserError(
                f'queries has {len(queries)} entries, but documents has {len(documents)}; give a '
                'list of documents for each query'
            )
        if 'rerank' not in self.tasks and self.sentence_modules is not None:
            texts = [check_texts(own) for own in documents]
            records: list[JsonObject] = lazy_table.load(_RERANK)(self, queries, texts)
            return records
        pairs = zip(queries, documents, strict=True)
        inputs = [{'query': query, 'documents': check_texts(own)} for query, own in pairs]
        return self.predict('rerank', inputs)

    def predict(
        self,
        task: str,
        inputs: Sequence[JsonView],
        options: PredictionOptions | None = None,
    ) -> list[JsonObject]:
        """Answer a fine-tuned task for dictionaries, as the method of that name does.

        Args:
            task: 'classify', 'tag', 'roles', 'parse', 'spans', 'answer', 'rerank', 'prompt' or
                'write'.
            inputs: as for these methods; 'id' names an input in errors and results, by default
                its number: 'input 1' for the first.
        """
        self.require(task)
        if self.finetuned is None:
            raise UserError(f'{task} is not a task of fine-tuned models')
        return self.finetuned.predict(task, inputs, options or AS_TRAINED)

    def data_config(self, changes: JsonView) -> 'ConfigDict':
        """Return how to read files: the `data` settings of the fine-tuning, with changes."""
        from bert_jax.inference import changed_settings

        is_tuned = self.finetuned is not None and self.finetuned.problems
        trained = self._fine_tuned('').main.data if is_tuned else {}
        return changed_settings.data_config(trained, changes)

    def evaluate(
        self,
        gold: Sequence[str],
        changes: JsonView | None = None,
        show_progress: bool = False,
    ) -> 'Evaluation':
        """Score a fine-tuned model on labeled files of any format that training reads.

        Args:
            gold: files or globs.
            changes: keys of the config's `data` that differ from the training, such as
                {'format': 'csv', 'columns.label': 'stars'}.
            show_progress: whether to show a bar with the time left, if it takes some seconds;
                `advance` of `bert_jax.load` is then not called.

        Returns:
            The metrics and losses, their intervals, tables, and the lines of predictions.jsonl.
        """
        if self.finetuned and self.finetuned.unsupported:
            self.require('classify')  # says why
        found = self._fine_tuned('; it has nothing to score')
        return found.evaluate(check_list(gold), changes or {}, show_progress=show_progress)


def _is_fine_tuned(model: LoadedModel) -> bool:
    """Whether a run or a published folder may be fine-tuned; others need no module of problems."""
    is_tuned_run = model.usage.task not in (None, 'pretraining')
    return is_tuned_run or loaded_model.has_fine_tuned_head(model.params)
