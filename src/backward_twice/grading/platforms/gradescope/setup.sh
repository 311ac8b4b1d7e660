#!/bin/bash
# Gradescope runs this as root, once, to build the image in which submissions are graded.
set -euo pipefail

source=/autograder/source
# Not below /autograder or /root: the user that runs the student's code must be able to read it.
environment=/opt/backward-twice

# An image of your own may bring an environment with what requirements.txt names; it is kept.
if ! "$environment/bin/python" -c "import torch, IPython, nbformat, numpy, yaml" 2> /dev/null; then
    export DEBIAN_FRONTEND=noninteractive PIP_BREAK_SYSTEM_PACKAGES=1
    apt-get update
    apt-get install -y --no-install-recommends ca-certificates libseccomp2 python3 python3-pip
    # A second wall inside the container, where its own rules allow one; mostly they do not.
    apt-get install -y --no-install-recommends bubblewrap || true

    # The images' own Python may be too old, and uv gets a newer one; and the build of PyTorch for
    # the processor alone, which is 3 GB smaller than the default.
    python3 -m pip install --quiet --no-cache-dir uv
    export UV_PYTHON_INSTALL_DIR=/opt/backward-twice-python UV_NO_CACHE=1 UV_LINK_MODE=copy
    python3 -m uv venv --clear --python '>=3.11,<3.14' "$environment"
    python3 -m uv pip install --python "$environment/bin/python" --torch-backend cpu \
        --constraint "$source/constraints.txt" --requirement "$source/requirements.txt"
fi

# The tool goes where cells can import it. The course's package stays where only root can read it:
# it holds what the questions expect.
packages=$("$environment/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
rm -rf "$packages/gradtrace"
cp -R "$source/tool/gradtrace" "$packages/"
echo "$source/course" > "$packages/backward_twice.pth"
chmod -R a+rX,go-w "$environment"
chmod 755 "$source/run_autograder"
chmod -R go-rwx "$source"

# The solution must have full marks here, or the build ends with the reason.
"$environment/bin/python" -P -m backward_twice.grading.platforms.gradescope.autograder --try "$source"
