"""What `answers` asks: files in every format of input, and command lines of every task."""

import csv
import io
import json
import pathlib
from typing import NamedTuple

import pyarrow
from pyarrow import parquet

SUFFIXES = ('.jsonl', '.npz', '.conllu')
_TEXTS = ['the cow and the barn .', 'a [MASK] near the [MASK]', '', 'the moon and ' * 15, '{x}']
_PAIRS = [['the cow', 'a cow .'], ['the star', 'the star'], ['the ship "sails"', 'the moon']]
_SPANS = [{'text': 'the ship near', 'spans': [[4, 13], [0, 8]]}, {'text': 'star', 'spans': []}]
_WORDS = [{'words': ['a', 'cow']}, {'tokens': ['the', 'ship', '.'], 'id': 'mine'}, {'text': 'a b'}]
_CONLLU = """# sent_id = 1
1\tThe\tthe\tDET\t_\t_\t2\tdet\t_\t_
2-3\tdogs\t_\t_\t_\t_\t_\t_\t_\t_
2\tdog\tdog\tNOUN\t_\t_\t3\tnsubj\t_\t_
3\ts\ts\tVERB\t_\t_\t0\troot\t_\t_

# sent_id = 2
1\tGo\tgo\tVERB\t_\t_\t0\troot\t_\tSpaceAfter=No
2\t!\t!\tPUNCT\t_\t_\t1\tpunct\t_\t_
"""


class Question(NamedTuple):
    """A command line.

    Attributes:
        model: name of a folder; '' for none.
        task: the task.
        input: name of a file of `write_inputs`; '' for none.
        flags: others; {models} and {inputs} stand for folders.
        suffix: of the output; '' for none.
    """

    model: str
    task: str
    input: str
    flags: tuple[str, ...] = ()
    suffix: str = '.jsonl'

    def arguments(self, models: pathlib.Path, inputs: pathlib.Path, output: str) -> list[str]:
        """Return the arguments of bert_jax.predict."""
        words = [f'--task={self.task}']
        words += [f'--model={models / self.model}'] * bool(self.model)
        words += [f'--input={inputs / self.input}'] * bool(self.input)
        words += [f'--output={output}{self.suffix}'] * bool(self.suffix)
        return words + [flag.format(models=models, inputs=inputs) for flag in self.flags]


def _ask(model: str, task: str, file: str, *flags: str, suffix: str = '.jsonl') -> Question:
    return Question(model, task, file, flags, suffix)


