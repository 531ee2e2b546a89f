if [[ -n $KERNELYARD_ZDOTDIR ]]; then ZDOTDIR=$KERNELYARD_ZDOTDIR; else unset ZDOTDIR; fi
unset KERNELYARD_ZDOTDIR
# Where the system's files keep the history beside the user's.
[[ ${HISTFILE-} == $_kernelyard_zdotdir/* ]] && HISTFILE=${ZDOTDIR:-$HOME}/.zsh_history
[[ -f ${ZDOTDIR:-$HOME}/.zshrc ]] && . "${ZDOTDIR:-$HOME}/.zshrc"
. "$_kernelyard_zdotdir/../prompt.sh"
unset _kernelyard_zdotdir
