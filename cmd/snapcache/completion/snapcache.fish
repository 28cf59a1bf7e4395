# fish completion for snapcache. For this shell:
#   snapcache completion fish | source
# For all shells: put it into ~/.config/fish/completions/snapcache.fish

function __snapcache_complete
    set -l words (commandline -opc)
    set -l current (commandline -ct)
    $words[1] $words[2..-1] "$current" --generate-bash-completion 2>/dev/null
end

complete -c snapcache -f -a '(__snapcache_complete)'
for option in config socket db kubeconfig
    complete -c snapcache -l $option -r -F
end
