"""Print a script that makes bash and zsh complete commands, flags and config keys.

python -m bert_jax.completion > bert_jax_completion.sh && source bert_jax_completion.sh
"""

from bert_jax import evaluate, lazy_table
from bert_jax.cli import command_line
from bert_jax.flag_parser import words_of

# Command → its module, the dataclass of its flags, and its name when installed.
COMMANDS = {
    'main': ('bert_jax.main', 'bert_jax.cli.command_line:Request', 'bert-jax-train'),
    'prepare': ('bert_jax.prepare', 'bert_jax.prepare:Request', 'bert-jax-prepare'),
    'predict': ('bert_jax.predict', 'bert_jax.cli.line_tasks:Request', 'bert-jax-predict'),
    'evaluate': ('bert_jax.evaluate', 'bert_jax.evaluate:Request', 'bert-jax-evaluate'),
    'export': ('bert_jax.export', 'bert_jax.export:Request', 'bert-jax-export'),
    'analyze': ('bert_jax.analyze.__main__', 'bert_jax.analyze.plan:Plan', 'bert-jax-analyze'),
    'page': ('bert_jax.page.__main__', 'bert_jax.page.__main__:Request', 'bert-jax-page'),
}
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
    esac
    COMPREPLY=($(compgen -W "$words" -- "${{COMP_WORDS[COMP_CWORD]}}"))
}}
complete -o bashdefault -o default -o nospace -F _bert_jax python python3 {commands}"""


def script() -> str:
    """Return the script; it has all words, so that completing runs no Python."""
    cases = []
    for module, (_, request, command) in COMMANDS.items():
        words = ' '.join(_words(module, lazy_table.load(request)))
        cases.append(f'        python*" -m bert_jax.{module}" | {command}*) words="{words}" ;;')
    return SCRIPT.format(
        cases='\n'.join(cases),
        modules=' '.join(f'bert_jax.{module}' for module in COMMANDS),
        commands=' '.join(command for _, _, command in COMMANDS.values()),
    )


def _words(module: str, request: type) -> list[str]:
    """Return the words that may follow a command."""
    flags = words_of(request)
    if module == 'main':
        return flags + [f'--{name}=' for name in sorted(command_line.names())]
    if module == 'evaluate':
        return flags + [f'--{name}=' for name in sorted(evaluate.section_keys())]
    if module == 'analyze':
        analyses = lazy_table.load(_ANALYSES)
        return [*analyses, *sorted({*flags}.union(*map(words_of, analyses.values())))]
    return flags


if __name__ == '__main__':
    print(script())
