# bash completion for snapcache. For this shell:
#   source <(snapcache completion bash)
# For all shells: put it into /etc/bash_completion.d/snapcache

_snapcache() {
    local IFS=$'\n'
    local program=${COMP_WORDS[0]/#\~/$HOME}
    local candidates
    candidates=$("$program" "${COMP_WORDS[@]:1:COMP_CWORD}" --generate-bash-completion 2>/dev/null)
    COMPREPLY=($(compgen -W "$candidates" -- "${COMP_WORDS[COMP_CWORD]}"))
}

# Where there is nothing to offer, as behind --config, bash offers files.
complete -o default -F _snapcache snapcache
