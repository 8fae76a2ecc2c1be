#!/usr/bin/env bash
# End-to-end files inside an image, on the GPUs of CUDA_VISIBLE_DEVICES: what is tested is what the image has.
#
#   tools/gpu_lock_exec --count 1 -- docker/e2e.sh slime-core:cuda test_short.py
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
image=$1
shift
exec docker run --rm --gpus "\"device=$CUDA_VISIBLE_DEVICES\"" --ipc host --volume "$PWD/tests:/home/slime/checkout/tests:ro" \
  --workdir /home/slime/checkout --entrypoint bash "$image" -euc '
    pip install --user --quiet pytest pytest-timeout
    cd /home/slime/checkout
    python -m pytest -m "" -p no:cacheprovider "${@/#/tests/e2e/}"
  ' bash "$@"
