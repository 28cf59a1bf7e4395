#compdef snapcache
# zsh completion for snapcache. For this shell, after compinit:
#   source <(snapcache completion zsh)
# For all shells: put it as _snapcache into a directory of $fpath

_snapcache() {
    local -a candidates
    candidates=("${(@f)$("${(Q)words[1]/#\~/$HOME}" "${(@Q)words[2,CURRENT]}" --generate-bash-completion 2>/dev/null)}")
    if [[ -n "${candidates[1]}" ]]; then
        compadd -- "${candidates[@]}"
    else
        _files
    fi
}

# Sourced, it registers itself; from $fpath it is called for the first completion.
if [[ "${funcstack[1]}" == _snapcache ]]; then
    _snapcache "$@"
else
    compdef _snapcache snapcache
fi
