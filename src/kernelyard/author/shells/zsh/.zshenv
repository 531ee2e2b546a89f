# zsh reads its files in ZDOTDIR, which leads here: the user's are read from where they are, and ZDOTDIR is as it was.
_kernelyard_zdotdir=$ZDOTDIR
if [[ -n $KERNELYARD_ZDOTDIR ]]; then ZDOTDIR=$KERNELYARD_ZDOTDIR; else unset ZDOTDIR; fi
[[ -f ${ZDOTDIR:-$HOME}/.zshenv ]] && . "${ZDOTDIR:-$HOME}/.zshenv"
# Its own .zshenv may have moved it.
KERNELYARD_ZDOTDIR=${ZDOTDIR-}
ZDOTDIR=$_kernelyard_zdotdir
