# For bash and zsh, after the user's own files: they may have put other programs first.
case $PATH in
  "$KERNELYARD_PATH":*) ;;
  *) export PATH="$KERNELYARD_PATH:$PATH" ;;
esac
unset KERNELYARD_PATH
PS1="($VIRTUAL_ENV_PROMPT) ${PS1-}"
