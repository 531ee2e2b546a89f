# Read by `bash --rcfile` in place of ~/.bashrc.
if [ -f ~/.bashrc ]; then . ~/.bashrc; fi
. "${BASH_SOURCE[0]%/*}/prompt.sh"
