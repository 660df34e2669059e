"""Inference with a loaded model, pretrained or fine-tuned."""

import copy
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from ml_collections import ConfigDict

from bert_jax.errors import UserError
from bert_jax.inference import changed_settings, finetuned, problem_kinds
from bert_jax.inference.finetuned import PredictionOptions
from bert_jax.inference.inputs import as_pair, as_words
from bert_jax.inference.pretrained_predictor import PretrainedPredictor
from bert_jax.inference.responses import Responder
from bert_jax.inference.text_rows import check_list, check_texts
from bert_jax.interop.pretrained import Pretrained
from bert_jax.labels.examples import ConversationExample
from bert_jax.problems.base import AnyProblem
from bert_jax.problems.instructions.encoding import InstructionEncoding
from bert_jax.problems.instructions.problem import AnswerPrediction
from bert_jax.problems.prompting.answers import parse as parse_answers
from bert_jax.problems.prompting.prefix import PrefixTemplate
from bert_jax.types import JsonObject, JsonView


class Predictor(PretrainedPredictor):
    """A loaded model; `bert_jax.load` makes one from a path.

    Every method but `attention` takes a list of texts of any length, the empty text included, and
    answers in the same order. Texts longer than the model's input are split into overlapping
    windows.
    """

    def __init__(self, model: Pretrained, **settings: Any) -> None:
        """Prepare inference; nothing is compiled until the first call.

        Args:
            model: parameters, architecture and tokenizer.
            settings: see `BasePredictor`.

        Raises:
            UserError: a setting is not valid, or the model has no tokenizer.
        """
        super().__init__(model, **settings)
        kind = problem_kinds.problem_kind(model)
        self._unsupported = problem_kinds.unsupported(model)
        self._finetuned = self._load_problem(model, kind) if kind else None
        self._instructions: InstructionEncoding | None = None
        if self._finetuned:
            self.tasks = tuple(dict.fromkeys([*self.tasks, self._finetuned.task]))
            encoding = self._finetuned.problem().encoding
            if isinstance(encoding, InstructionEncoding):
                self._instructions = encoding
                self.tasks += ('chat',)
            self._params |= jax.tree.map(jnp.asarray, model.other_parts)
        other = problem_kinds.other_kind(model, kind)
        self._other = self._load_problem(model, other) if other else None
        if self._other:
            self.tasks += (self._other.task,)

    def _load_problem(self, model: Pretrained, kind: str) -> finetuned.FineTuned:
        settings = (self.tokenizer, self._compute, self._batch_tokens, self._overlap, self.counts)
        return finetuned.build(model, kind, *settings)

    @property
    def problem(self) -> AnyProblem:
        """The fine-tuning problem. Raises UserError without one."""
        if not self._finetuned:
            raise UserError(f'{self.name} is not a fine-tuned model')
        return self._finetuned.problem()

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
        if not self._finetuned:
            raise UserError(f'{self.name} is not a fine-tuned model; it has no settings')
        changed = copy.copy(self)
        changed._finetuned = self._finetuned.with_settings(settings)
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
        if not self.is_causal:
            self.require('fill_mask')
            if shots:
                raise UserError('shots are for causal models; see problem.demonstrations')
        else:
            self.require('pseudo_likelihood')
            if decoding:
                raise UserError(
                    f'decoding is {decoding!r}, but a causal model reads an answer from left to '
                    'right; leave decoding out'
                )
        if isinstance(answers, Mapping):
            answers = [
                f'{label}={words if isinstance(words, str) else "|".join(words)}'
                for label, words in answers.items()
            ]
        settings = {
            'template': template,
            'answers': tuple(check_list(answers)),
            'decoding': 'parallel' if self.is_causal else decoding or 'max_first',
            'calibration': calibration,
        }
        config = {'problem': settings, 'training': {'sequence_length': self.max_length}}
        labels = tuple(parse_answers(settings['answers']))
        _check_shots(shots, PrefixTemplate(template).fields if shots else (), labels)
        kept = {'shots': [dict(shot) for shot in shots]}
        model = Pretrained(
            None,
            self.architecture,
            {},
            labels=labels,
            metadata={'config': config, 'kept': kept},
            is_causal=self.is_causal,
        )
        prompted = copy.copy(self)
        prompted._finetuned = self._load_problem(model, 'prompt')
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
        responder = self.responder(**options)
        decoder = self.problem.decoder
        inputs = [
            {'prompt': one} if isinstance(one, str) else one for one in check_list(conversations)
        ]
        examples, prompts = [], []
        for number, item in enumerate(inputs, 1):
            name = str(item.get('id', f'input {number}'))
            example = responder.encoding.parse_input(name, item)
            if example.answer is not None:
                raise UserError(f"{name}: the last message is the assistant's; end with the user's")
            prompt, dropped = responder.prompt(example)
            self.counts['conversations without their oldest turns, which do not fit'] += dropped > 0
            examples.append(example)
            prompts.append(prompt)
        records = []
        for example, answer in zip(examples, responder.respond(prompts), strict=True):
            record = decoder.to_record(example, AnswerPrediction(0.0, 0, 0, 0.0, answer))
            records.append({name: value for name, value in record.items() if name != 'gold'})
        return records

    def responder(self, **options: object) -> Responder:
        """Return what writes answers; raise UserError for another model or a wrong option."""
        self.require('chat')
        assert self._instructions is not None
        return Responder.of(self, self._instructions, options)

    def rerank(
        self, queries: Sequence[str], documents: Sequence[Sequence[str]]
    ) -> list[JsonObject]:
        """Order the documents of each query by the logit of the pair, best first.

        Args:
            queries: texts.
            documents: the documents of each query.

        Returns:
            A dictionary for each query with 'query' and 'results', a list of dictionaries:
            'document', the number of the document; 'logit'; 'score', the logit or, for models that
            answer so, its sigmoid; and 'text'.

        Raises:
            UserError: there is not a list of documents for each query.
        """
        if len(check_texts(queries)) != len(check_list(documents)):
            raise UserError(
                f'queries has {len(queries)} entries, but documents has {len(documents)}; give a '
                'list of documents for each query'
            )
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
            task: 'classify', 'tag', 'parse', 'spans', 'answer', 'rerank', 'prompt' or 'write'.
            inputs: as for these methods; 'id' names an input in errors and results, by default
                its number: 'input 1' for the first.
        """
        self.require(task)
        answering = next(
            (one for one in (self._finetuned, self._other) if one and one.task == task), None
        )
        if answering is None:
            raise UserError(f'{task} is not a task of fine-tuned models')
        return answering.predict(
            self._params, inputs, self._advance, options or finetuned.AS_TRAINED
        )

    def data_config(self, changes: JsonView) -> ConfigDict:
        """Return how to read files: the `data` settings of the fine-tuning, with changes."""
        trained = self._finetuned.data if self._finetuned else {}
        return changed_settings.data_config(trained, changes)

    def evaluate(
        self, gold: Sequence[str], changes: JsonView | None = None
    ) -> finetuned.Evaluation:
        """Score a fine-tuned model on labeled files of any format that training reads.

        Args:
            gold: files or globs.
            changes: keys of the config's `data` that differ from the training, such as
                {'format': 'csv', 'columns.label': 'stars'}.

        Returns:
            The metrics, their intervals, tables, and the lines of predictions.jsonl.
        """
        if self._unsupported:
            self.require('classify')  # says why
        if not self._finetuned:
            raise UserError(f'{self.name} is not a fine-tuned model; it has nothing to score')
        complete = self._add_answers if self._instructions is not None else None
        return self._finetuned.evaluate(
            self.name, self._params, check_list(gold), changes or {}, self._advance, complete
        )

    def _add_answers(
        self,
        examples: Sequence[ConversationExample],
        predictions: Sequence[AnswerPrediction],
    ) -> list[AnswerPrediction]:
        """Add to predictions what the model answers itself; '' if a prompt leaves no room."""
        responder, prompts = self.responder(), {}
        for number, example in enumerate(examples):
            if example.answer is None:
                continue
            try:
                prompts[number], _ = responder.prompt(example.before_answer())
            except UserError:
                self.counts['prompts that leave no room for an answer, which count as wrong'] += 1
        answers = dict(zip(prompts, responder.respond(list(prompts.values())), strict=True))
        return [
            one if example.answer is None else one._replace(written=answers.get(number, ''))
            for number, (example, one) in enumerate(zip(examples, predictions, strict=True))
        ]


def _check_shots(
    shots: Sequence[Mapping[str, str]], fields: Sequence[str], labels: Sequence[str]
) -> None:
    """Raise UserError for a shot without a field, or with an unknown label."""
    for number, shot in enumerate(shots, 1):
        if missing := [name for name in fields if name not in shot]:
            raise UserError(f'shot {number} lacks {missing[0]!r}, a field of the template')
        if shot.get('label') not in labels:
            known = ', '.join(labels)
            raise UserError(f'shot {number} has the label {shot.get("label")!r}; known: {known}')