def write_inputs(folder: pathlib.Path) -> None:
    """Write the inputs to a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    tables: dict[str, list[dict[str, object]]] = {
        'table': [
            {'id': f'r{n}', 'text': text, 'stars': n} for n, text in enumerate(_TEXTS) if text
        ],
        'two': [{'text': one, 'text2': other} for one, other in _PAIRS],
        'asked': [{'question': 'who ran ?', 'context': 'the cow ran .'}],
        'ranked': [{'query': 'a cow', 'documents': ['the cow', 'a ship']}],
        'answered': [{'query': 'a cow', 'positives': ['the cow and the barn .']}],
        'review': [{'review': 'the cow', 'label': 'x'}],
        'tokens': [{'words': ['the', 'cow']}, {'words': ['a']}],
        'messages': [{'prompt': 'the cow', 'system': 'short'}],
    }
    for name, rows in tables.items():
        lines = [json.dumps(row) for row in rows]
        (folder / f'{name}.jsonl').write_text('\n'.join(lines) + '\n')
        (folder / f'{name}.json').write_text(json.dumps(rows))
        parquet.write_table(pyarrow.Table.from_pylist(rows), folder / f'{name}.parquet')
        for suffix, dialect in (('csv', 'excel'), ('tsv', 'excel-tab')):
            file = io.StringIO()
            writer = csv.DictWriter(file, list(rows[0]), dialect=dialect, lineterminator='\n')
            writer.writeheader()
            writer.writerows(rows)
            (folder / f'{name}.{suffix}').write_text(file.getvalue())
    texts = {
        'texts': _TEXTS,
        'gaps': ['the [MASK:3] near', 'a [MASK]', 'a [MASK]'],
        'starts': ['the cow', 'the cow', 'a star near'],
        'pairs': ['\t'.join(pair) for pair in _PAIRS],
        'triple': ['a\tb\tc'],
        'one': ['the cow'],
        'words': ['the ship near', 'star', *map(json.dumps, _WORDS)],
        'spans': [*map(json.dumps, _SPANS)],
        'objects': [json.dumps({'id': 7, 'text': 'a cow'}), json.dumps({'id': None, 'text': 'b'})],
        'questions': ['who ran ?\tthe cow ran .', json.dumps({'question': 'a', 'context': 'b c'})],
        'documents': ['the cow and the barn .', 'a ship near the wave', 'the star', 'the star'],
        'ranking': ['a cow\tthe cow\ta ship', json.dumps({'query': 'q', 'documents': ['a', 'b']})],
        'known': ['a cow\tthe cow and the barn .', 'a star\tthe star'],
        'choices': [json.dumps({'premise': 'the cow ran', 'choices': ['it ran', 'it sat']})],
        'marks': [json.dumps({'text': 'Anna works for Green Park.', 'marks': [[0, 4], [15, 25]]})],
        'wic': [json.dumps({'text': 'a nail', 'text2': 'the nail', 'marks': [[2, 6], [4, 8]]})],
        'prompts': ['the cow', json.dumps({'prompt': 'a star', 'system': 'short'})],
        'talk': ['the cow', '', 'a star'],
        'shots': [json.dumps({'text': 'a cow', 'label': '0'})],
        'broken': ['{"text": }'],
        'list': ['[1]'],
        'half': ['{"text": "\\ud800"}'],
    }
    for name, lines in texts.items():
        (folder / f'{name}.txt').write_text(''.join(f'{line}\n' for line in lines))
    (folder / 'quoted.csv').write_text('text,text2\n"the dog\twent","it\nran"\nthe dog,it ran\n')
    (folder / 'ragged.csv').write_text('text,label\nthe ship,1\n,\nthe moon\n')
    (folder / 'blank.csv').write_text('text,label\nthe ship,1\n,\n')
    (folder / 'header.csv').write_text('text,label\n')
    (folder / 'latin.txt').write_bytes('caf\xe9 [MASK]\n'.encode('latin-1'))
    (folder / 'latin.csv').write_bytes('text\ncaf\xe9 [MASK]\n'.encode('latin-1'))
    (folder / 'trees.conllu').write_text(_CONLLU)
    (folder / 'bad.conllu').write_text('1\tx\n')
    (folder / 'empty.txt').write_text('')


_FORMATS = ('jsonl', 'json', 'csv', 'tsv', 'parquet')
_DOCUMENTS = '--documents={inputs}/documents.txt'
_LORAS = '--tuned={models}/lora2,{models}/lora3'
_PROMPT = ('--template={{text}} is [MASK] .', '--answers', '0=cow', '1=ship|moon')
_CAUSAL_PROMPT = ('--template={{text}} is [MASK]', *_PROMPT[1:])
_ANSWERS = ('--new_tokens=4', '--seed=2')

QUESTIONS: dict[str, Question] = {
    'fill_mask': _ask('mlm', 'fill_mask', 'texts.txt', '--top=3'),
    'fill_mask_stdout': _ask('mlm', 'fill_mask', 'texts.txt', '--output=-', suffix=''),
    'fill_mask_windows': _ask('mlm', 'fill_mask', 'texts.txt', '--max_length=10', '--overlap=.5'),
    'fill_mask_latin': _ask('mlm', 'fill_mask', 'latin.txt', '--encoding=latin-1'),
    'fill_mask_bfloat16': _ask('mlm', 'fill_mask', 'texts.txt', '--dtype=bfloat16'),
    'fill_mask_tuned': _ask('', 'fill_mask', 'texts.txt', '--tuned={models}/mlm,{models}/lora2'),
    'likelihood': _ask('mlm', 'pseudo_likelihood', 'texts.txt', '--batch_tokens=100'),
    'likelihood_causal': _ask('clm', 'pseudo_likelihood', 'texts.txt', '--long_texts=truncate'),
    'likelihood_words': _ask('mlm', 'pseudo_likelihood', 'texts.txt', '--variant=word_l2r'),
    'pairs': _ask('mlm', 'pairs', 'pairs.txt'),
    'pairs_words': _ask('mlm', 'pairs', 'pairs.txt', '--variant=word_l2r'),
    'pairs_causal': _ask('clm', 'pairs', 'pairs.txt'),
    'pairs_quoted': _ask('mlm', 'pairs', 'quoted.csv'),
    'bound': _ask('mlm', 'likelihood_bound', 'starts.txt', '--draws=4', '--seed=1'),
    'bound_long': _ask('mlm', 'likelihood_bound', 'texts.txt', '--draws=4'),
    'embed': _ask('mlm', 'embed', 'texts.txt', suffix='.npz'),
    'embed_tokens': _ask('mlm', 'embed', 'texts.txt', '--pooling=tokens', suffix='.npz'),
    'embed_cls': _ask('mlm', 'embed', 'texts.txt', '--pooling=cls', '--layer=0', suffix='.npz'),
    'embed_all': _ask('mlm', 'embed', 'texts.txt', '--layer=all', suffix='.npz'),
    'embed_concat': _ask('mlm', 'embed', 'texts.txt', '--layer=concat_last_4', suffix='.npz'),
    'embed_cut': _ask('mlm', 'embed', 'texts.txt', '--long_texts=truncate', suffix='.npz'),
    'embed_folder': _ask('sentences', 'embed', 'texts.txt', suffix='.npz'),
    'embed_dimensions': _ask('sentences', 'embed', 'texts.txt', '--dimensions=4', suffix='.npz'),
    'embed_run': _ask('embedding', 'embed', 'texts.txt', suffix='.npz'),
    'embed_prompt': _ask('mlm', 'embed', 'texts.txt', '--prompt_name=query', suffix='.npz'),
    'embed_causal': _ask('clm', 'embed', 'texts.txt', '--pooling=max', suffix='.npz'),
    'embed_decoder': _ask('bart', 'embed', 'texts.txt', suffix='.npz'),
    'words': _ask('mlm', 'embed', 'words.txt', '--unit=word', '--pooling=sum', suffix='.npz'),
    'words_text': _ask(
        'mlm', 'embed', 'words.txt', '--unit=word', '--input_format=text', suffix='.npz'
    ),
    'words_split': _ask(
        'mlm', 'embed', 'texts.txt', '--unit=word', '--words=punctuation', suffix='.npz'
    ),
    'words_table': _ask('mlm', 'embed', 'tokens.parquet', '--unit=word', suffix='.npz'),
    'spans': _ask('mlm', 'embed', 'spans.txt', '--unit=span', '--layer=all', suffix='.npz'),
    'search': _ask('mlm', 'search', 'one.txt', _DOCUMENTS, '--top=2'),
    'search_text': _ask('mlm', 'search', 'one.txt', _DOCUMENTS, '--output_format=text'),
    'search_dot': _ask('mlm', 'search', 'one.txt', _DOCUMENTS, '--similarity=dot', '--pooling=max'),
    'search_folder': _ask('sentences', 'search', 'texts.txt', _DOCUMENTS, '--dimensions=4'),
    'search_table': _ask('mlm', 'search', 'table.csv', '--documents={inputs}/table.parquet'),
    'search_column': _ask(
        'mlm', 'search', 'one.txt', '--documents={inputs}/review.csv', '--column=review'
    ),
    'search_sparse': _ask('sparse_embedding', 'search', 'one.txt', _DOCUMENTS),
    'search_sparse_dimensions': _ask(
        'sparse_embedding', 'search', 'one.txt', _DOCUMENTS, '--dimensions=3'
    ),
    'search_reranked': _ask('mlm', 'search', 'one.txt', _DOCUMENTS, '--reranker={models}/scores'),
    'search_vectors': _ask('mlm', 'search', 'one.txt', _DOCUMENTS, '--vectors={inputs}/vectors'),
    'mine': _ask('mlm', 'mine', 'known.txt', _DOCUMENTS, '--negatives=1'),
    'mine_table': _ask('mlm', 'mine', 'answered.parquet', _DOCUMENTS, '--last_rank=2'),
    'mine_random': _ask('mlm', 'mine', 'known.txt', _DOCUMENTS, '--choice=random', '--seed=3'),
    'mine_margin': _ask(
        'mlm', 'mine', 'answered.jsonl', _DOCUMENTS, '--relative_margin=.01', '--highest_score=.99'
    ),
    'terms': _ask('mlm', 'terms', 'texts.txt', '--top=4'),
    'terms_run': _ask('sparse_embedding', 'terms', 'texts.txt'),
    'generate_gaps': _ask('mlm', 'generate', 'gaps.txt', '--steps=2', '--order=random'),
    'generate_block': _ask('mlm', 'generate', 'gaps.txt', '--block=1', '--new_tokens=2'),
    'generate': _ask('clm', 'generate', 'starts.txt', *_ANSWERS, '--top_k=9', '--temperature=.7'),
    'generate_top_p': _ask('clm', 'generate', 'starts.txt', *_ANSWERS, '--top_p=.9', '--min_p=.01'),
    'generate_beams': _ask(
        'clm', 'generate', 'starts.txt', '--new_tokens=4', '--beams=2', '--length_penalty=.5'
    ),
    'generate_early': _ask(
        'clm', 'generate', 'starts.txt', '--new_tokens=4', '--beams=2', '--early_stopping=never'
    ),
    'generate_stop': _ask(
        'clm', 'generate', 'starts.txt', *_ANSWERS, '--stop=a', '--no_repeat_ngrams=2'
    ),
    'generate_stream': _ask('clm', 'generate', 'one.txt', *_ANSWERS, '--stream'),
    'generate_bart': _ask('bart', 'generate', 'starts.txt', '--new_tokens=4', '--min_new_tokens=2'),
    'generate_table': _ask('clm', 'generate', 'table.csv', *_ANSWERS),
    'respond': _ask('instructions', 'respond', 'prompts.txt', '--new_tokens=4'),
    'respond_table': _ask('instructions', 'respond', 'messages.parquet', '--new_tokens=4'),
    'respond_sample': _ask('instructions', 'respond', 'prompts.txt', *_ANSWERS, '--temperature=1'),
    'chat': _ask('instructions', 'chat', 'talk.txt', '--new_tokens=4', suffix=''),
    'chat_system': _ask(
        'instructions', 'chat', 'talk.txt', '--new_tokens=4', '--system=short', suffix=''
    ),
    'write': _ask('summaries', 'write', 'starts.txt'),
    'write_beams': _ask('summaries', 'write', 'starts.txt', '--beams=2', '--new_tokens=3'),
    'write_table': _ask('summaries', 'write', 'table.csv', '--new_tokens=3'),
    'classify': _ask('sentiment', 'classify', 'texts.txt', '--probabilities'),
    'classify_long': _ask(
        'sentiment', 'classify', 'texts.txt', '--long_texts=windows', '--overlap=.5'
    ),
    'classify_objects': _ask('sentiment', 'classify', 'objects.txt'),
    'classify_text': _ask('sentiment', 'classify', 'texts.txt', '--input_format=text'),
    'classify_broken': _ask('sentiment', 'classify', 'broken.txt'),
    'classify_list': _ask('sentiment', 'classify', 'list.txt', '--input_format=jsonl'),
    'classify_half': _ask('sentiment', 'classify', 'half.txt'),
    'classify_triple': _ask('sentiment', 'classify', 'triple.txt'),
    'classify_one_of_pair': _ask('pairs', 'classify', 'one.txt'),
    'classify_pairs': _ask('pairs', 'classify', 'pairs.txt', '--probabilities'),
    'classify_quoted': _ask('pairs', 'classify', 'quoted.csv'),
    'classify_folder': _ask('classes', 'classify', 'pairs.txt', '--probabilities'),
    'classify_similarity': _ask('similarity', 'classify', 'pairs.txt'),
    'classify_topics': _ask('topics', 'classify', 'starts.txt', '--probabilities'),
    'classify_ratings': _ask('ratings', 'classify', 'starts.txt'),
    'classify_choice': _ask('choice', 'classify', 'choices.txt', '--probabilities'),
    'classify_relation': _ask('relation', 'classify', 'marks.txt'),
    'classify_wic': _ask('wic', 'classify', 'wic.txt'),
    'classify_coreference': _ask('coreference', 'classify', 'marks.txt'),
    'classify_column': _ask('sentiment', 'classify', 'review.csv'),
    'classify_lines': _ask('sentiment', 'classify', 'table.csv', '--input_format=text'),
    'classify_ragged': _ask('sentiment', 'classify', 'ragged.csv'),
    'classify_blank': _ask('sentiment', 'classify', 'blank.csv'),
    'classify_header': _ask('sentiment', 'classify', 'header.csv'),
    'classify_latin': _ask('sentiment', 'classify', 'latin.csv', '--encoding=latin-1'),
    'classify_undecodable': _ask('sentiment', 'classify', 'latin.csv'),
    'classify_tuned': _ask('', 'classify', 'starts.txt', _LORAS),
    'tag': _ask('entities', 'tag', 'words.txt', '--probabilities'),
    'tag_split': _ask('entities', 'tag', 'texts.txt', '--words=punctuation', '--input_format=text'),
    'tag_table': _ask('entities', 'tag', 'tokens.json'),
    'tag_folder': _ask('tags', 'tag', 'words.txt'),
    'parse': _ask('trees', 'parse', 'words.txt'),
    'parse_trees': _ask('trees', 'parse', 'trees.conllu'),
    'parse_to_trees': _ask('trees', 'parse', 'trees.conllu', suffix='.conllu'),
    'parse_texts': _ask('trees', 'parse', 'starts.txt', suffix='.conllu'),
    'parse_bad': _ask('trees', 'parse', 'bad.conllu'),
    'spans_problem': _ask('spans', 'spans', 'words.txt'),
    'answer': _ask('questions', 'answer', 'questions.txt'),
    'answer_table': _ask('questions', 'answer', 'asked.csv'),
    'answer_folder': _ask('qa', 'answer', 'questions.txt', '--no_answer'),
    'answer_one': _ask('qa', 'answer', 'one.txt'),
    'rerank': _ask('reranking', 'rerank', 'ranking.txt'),
    'rerank_folder': _ask('scores', 'rerank', 'ranking.txt'),
    'rerank_table': _ask('scores', 'rerank', 'ranked.parquet'),
    'prompt': _ask('mlm', 'prompt', 'starts.txt', *_PROMPT, '--probabilities'),
    'prompt_run': _ask('prompt', 'prompt', 'starts.txt'),
    'prompt_causal': _ask('clm', 'prompt', 'starts.txt', *_CAUSAL_PROMPT),
    'prompt_shots': _ask(
        'clm', 'prompt', 'starts.txt', *_CAUSAL_PROMPT, '--shots={inputs}/shots.txt'
    ),
    'prompt_table': _ask('prompt', 'prompt', 'table.csv', '--calibration=contextual', *_PROMPT),
    'prompt_without': _ask('mlm', 'prompt', 'starts.txt', '--template=x [MASK]'),
    # Mistakes
    'no_model': _ask('', 'fill_mask', 'texts.txt'),
    'two_models': _ask('mlm', 'fill_mask', 'texts.txt', _LORAS),
    'no_input': _ask('mlm', 'fill_mask', ''),
    'no_files': _ask('mlm', 'fill_mask', '', suffix=''),
    'no_head': _ask('mlm', 'classify', 'texts.txt'),
    'empty': _ask('mlm', 'fill_mask', 'empty.txt'),
    'undecodable': _ask('mlm', 'fill_mask', 'latin.txt'),
    'unknown_encoding': _ask('mlm', 'fill_mask', 'texts.txt', '--encoding=utf-99'),
    'unknown_task': _ask('mlm', 'fill', 'texts.txt'),
    'overlap_alone': _ask('sentiment', 'classify', 'texts.txt', '--overlap=.5'),
    'embed_name': _ask('mlm', 'embed', 'texts.txt'),
    'embed_tuned': _ask('', 'embed', 'texts.txt', _LORAS, suffix='.npz'),
    'embed_words': _ask('mlm', 'embed', 'texts.txt', '--words=whitespace', suffix='.npz'),
    'words_cut': _ask(
        'mlm', 'embed', 'texts.txt', '--unit=word', '--long_texts=truncate', suffix='.npz'
    ),
    'no_spans': _ask('mlm', 'embed', 'texts.txt', '--unit=span', suffix='.npz'),
    'pooling': _ask('mlm', 'embed', 'texts.txt', '--pooling=sum', suffix='.npz'),
    'pairs_one': _ask('mlm', 'pairs', 'one.txt'),
    'no_documents': _ask('mlm', 'search', 'one.txt'),
    'search_tuned': _ask('', 'search', 'one.txt', _DOCUMENTS, _LORAS),
    'few_candidates': _ask(
        'mlm', 'search', 'one.txt', _DOCUMENTS, '--reranker=x', '--top=9', '--candidates=3'
    ),
    'no_reranker': _ask('mlm', 'search', 'one.txt', _DOCUMENTS, '--candidates=3'),
    'useless_seed': _ask('mlm', 'mine', 'known.txt', _DOCUMENTS, '--seed=3'),
    'ranks': _ask('mlm', 'mine', 'known.txt', _DOCUMENTS, '--first_rank=9', '--last_rank=3'),
    'chat_output': _ask('instructions', 'chat', 'talk.txt'),
    'trees_tuned': _ask('', 'parse', 'words.txt', _LORAS, suffix='.conllu'),
    'other_flag': _ask('mlm', 'embed', 'texts.txt', '--top=3', suffix='.npz'),
    'unknown_flag': _ask('mlm', 'fill_mask', 'texts.txt', '--tops=3'),
    'long_gap': _ask('mlm', 'generate', 'gaps.txt', '--new_tokens=70'),
    'no_gap': _ask('mlm', 'generate', 'one.txt'),
    **{
        f'{task}_{suffix}': _ask(model, task, f'table.{suffix}')
        for suffix in _FORMATS
        for model, task in (
            ('mlm', 'fill_mask'),
            ('mlm', 'pseudo_likelihood'),
            ('mlm', 'terms'),
            ('sentiment', 'classify'),
            ('entities', 'tag'),
            ('prompt', 'prompt'),
        )
    },
    **{f'pairs_{suffix}': _ask('mlm', 'pairs', f'two.{suffix}') for suffix in _FORMATS},
    **{
        f'embed_{suffix}': _ask('mlm', 'embed', f'table.{suffix}', suffix='.npz')
        for suffix in _FORMATS
    },
}
