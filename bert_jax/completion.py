"""Print a script that makes bash and zsh complete commands, flags and config keys.

python -m bert_jax.completion > bert_jax_completion.sh && source bert_jax_completion.sh
"""

from bert_jax import evaluate, lazy_table
from bert_jax.__main__ import COMMANDS
from bert_jax.answers import ANSWERS
from bert_jax.cli import command_line
from bert_jax.flag_parser import words_of

_ANALYSES = 'bert_jax.analyze:ANALYSES'
# After '=', and for other programs, bash completes names of files.
SCRIPT = """\
if [ -n "$ZSH_VERSION" ]; then autoload -U +X bashcompinit && bashcompinit; fi
_bert_jax() {{
    local words=""
    local command="${{COMP_WORDS[0]##*/}} ${{COMP_WORDS[1]}} ${{COMP_WORDS[2]}}"
    case "$command" in
{cases}
        python*" -m "*) [ "$COMP_CWORD" -eq 2 ] && words="{modules}" ;;
        bert-jax*) [ "$COMP_CWORD" -eq 1 ] && words="{commands}" ;;
    esac
    COMPREPLY=($(compgen -W "$words" -- "${{COMP_WORDS[COMP_CWORD]}}"))
}}
complete -o bashdefault -o default -o nospace -F _bert_jax python python3 bert-jax"""


def script() -> str:
    """Return the script; it has all words, so that completing runs no Python."""
    cases = []
    for name, command in COMMANDS.items():
        words = ' '.join(_words(name, lazy_table.load(command.request)))
        typed = f'python*" -m {_typed(command.module)}" | "bert-jax {name} "*'
        cases.append(f'        {typed}) words="{words}" ;;')
    return SCRIPT.format(
        cases='\n'.join(cases),
        modules=' '.join(_typed(command.module) for command in COMMANDS.values()),
        commands=' '.join(COMMANDS),
    )


def _typed(module: str) -> str:
    """Return a module as it is typed after -m."""
    return module.removesuffix('.__main__')


def _words(command: str, request: type) -> list[str]:
    """Return the words that may follow a command."""
    flags = words_of(request)
    if command == 'train':
        return flags + [f'--{name}=' for name in sorted(command_line.names())]
    if command == 'evaluate':
        return flags + [f'--{name}=' for name in sorted(evaluate.section_keys())]
    if command == 'predict':
        return sorted({*flags}.union(*map(words_of, ANSWERS.values())))
    if command == 'analyze':
        analyses = lazy_table.load(_ANALYSES)
        return [*analyses, *sorted({*flags}.union(*map(words_of, analyses.values())))]
    return flags


if __name__ == '__main__':
    print(script())
