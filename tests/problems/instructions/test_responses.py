"""Tuned models answer, with the right lengths, in batches, files, commands and chats."""

import json
import types

import pytest

import bert_jax
from bert_jax import predict
from bert_jax.errors import UserError
from bert_jax.inference import chat
from bert_jax.interop import huggingface_export, loading
from tests.inference import small_runs
from tests.problems.instructions.conversations import (
    SPELLED,
    conversation,
    fit,
    make,
    save_run,
)

KINDS = {'causal': (True, {}), 'prefix': (True, {'prefix_lm': True}), 'diffusion': (False, {})}
PROMPTS = [one.contents[0] for one in SPELLED]
ANSWERS = [one.answer for one in SPELLED]


# The loss of rows with a prefix is compared in test_instructions.py.
QUICK = ('causal', 'diffusion')


@pytest.fixture(
    scope='module',
    params=[pytest.param(kind, marks=[pytest.mark.slow] * (kind not in QUICK)) for kind in KINDS],
)
def tuned(request, tmp_path_factory):
    """A folder of a run that has learned the answers of SPELLED."""
    is_causal, settings = KINDS[request.param]
    problem, model = make(is_causal, answer_tokens=6, **settings)
    params, losses = fit(model, SPELLED, 300)
    assert losses[-20:].mean() < 0.5
    return save_run(tmp_path_factory.mktemp('tuned') / request.param, model, params)


@pytest.fixture(scope='module')
def answering(tuned):
    return bert_jax.load(tuned)


def test_answers_have_the_right_words_and_lengths(answering):
    found = answering.respond(PROMPTS)
    assert [one['answer'] for one in found] == ANSWERS
    assert found[0]['messages'] == [{'role': 'user', 'content': PROMPTS[0]}]
    assert not +answering.counts


def test_evaluation_writes_answers_too(answering, tmp_path):
    lines = [{'prompt': p, 'answer': a} for p, a in zip(PROMPTS, ANSWERS, strict=True)]
    lines[0]['answer'] = 'stone'
    (tmp_path / 'gold.jsonl').write_text(''.join(json.dumps(line) + '\n' for line in lines))
    result = answering.evaluate([str(tmp_path / 'gold.jsonl')])
    assert result.scores.metrics['exact_match'] == pytest.approx(6 / 7)
    assert [one['answer'] for one in result.records] == ANSWERS
    assert result.scores.metrics['answer_loss'] > 0


def test_a_chat_of_lines_streams_the_answers(tuned, tmp_path, capsys):
    (tmp_path / 'lines').write_text(f'{PROMPTS[3]}\n\n{PROMPTS[2]}\n')
    flags = [f'--model={tuned}', '--task=chat', f'--input={tmp_path}/lines', '--new_tokens=6']
    predict.main(flags)
    shown = capsys.readouterr().out.splitlines()
    assert shown[0] == ANSWERS[3]
    assert len(shown) == 2


def test_pieces_of_a_stream_make_the_answer(answering):
    for options in ({}, {'block': 2}):
        if answering.is_causal and options:
            continue
        responder, pieces = answering.responder(**options), []
        prompt, _ = responder.prompt(conversation('x', PROMPTS[3]))
        text = responder.stream(prompt, pieces.append)
        assert ''.join(pieces) == text
        if not options:
            assert text == ANSWERS[3]
            assert len(pieces) == (4 if answering.is_causal else 1)


def test_a_chat_leaves_out_old_turns_and_says_so(answering):
    notes, shown = [], []
    responder = answering.responder()
    # What a model of one turn writes after several is left to chance, and may be empty.
    answers = types.SimpleNamespace(prompt=responder.prompt, stream=lambda *_: ANSWERS[3])
    chat.chat(answers, ['cat ' * 12] * 6, shown.append, notes.append, system='be short.')
    dropped = [note for note in notes if 'turns are left out' in note]
    assert dropped
    chat.chat(responder, ['cat ' * 60], shown.append, notes.append)
    assert 'the prompt has' in notes[-1]


def test_answers_do_not_depend_on_the_batch(answering):
    alone = [answering.respond([prompt], temperature=1.0)[0]['answer'] for prompt in PROMPTS[:2]]
    both = [one['answer'] for one in answering.respond(PROMPTS[:2], temperature=1.0)]
    assert alone == both


def test_a_model_that_was_not_tuned_on_instructions_is_refused_in_one_line(tmp_path, capsys):
    run = small_runs.save_run(tmp_path / 'run', 'tagging')
    with pytest.raises(SystemExit):
        predict.main([f'--model={run}', '--task=chat'])
    assert 'was not fine-tuned on instructions, so it cannot chat' in capsys.readouterr().err
    with pytest.raises(SystemExit):
        predict.main([f'--model={run}', '--task=tag', '--output=-'])
    assert '--input is missing' in capsys.readouterr().err


def test_wrong_options_are_refused(answering):
    with pytest.raises(UserError, match='trained on sequences of 48 tokens'):
        answering.respond(PROMPTS, new_tokens=48)
    with pytest.raises(UserError, match='option of generation'):
        answering.respond(PROMPTS, **({'block': 2} if answering.is_causal else {'beams': 2}))
    with pytest.raises(UserError, match="end with the user's"):
        answering.respond(
            [{'messages': [{'role': r, 'content': 'x'} for r in ('user', 'assistant')]}]
        )


def test_models_without_a_prefix_are_exported_and_still_answer(tuned, tmp_path):
    loaded = loading.load_any(tuned, allow_missing=('^encoder/pooler/',))
    if loaded.has_prefix:
        with pytest.raises(UserError, match='prefix_lm'):
            huggingface_export.save(loaded, tmp_path / 'x')
        return
    huggingface_export.save(loaded, tmp_path / 'x')
    exported = bert_jax.load(tmp_path / 'x')
    assert exported.is_causal == loaded.is_causal
    assert [one['answer'] for one in exported.respond(PROMPTS)] == ANSWERS
