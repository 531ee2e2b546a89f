# Read after the user's own files: they may have put other programs first, and have the last word on the prompt.
set -gx PATH (string split : -- $KERNELYARD_PATH) $PATH
set -e KERNELYARD_PATH
functions -c fish_prompt _kernelyard_own_prompt
function fish_prompt
    set -l last $status
    printf '(%s) ' $VIRTUAL_ENV_PROMPT
    # The user's prompt may show the last status.
    sh -c "exit $last"
    _kernelyard_own_prompt
end
